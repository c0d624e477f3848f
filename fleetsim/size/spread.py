"""How far the answer may be off: the errors of its inputs, and what they do to the count, the step and the cost.

Each uncertain input (`job/uncertainty.py`) is moved alone to the two ends of its interval; the draws stay the same.
What the metrics of the recommended fleet then do is the input's part, and so is the count that would then be
recommended (searched anew, from one run a count). Inputs are independent: their parts of a metric, and of the count's
logarithm, add as squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import NormalDist

from fleetsim.config.scenario import Scenario
from fleetsim.dataclass import dataclass
from fleetsim.errors import StuckError
from fleetsim.job.input_moves import (
    Figures,
    InputPart,
    IntervalEnd,
    Moved,
    in_doubt,
    moved,
    moved_metrics,
    reach,
    shortened,
)
from fleetsim.job.trials import Measure, Tell, Trial, Trials, with_instances
from fleetsim.job.uncertainty import CONFIDENCE, Uncertain
from fleetsim.size.best import best_of
from fleetsim.size.targets import Target

# Counts within this factor of the best are near enough at the ends of an interval.
_FINE = 4 / 3
# Where no count holds the targets at an end, so much of the way there is tried, on the logarithm.
_WAY = (1.0, 0.5, 0.25)
# A range whose ends are this far apart is wide.
_WIDE = 2.0


@dataclass(frozen=True, slots=True)
class Count:
    """What would be recommended with one input off by a factor. held: that this holds all targets; else no count does,
    and instances is the last count that did on the way there."""

    factor: float
    instances: int
    held: bool


@dataclass(frozen=True, slots=True)
class CountEnd(IntervalEnd):
    """instances: what would be recommended at this end, and held: that this holds all targets; else no count does, and
    instances is the last count that did on the way there."""

    instances: int
    held: bool


@dataclass(frozen=True, slots=True)
class CountSpread:
    """instances: the counts that are right in `confidence` of all cases, from, to. held: whether every input alone
    leaves a count that holds the targets. metrics: name -> from, to of the recommended fleet, with the simulation's own
    noise. parts: the inputs, the dearest first. An input costs the instances that are too many; or those that are
    missing; or, where no count makes up for it, the steps that take longer."""

    confidence: float
    instances: tuple[int, int]
    held: bool
    metrics: Mapping[str, tuple[float, float]]
    parts: tuple[InputPart[CountEnd], ...]

    @property
    def wide(self) -> bool:
        """Whether the ends are so far apart that measuring comes before buying."""
        low, high = self.instances
        return high >= _WIDE * low and high - low > 1


class CountDoubt:
    """The inputs of one job that may be off, and which counts each of them asks for.

    instances: the likeliest count, from which those at the ends are seen. ends: each input with what it asks for at its
    low and its high end. measure should remember runs.
    """

    def __init__(
        self,
        scenario: Scenario,
        instances: int,
        given: Collection[str],
        targets: Sequence[Target],
        measure: Measure,
        tell: Tell | None = None,
    ) -> None:
        self.instances, self._scenario, self._targets, self._measure = instances, scenario, targets, measure
        self._job = shortened(scenario)
        self._inputs = in_doubt(with_instances(scenario, instances), given)
        if tell is not None and self._inputs:
            tell("moving each input that is not certain to both ends of its interval")
        # What one short run recommends, from where the ends are seen. None where no count holds the targets: where more
        # instances stop paying moves by more between two runs than by what is in doubt.
        count, held = self._count(measure) if self._inputs else (instances, False)
        self._likeliest = count if held else None
        self.ends = tuple((u, self._end(u, low), self._end(u, high)) for u, (low, high) in self._inputs)

    def why(self, uncertain: Uncertain, low: float, high: float) -> str:
        """Where the interval of an input comes from."""
        return uncertain.why(self._job, (low, high))

    def at(self, instances: int) -> Moved:
        """What each input does to the metrics of one fleet."""
        return moved_metrics(with_instances(self._scenario, instances), self._inputs, self._measure)

    def _end(self, uncertain: Uncertain, factor: float) -> Count:
        if factor == 1.0 or self._likeliest is None:
            return Count(factor, self.instances, held=self._likeliest is not None)
        unit = self._job.engine.dp
        for share in _WAY:
            count, held = self._count(moved(self._measure, uncertain, factor**share))
            if held:
                instances = max(1, round(self.instances * count / self._likeliest / unit)) * unit
                return Count(factor, instances, held=share == 1.0)
        return Count(factor, self.instances, held=False)

    def _count(self, measure: Measure) -> tuple[int, bool]:
        """The count that is recommended by single runs, and whether it holds all targets."""
        try:
            best = best_of(Trials(self._job, measure), self.instances, self._targets, 1, fine=_FINE)
        except StuckError:
            return self.instances, False
        return best.instances, best.knee is None

    def counts(self, confidence: float = CONFIDENCE) -> tuple[int, int]:
        """The counts that are right in so many cases, from, to, in whole engines.

        An end at which no count holds the targets says nothing of how many are right.
        """
        wider = NormalDist().inv_cdf((1 + confidence) / 2) / NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
        down, up = reach([math.log(end.instances / self.instances) for end in ends] for _, *ends in self.ends)
        unit = self._job.engine.dp
        low, high = (self.instances * math.exp(wider * x) / unit for x in (-down, up))
        # ends that were found are whole; what is between them is rounded to the nearest, and up
        return max(unit, round(low) * unit), math.ceil(high - 1e-9) * unit

    @property
    def held(self) -> bool:
        """Whether every input alone leaves a count that holds the targets."""
        return all(end.held for _, *ends in self.ends for end in ends)


def spread_of(doubt: CountDoubt, chosen: Trial, usd_per_h: Callable[[int], float]) -> CountSpread | None:
    """The range of an answer; None where no input is in doubt.

    chosen: the recommended fleet. usd_per_h: the price of both pools with so many instances.
    """
    if not doubt.ends:
        return None
    n = doubt.instances
    likeliest, there = doubt.at(n), doubt.at(chosen.instances)
    per_step = likeliest.base["cost_per_step"]

    def stake(end: Count, metrics: Figures) -> float:
        if end.held:
            return abs(usd_per_h(end.instances) - usd_per_h(n))
        return max(0.0, metrics["cost_per_step"] / per_step - 1.0) * usd_per_h(n) if per_step else 0.0

    parts = []
    for (u, *counts), metrics, told in zip(doubt.ends, likeliest.ends, there.told(chosen.estimates), strict=True):
        stakes = [stake(end, at) for end, at in zip(counts, metrics, strict=True)]
        low, high = (CountEnd(c.factor, at, c.instances, c.held) for c, at in zip(counts, told, strict=True))
        parts.append(
            InputPart(u.what, u.path, doubt.why(u, low.factor, high.factor), u.measure, low, high, sum(stakes) / 2)
        )
    # where nothing is at stake in instances, what moves the step most comes first
    parts.sort(key=lambda p: (-p.usd_per_h, -(p.step_s[1] - p.step_s[0])))
    return CountSpread(CONFIDENCE, doubt.counts(), doubt.held, there.around(chosen.estimates), tuple(parts))
