"""The inputs of a job that may be off, and what is told of each: its ends, and what the metrics then do. How they move
together is drawn in `search/doubt.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

from msgspec import Struct

from fleetsim.config.scenario import Scenario
from fleetsim.job.uncertainty import AT_TIMES, UNCERTAIN, Interval, Uncertain

METRICS = ("trainer_idle_fraction", "step_s", "cost_per_step")
# A step whose ends are this far apart has a wide range.
_WIDE = 1.5
Figures = Mapping[str, float]
InDoubt = tuple[Uncertain, Interval]
E = TypeVar("E", bound="IntervalEnd")


def in_doubt(scenario: Scenario, given: Collection[str]) -> tuple[InDoubt, ...]:
    """The inputs that may be off, each with its interval. given: dotted paths that the user wrote."""
    return tuple((u, ends) for u in (*UNCERTAIN, *AT_TIMES) if (ends := u.interval(scenario, given)) is not None)


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
