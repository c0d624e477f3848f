"""How far the answer may be off: the counts that are best in ten thousand joint draws of what is uncertain.

Each input in doubt has a law (`job/uncertainty.py`). A surface over some thirty short runs (`size/surface.py`) gives
the step of every count near the answer in every draw, and so the count that is best there: the fewest instances that
hold all targets; where there are none, or no count holds them, the least step time x cost. The range of the answer
holds the best counts of eight in ten draws. Staying with the answer costs so much more step time x cost than the best
count would, on the mean of the draws; where targets hold, the instances that are too many, or missing, as a share of
the price.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import get_args

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.job.trainer_scaling import can_be, next_count
from fleetsim.job.trials import Measure, Tell, flat, unit_of, with_instances
from fleetsim.job.uncertainty import CONFIDENCE, UNCERTAIN, Z80, Axis, FactorLaw, Uncertain
from fleetsim.records import replace
from fleetsim.search.objective import Target, price_per_s, usd_per_h
from fleetsim.search.rate_matching import MOST_INSTANCES
from fleetsim.size.surface import Factors, Floats, Surface
from fleetsim.workload.streams import stream

Flags, Whole = npt.NDArray[np.bool_], npt.NDArray[np.int64]

DRAWS = 10_000
# Counts that are simulated: each of the first, then the answer times powers of a ratio. Counts between them are
# interpolated, no more than so many.
_EACH, _RATIO, _POWERS, _BETWEEN = 6, 1.36, range(-2, 3), 60
# Where the best count is the last one in more than this share of draws, counts so much farther are looked at, so often.
_AT_END, _FARTHER, _ROUNDS = 0.02, (_RATIO, _RATIO**2), 5
# A step that more instances make shorter by less no longer falls.
_FLAT = 0.98
# So many standard deviations of all inputs of one axis together are simulated to both sides.
_FAR = 1.8


class Cases(Struct, frozen=True):
    """What is best in some joint cases. counts: those that were held against each other; best: one of them for each
    case, and held: whether it holds the targets; losses: what each count costs more than the best, counts x cases;
    holds: whether each count holds the targets there, likewise."""

    counts: Whole
    best: Whole
    held: Flags
    losses: Floats
    holds: Flags

    def loss(self, instances: int) -> float:
        """What staying with a count costs on average."""
        return float(np.interp(instances, self.counts, self.losses.mean(axis=1)))


class CountDoubt:
    """The joint cases of one job. cases: the draws; instances: the answer of the likeliest case."""

    def __init__(
        self,
        scenario: Scenario,
        instances: int,
        laws: Sequence[tuple[Uncertain, FactorLaw]],
        targets: Sequence[Target],
        measure: Measure,
    ) -> None:
        self.instances, self.scenario, self.laws = instances, scenario, laws
        self._unit = unit_of(scenario)
        self.surface = Surface(scenario, instances, _ladder(instances, self._unit), _far(laws), measure)
        run = flat(measure(with_instances(scenario, instances), 0))
        self.targets = tuple(targets)
        if targets and all(run[t.metric] <= t.limit for t in targets):
            self.targets = self._anchored(self.targets)
        self.draws = self.factors(stream(0, 0, "doubt").normal(size=(len(laws), DRAWS)))
        self.cases = self._widened()

    def counts(self, confidence: float = CONFIDENCE) -> tuple[int, int]:
        """The counts that are best in so many draws, from, to; the answer is one of them."""
        low, high = middle(self.cases.best, confidence)
        return min(self.instances, int(low)), max(self.instances, int(high))

    @property
    def held(self) -> bool:
        """Whether some count holds the targets up to the end of the range."""
        return not self.targets or bool(self.cases.held.mean() >= (1 + CONFIDENCE) / 2)

    def holding(self, share: float) -> int | None:
        """The fewest instances that hold all targets in such a share of draws; None where no count does."""
        found = self.cases.counts[self.cases.holds.mean(axis=1) >= share]
        return int(found[0]) if len(found) else None

    @property
    def least_expected_loss(self) -> int:
        """The count that costs least on average."""
        return int(self.cases.counts[np.argmin(self.cases.losses.mean(axis=1))])

    def enough(self, confidence: float) -> int | None:
        """The count that is enough in such a share of draws: that of the least expected loss where nobody asked for a
        target."""
        return self.holding(confidence) if self.targets else self.least_expected_loss

    def factors(self, z: Floats) -> Factors:
        """Joint cases of standard normal deviates, inputs x cases; at zero an input is as it is likeliest."""
        by_axis: dict[Axis, Floats] = {axis: np.ones(z.shape[1]) for axis in get_args(Axis)}
        for i, (uncertain, law) in enumerate(self.laws):
            by_axis[uncertain.axis] = by_axis[uncertain.axis] * law.factors(z[i])
        return Factors(**by_axis)

    def _widened(self) -> Cases:
        """The draws, judged over counts that reach as far as their best ones."""
        for _ in range(_ROUNDS):
            cases = self.judged(self.draws)
            low, high = int(cases.counts[0]), int(cases.counts[-1])
            at_low, at_high = (np.mean(cases.best == end) for end in (low, high))
            if self.targets and not cases.held.all():
                top, below = (self.surface.step_s(n, self.draws) for n in (high, round(high / _FARTHER[0])))
                at_high += np.mean(~cases.held & (top < _FLAT * below))
            more = [high * x for x in _FARTHER] if at_high > _AT_END else []
            more += [low / x for x in _FARTHER] if at_low > _AT_END and next_count(self.scenario, low, -1) else []
            new = {min(MOST_INSTANCES, max(1, round(n / self._unit)) * self._unit) for n in more}
            known = len(self.surface.counts)
            self.surface.extend(new)
            if len(self.surface.counts) == known:
                return cases
        return self.judged(self.draws)

    def judged(self, f: Factors) -> Cases:
        """What is best in each case."""
        counts = _between(self.surface.counts, self._unit, self.scenario.trainer.gpus // self.scenario.engine.gpus)
        counts = [n for n in counts if n == self.instances or can_be(self.scenario, n)]
        steps = np.array([self.surface.step_s(n, f) for n in counts])
        price = np.array([price_per_s(self.scenario, n) for n in counts])[:, None]
        cost = steps ** (1.0 + self.scenario.targets.worth) * price
        holds = np.full(steps.shape, bool(self.targets))
        for target in self.targets:
            values = [self._value(target, n, f) for n in counts]
            holds &= np.array(values) <= target.limit
        held = np.any(holds, axis=0)
        best = np.where(held, holds.argmax(axis=0), cost.argmin(axis=0))
        cases = np.arange(steps.shape[1])
        losses = np.where(held, np.abs(price / price[best, 0] - 1.0), cost / cost[best, cases] - 1.0)
        return Cases(np.array(counts), np.array(counts)[best], held, losses, holds)

    def _value(self, target: Target, instances: int, f: Factors) -> Floats:
        """The metric that a target limits."""
        if target.metric == "trainer_idle_fraction":
            return self.surface.idle(instances, f)
        if target.metric == "staleness_steps.p99":
            return self.surface.staleness(instances, f)
        per_step = usd_per_h(self.scenario, instances) / 3600.0 if target.metric == "cost_per_step" else 1.0
        return self.surface.step_s(instances, f) * per_step

    def _anchored(self, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        """The targets with limits that the surface holds with the answer, and with no fewer instances, where all is as
        it is likeliest. The answer was decided by all runs, the surface is one short run of each count."""
        likeliest = self.factors(np.zeros((len(self.laws), 1)))
        here = {t: float(self._value(t, self.instances, likeliest)[0]) for t in targets}
        there = [replace(t, limit=max(t.limit, here[t])) for t in targets]
        if below := next_count(self.scenario, self.instances, -1):
            fewer = [float(self._value(t, below, likeliest)[0]) for t in targets]
            if all(value <= t.limit for value, t in zip(fewer, there, strict=True)):
                i = max(range(len(targets)), key=lambda i: fewer[i] - here[targets[i]])
                there[i] = replace(there[i], limit=max(here[targets[i]], (here[targets[i]] + fewer[i]) / 2 - 1e-9))
        return tuple(there)


def middle(values: Floats | Whole, confidence: float) -> tuple[float, float]:
    """The ends of the middle of some values that holds such a share of them."""
    # numpy's own quantiles load its masked arrays, a quarter of the time that all of this takes
    ordered, outside = np.sort(values), math.floor(len(values) * (1 - confidence) / 2)
    return float(ordered[outside]), float(ordered[-1 - outside])


def count_doubt(
    scenario: Scenario,
    instances: int,
    given: Collection[str],
    targets: Sequence[Target],
    measure: Measure,
    tell: Tell | None = None,
) -> CountDoubt | None:
    """The doubt about a count; None where no input is in doubt, or where nothing is known beside the answer.

    scenario: the job as it is planned. given: dotted paths that the user wrote. instances: the answer of the likeliest
    case. measure should remember runs.
    """
    there = with_instances(scenario, instances)
    laws = [(u, law) for u in UNCERTAIN if (law := u.law(there, given)) is not None]
    if not laws:
        return None
    if tell is not None:
        tell("simulating fleets near the answer with inputs that are off")
    try:
        return CountDoubt(scenario, instances, laws, targets, measure)
    except StuckError:
        return None


def _ladder(instances: int, unit: int) -> set[int]:
    """Counts that are simulated, in whole engines."""
    engines = instances / unit
    powers = {max(1, round(engines * _RATIO**power)) for power in _POWERS}
    return {k * unit for k in powers | {k for k in range(1, _EACH + 1) if min(powers) <= k <= max(powers)}}


def _between(counts: Sequence[int], unit: int, as_trainer: int) -> list[int]:
    """The counts that were simulated and those between them; of many, some that are as far apart in ratio, and that
    with as many GPUs as the trainer: sharing them, more cost more only from there."""
    engines = np.array(counts) // unit
    low, high = int(engines[0]), int(engines[-1])
    if high - low < _BETWEEN:
        return [k * unit for k in range(low, high + 1)]
    kink = {as_trainer // unit * unit} if low * unit <= as_trainer <= high * unit else set()
    return sorted({*counts, *kink, *(round(k) * unit for k in np.geomspace(low, high, _BETWEEN))})


def _far(laws: Sequence[tuple[Uncertain, FactorLaw]]) -> dict[Axis, tuple[float, float]]:
    """How far each axis is simulated to both sides."""
    found: dict[Axis, tuple[float, float]] = {}
    for axis in {u.axis for u, _ in laws}:
        own = [law for u, law in laws if u.axis == axis]
        down, up = (math.hypot(*map(math.log, ends)) for ends in ([x.low for x in own], [x.high for x in own]))
        found[axis] = math.exp(-_FAR / Z80 * down), math.exp(_FAR / Z80 * up)
    return found
