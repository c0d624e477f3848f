"""How far a plan may be off: each uncertain input alone at both ends of its interval, under the same draws."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.estimates import Estimate
from fleetsim.job.trials import Measure, flat
from fleetsim.job.uncertain import CONFIDENCE, UNCERTAIN
from fleetsim.sim.threads import side_by_side

RANGED = ("step_s", "cost_per_step")
Range = tuple[float, float]

__all__ = ["CONFIDENCE", "RANGED", "Range", "ranges_of"]


def ranges_of(
    scenario: Scenario, given: Collection[str], estimates: Mapping[str, Estimate], measure: Measure
) -> dict[str, Range]:
    """Metric -> from, to: what holds it in CONFIDENCE of all cases, the simulation's own noise included.

    Inputs are independent: what they do to a metric adds as squares. given: dotted paths that somebody wrote.
    """
    ends = [(u, factor) for u in UNCERTAIN for factor in u.interval(scenario, given) or () if factor != 1.0]
    moved = [with_changes(scenario, u.times(scenario, factor)) for u, factor in ends]
    base, *runs = side_by_side(lambda one: _run(measure, one), [scenario, *moved])
    return {name: _range(name, estimates[name], base, [(u.what, run) for (u, _), run in zip(ends, runs, strict=True)])
            for name in RANGED}  # fmt: skip


def _run(measure: Measure, scenario: Scenario) -> dict[str, Any] | None:
    try:
        return flat(measure(scenario, 0))
    except StuckError:  # says nothing of how long a step takes
        return None


def _range(
    name: str, mean: Estimate, base: dict[str, Any] | None, runs: Sequence[tuple[str, dict[str, Any] | None]]
) -> Range:
    moves: dict[str, list[float]] = {}
    for what, run in runs:
        if run is not None and base is not None:
            moves.setdefault(what, []).append(float(run[name]) - float(base[name]))
    down = math.hypot(mean.mean - mean.ci_low, *(max(0.0, *(-x for x in xs), 0.0) for xs in moves.values()))
    up = math.hypot(mean.ci_high - mean.mean, *(max(0.0, *xs, 0.0) for xs in moves.values()))
    return max(0.0, mean.mean - down), mean.mean + up
