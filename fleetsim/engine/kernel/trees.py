"""Two orders: a tournament over instances, binary heaps over samples and times."""

from __future__ import annotations

from fleetsim.engine.kernel.addresses import float_at, int64_at, put_float, put_int64
from fleetsim.engine.kernel.jit import compiled


@compiled
def tree_set(tree: int, half: int, i: int, key: float) -> None:
    """Sets leaf i of a tournament tree of `half` leaves (root at 1) and replays its matches."""
    at = half + i
    put_float(tree, at, key)
    at >>= 1
    while at >= 1:
        left = float_at(tree, 2 * at)
        right = float_at(tree, 2 * at + 1)
        best = left if left <= right else right
        if float_at(tree, at) == best:
            return
        put_float(tree, at, best)
        at >>= 1


@compiled
def tree_first(tree: int, half: int) -> int:
    """The leaf with the smallest key; the lowest index wins a tie."""
    at = 1
    while at < half:
        at = 2 * at if float_at(tree, 2 * at) == float_at(tree, at) else 2 * at + 1
    return at - half


@compiled
def heap_push(heap: int, n: int, key: int) -> None:
    """Adds a key to a binary heap of n keys."""
    at = n
    while at > 0:
        up = (at - 1) >> 1
        above = int64_at(heap, up)
        if above <= key:
            break
        put_int64(heap, at, above)
        at = up
    put_int64(heap, at, key)


@compiled
def heap_remove(heap: int, n: int, at: int) -> int:
    """Removes the key at position `at` from a heap of n keys and returns it."""
    out = int64_at(heap, at)
    last = n - 1
    key = int64_at(heap, last)
    while at > 0:
        up = (at - 1) >> 1
        above = int64_at(heap, up)
        if above <= key:
            break
        put_int64(heap, at, above)
        at = up
    while True:
        down = 2 * at + 1
        if down >= last:
            break
        if down + 1 < last and int64_at(heap, down + 1) < int64_at(heap, down):
            down += 1
        below = int64_at(heap, down)
        if below >= key:
            break
        put_int64(heap, at, below)
        at = down
    put_int64(heap, at, key)
    return out


@compiled
def earlier(times: int, keys: int, a: int, when: float, key: int) -> bool:
    """Whether timer a rings before (when, key)."""
    t = float_at(times, a)
    return t < when or (t == when and int64_at(keys, a) <= key)


@compiled
def timer_push(times: int, keys: int, n: int, when: float, key: int) -> None:
    """Adds (when, key) to a heap of n timers ordered by time, then key."""
    at = n
    while at > 0:
        up = (at - 1) >> 1
        if earlier(times, keys, up, when, key):
            break
        put_float(times, at, float_at(times, up))
        put_int64(keys, at, int64_at(keys, up))
        at = up
    put_float(times, at, when)
    put_int64(keys, at, key)


@compiled
def timer_pop(times: int, keys: int, n: int) -> int:
    """Removes the first of n timers and returns its key."""
    out = int64_at(keys, 0)
    last = n - 1
    when = float_at(times, last)
    key = int64_at(keys, last)
    at = 0
    while True:
        down = 2 * at + 1
        if down >= last:
            break
        right = down + 1
        if right < last and earlier(times, keys, right, float_at(times, down), int64_at(keys, down)):
            down = right
        if not earlier(times, keys, down, when, key):
            break
        put_float(times, at, float_at(times, down))
        put_int64(keys, at, int64_at(keys, down))
        at = down
    put_float(times, at, when)
    put_int64(keys, at, key)
    return out


@compiled
def timers_meet(times: int, keys: int, n: int, horizon: float) -> None:
    """All of n timers that ring up to the horizon ring when the first of them does, so in the order of their keys.

    Their times differ by rounding only, and no order may hang on how a sum was added up.
    """
    if (n < 2 or float_at(times, 1) > horizon) and (n < 3 or float_at(times, 2) > horizon):
        return
    first = float_at(times, 0)
    left = n
    while left > 0 and float_at(times, 0) <= horizon:
        key = timer_pop(times, keys, left)
        left -= 1
        put_int64(keys, left, key)
    for at in range(left, n):
        timer_push(times, keys, at, first, int64_at(keys, at))
