"""What doubt about inputs does to the difference of two scenarios.

An input that is in doubt on both sides (the engine's speed, the trainer's seconds) is off on both alike, so most of it
cancels out; one that only one side assumes moves that side alone. Each input is moved alone to both ends of its
interval, in a short run of either side under the same draws; what the inputs do adds as squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleetsim.compare.compare import Comparison, MetricChange
from fleetsim.compare.runs import ToRun
from fleetsim.estimates import Estimate
from fleetsim.job.input_moves import METRICS, Figures, Moved, in_doubt, moved_metrics, ratio_around, reach
from fleetsim.job.trials import Measure
from fleetsim.quantities import quantity


def with_doubt(found: Comparison, a: ToRun, b: ToRun, measure: Measure) -> Comparison:
    """The comparison with the range of each change that eight in ten cases of what is in doubt leave; as it was where
    nothing is in doubt. measure: should remember runs."""
    sides = [(job.scenario, in_doubt(job.scenario, job.given)) for job in (a, b)]
    names = list(dict.fromkeys(u.what for _, inputs in sides for u, _ in inputs))
    if not names:
        return found
    moved = [moved_metrics(scenario, inputs, measure) for scenario, inputs in sides]
    ends = [
        dict(zip((u.what for u, _ in inputs), m.ends, strict=True)) for (_, inputs), m in zip(sides, moved, strict=True)
    ]
    return replace(found, changes=tuple(_ranged(change, names, moved, ends) for change in found.changes))


def _ranged(
    change: MetricChange,
    names: Sequence[str],
    moved: Sequence[Moved],
    ends: Sequence[Mapping[str, tuple[Figures, Figures]]],
) -> MetricChange:
    """A change with its range: of the ratio, and of a share the difference."""
    as_share = quantity(change.metric).unit == "share"
    size = change.difference if as_share else change.ratio
    if change.metric not in METRICS or size is None or (not as_share and size.mean <= 0.0):
        return change
    base_a, base_b = (m.base for m in moved)
    at = _apart(base_a[change.metric], base_b[change.metric], as_share)

    def off(name: str, end: int) -> float:
        a, b = (side.get(name, (m.base, m.base))[end][change.metric] for side, m in zip(ends, moved, strict=True))
        return _apart(a, b, as_share) - at

    moves = [[off(name, end) for end in (0, 1)] for name in names]
    return replace(change, likely=_around(size, moves) if as_share else ratio_around(size, moves))


def _apart(a: float, b: float, as_share: bool) -> float:
    """How far B is from A: the difference of shares, else the logarithm of their ratio; NaN where there is none."""
    if as_share:
        return b - a
    return math.log(b / a) if a > 0.0 and b > 0.0 else math.nan


def _around(size: Estimate, moves: Sequence[Sequence[float]]) -> tuple[float, float]:
    """A difference and its moves, with the luck of the seeds."""
    down, up = reach(moves)
    return size.mean - math.hypot(down, size.mean - size.ci_low), size.mean + math.hypot(up, size.ci_high - size.mean)
