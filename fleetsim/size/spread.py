"""How far a count of instances may be off: the counts around it in joint draws of what is uncertain
(`search/doubt.py`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.job.input_moves import IntervalEnd
from fleetsim.job.trainer_scaling import can_be, next_count
from fleetsim.job.trials import Measure, Tell, Trial, Trials, unit_of, with_instances
from fleetsim.search.doubt import Cases, Counts, JointDoubt, laws_of
from fleetsim.search.objective import Target, usd_per_h
from fleetsim.search.ranges import KnownMetrics, Spread, parts_of
from fleetsim.search.rate_matching import MOST_INSTANCES

# Counts between simulated ones that are interpolated, no more than so many.
_BETWEEN = 60
# A range whose ends are this far apart is wide.
_WIDE = 2.0


class FleetCounts(Counts):
    """The counts that a job can have. instances: the answer, which is one of them."""

    def __init__(self, scenario: Scenario, instances: int) -> None:
        super().__init__(scenario)
        self._answer = instances

    def at(self, instances: int) -> Scenario:
        """The job with so many instances."""
        return with_instances(self.scenario, instances)

    def near(self, number: float) -> int:
        """In whole engines."""
        return min(MOST_INSTANCES, max(1, round(number / self.unit)) * self.unit)

    def below(self, instances: int) -> int:
        """The next smaller count; 0 without one."""
        return next_count(self.scenario, instances, -1)

    def between(self, counts: Sequence[int]) -> list[int]:
        """Of many, some that are as far apart in ratio, and that with as many GPUs as the trainer: sharing them, more
        cost more only from there."""
        low, high = (n // self.unit for n in (counts[0], counts[-1]))
        found = {k * self.unit for k in range(low, high + 1)}
        if high - low >= _BETWEEN:
            as_trainer = self.scenario.trainer.gpus // self.scenario.engine.gpus
            kink = {as_trainer // self.unit * self.unit} if counts[0] <= as_trainer <= counts[-1] else set()
            found = {*counts, *kink, *(round(k) * self.unit for k in np.geomspace(low, high, _BETWEEN))}
        return [n for n in sorted(found) if n == self._answer or can_be(self.scenario, n)]


def count_doubt(
    scenario: Scenario,
    instances: int,
    given: Collection[str],
    targets: Sequence[Target],
    measure: Measure,
    tell: Tell | None = None,
) -> JointDoubt | None:
    """The doubt about a count; None where no input is in doubt, or where nothing is known beside the answer.

    scenario: the job as it is planned. given: dotted paths that the user wrote. instances: the answer of the likeliest
    case. measure should remember runs.
    """
    laws = laws_of(with_instances(scenario, instances), given)
    if not laws:
        return None
    if tell is not None:
        tell("simulating fleets near the answer with inputs that are off")
    try:
        power = 1.0 + scenario.targets.worth, 1.0
        return JointDoubt(FleetCounts(scenario, instances), instances, laws, measure, power, targets)
    except StuckError:
        return None


class CountEnd(IntervalEnd, frozen=True):
    """instances: what would be recommended at this end, and held: that this holds all targets."""

    instances: int
    held: bool


class CountSpread(Spread[CountEnd], frozen=True, kw_only=True):
    """instances: of the recommended fleet. least_expected_loss_instances: the count for which the expected loss is
    least."""

    least_expected_loss_instances: int

    @property
    def wide(self) -> bool:
        """Whether the ends are so far apart that measuring comes before buying."""
        low, high = self.instances
        return high >= _WIDE * low and high - low > 1


def spread_of(doubt: JointDoubt | None, chosen: Trial) -> CountSpread | None:
    """The range around the answer; None where nothing is in doubt. chosen: the recommended fleet."""
    if doubt is None:
        return None
    job, n = doubt.of.scenario, chosen.instances

    def ending(factor: float, metrics: Mapping[str, float], cases: Cases, k: int) -> CountEnd:
        return CountEnd(factor, metrics, int(cases.best[k]), bool(cases.held[k]) or not doubt.targets)

    known = KnownMetrics(job, doubt.told(doubt.of, doubt.surface), n, doubt.laws, chosen.estimates)
    (low, high), (parts, widest) = doubt.counts(), parts_of(doubt, known, usd_per_h(job, n), ending)
    return CountSpread(
        instances=(min(low, n), max(high, n)),
        held=doubt.held,
        metrics=known.around(doubt.draws),
        parts=parts,
        expected_loss=doubt.loss(n),
        least_expected_loss_instances=doubt.least_expected_loss,
        widest=widest if low != high else None,
    )


# --- Fleets around an answer, simulated: how trainer idle, step time and cost depend on the number of instances.

# Steps of equal ratio from half the answer to it, and as many from there to the double.
_EACH_SIDE = 4


def counts_around(instances: int, also: Iterable[int] = (), unit: int = 1) -> tuple[int, ...]:
    """Nine counts or fewer from half of an answer to its double, and those of `also` in between; ascending.

    unit: instances that come and go together.

    >>> counts_around(13)
    (6, 8, 9, 11, 13, 15, 18, 22, 26)
    >>> counts_around(16, unit=8)
    (8, 16, 24, 32)
    """
    span = range(-_EACH_SIDE, _EACH_SIDE + 1)
    engines = {max(1, round(instances / unit * 2 ** (k / _EACH_SIDE))) for k in span}
    found = {n * unit for n in engines if n * unit <= MOST_INSTANCES}
    return tuple(sorted(found | {n for n in also if min(found) <= n <= max(found)}))


def around(trials: Trials, instances: int, also: Iterable[int] = ()) -> tuple[Trial, ...]:
    """The fleets of those counts over all replications, those that get stuck among them."""
    scenario = trials.scenario
    return tuple(trials.at(n, scenario.run.replications) for n in counts_around(instances, also, unit_of(scenario)))
