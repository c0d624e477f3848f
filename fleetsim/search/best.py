"""The count to recommend: the one with the least step time x cost per step, or the fewest that hold what was asked.

Where somebody gave targets, the answer is the smallest count that holds all of them. Where no count does, or nobody
gave one, it is the count with the least step time x cost per step (`objective.py`), or the count nearest to that which
holds the targets that some count holds. Short looks guide the search; long runs decide it (`Trials.looks`).

Counts are tried in whole engines: `engine.dp` instances that share their experts are added and removed together. Where
rollout and trainer take turns on the same GPUs, a count is one of GPUs, and the trainer's seconds go with it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from fleetsim.config.scenario import Scenario
from fleetsim.engine.transport import SyncTimes
from fleetsim.estimates import t_quantile
from fleetsim.job import nameplate
from fleetsim.job.trainer_scaling import can_be, takes_turns
from fleetsim.job.trials import Trial, Trials, unit_of, with_instances
from fleetsim.policies.samples import AGE_ACTIONS
from fleetsim.search.bound import Bounds, PoolSizes
from fleetsim.search.objective import FINE, Target, least, objective, price_per_s
from fleetsim.search.rate_matching import MOST_INSTANCES, largest_that_runs, nearest, nearest_that_runs, smallest
from fleetsim.sim.engines import engine_of
from fleetsim.sim.work import most_instances

# By this share the largest fleet must be slower than another one to be slower by more than noise.
_SLOWER = 1.02
# With fewer groups per instance than this, one group more or less makes a visible jump in the step time.
_WAVES = 6
# The trainer's seconds in a look, of those of a mean batch, at the least.
_FLOOR = 0.95
# Of the start, counts that are looked at before the most that may be useful.
_TIMES = (1, 2, 4, 8)
# Counts whose looks are within so much of the best one's are decided by long runs: at least, at most so many.
_CLOSE, _PAIR, _DECIDED, _SURE = 1.05, 2, 4, 0.97
# Where both pools take turns, up to so many times the job's own count is looked at.
_TURNS = 64
# Where old samples are thrown away, or masked, more instances may make a step longer: so much of it is sure.
_FALLS = 0.9
# A count whose interval has a target within has up to so many times the runs.
_MORE_RUNS = 4


class Best(Struct, frozen=True):
    """instances: the count. knee: the count with the least objective, where no count holds all targets or there is
    none; else None. largest: where no count holds all targets, the largest fleet that was tried, else None.
    """

    instances: int
    knee: int | None = None
    largest: Trial | None = None


def best_of(
    trials: Trials, guess: int, targets: Sequence[Target], replications: int, *, fine: float = FINE,
    beat: float = math.inf,
) -> Best:  # fmt: skip
    """The recommended count. Counts that decide have `replications` long runs, the others a look.

    guess: where the search starts. fine, beat: see `least`. Raises StuckError where every count that was tried gets
    stuck.
    """
    while True:
        best = _Search(trials, guess, targets, replications, beat).best(fine)
        if trials.at(best.instances, replications).stuck is None:  # else it got stuck in a later run only
            return best


def decided_trial(trials: Trials, instances: int, targets: Sequence[Target], replications: int) -> Trial:
    """The trial that says whether a count holds some targets. Of few runs the interval may be so wide that a count is
    refused whose mean is well within: it has more of them until it is decided."""
    trial = trials.at(instances, replications)
    most = _MORE_RUNS * replications
    while trial.replications < most and any(t.open_by(trial.estimates[t.metric]) for t in targets):
        trial = trials.at(instances, min(2 * trial.replications, most))
    return trial


def _half(runs: int) -> float:
    """Half of the interval of the mean of so many runs, as a multiple of how much they differ."""
    return t_quantile(runs - 1) / math.sqrt(runs) if runs > 1 else math.inf


class _Search:
    """One search. k = 1, 2, ... stands for the counts that the job can have, ascending."""

    def __init__(self, trials: Trials, guess: int, targets: Sequence[Target], replications: int, beat: float) -> None:
        self._trials, self._targets, self._replications, self._beat = trials, targets, replications, beat
        self._bounds, self._floors = Bounds(steady=True), dict[int, float]()
        self._counts = _counts(trials.scenario, guess, self._affordable)
        near = min(bisect_left(self._counts, guess), len(self._counts) - 1)
        self._start = nearest_that_runs(trials.looks, self._counts, near) + 1
        self._most = len(self._counts)

    def best(self, fine: float) -> Best:
        """See the module's docstring."""
        helped = [t for t in self._targets if t.helped_by_instances]
        found = self._fewest(helped, self._start) if helped else None
        knee = None if found is not None else self._least(fine)
        if helped and knee is not None:
            self._look_for_the_fastest()
            if takes_turns(self._trials.scenario):  # fewer GPUs may train longer, and wait for a smaller share
                for i in range(1, self._most.bit_length()):
                    self._look(max(1, self._most >> i))
            held = [k for k in self._looked() if self._holds(k, helped)]
            found = self._fewest(helped, min(held)) if held else None
        if found is not None:
            return Best(self._at(self._within(found)))
        assert knee is not None
        each = [least_held for t in helped if (least_held := self._fewest([t], knee)) is not None]
        largest = self._long(self._most) if helped else None
        return Best(self._at(self._within(max(knee, *each, 1))), self._at(knee), largest)

    def _affordable(self, guess: int, most: int) -> int:
        """Of GPUs that both use in turn, the most instances that may be better than the guess, up to `most`: no step is
        shorter than its longest responses with nothing beside them."""
        scenario = self._trials.scenario
        if not self._trials.simulates or any(t.helped_by_instances for t in self._targets):
            return most
        nothing = PoolSizes(np.array([float(most)]), np.zeros(1), np.zeros(1), [SyncTimes(0.0, 0.0, 0.0)])
        least_s = _FALLS * max(float(s[0]) for s in self._bounds.by_pools(scenario, nothing).values())
        limit = min(self._beat, objective(scenario, guess, self._trials.looks.at(guess, 1).whole("step_s")))
        within = bisect_right(range(guess, most + 1), limit, key=lambda n: objective(scenario, n, least_s))
        return max(guess, guess + within - 1)

    def _at(self, k: int) -> int:
        return self._counts[k - 1]

    def _look(self, k: int) -> Trial:
        return self._trials.looks.at(self._at(k), 1)

    def _long(self, k: int, replications: int | None = None) -> Trial:
        return self._trials.at(self._at(k), replications or self._replications)

    def _decided(self, k: int, wanted: Sequence[Target]) -> Trial:
        return decided_trial(self._trials, self._at(k), wanted, self._replications)

    def _step_s(self, k: int) -> float:
        return self._look(k).whole("step_s")

    def _floor_s(self, k: int) -> float:
        """Seconds that a step takes at least. Nothing is known of what no simulator measures; and GPUs that both use in
        turn make no step shorter for good."""
        scenario = self._trials.scenario
        if not self._trials.simulates or takes_turns(scenario):
            return 0.0
        if k not in self._floors:
            self._floors[k] = self._bounds.step_s(with_instances(scenario, self._at(k)))
        return self._floors[k]

    def _look_floor_s(self, k: int) -> float:
        """The same of a look. In a deep pipeline it trains what is finished first, so it may be shorter than any long
        run: then all looks are taken to be so, by as much."""
        if not self._floor_s(k):
            return 0.0
        seen = [(self._step_s(n), self._floor_s(n)) for n in self._looked()]
        return self._floor_s(k) * min([1.0, *(step / floor for step, floor in seen if floor > 0.0)])

    def _price(self, k: int) -> float:
        return price_per_s(self._trials.scenario, self._at(k))

    def _objective(self, k: int, step_s: float) -> float:
        return objective(self._trials.scenario, self._at(k), step_s)

    @property
    def _power(self) -> float:
        return 1.0 + self._trials.scenario.targets.worth

    def _least(self, fine: float) -> int:
        """The count with the least objective: looked for by looks, decided between the closest by a long run each."""
        most = self._worth_a_look()
        age = AGE_ACTIONS[self._trials.scenario.admission.age_action]
        falls = _FALLS if age.drops or age.masks else 1.0
        bends = {bisect_left(self._counts, n) + 1 for n in _bends(self._trials.scenario)}
        looked = least(
            self._step_s, self._price, self._start, most, power=self._power, fine=fine,
            bends={k for k in bends if k <= most},
            known=[k for k in self._looked() if k <= most], floor=self._look_floor_s,
            falls=falls,
            beat=self._beat, ahead=self._ahead,
        )  # fmt: skip

        by_look = {k: self._objective(k, self._step_s(k)) for k in self._looked()}
        close = [k for k in sorted(by_look, key=by_look.__getitem__) if by_look[k] <= _CLOSE / falls * by_look[looked]]
        if len(close) == 1 or self._replications == 1:
            return looked
        # Under the same draws a look misses as much of one count as of the next: who is behind by more is not run. Of
        # several looks the least is a lucky one, so two long runs are needed to say how much they miss.
        close, long = close[:_DECIDED], dict[int, float]()

        def missed() -> float:
            return min((long[n] / by_look[n] for n in long), default=1.0)

        def may_be_best(i: int) -> bool:
            bound, look = self._objective(close[i], self._floor_s(close[i])), missed() * by_look[close[i]]
            return i < _PAIR or max(_SURE * falls * look, bound) < min(long.values())

        for i, k in enumerate(close):
            if not may_be_best(i):
                continue
            if self._trials.idle:  # the next ones, if this one is as its look says; then the other runs of the best
                long[k] = missed() * by_look[k]
                for n in filter(may_be_best, range(i + 1, len(close))):
                    self._trials.ahead(self._at(close[n]))
                self._trials.ahead(self._at(min(long, key=long.__getitem__)), 1)
            long[k] = self._objective(k, self._long(k, 1).whole("step_s"))
        return min(long, key=long.__getitem__)

    def _ahead(self, following: Callable[[], int | None]) -> None:
        """Has the look after the next one made meanwhile, where a core is idle."""
        if self._trials.idle and (k := following()) is not None:
            self._trials.looks.ahead(self._at(k))

    def _worth_a_look(self) -> int:
        """The most engines that could be better than where the search starts: no step is shorter than the trainer's own
        seconds. A large fleet whose samples all grow too old takes long to look at."""
        if takes_turns(self._trials.scenario):
            return self._most
        floor = max(_FLOOR * nameplate.mean_step_s(self._trials.scenario), self._look_floor_s(self._most))
        limit = min(self._beat, self._objective(self._start, self._step_s(self._start)))
        counts = range(self._start, self._most + 1)
        return counts[
            max(0, bisect_right(counts, limit, key=lambda k: math.pow(floor, self._power) * self._price(k)) - 1)
        ]

    def _holds(self, k: int, wanted: Sequence[Target], *, decided: bool = False) -> bool:
        trial = self._decided(k, wanted) if decided else self._look(k)
        return all(t.held_by(trial.estimates[t.metric]) for t in wanted)

    def _bracket(self, wanted: Sequence[Target], start: int) -> int | None:
        """A count that holds by a look: the start, a few times as many, or the most that runs; None without one."""
        near = next((k for k in (start * m for m in _TIMES) if k <= self._most and self._holds(k, wanted)), None)
        if near is not None:
            return near
        self._most = largest_that_runs(self._trials.looks, self._counts[: self._most], self._start - 1) + 1
        return self._most if self._holds(self._most, wanted) else None

    def _fewest(self, wanted: Sequence[Target], start: int) -> int | None:
        """The fewest engines that hold the targets which more engines help: looked for by looks, decided by long runs.

        The long runs of one count say how far a look lies from what decides, so few counts need them.
        """
        if self._bracket(wanted, start) is None:
            return None
        found = self._first(wanted, start, {})
        for _ in range(2):
            look, long = self._look(found), self._decided(found, wanted)
            if long.stuck is not None:
                break
            narrows = _half(_MORE_RUNS * self._replications) / _half(long.replications)
            far = {t.metric: t.decides(long.estimates[t.metric], narrows) - look.mean(t.metric) for t in wanted}
            before, found = found, self._first(wanted, found, far)
            if found == self._most:  # no look says so: from here upwards by long runs, not down from the largest fleet
                found = before
            if found == before:
                break
        return smallest(lambda k: self._holds(k, wanted, decided=True), found, self._most)

    def _first(self, wanted: Sequence[Target], start: int, far: Mapping[str, float]) -> int:
        """The fewest engines that hold by a look, to which `far` is added; the most where none does."""

        def holds(k: int) -> bool:
            return all(self._look(k).mean(t.metric) + far.get(t.metric, 0.0) <= t.limit for t in wanted)

        # A guess that holds is nearly right, as is a count that fell short with more runs; one that fails may be far.
        stride = start if not far and not holds(start) else max(1, start // 8)
        found = smallest(holds, start, self._most, stride=stride)
        # The curve is not smooth: a count far below may hold as well, and is looked at where none has been.
        while found is not None and found > 1 and not self._looked_below(found) and holds(found // 2):
            found = smallest(holds, found // 2, found // 2)
        return self._most if found is None else found

    def _look_for_the_fastest(self) -> None:
        """Looks at the counts around the shortest step. Where a sync takes longer the more instances it serves, a count
        between the guess and the most may hold the targets although neither of these two does."""
        while True:
            tried = self._looked()
            fastest = min(tried, key=self._step_s)
            if self._step_s(self._most) <= _SLOWER * self._step_s(fastest):
                return
            at = tried.index(fastest)
            gaps = [(b / a, a, b) for a, b in pairwise(tried[max(0, at - 1) : at + 2]) if b - a > 1 and b > FINE * a]
            if not gaps:
                return
            _, low, high = max(gaps)
            self._look(max(low + 1, math.isqrt(low * high)))

    def _looked_below(self, k: int) -> bool:
        return any(k / 3 <= n <= 0.75 * k for n in self._looked())

    def _looked(self) -> list[int]:
        """Those that were looked at."""
        places = ((bisect_left(self._counts, n), n) for n in self._trials.looks.counts())
        return [i + 1 for i, n in places if i < len(self._counts) and self._counts[i] == n]

    def _within(self, chosen: int) -> int:
        """The count nearest to `chosen` that holds every target, where cost or staleness is among these.

        Without such a count `chosen` stays, and the targets that it misses are reported.
        """
        asked = self._targets
        if all(t.helped_by_instances for t in asked) or self._holds(chosen, asked, decided=True):
            return chosen

        def ratio(k: int) -> float:
            return abs(math.log(k / chosen))

        tried = {1, self._most, least(self._step_s, self._price, chosen, self._most, power=1.0)}
        tried |= {max(1, chosen >> i) for i in range(chosen.bit_length())}
        tried |= set(self._looked())
        for k in sorted(tried, key=ratio):
            if self._holds(k, asked) and self._holds(k, asked, decided=True):
                return nearest(lambda n: self._holds(n, asked, decided=True), k, chosen)
        return chosen


def _counts(scenario: Scenario, guess: int, affordable: Callable[[int, int], int]) -> Sequence[int]:
    """The counts that a search may choose, ascending, in whole engines; where both pools take turns on the same GPUs
    those that are affordable, of which a trainer can be laid out, and has room for its states."""
    unit = unit_of(scenario)
    most = math.ceil(_most_useful(scenario, guess) / unit) * unit
    if not takes_turns(scenario):
        return range(unit, most + 1, unit)
    most = affordable(guess, max(most, _TURNS * guess))  # its trainer may gain where rollout gains no more
    return [n for n in range(unit, most + 1, unit) if can_be(scenario, n)]


def _most_useful(scenario: Scenario, guess: int) -> int:
    """A count beyond which more instances gain nothing: each group that may be in flight has an instance of its own.
    Less where no such fleet can be simulated."""
    flight = nameplate.samples_in_flight(scenario) + scenario.trainer.batch_samples
    if not math.isfinite(flight):
        # Each instance is full, whatever the count: only what waits for tools in it makes it slower than on paper.
        flight = 4.0 * scenario.trainer.batch_samples if scenario.workload.turns.several else 0.0
    fits = most_instances(engine_of(scenario)[1])
    return min(MOST_INSTANCES, fits, max(math.ceil(flight / _placed(scenario)), 4 * guess))


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
