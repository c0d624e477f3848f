"""One engine instance: what vLLM's scheduler does at an iteration boundary, and how many iterations follow alike.

`plan` schedules at a boundary and sets the next event; `cut` ends a jump early. What the planned iterations bring is
`landing.py`'s.
"""

from __future__ import annotations

import math

from fleetsim.engine.kernel.blocks import blocks, context, hold_found, look_up, publish, take
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.members import ends_of, evict, unwait
from fleetsim.engine.kernel.memory import (
    fleet_at,
    float_at,
    instance_at,
    int32_at,
    int64_at,
    put_float,
    put_int32,
    sample_at,
)
from fleetsim.engine.kernel.tables import ACC_BUSY, ACC_IDLE, ACCOUNTS, IDLE, JUMP, RUNNING, STEP
from fleetsim.engine.kernel.trees import tree_set

# Two clocks that agree to this share are one: sums of the same seconds in another order differ by rounding only.
EPSILON = 1e-12


@compiled
def account(fleet: int, i: int, to: int, t: float) -> None:
    """Closes the instance's current GPU-second account at t and opens another."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    at = i * ACCOUNTS + instance.account
    put_float(w.accounts, at, float_at(w.accounts, at) + (t - instance.since))
    instance.account = to
    instance.since = t


@compiled
def set_next(fleet: int, i: int, t: float) -> None:
    """The instance's next event."""
    w = fleet_at(fleet, 0)
    tree_set(w.clock, w.half, i, t)


@compiled
def mark(fleet: int, i: int, t: float) -> None:
    """The instance is at a boundary at time t and wants a plan."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.dirty == 0:
        instance.dirty = 1
        instance.t0 = t
        put_int32(w.dirty, w.n_dirty, i)
        w.n_dirty += 1


@compiled
def blocks_now(fleet: int, i: int) -> int:
    """Blocks that all decodes together take in the next iteration."""
    w = fleet_at(fleet, 0)
    return int32_at(w.residues, i * w.block_size + (-instance_at(w.instances, i).count) % w.block_size)


@compiled
def blocks_needed(fleet: int, i: int, k: int) -> int:
    """Blocks that all decodes together take in the next k iterations."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    size = w.block_size
    n = (k // size) * instance.decodes
    for j in range(k % size):
        n += int32_at(w.residues, i * size + (-instance.count - j) % size)
    return n


@compiled
def iterations_that_fit(fleet: int, i: int, most: int) -> int:
    """The largest k <= most whose new blocks are free."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    size = w.block_size
    if instance.decodes == 0 or blocks_needed(fleet, i, most) <= instance.free:
        return most
    cycles = instance.free // instance.decodes
    k = cycles * size
    left = instance.free - cycles * instance.decodes
    while True:
        crossing = int32_at(w.residues, i * size + (-instance.count - k) % size)
        if crossing > left:
            return k
        left -= crossing
        k += 1


@compiled
def partial_step(fleet: int, i: int, budget: int) -> tuple[int, int]:
    """The next chunk of the unfinished prompt and the blocks it takes."""
    w = fleet_at(fleet, 0)
    p = instance_at(w.instances, i).partial
    if p < 0:
        return 0, 0
    size = w.block_size
    done = sample_at(w.samples, p).computed
    chunk = min(context(fleet, p) - done, budget)
    return chunk, blocks(done + chunk, size) - blocks(done, size)


@compiled
def admit(fleet: int, i: int, t: float, budget: int) -> tuple[int, int, float, bool]:
    """Moves the head of waiting to running if it fits.

    Returns its chunk, the tokens already cached, its attention pairs, and whether it was admitted.
    """
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    s = instance.wait_head
    S = sample_at(w.samples, s)
    size = w.block_size
    length = context(fleet, s)
    found, unread = look_up(fleet, i, s)
    if blocks(length, size) - found + unread > instance.free:
        return 0, 0, 0.0, False
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
    if S.start_s < 0.0:
        S.start_s = t
    hold_found(fleet, i, s)
    hit = found * size
    chunk = min(length - hit, budget)
    take(fleet, i, unread + blocks(hit + chunk, size) - found)
    if S.redo == 1:
        w.recomputed_tokens += length - hit
        S.redo = 0
    instance.hit_tokens += hit
    S.computed = hit
    if hit + chunk == length:
        publish(fleet, i, s)
    return chunk, hit, chunk * hit + 0.5 * chunk * (chunk + 1), True


@compiled
def plan(fleet: int, i: int) -> None:
    """Schedules one iteration at the boundary t0, as vLLM's scheduler does, and jumps if the next ones are alike."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    t = instance.t0
    preempted = False
    chunk, need_partial = partial_step(fleet, i, w.max_tokens - instance.decodes)
    need = blocks_now(fleet, i)
    while need + need_partial > instance.free:
        victim = instance.tail
        sample_at(w.samples, victim).preemptions += 1
        instance.preemptions += 1
        evict(fleet, i, victim)
        preempted = True
        chunk, need_partial = 0, 0
        need = blocks_now(fleet, i)
    prefill = chunk
    pairs = 0.0
    instance.fresh = -1
    if chunk > 0:
        p = instance.partial
        take(fleet, i, need_partial)
        pairs = chunk * sample_at(w.samples, p).computed + 0.5 * chunk * (chunk + 1)
        if sample_at(w.samples, p).computed + chunk == context(fleet, p):
            publish(fleet, i, p)
            instance.fresh = p
            instance.partial = -1
    instance.chunk = chunk
    budget = w.max_tokens - instance.decodes - chunk
    take(fleet, i, need)  # the decodes are served first
    while not preempted and budget > 0 and instance.waiting > 0 and instance.running < w.max_num_seqs:
        got, hit, work, admitted = admit(fleet, i, t, budget)
        if not admitted:
            break
        s = instance.tail
        prefill += got
        pairs += work
        budget -= got
        if hit + got < context(fleet, s):
            instance.partial = s
            instance.chunk = got
            break
        if instance.fresh < 0:
            instance.fresh = s
    b = instance.decodes
    if prefill > 0:
        dt = float_at(w.table_s, b + prefill) + w.per_seq_s * b + w.per_prefill_token_s * prefill
        dt += w.per_kv_token_s * instance.kv_sum + w.per_attn_pair_s * pairs
        instance.kind = STEP
        instance.k = 1
        instance.first_s = dt * instance.slow
        instance.slope_s = 0.0
        instance.prefilled += prefill
        if instance.account != ACC_BUSY:
            account(fleet, i, ACC_BUSY, t)
        set_next(fleet, i, t + instance.first_s)
        return
    if b == 0:
        instance.kind = IDLE
        if instance.account != ACC_IDLE:
            account(fleet, i, ACC_IDLE, t)
        set_next(fleet, i, math.inf)
        return
    take(fleet, i, -need)  # a jump takes the blocks of all its iterations when it lands
    most = (int64_at(ends_of(fleet, i), 0) >> 32) - instance.count
    instance.kind = JUMP
    instance.k = 1 if preempted else iterations_that_fit(fleet, i, most)
    instance.first_s = (float_at(w.table_s, b) + w.per_seq_s * b + w.per_kv_token_s * instance.kv_sum) * instance.slow
    instance.slope_s = w.per_kv_token_s * b * instance.slow
    if instance.account != ACC_BUSY:
        account(fleet, i, ACC_BUSY, t)
    set_next(fleet, i, t + elapsed(fleet, i, instance.k))


@compiled
def elapsed(fleet: int, i: int, k: int) -> float:
    """Seconds of the first k iterations of the current jump: k * first + slope * k (k - 1) / 2."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    return k * instance.first_s + instance.slope_s * 0.5 * k * (k - 1.0)


@compiled
def iterations_until(fleet: int, i: int, t: float) -> int:
    """Iterations of the current jump after which its boundary lies at or after t."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    span = t - instance.t0 - EPSILON * (1.0 + abs(t))
    if span <= 0.0:
        return 0
    a = 0.5 * instance.slope_s
    b = instance.first_s - a
    if a > 0.0:
        k = int(2.0 * span / (b + math.sqrt(b * b + 4.0 * a * span)))
    elif b > 0.0:
        k = int(span / b)
    else:
        return instance.k
    k = max(0, min(k - 1, instance.k))
    while k < instance.k and elapsed(fleet, i, k) < span:
        k += 1
    return k


@compiled
def cut(fleet: int, i: int, t: float) -> None:
    """Ends the current jump at its first boundary at or after t. A step of one iteration ends by itself."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.kind == JUMP:
        k = iterations_until(fleet, i, t)
        if k < instance.k:
            instance.k = k
            set_next(fleet, i, instance.t0 + elapsed(fleet, i, k))
