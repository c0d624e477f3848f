"""Who is where on an instance: the running list in admission order, the waiting list, the decodes of the running ones.

The decodes of an instance advance together, so one counter of tokens per instance stands for all of them: a request
that joins at count c with r tokens to go ends at c + r.
"""

from __future__ import annotations

import math

from fleetsim.engine.kernel.addresses import (
    fleet_at,
    instance_at,
    int32_at,
    int64_at,
    line_at,
    pool_at,
    put_int32,
    put_int64,
    sample_at,
)
from fleetsim.engine.kernel.blocks import blocks, context, give_back
from fleetsim.engine.kernel.instance import residues_of
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.promises import take_back
from fleetsim.engine.kernel.tables import RUNNING, WAITING
from fleetsim.engine.kernel.trees import heap_push, heap_remove, tree_set
from fleetsim.engine.kernel.windows import (
    crossings_so_far,
    enter_window,
    forget_crossing,
    growth_units,
    leave_window,
    rebase_crossings,
)


@compiled
def ends_of(fleet: int, i: int) -> int:
    """Address of the instance's heap of turn ends."""
    w = fleet_at(fleet, 0)
    return line_at(w.ends, i, w.most_seqs * 8)


@compiled
def add_residue(fleet: int, i: int, computed: int, n: int) -> None:
    """Counts a decode that needs n new blocks whenever its cache is a multiple of the block size."""
    w = fleet_at(fleet, 0)
    instance_at(w.instances, i).growing += n
    at = (computed - instance_at(w.instances, i).count) % w.block_size
    residues = residues_of(fleet, i)
    put_int32(residues, at, int32_at(residues, at) + n)


@compiled
def close_gap(fleet: int, s: int) -> None:
    """The neighbours of a request that leaves its list become neighbours."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if S.prev >= 0:
        sample_at(w.samples, S.prev).next = S.next
    if S.next >= 0:
        sample_at(w.samples, S.next).prev = S.prev


@compiled
def unlink(fleet: int, i: int, s: int) -> None:
    """Takes a request out of the running list."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    instance = instance_at(w.instances, i)
    take_back(fleet, i, s)
    close_gap(fleet, s)
    if S.prev < 0:
        instance.head = S.next
    if S.next < 0:
        instance.tail = S.prev
    instance.running -= 1


@compiled
def wait_front(fleet: int, i: int, s: int) -> None:
    """Puts a request at the front of waiting."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    instance = instance_at(w.instances, i)
    S.status = WAITING
    S.prev = -1
    S.next = instance.wait_head
    if instance.wait_head >= 0:
        sample_at(w.samples, instance.wait_head).prev = s
    else:
        instance.wait_tail = s
    instance.wait_head = s
    instance.waiting += 1


@compiled
def wait_back(fleet: int, i: int, s: int) -> None:
    """Puts a request at the back of waiting."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    instance = instance_at(w.instances, i)
    S.status = WAITING
    S.next = -1
    S.prev = instance.wait_tail
    if instance.wait_tail >= 0:
        sample_at(w.samples, instance.wait_tail).next = s
    else:
        instance.wait_head = s
    instance.wait_tail = s
    instance.waiting += 1


@compiled
def unwait(fleet: int, i: int, s: int) -> None:
    """Takes a request out of waiting."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    instance = instance_at(w.instances, i)
    close_gap(fleet, s)
    if S.prev < 0:
        instance.wait_head = S.next
    if S.next < 0:
        instance.wait_tail = S.prev
    instance.waiting -= 1


@compiled
def begin_to_run(fleet: int, i: int, s: int) -> None:
    """Moves a waiting request to the end of running."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    instance = instance_at(w.instances, i)
    unwait(fleet, i, s)
    S.prev = instance.tail
    S.next = -1
    if instance.tail >= 0:
        sample_at(w.samples, instance.tail).next = s
    else:
        instance.head = s
    instance.tail = s
    instance.running += 1
    S.status = RUNNING


@compiled
def join_decodes(fleet: int, i: int, s: int) -> None:
    """A request with its whole context in the cache decodes from the next iteration on."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    instance = instance_at(w.instances, i)
    S.end_count = instance.count + (S.goal - S.made)
    heap_push(ends_of(fleet, i), instance.heap_n, (S.end_count << 32) | s)
    instance.heap_n += 1
    add_residue(fleet, i, S.computed, growth_units(fleet, S.computed >= w.window))
    instance.kv_sum += S.computed
    instance.decodes += 1
    if w.window > 0:
        enter_window(fleet, i, s)


@compiled
def close_decode(fleet: int, i: int, s: int) -> None:
    """The same for a request already out of the heap. What drafts made beyond its end is thrown away."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    instance = instance_at(w.instances, i)
    S.made = S.goal - (S.end_count - instance.count)
    S.computed = context(fleet, s) - 1
    each = growth_units(fleet, w.window > 0 and crossings_so_far(fleet, i, s) > 0)
    add_residue(fleet, i, S.computed, -each)
    instance.kv_sum -= S.computed
    instance.decodes -= 1
    if w.window > 0:
        leave_window(fleet, i, s)
    over = S.made - S.goal
    if over > 0:
        instance.free += each * (blocks(S.computed, w.block_size) - blocks(S.computed - over, w.block_size))
        instance.generated -= over
        S.made -= over
        S.computed -= over


@compiled
def leave_decodes(fleet: int, i: int, s: int) -> None:
    """Takes a decoding request out of the heap, unless that was emptied, and out of the sums; `made` and `computed`
    become exact again."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    instance = instance_at(w.instances, i)
    if instance.heap_n > 0:
        key = (S.end_count << 32) | s
        at = 0
        while int64_at(ends_of(fleet, i), at) != key:
            at += 1
        heap_remove(ends_of(fleet, i), instance.heap_n, at)
        instance.heap_n -= 1
    if w.window > 0:
        made = S.goal - (S.end_count - instance.count)
        forget_crossing(fleet, i, s, S.prompt + S.extra + made - 1)
    close_decode(fleet, i, s)


@compiled
def rebase(fleet: int, i: int) -> None:
    """Turns the instance's counter of tokens back by whole cycles of the residues: an end shares a word with its
    sample, so it must stay below 2^31."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    back = instance.count - instance.count % w.block_size
    for at in range(instance.heap_n):
        key = int64_at(ends_of(fleet, i), at)
        sample_at(w.samples, key & 0xFFFFFFFF).end_count -= back
        put_int64(ends_of(fleet, i), at, key - (back << 32))
    rebase_crossings(fleet, i, back)
    instance.count -= back
    instance.ratio_count -= back
    instance.promised_at -= back
    instance.promised_till -= back


@compiled
def evict(fleet: int, i: int, s: int) -> None:
    """A running request loses its cache and goes back to the front of waiting."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    instance = instance_at(w.instances, i)
    if instance.partial == s:
        instance.partial = -1
    else:
        leave_decodes(fleet, i, s)
    unlink(fleet, i, s)
    give_back(fleet, i, s)
    S.redo = 1
    wait_front(fleet, i, s)


@compiled
def show_load(fleet: int, i: int) -> None:
    """Tells the routers how many samples the instance has for its weight; a full or closed one drops out of sight."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    load = instance.load / pool_at(w.pools, instance.pool).weight
    tree_set(w.loads, w.half, i, load if instance.accepting == 1 and load < w.cap_instance else math.inf)


@compiled
def set_load(fleet: int, i: int, change: int) -> None:
    """Samples that the instance has been sent."""
    w = fleet_at(fleet, 0)
    instance_at(w.instances, i).load += change
    show_load(fleet, i)
