"""The smallest count that holds, or the nearest: gallop, then bisect, asking as rarely as possible."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable


def smallest(holds: Callable[[int], bool], start: int, most: int, *, stride: int = 1) -> int | None:
    """The smallest n in 1..most with `holds(n)`, which must be false below some count and true from there on.

    Starts at `start` and goes up or down by `stride`, which doubles, until the answer lies between two counts.
    Downwards the first two steps are of one stride, because a small fleet takes longer to simulate than a large one.
    Where `most` fails the answer is None.
    `holds` should remember its answers, because a count may be asked for twice.
    """
    start = min(max(1, start), most)
    if holds(start):
        low, high, step = start, start, stride
        while low > 1 and holds(low):
            high, low, step, stride = low, max(1, low - step), stride, stride * 2
        if low == 1 and holds(1):
            return 1
    else:
        low, high = start, start
        while True:
            if high == most:
                return None
            low, high, stride = high, min(most, high + stride), stride * 2
            if holds(high):
                break
    # low fails, high holds.
    return low + 1 + bisect_left(range(low + 1, high), True, key=holds)


def nearest(holds: Callable[[int], bool], inside: int, wanted: int) -> int:
    """The count nearest to `wanted` that holds, between it and `inside`, which does; by bisection."""
    while abs(wanted - inside) > 1:
        middle = (inside + wanted) // 2
        if holds(middle):
            inside = middle
        else:
            wanted = middle
    return inside
