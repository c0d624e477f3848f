"""The count to recommend: the fewest instances that hold all targets; else the knee, or the count nearest to it.

Targets that the user gave come before assumed ones. Where some count holds all targets, the answer is the smallest such
count. Where an assumed target cannot be held, it is given up: the answer is the knee (`size/knee.py`), or the count
nearest to the knee that holds the user's own targets. Only where no count holds the user's own targets is the answer
infeasible.

Counts are tried in whole engines: `engine.dp` instances that share their experts are added and removed together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from fleetsim.config.scenario import Scenario
from fleetsim.dataclass import dataclass
from fleetsim.job import nameplate
from fleetsim.job.trials import Trial, Trials, unit_of
from fleetsim.size.knee import FINE, least, price_per_s
from fleetsim.size.rate_matching import MOST_INSTANCES
from fleetsim.size.runnable_counts import largest_that_runs, nearest_that_runs
from fleetsim.size.search import nearest, smallest
from fleetsim.size.targets import Target

# Replications of the coarse pass.
_COARSE = 1
# By this share the largest fleet must be slower than another one to be slower by more than noise.
_SLOWER = 1.02
# With fewer groups per instance than this, one group more or less makes a visible jump in the step time.
_WAVES = 6


@dataclass(frozen=True, slots=True)
class Best:
    """instances: the count. knee: where no count holds all targets, the count from which more stop paying; else None.

    largest: then, the largest fleet that was tried, else None.
    """

    instances: int
    knee: int | None = None
    largest: Trial | None = None


def best_of(trials: Trials, guess: int, targets: Sequence[Target], replications: int, *, fine: float = FINE) -> Best:
    """The recommended count. Counts that decide have `replications` runs, the others one.

    guess: where the search starts. fine: see `least`. Raises StuckError where every count that was tried gets stuck.
    """
    while True:
        best = _Search(trials, guess, targets, replications).best(fine)
        if trials.at(best.instances, replications).stuck is None:  # else it got stuck in a later replication only
            return best


def held_by_some(trials: Trials, guess: int, targets: Sequence[Target]) -> bool:
    """Whether the targets that more instances help are held by one run of `guess`, or of the largest useful fleet."""
    return _Search(trials, guess, targets, _COARSE).reached()


class _Search:
    """One search, in engines of `unit` instances."""

    def __init__(self, trials: Trials, guess: int, targets: Sequence[Target], replications: int) -> None:
        self._trials, self._targets, self._replications = trials, targets, replications
        self._unit = unit_of(trials.scenario)
        unit = self._unit
        most = math.ceil(_most_useful(trials.scenario, guess) / unit) * unit
        start = nearest_that_runs(trials, math.ceil(guess / unit) * unit, most, unit)
        self._start, self._most = start // unit, most // unit

    def reached(self) -> bool:
        """See held_by_some."""
        helped = [t for t in self._targets if t.helped_by_instances]
        return self._bracket(helped, self._start) is not None

    def best(self, fine: float) -> Best:
        """See the module's docstring."""
        helped = [t for t in self._targets if t.helped_by_instances]
        found, knee = self._fewest(helped, self._start), None
        if found is None:
            bends = {math.ceil(n / self._unit) for n in _bends(self._trials.scenario)}
            knee = least(
                self._step_s, self._price, self._start, self._most, fine=fine, bends=bends, known=self._tried()
            )
            self._look_for_the_fastest()
            held = [k for k in self._tried() if self._holds(k, helped)]
            if held:
                found = self._fewest(helped, min(held))
        if found is not None:
            return Best(self._within(found) * self._unit)
        assert knee is not None
        asked = [t for t in helped if t.given]
        least_asked = self._fewest(asked, knee) if asked else None
        chosen = self._within(max(knee, least_asked or knee))
        return Best(chosen * self._unit, knee * self._unit, self._at(self._most))

    def _at(self, k: int, runs: int = _COARSE) -> Trial:
        return self._trials.at(k * self._unit, runs)

    def _step_s(self, k: int) -> float:
        return self._at(k).mean("step_s")

    def _price(self, k: int) -> float:
        return price_per_s(self._trials.scenario, k * self._unit)

    def _holds(self, k: int, wanted: Sequence[Target], runs: int = _COARSE) -> bool:
        trial = self._at(k, runs)
        return all(t.held_by(trial.estimates[t.metric]) for t in wanted)

    def _bracket(self, wanted: Sequence[Target], start: int) -> int | None:
        """A count that holds by one run: the start, its double, or the most that runs; None without one."""
        near = next((k for k in (start, 2 * start) if k <= self._most and self._holds(k, wanted)), None)
        if near is not None:
            return near
        most = largest_that_runs(self._trials, self._start * self._unit, self._most * self._unit, self._unit)
        self._most = most // self._unit
        return self._most if self._holds(self._most, wanted) else None

    def _fewest(self, wanted: Sequence[Target], start: int) -> int | None:
        """The fewest engines that hold the targets which more engines help: looked for by one run each, decided by all
        runs.

        One run says how far it lies from the upper end of the interval, so only few counts need all runs.
        """
        high = self._bracket(wanted, start)
        if high is None:
            return None
        found = self._first(wanted, start, high, {})
        if self._replications == _COARSE or self._holds(found, wanted, self._replications):
            below = found
        else:
            one, all_runs = self._at(found), self._at(found, self._replications)
            far = {t.metric: t.decides(all_runs.estimates[t.metric]) - one.mean(t.metric) for t in wanted}
            below = found if all_runs.stuck else self._first(wanted, found, self._most, far)
        return smallest(lambda k: self._holds(k, wanted, self._replications), below, self._most)

    def _first(self, wanted: Sequence[Target], start: int, most: int, far: Mapping[str, float]) -> int:
        """The fewest engines that hold by one run, to which `far` is added; the most where none does."""

        def holds(k: int) -> bool:
            return all(self._at(k).mean(t.metric) + far.get(t.metric, 0.0) <= t.limit for t in wanted)

        # A guess that holds is nearly right, as is a count that fell short with more runs; one that fails may be far.
        stride = start if not far and not holds(start) else max(1, start // 8)
        found = smallest(holds, start, most, stride=stride)
        # The curve is not smooth: a count far below may hold as well, and is looked at where none has been.
        while found is not None and found > 1 and not self._looked_below(found) and holds(found // 2):
            found = smallest(holds, found // 2, found // 2)
        return most if found is None else found

    def _look_for_the_fastest(self) -> None:
        """Runs the counts around the shortest step. Where a sync takes longer the more instances it serves, a count
        between the guess and the most may hold the targets although neither of these two does."""
        while True:
            tried = self._tried()
            fastest = min(tried, key=self._step_s)
            if self._step_s(self._most) <= _SLOWER * self._step_s(fastest):
                return
            at = tried.index(fastest)
            gaps = [(b / a, a, b) for a, b in pairwise(tried[max(0, at - 1) : at + 2]) if b - a > 1 and b > FINE * a]
            if not gaps:
                return
            _, low, high = max(gaps)
            self._at(max(low + 1, math.isqrt(low * high)))

    def _looked_below(self, k: int) -> bool:
        return any(k / 3 <= n <= 0.75 * k for n in self._tried())

    def _tried(self) -> list[int]:
        """Counts that were run, in engines."""
        return [n // self._unit for n in self._trials.counts() if n % self._unit == 0]

    def _within(self, chosen: int) -> int:
        """The count nearest to `chosen` that holds every target the user gave, where cost or staleness is among these.

        Without such a count `chosen` stays, and the targets that it misses are reported.
        """
        asked = [t for t in self._targets if t.given]
        if all(t.helped_by_instances for t in asked) or self._holds(chosen, asked, self._replications):
            return chosen

        def ratio(k: int) -> float:
            return abs(math.log(k / chosen))

        tried = {1, self._most, least(self._step_s, self._price, chosen, self._most, power=1.0)}
        tried |= {max(1, chosen >> i) for i in range(chosen.bit_length())}
        tried |= set(self._tried())
        for k in sorted(tried, key=ratio):
            if self._holds(k, asked) and self._holds(k, asked, self._replications):
                return nearest(lambda n: self._holds(n, asked, self._replications), k, chosen)
        return chosen


def _most_useful(scenario: Scenario, guess: int) -> int:
    """A count beyond which more instances gain nothing: each group that may be in flight has an instance of its own."""
    flight = nameplate.samples_in_flight(scenario) + scenario.trainer.batch_samples
    if not math.isfinite(flight):
        flight = 4.0 * scenario.trainer.batch_samples
    return min(MOST_INSTANCES, max(math.ceil(flight / _placed(scenario)), 4 * guess))


def _bends(scenario: Scenario) -> list[int]:
    """Counts at which the step time falls by a jump: the fewest instances with which the fullest instance has one group
    less. Only the last few of them."""
    flight = nameplate.samples_in_flight(scenario)
    if not math.isfinite(flight):
        return []
    return [math.ceil(flight / _placed(scenario) / waves) for waves in range(1, _WAVES + 1)]


def _placed(scenario: Scenario) -> int:
    """Samples that go to one instance together."""
    return scenario.workload.group_size if scenario.fleet.group_placement == "together" else 1
