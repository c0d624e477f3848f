"""What the decodes and prompts of an instance see in layers that look back `window` tokens only.

A decode sees one cached token more with each token that it grows by, until it crosses: in a sliding window it goes on
seeing `window` tokens, in chunks it begins anew at every multiple of `window`. A jump ends where the first decode
crosses, so that within a jump all grow alike and its seconds stay a sum of two terms.
"""

from __future__ import annotations

from fleetsim.engine.kernel.addresses import (
    fleet_at,
    instance_at,
    int32_at,
    int64_at,
    line_at,
    put_int32,
    put_int64,
    sample_at,
)
from fleetsim.engine.kernel.instance import residues_of
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.tables import FIRST
from fleetsim.engine.kernel.trees import heap_push, heap_remove


@compiled
def crossings_of(fleet: int, i: int) -> int:
    """Address of the instance's heap of crossings: the count of tokens at which a decode next crosses, and the decode.

    A decode whose turn ends before is not in it.
    """
    w = fleet_at(fleet, 0)
    return line_at(w.crossings, i, w.most_seqs * 8)


@compiled
def crossed(fleet: int, tokens: int) -> int:
    """How often a context of so many tokens has crossed."""
    w = fleet_at(fleet, 0)
    return tokens // w.window if w.chunked == 1 else min(tokens // w.window, 1)


@compiled
def seen(fleet: int, tokens: int, crossings: int) -> int:
    """Tokens that a decode sees of so many, after so many crossings."""
    w = fleet_at(fleet, 0)
    if w.chunked == 1:
        return tokens - crossings * w.window
    return tokens if crossings == 0 else w.window


@compiled
def growth_units(fleet: int, beyond: bool) -> int:
    """Blocks that a decode takes for block_size further tokens, within or beyond the window."""
    w = fleet_at(fleet, 0)
    if w.window_blocks == 0:
        return 1
    return w.whole_blocks if beyond else w.whole_blocks + w.window_blocks


@compiled
def let_slide(fleet: int, i: int, at: int) -> None:
    """A decode that crossed a window at this count gives back for each new block an old one from now on."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    tokens = w.window + instance.count - at
    over = (tokens + w.block_size - 1) // w.block_size - w.near_blocks  # blocks that drafts took at once
    instance.free += over * w.window_blocks
    instance.growing -= w.window_blocks
    residues = residues_of(fleet, i)
    place = (w.window - at) % w.block_size
    put_int32(residues, place, int32_at(residues, place) - w.window_blocks)


@compiled
def pairs_until(fleet: int, n: int) -> float:
    """Query-key pairs of the first n tokens of a prompt."""
    w = fleet_at(fleet, 0)
    if w.chunked == 1:
        rest = n % w.window
        return (n // w.window) * (0.5 * w.window * (w.window + 1)) + 0.5 * rest * (rest + 1)
    near = min(n, w.window)
    return 0.5 * near * (near + 1) + float(n - near) * w.window


@compiled
def see_prompt(fleet: int, i: int, done: int, chunk: int) -> None:
    """The next iteration computes `chunk` tokens of a prompt behind `done` cached ones."""
    w = fleet_at(fleet, 0)
    if w.window > 0:
        instance_at(w.instances, i).near_pairs += pairs_until(fleet, done + chunk) - pairs_until(fleet, done)


@compiled
def prompts_in_window(fleet: int, i: int) -> float:
    """Pairs of the prompts in the next iteration, which are counted from here on anew."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    pairs = instance.near_pairs
    instance.near_pairs = 0.0
    return pairs


@compiled
def crosses_at(fleet: int, i: int, tokens: int, crossings: int) -> int:
    """Count of tokens at which a decode of so many tokens crosses next; -1 = never."""
    w = fleet_at(fleet, 0)
    if w.chunked == 0 and crossings > 0:
        return -1
    return instance_at(w.instances, i).count + (crossings + 1) * w.window - tokens


@compiled
def watch_crossing(fleet: int, i: int, s: int, at: int) -> None:
    """Puts a decode into the heap, if it lives until then."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if 0 <= at < sample_at(w.samples, s).end_count:
        heap_push(crossings_of(fleet, i), instance.crossings_n, (at << 32) | s)
        instance.crossings_n += 1


@compiled
def enter_window(fleet: int, i: int, s: int) -> None:
    """A request begins to decode."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    tokens = sample_at(w.samples, s).computed
    crossings = crossed(fleet, tokens)
    instance.near_sum += seen(fleet, tokens, crossings)
    at = crosses_at(fleet, i, tokens, crossings)
    if at >= 0:
        instance.near += 1
        watch_crossing(fleet, i, s, at)


@compiled
def crossings_so_far(fleet: int, i: int, s: int) -> int:
    """How often a decode has crossed: what drafts bring at its end and beyond makes it cross no more."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    return crossed(fleet, S.computed - max(0, instance_at(w.instances, i).count - S.end_count + 1))


@compiled
def leave_window(fleet: int, i: int, s: int) -> None:
    """A decode is one no longer; `computed` is exact, and it is out of the heap."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    tokens = sample_at(w.samples, s).computed
    crossings = crossings_so_far(fleet, i, s)
    instance.near_sum -= seen(fleet, tokens, crossings)
    if crosses_at(fleet, i, tokens, crossings) >= 0:
        instance.near -= 1


@compiled
def forget_crossing(fleet: int, i: int, s: int, tokens: int) -> None:
    """Takes a decode of so many tokens, which has not ended, out of the heap."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    at = crosses_at(fleet, i, tokens, crossed(fleet, tokens))
    if not 0 <= at < sample_at(w.samples, s).end_count:
        return
    key = (at << 32) | s
    place = 0
    while int64_at(crossings_of(fleet, i), place) != key:
        place += 1
    heap_remove(crossings_of(fleet, i), instance.crossings_n, place)
    instance.crossings_n -= 1


@compiled
def cross(fleet: int, i: int) -> None:
    """Decodes that have come to their crossing, after `count` and the sums have grown."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    while instance.crossings_n > 0 and (int64_at(crossings_of(fleet, i), 0) >> 32) <= instance.count:
        key = heap_remove(crossings_of(fleet, i), instance.crossings_n, FIRST)
        instance.crossings_n -= 1
        at = key >> 32
        if w.chunked == 1:
            instance.near_sum -= w.window
            watch_crossing(fleet, i, key & 0xFFFFFFFF, at + w.window)
        else:
            instance.near_sum -= instance.count - at
            instance.near -= 1
            if w.window_blocks > 0:
                let_slide(fleet, i, at)


@compiled
def rebase_crossings(fleet: int, i: int, back: int) -> None:
    """The instance's counter of tokens goes back by so many."""
    w = fleet_at(fleet, 0)
    for place in range(instance_at(w.instances, i).crossings_n):
        put_int64(crossings_of(fleet, i), place, int64_at(crossings_of(fleet, i), place) - (back << 32))
