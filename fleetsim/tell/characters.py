"""Pictures drawn with characters: bars, and values over time in one line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_LEVELS = "▁▂▃▄▅▆▇█"


def bar(shares: Sequence[tuple[float, str]], width: int) -> str:
    """A bar of `width` cells, split by shares of it, each drawn with its own character; the cells always sum up."""
    total = sum(share for share, _ in shares)
    if total <= 0:
        return " " * width
    drawn, reached = "", 0.0
    for share, character in shares:
        reached += share / total * width
        drawn += character * (round(reached) - len(drawn))
    return drawn


def sparkline(values: Sequence[float], width: int) -> str:
    """Values over time as one line of blocks from 0 to their maximum; more than `width` are averaged in runs."""
    if len(values) > width:
        edges = [i * len(values) // width for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    top = max(values, default=0.0)
    if top <= 0:
        return _LEVELS[0] * len(values)
    return "".join(_LEVELS[min(len(_LEVELS) - 1, int(v / top * len(_LEVELS)))] for v in values)
