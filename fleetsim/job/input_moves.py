"""The inputs of a job that may be off, each moved alone to both ends of its interval: what the metrics then do.

All runs have the same draws, so what moves is the input's doing. Inputs are independent: what they do to a metric adds
as squares.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.estimates import Estimate
from fleetsim.job.trials import Measure, looked
from fleetsim.job.uncertainty import AT_TIMES, CONFIDENCE, RERUN, UNCERTAIN, Axis, Interval, Uncertain, step_off

METRICS = ("trainer_idle_fraction", "step_s", "cost_per_step")
# Those that the seconds of a step are a part of.
_PER_STEP = ("step_s", "cost_per_step")
# A step whose ends are this far apart has a wide range.
_WIDE = 1.5
Figures = Mapping[str, float]
InDoubt = tuple[Uncertain, Interval]
E = TypeVar("E", bound="IntervalEnd")


def in_doubt(scenario: Scenario, given: Collection[str]) -> tuple[InDoubt, ...]:
    """The inputs that may be off, each with its interval. given: dotted paths that the user wrote."""
    return tuple((u, ends) for u in (*UNCERTAIN, *AT_TIMES) if (ends := u.interval(scenario, given)) is not None)


def by_doubt(scenario: Scenario, given: Collection[str], shares: Mapping[Axis, float]) -> dict[Axis, float]:
    """Where one figure alone says by which factor x a job is off: the power of x that belongs to each axis.

    shares: of the figure, what each axis takes. The likeliest of all ways to make up x, with lognormal inputs: an axis
    moves in proportion to its share and to the variance of its inputs' logarithms. An axis not in doubt stays.
    """
    moves = dict.fromkeys(shares, 0.0)
    for uncertain, (low, high) in in_doubt(scenario, given):
        if uncertain.axis in moves:
            moves[uncertain.axis] += shares[uncertain.axis] * math.log(high / low) ** 2
    whole = sum(shares[axis] * move for axis, move in moves.items())
    return {axis: move / whole if whole else 0.0 for axis, move in moves.items()}


def moved(measure: Measure, uncertain: Uncertain, factor: float) -> Measure:
    """Runs with one input off by a factor."""
    return measure if factor == 1.0 else partial(_moved, measure, uncertain, factor)


def _moved(measure: Measure, uncertain: Uncertain, factor: float, scenario: Scenario, replication: int) -> Any:
    return measure(with_changes(scenario, uncertain.times(scenario, factor)), replication)


class Moved(Struct, frozen=True):
    """base: metrics of the job as it is. ends: of each input in doubt, those at its low and its high end. beside: what
    a step is off by below and above beside the inputs, as shares."""

    base: Figures
    ends: tuple[tuple[Figures, Figures], ...]
    beside: tuple[float, float] = (RERUN, RERUN)

    def off(self, metric: str) -> tuple[float, float]:
        """How far a metric may lie below and above what was simulated, by all inputs together."""
        moves = [[end[metric] - self.base[metric] for end in ends] for ends in self.ends]
        return reach(moves)

    def told(self, estimates: Mapping[str, Estimate]) -> tuple[tuple[Figures, Figures], ...]:
        """The ends as they are told: one short run says by how much a metric moves, the mean of all runs from where."""
        return tuple((self._from(estimates, low), self._from(estimates, high)) for low, high in self.ends)

    def _from(self, estimates: Mapping[str, Estimate], end: Figures) -> Figures:
        moves = {name: (estimates[name].mean, end[name] - self.base[name]) for name in METRICS}
        return {name: mean if math.isnan(by) else max(0.0, mean + by) for name, (mean, by) in moves.items()}

    def around(self, estimates: Mapping[str, Estimate]) -> dict[str, tuple[float, float]]:
        """name -> from, to of each metric, with the simulation's own noise, and what seconds of a step, and their cost,
        are off by beside the inputs."""
        found = {}
        for name in METRICS:
            e, (down, up) = estimates[name], self.off(name)
            less, more = (x * e.mean if name in _PER_STEP else 0.0 for x in self.beside)
            low = max(0.0, e.mean - math.hypot(down, e.mean - e.ci_low, less))
            found[name] = (low, e.mean + math.hypot(up, e.ci_high - e.mean, more))
        return found


def reach(moves: Iterable[Sequence[float]]) -> tuple[float, float]:
    """How far down and how far up all inputs together move a value, both >= 0. moves: of each input, by its ends."""
    each = [(0.0, *ends) for ends in moves]  # a zero first: an end that is not a number moves nothing
    return math.hypot(*(-min(ends) for ends in each)), math.hypot(*(max(ends) for ends in each))


def ratio_around(ratio: Estimate, moves: Iterable[Sequence[float]]) -> tuple[float, float]:
    """From, to of a positive ratio, with the luck of the seeds. moves: of each input, by its ends, of the ratio's
    logarithm."""
    down, up = reach(moves)
    low, mean, high = (math.log(x) if x > 0.0 else -math.inf for x in (ratio.ci_low, ratio.mean, ratio.ci_high))
    return math.exp(mean - math.hypot(down, mean - low)), math.exp(mean + math.hypot(up, high - mean))


def moved_metrics(scenario: Scenario, inputs: Sequence[InDoubt], measure: Measure) -> Moved:
    """The metrics of a job with each input at its ends, by one short run each. measure should remember runs.

    A run that gets stuck says nothing of how long a step takes: it counts as one that the input does not move.
    """
    job = looked(scenario)

    def figures(of: Measure, instead: Figures) -> Figures:
        try:
            run = of(job, 0)
        except StuckError:
            return instead
        return {name: float(run[name]) for name in METRICS}

    base = figures(measure, dict.fromkeys(METRICS, math.nan))
    ends = (
        (figures(moved(measure, u, low), base), figures(moved(measure, u, high), base)) for u, (low, high) in inputs
    )
    return Moved(base, tuple(ends), step_off(scenario))


class IntervalEnd(Struct, frozen=True):
    """One input at one end of its interval. metrics: of the advised fleet."""

    factor: float
    metrics: Figures


class InputPart(Struct, Generic[E], frozen=True):
    """What one input does alone to an advice, at the low and the high end of its interval. path: its value in a
    scenario, if any. usd_per_h: what not knowing it costs. law: how it is distributed, why: where that comes from."""

    what: str
    path: str
    why: str
    measure: str
    low: E
    high: E
    usd_per_h: float
    law: str

    @property
    def factors(self) -> tuple[float, float]:
        """What the input is multiplied by, low, high."""
        return self.low.factor, self.high.factor

    @property
    def step_s(self) -> tuple[float, float]:
        """A step of the advised fleet, from, to."""
        low, high = sorted(end.metrics["step_s"] for end in (self.low, self.high))
        return low, high


class Swing(Struct, frozen=True):
    """What one input does alone at the ends of its interval. path: its value in a scenario, if any. factors, and the
    metrics with them: low, high; at: those of the job as it is."""

    what: str
    path: str
    why: str
    measure: str
    factors: tuple[float, float]
    low: Figures
    high: Figures
    at: Figures

    @property
    def step_s(self) -> tuple[float, float]:
        """A step, from, to; that of the job as it is lies between."""
        steps = [end["step_s"] for end in (self.low, self.at, self.high)]
        return min(steps), max(steps)


class MetricRanges(Struct, frozen=True):
    """metrics: name -> from, to in `confidence` of all cases, with the simulation's own noise. parts: the inputs, what
    moves a step most first."""

    confidence: float
    metrics: Mapping[str, tuple[float, float]]
    parts: tuple[Swing, ...]

    @property
    def wide(self) -> bool:
        """Whether a step may take so much longer that measuring comes first."""
        low, high = self.metrics["step_s"]
        return high > _WIDE * low


def ranges_of(
    scenario: Scenario, given: Collection[str], estimates: Mapping[str, Estimate], measure: Measure
) -> MetricRanges | None:
    """How far a simulated job may be off; None where no input is in doubt. estimates: of the job, by metric."""
    inputs = in_doubt(scenario, given)
    if not inputs:
        return None
    found = moved_metrics(scenario, inputs, measure)
    at = {name: estimates[name].mean for name in METRICS}

    parts = [
        Swing(u.what, u.path, u.why(scenario, ends), u.settled_by(scenario), ends, low, high, at)
        for (u, ends), (low, high) in zip(inputs, found.told(estimates), strict=True)
    ]
    parts.sort(key=lambda part: part.step_s[0] - part.step_s[1])
    return MetricRanges(CONFIDENCE, found.around(estimates), tuple(parts))
