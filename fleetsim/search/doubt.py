"""How far an answer may be off: what is best in ten thousand joint draws of what is uncertain.

Each input in doubt has a law (`job/uncertainty.py`). A surface over some thirty short runs (`surface.py`) gives the
step of every count near the answer in every draw, and so what is best there: the fewest instances that hold all
targets; where there are none, or no count holds them, what has the least of the objective. The range of an answer holds
what is best in eight in ten draws. Staying with the answer costs so much more than what is best would, on the mean of
the draws; where targets hold, the instances that are too many, or missing, as a share of the price.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import get_args

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from fleetsim.config.scenario import Scenario, has_large_steps
from fleetsim.job.trials import Measure, flat, unit_of
from fleetsim.job.uncertainty import CONFIDENCE, UNCERTAIN, Z80, Axis, FactorLaw, Uncertain
from fleetsim.records import replace
from fleetsim.search.objective import Target, price_per_s, usd_per_h
from fleetsim.search.surface import POSTS, Curve, Factors, Floats, Surface, bent
from fleetsim.workload.streams import stream

Flags, Whole = npt.NDArray[np.bool_], npt.NDArray[np.int64]
Laws = Sequence[tuple[Uncertain, FactorLaw]]

DRAWS = 10_000
# Counts that are simulated: each of the first, then the answer times powers of a ratio.
_EACH, _RATIO, _POWERS = 6, 1.36, range(-2, 3)
# Where the best count is the last one in more than this share of draws, counts so much farther are looked at, so often.
_AT_END, _FARTHER, _ROUNDS = 0.02, (_RATIO, _RATIO**2), 5
# A step that more instances make shorter by less no longer falls.
_FLAT = 0.98
# So many standard deviations of all inputs of one axis together are simulated to both sides.
_FAR = 1.8
IDLE = "trainer_idle_fraction"


def laws_of(scenario: Scenario, given: Collection[str]) -> Laws:
    """The inputs in doubt, with their laws. given: dotted paths that the user wrote."""
    return [(u, law) for u in UNCERTAIN if (law := u.law(scenario, given)) is not None]


class Counts:
    """From what an answer is chosen: here one job as it is; where counts are chosen, those about the answer."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.unit = scenario, unit_of(scenario)

    def at(self, instances: int) -> Scenario:
        """The job with so many instances."""
        return self.scenario

    def near(self, number: float) -> int:
        """The count that there is next to a number."""
        return self.scenario.fleet.instances

    def below(self, instances: int) -> int:
        """The next smaller count; 0 without one."""
        return 0

    def between(self, counts: Sequence[int]) -> list[int]:
        """The counts that were simulated, ascending, and those between them; of many, some."""
        return list(counts)

    def price(self, instances: int) -> float:
        """What a second costs, as far as choices are held against each other."""
        return price_per_s(self.scenario, instances)

    def usd_per_h(self, instances: int) -> float:
        """US dollars of an hour."""
        return usd_per_h(self.scenario, instances)


class Cases(Struct, frozen=True):
    """What is best in some joint cases. f: their factors. counts: the instances of all that was held against each
    other, those of rivals last; row: which of them is best in each case, and held: whether it holds the targets;
    losses: what each costs more than the best, counts x cases; holds: whether each holds the targets, likewise."""

    f: Factors
    counts: Whole
    row: Whole
    held: Flags
    losses: Floats
    holds: Flags

    @property
    def best(self) -> Whole:
        """The best count of each case."""
        return self.counts[self.row]


class JointDoubt:
    """The joint cases of one answer. cases: the draws.

    instances: the answer of the likeliest case, among `of`. laws: of its inputs. power: what is to be least is
    step ** power[0] * price ** power[1]. rivals: what else could be chosen, each of one count; own_is_rival:
    the answer is the last of them. long_s: steps of long runs, by count and of each rival: then the likeliest case is
    as they have it. alike: another choice is right only if it is better by more than this share. Raises
    StuckError where nothing is known beside the answer.
    """

    def __init__(
        self, of: Counts, instances: int, laws: Laws, measure: Measure, power: tuple[float, float],
        targets: Sequence[Target] = (), rivals: Sequence[Counts] = (), own_is_rival: bool = False, alike: float = 0.0,
        long_s: Mapping[int, float] | None = None, long_rivals_s: Sequence[float] = (),
    ) -> None:  # fmt: skip
        self.of, self.instances, self.laws, self._power, self._measure = of, instances, laws, power, measure
        self._own_is_rival, self._alike = own_is_rival, alike
        self.surface = surface_of(of, instances, laws, measure)
        self.rivals = [(surface_of(r, n := r.scenario.fleet.instances, laws, measure), n, r.price(n)) for r in rivals]
        self._off = {n: self._seen(self.surface, n, step) for n, step in (long_s or {}).items()}
        self._rivals_off = [self._seen(s, n, step) for (s, n, _), step in zip(self.rivals, long_rivals_s, strict=True)]
        self.targets = tuple(targets)
        run = flat(measure(of.at(instances), 0)) if targets else {}
        if targets and all(run[t.metric] <= t.limit for t in targets):
            self.targets = self._anchored(self.targets)
        self.draws = self.factors(stream(0, 0, "doubt").normal(size=(len(laws), DRAWS)))
        self.cases = self._widened()

    def _seen(self, surface: Surface, instances: int, step_s: float) -> float:
        """The logarithm of a step over what the surface says of the likeliest case."""
        likeliest = self.factors(np.zeros((len(self.laws), 1)))
        return math.log(step_s / float(surface.step_s(instances, likeliest)[0]))

    def told(self, of: Counts, surface: Surface) -> Surface:
        """One of its surfaces with steps as they are told, whatever they lose."""
        return surface_of(of, surface.instances, self.laws, self._measure, whole=False) if surface.lose else surface

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

    def loss(self, instances: int, cases: Cases | None = None) -> float:
        """What staying with a count, or with the rival that was chosen, costs on average."""
        cases = cases or self.cases
        return float(cases.losses[self.row_of(cases, instances)].mean())

    def row_of(self, cases: Cases, instances: int) -> int:
        """The row of the answer, where it has so many instances."""
        if self._own_is_rival:
            return len(cases.counts) - 1
        return int(np.searchsorted(self._line(cases), instances))

    def _line(self, cases: Cases) -> Whole:
        return cases.counts[: len(cases.counts) - len(self.rivals)]

    def factors(self, z: Floats) -> Factors:
        """Joint cases of standard normal deviates, inputs x cases; at zero an input is as it is likeliest."""
        return factors_of(self.laws, z)

    def alone(self, i: int, z: Sequence[float]) -> Factors:
        """Cases in which one input is off, all others as they are likeliest."""
        all_z = np.zeros((len(self.laws), len(z)))
        all_z[i] = z
        return self.factors(all_z)

    def _widened(self) -> Cases:
        """The draws, judged over counts that reach as far as their best ones."""
        for _ in range(_ROUNDS):
            cases = self.judged(self.draws)
            line = self._line(cases)
            low, high = int(line[0]), int(line[-1])
            at_low, at_high = (np.mean(cases.row == row) for row in (0, len(line) - 1))
            if self.targets and not cases.held.all():
                top, below = (self.surface.step_s(n, self.draws) for n in (high, round(high / _FARTHER[0])))
                at_high += np.mean(~cases.held & (top < _FLAT * below))
            more = [high * x for x in _FARTHER] if at_high > _AT_END else []
            more += [low / x for x in _FARTHER] if at_low > _AT_END and self.of.below(low) else []
            known = len(self.surface.counts)
            self.surface.extend({self.of.near(n) for n in more})
            if len(self.surface.counts) == known:
                return cases
        return self.judged(self.draws)

    def judged(self, f: Factors) -> Cases:
        """What is best in each case."""
        counts = self.of.between(self.surface.counts)
        found = [*((self.surface, n, self.of.price(n)) for n in counts), *self.rivals]
        steps, price = np.array([s.step_s(n, f) for s, n, _ in found]), np.array([[p] for *_, p in found])
        if self._off:
            off = np.interp(np.log(counts), np.log(list(self._off)), list(self._off.values()))
            steps *= np.exp([*off, *self._rivals_off])[:, None]
        cost = steps ** self._power[0] * price ** self._power[1]
        holds = np.full(steps.shape, bool(self.targets))
        for target in self.targets:
            holds &= np.array([self._value(target, n, f) for n in counts]) <= target.limit
        held, cases = np.any(holds, axis=0), np.arange(steps.shape[1])
        best = np.where(held, holds.argmax(axis=0), cost.argmin(axis=0))
        of = np.array([n for _, n, _ in found])
        if self._alike:
            own = self.row_of(Cases(f, of, best, held, cost, holds), self.instances)
            best = np.where(cost[best, cases] < cost[own] * (1.0 - self._alike), best, own)
        losses = np.where(held, np.abs(price / price[best, 0] - 1.0), cost / cost[best, cases] - 1.0)
        return Cases(f, of, best, held, losses, holds)

    def _value(self, target: Target, instances: int, f: Factors) -> Floats:
        """The metric that a target limits."""
        if target.metric == IDLE:
            return self.surface.idle(instances, f)
        if target.metric == "staleness_steps.p99":
            return self.surface.staleness(instances, f)
        per_step = self.of.usd_per_h(instances) / 3600.0 if target.metric == "cost_per_step" else 1.0
        return self.surface.step_s(instances, f) * per_step

    def _anchored(self, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        """The targets with limits that the surface holds with the answer, and with no fewer instances, where all is as
        it is likeliest. The answer was decided by all runs, the surface is one short run of each count."""
        likeliest = self.factors(np.zeros((len(self.laws), 1)))
        here = {t: float(self._value(t, self.instances, likeliest)[0]) for t in targets}
        there = [replace(t, limit=max(t.limit, here[t])) for t in targets]
        if below := self.of.below(self.instances):
            fewer = [float(self._value(t, below, likeliest)[0]) for t in targets]
            if all(value <= t.limit for value, t in zip(fewer, there, strict=True)):
                i = max(range(len(targets)), key=lambda i: fewer[i] - here[targets[i]])
                there[i] = replace(there[i], limit=max(here[targets[i]], (here[targets[i]] + fewer[i]) / 2 - 1e-9))
        return tuple(there)


def surface_of(of: Counts, instances: int, laws: Laws, measure: Measure, whole: bool = True) -> Surface:
    """What is known of the counts around an answer. whole: as of `Surface`."""
    powers = {of.near(instances * _RATIO**power) for power in _POWERS}
    first = {of.near(k * of.unit) for k in range(1, _EACH + 1)}
    counts = powers | {n for n in first if min(powers) <= n <= max(powers)}
    posts = (1.0,) if has_large_steps(of.scenario) else POSTS
    near = {of.near(share * instances) for share in posts}
    return Surface(of.at, instances, counts, near, _far(laws), measure, whole)


def factors_of(laws: Laws, z: Floats, beside: Mapping[str, Curve] = MappingProxyType({})) -> Factors:
    """Joint cases of standard normal deviates, inputs x cases. beside: what an input does to a step that is on no axis,
    by its name."""
    by_axis: dict[Axis, Floats] = {axis: np.ones(z.shape[1]) for axis in get_args(Axis)}
    more = np.ones(z.shape[1])
    for (uncertain, law), deviates in zip(laws, z, strict=True):
        if uncertain.what in beside:
            more = more * np.exp(bent(beside[uncertain.what], law.factors(deviates)))
        else:
            by_axis[uncertain.axis] = by_axis[uncertain.axis] * law.factors(deviates)
    return Factors(**by_axis, beside=more)


def middle(values: Floats | Whole, confidence: float) -> tuple[float, float]:
    """The ends of the middle of some values that holds such a share of them."""
    # numpy's own quantiles load its masked arrays, a quarter of the time that all of this takes
    ordered, outside = np.sort(values), math.floor(len(values) * (1 - confidence) / 2)
    return float(ordered[outside]), float(ordered[-1 - outside])


def _far(laws: Laws) -> dict[Axis, tuple[float, float]]:
    """How far each axis is simulated to both sides."""
    found: dict[Axis, tuple[float, float]] = {}
    for axis in {u.axis for u, _ in laws}:
        own = [law for u, law in laws if u.axis == axis]
        down, up = (math.hypot(*map(math.log, ends)) for ends in ([x.low for x in own], [x.high for x in own]))
        # a step moves with what siblings share, which ends at 1, and not with its logarithm
        far = Z80 if axis == "siblings" else _FAR
        found[axis] = math.exp(-far / Z80 * down), math.exp(far / Z80 * up)
    return found
