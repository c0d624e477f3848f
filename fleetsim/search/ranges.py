"""The range around an answer: what joint draws of all that is uncertain say of its step and its cost.

What each input does alone is looked at over the whole of its law, and told at the two ends of its interval. The surface
says by how much a metric moves, the mean of all runs from where.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import NormalDist
from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct, field

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.estimates import Estimate
from fleetsim.job.input_moves import METRICS, InputPart, IntervalEnd, MetricRanges, Swing
from fleetsim.job.looks import looked
from fleetsim.job.trials import Measure
from fleetsim.job.uncertainty import AT_TIMES, CONFIDENCE, Z80, FactorLaw, Uncertain, step_off
from fleetsim.search.doubt import DRAWS, IDLE, Cases, Counts, JointDoubt, Laws, factors_of, laws_of, middle, surface_of
from fleetsim.search.surface import Curve, Factors, Floats, Surface, curve_through
from fleetsim.workload.streams import stream

# Cases of one input alone: the middles of as many equal shares of its law.
_ALONE = 99
E = TypeVar("E", bound=IntervalEnd)


class KnownMetrics(Struct, frozen=True):
    """The metrics of one answer in joint cases. surface: what is known of its counts, of which it has `instances`.
    estimates: of its long runs. beside: as of `factors_of`."""

    scenario: Scenario
    surface: Surface
    instances: int
    laws: Laws
    estimates: Mapping[str, Estimate]
    beside: Mapping[str, Curve] = field(default_factory=dict)

    def factors(self, z: Floats) -> Factors:
        """Joint cases of standard normal deviates, inputs x cases."""
        return factors_of(self.laws, z, self.beside)

    def moved(self, name: str, f: Factors) -> Floats:
        """A metric in some cases."""
        n, mean, likeliest = self.instances, self.estimates[name].mean, self.factors(np.zeros((len(self.laws), 1)))
        if name == IDLE:
            by = self.surface.idle(n, f) - self.surface.idle(n, likeliest)
            return np.clip(mean + by, 0.0, 1.0)
        return mean * self.surface.step_s(n, f) / self.surface.step_s(n, likeliest)

    def around(self, draws: Factors) -> dict[str, tuple[float, float]]:
        """name -> from, to of each metric in CONFIDENCE of the draws, with what a step is off by beside the inputs, and
        the simulation's own noise."""
        z = stream(0, 0, "rerun").normal(size=DRAWS)
        less, more = step_off(self.scenario)
        again = 1.0 + np.where(z > 0, more, less) * z / Z80
        found = {}
        for name in METRICS:
            values = self.moved(name, draws)
            low, high = with_seeds(self.estimates[name], values if name == IDLE else values * again)
            found[name] = max(0.0, low), high
        return found


def with_seeds(e: Estimate, values: Floats) -> tuple[float, float]:
    """From, to of an estimate whose values in all draws are known, with the luck of the seeds."""
    low, high = middle(values, CONFIDENCE)
    down = math.hypot(max(0.0, e.mean - low), e.mean - e.ci_low)
    return e.mean - down, e.mean + math.hypot(max(0.0, high - e.mean), e.ci_high - e.mean)


def ratio_around(ratio: Estimate, moves: Floats) -> tuple[float, float]:
    """The same of a positive ratio, whose logarithm moves so in all draws."""
    low, mean, high = (math.log(x) if x > 0.0 else -math.inf for x in (ratio.ci_low, ratio.mean, ratio.ci_high))
    down, up = with_seeds(Estimate(mean, low, high), mean + moves)
    return math.exp(down), math.exp(up)


def known_of(
    scenario: Scenario, given: Collection[str], estimates: Mapping[str, Estimate], measure: Measure
) -> KnownMetrics | None:
    """What is known of one job, as it is; None where no input is in doubt, or where the job gets stuck with a trainer
    that takes no time. Inputs of no axis are moved alone, in two short runs each. measure should remember runs."""
    axes = laws_of(scenario, given)
    others = [(u, law) for u in AT_TIMES if (law := u.law(scenario, given)) is not None]
    if not axes and not others:
        return None
    try:
        surface = surface_of(Counts(scenario), scenario.fleet.instances, axes, measure, whole=False)
        beside = {u.what: _alone(scenario, u, law, measure) for u, law in others}
    except StuckError:
        return None
    return KnownMetrics(scenario, surface, scenario.fleet.instances, [*axes, *others], estimates, beside)


def _alone(scenario: Scenario, uncertain: Uncertain, law: FactorLaw, measure: Measure) -> Curve:
    """What an input does to a step."""
    job = looked(scenario)
    here = float(measure(job, 0)["step_s"])
    ends = [x for x in (law.low, law.high) if x != 1.0]
    steps = {x: float(measure(with_changes(job, uncertain.times(job, x)), 0)["step_s"]) for x in ends}
    return curve_through({x: math.log(step / here) for x, step in steps.items()})


def shared_draws(known: Sequence[KnownMetrics]) -> list[Factors]:
    """The draws of several answers: an input that is in doubt of two of them is off on both alike."""
    names = list(dict.fromkeys(u.what for one in known for u, _ in one.laws))
    z = dict(zip(names, stream(0, 0, "doubt").normal(size=(len(names), DRAWS)), strict=True))
    return [one.factors(np.array([z[u.what] for u, _ in one.laws])) for one in known]


def expected_loss(known: Sequence[KnownMetrics], metric: str) -> float:
    """What staying with the first of some answers costs on average, as a share of a metric that is to be small."""
    each = np.array([one.moved(metric, f) for one, f in zip(known, shared_draws(known), strict=True)])
    return float(np.mean(each[0] / each.min(axis=0)) - 1.0)


def ranges_of(known: KnownMetrics | None) -> MetricRanges | None:
    """How far a simulated job may be off; None where nothing is known to be."""
    if known is None:
        return None
    at, parts = {name: known.estimates[name].mean for name in METRICS}, []
    for i, (u, law) in enumerate(known.laws):
        z = np.zeros((len(known.laws), 2))
        z[i] = -Z80, Z80
        f = known.factors(z)
        low, high = ({name: float(known.moved(name, f)[k]) for name in METRICS} for k in (0, 1))
        settled, ends = u.settled_by(known.scenario), (law.low, law.high)
        parts.append(Swing(u.what, u.path, law.source, settled, ends, low, high, at))
    parts.sort(key=lambda part: part.step_s[0] - part.step_s[1])
    return MetricRanges(CONFIDENCE, known.around(shared_draws([known])[0]), tuple(parts))


class Spread(Struct, Generic[E], frozen=True, kw_only=True):
    """metrics: name -> from, to of the answer in `confidence` of all cases, with the simulation's own noise. instances:
    the counts that are best in so many, from, to. held: whether the answer's kind is, or some count holds the targets.
    parts: the inputs, the dearest first. expected_loss: what staying with the answer costs on average, as a share.
    widest: the input that alone moves the count most, None where the range is one count."""

    confidence: float = CONFIDENCE
    instances: tuple[int, int]
    held: bool
    metrics: Mapping[str, tuple[float, float]]
    parts: tuple[InputPart[E], ...]
    expected_loss: float
    widest: str | None


# What stands at one end of an input: its factor, the metrics of the answer there, what is best, which case that is.
Ending = Callable[[float, Mapping[str, float], Cases, int], E]


def parts_of(
    doubt: JointDoubt, known: KnownMetrics, usd_per_h: float, ending: Ending[E]
) -> tuple[tuple[InputPart[E], ...], str]:
    """What each input does alone to an answer, and which of them moves the count most."""
    found = [_part(doubt, i, known, usd_per_h, ending) for i in range(len(doubt.laws))]
    # where nothing is at stake, what moves the step most comes first
    parts = sorted((p for _, p in found), key=lambda p: (-p.usd_per_h, p.step_s[0] - p.step_s[1]))
    return tuple(parts), max(found, key=lambda one: (one[0], one[1].usd_per_h))[1].what


def _part(
    doubt: JointDoubt, i: int, known: KnownMetrics, usd_per_h: float, ending: Ending[E]
) -> tuple[float, InputPart[E]]:
    """How far an input alone moves the logarithm of the count, and what it does to the answer."""
    uncertain, law = doubt.laws[i]
    ends = doubt.alone(i, [-Z80, Z80])
    cases, moved = doubt.judged(ends), {name: known.moved(name, ends) for name in METRICS}
    low, high = (
        ending(factor, {name: float(values[k]) for name, values in moved.items()}, cases, k)
        for k, factor in enumerate((law.low, law.high))
    )
    alone = doubt.judged(doubt.alone(i, [NormalDist().inv_cdf((k + 0.5) / _ALONE) for k in range(_ALONE)]))
    stake, settled = doubt.loss(known.instances, alone) * usd_per_h, uncertain.settled_by(known.scenario)
    part = InputPart(uncertain.what, uncertain.path, law.source, settled, low, high, stake, law.name)
    return float(np.log(alone.best).std()), part
