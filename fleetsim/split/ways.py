"""Which ways to use one set of GPUs are looked at, which of them a recipe permits, and which have long runs.

The recipe's law says how far generation may run ahead of the trainer, not how long a response takes, so the samples of
a window of four versions may be eight steps old when they are trained. A way is permitted whose runs show an age that
the recipe permits (`budget_steps`), or --allow. Where the best way is too old, the ways are tried again with a smaller
window, in proportion; the other ways that were tried say what a permission would buy.

Ways are looked at as if no worker of a tool or a reward and no engine of a judge were waited for; those that are
decided by long runs have theirs counted before (`search/plan_crews.py`). Judges stand beside the GPUs that are shared
out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.estimates import Estimate, differs, ratio_of
from fleetsim.frameworks.equal_parts import divides, refusal
from fleetsim.job.looks import looked
from fleetsim.job.trials import flat, per_whole_step
from fleetsim.records import replace
from fleetsim.search.arrangements import Arrangement, colocated_async, colocated_sync, split, split_in_turn
from fleetsim.search.explore import Search
from fleetsim.search.front import Found
from fleetsim.search.permissions import number_of, numbered, numbers_of
from fleetsim.search.plan_crews import PlanCrews

By = Literal["step_s", "goodput", "cost_per_step"]
MEASURES: tuple[By, ...] = ("step_s", "goodput", "cost_per_step")
Way = Found[Arrangement]
Made = Callable[[int], Arrangement]

# Samples simulated over all replications, and the best few by each measure that are replicated whatever they cost.
_BUDGET, _CONTENDERS = 1_200_000, 4
# Steps of a long run, more or less.
_STEPS = 48
# Runs in which the workers of a station are counted, more or less.
_COUNTING = 8
# A way whose look is so much longer than that of the best is not the best one.
_NEAR = 1.25
# Where there are more splits than this, some of them are tried and then those around the best.
_MOST_SPLITS = 32
# Permissions that are told, the smallest first.
_MOST_BOUGHT = 3
# By so much must an older way be better than a fresher one to be worth a permission.
_WORTH = 0.01


class Ways:
    """The ways to use the GPUs of one job. counts: rollout instances of every split, ascending. oldest: steps that 99 %
    of the trained samples may be old, None = nobody says. job: with plenty of workers, which `crewing` counts."""

    def __init__(
        self, crewing: PlanCrews, gpus: int, counts: Sequence[int], by: By, oldest: float | None, search: Search
    ) -> None:
        self.job, self.gpus, self.counts, self.by, self.oldest = crewing.at_ease, gpus, counts, by, oldest
        self.crewing, self.search = crewing, search
        self._counted: dict[Scenario, Scenario] = {}

    @property
    def found(self) -> list[Way]:
        """Those that run, each by a look or by its long runs."""
        return list(self.search.found.values())

    @property
    def decided(self) -> list[Way]:
        """Those that have long runs."""
        return [way for way in self.found if way.decided]

    def explore(self) -> None:
        """Looks at each way, as far ahead as may be, then with smaller windows until the best is fresh enough."""
        self._shared(colocated_sync(self.job, self.gpus))
        self._tightened(lambda there: self._shared(colocated_async(there, self.gpus)))
        self._tightened(lambda there: self._splits(lambda n: split(there, n, self.gpus)))
        if not any(way.choice.apart for way in self.permitted(self.found)):
            self._splits(lambda n: split_in_turn(self.job, n, self.gpus))

    def decide(self, ways: Iterable[Way]) -> list[Way]:
        """The same by all replications of long runs; one that gets stuck in any of them is left out."""
        wanted = [self._with_workers(way).scenario for way in ways]
        missing = [one for s in wanted if not (one := self.search.found[s]).decided]
        told = f"simulating the best {len(missing):,}"
        self.search.simulated([(w.choice, w.scenario) for w in missing], self.job.run.replications, told)
        return [self.search.found[s] for s in wanted if s in self.search.found]

    def _with_workers(self, way: Way) -> Way:
        """A way with the workers that are best for it, in the place of its look with plenty of them."""
        if way.decided or not self.crewing.given:
            return way
        if way.scenario not in self._counted:
            self._counted[way.scenario] = self.crewing.counted(way.scenario)
            self.search.found.pop(way.scenario)
        there = self._counted[way.scenario]
        return self.search.found.setdefault(
            there, replace(way, choice=replace(way.choice, scenario=there), scenario=there)
        )

    def permitted(self, ways: Iterable[Way], oldest: float | None = None) -> list[Way]:
        """The ways whose samples are fresh enough; of several windows of one way the best. Empty where none is."""
        oldest = self.oldest if oldest is None else oldest
        found: dict[str, Way] = {}
        ways = list(ways)
        worse = self._alike(ways)
        for way in ways:
            other = found.get(way.choice.label)
            fresh = oldest is None or way.age <= oldest
            if fresh and (other is None or worse(way) < worse(other)):
                found[way.choice.label] = way
        return list(found.values())

    def allowed(self, ways: Collection[Way]) -> list[Way]:
        """The same; the freshest ways where none is fresh enough."""
        return self.permitted(ways) or self.permitted(ways, min(way.age for way in ways))

    def worth_deciding(self) -> list[Way]:
        """Best first, as many as the budget allows; the colocated ones and the best few by each measure in any case."""
        runs = self.job.run.replications + (_COUNTING * len(self.crewing.given))
        affordable = _BUDGET // max(1, self.job.trainer.batch_samples * _STEPS * runs)
        ways = self.allowed(self.found)
        looks = {way.scenario: self._looked_at(way) for way in ways}
        ranks = (sorted(ways, key=lambda w: badness(looks[w.scenario], m)) for m in MEASURES)
        contenders = (way for ranked in ranks for way in ranked[:_CONTENDERS])
        must = {way.scenario for way in (*contenders, *(w for w in ways if not w.choice.apart))}
        return [way for i, way in enumerate(sorted(ways, key=self._first)) if way.scenario in must or i < affordable]

    def near_the_best(self) -> list[Way]:
        """Those that may be the best one, for all that a look says."""
        ways = self.allowed(self.found)
        least = min(map(self._first, ways))
        return [way for way in ways if self._first(way) <= _NEAR * least]

    def worth_a_permission(self, ways: Iterable[Way], advised: Way) -> list[tuple[int, Way]]:
        """(steps, way): the best way of each age beyond what is permitted, where it beats what is advised and all that
        is fresher."""
        ways = list(ways)
        worse = self._alike([*ways, advised])
        least = worse(advised)
        older: dict[int, list[Way]] = {}
        for way in ways:
            if self.oldest is not None and way.age > self.oldest:
                older.setdefault(int(way.age), []).append(way)
        bought: list[tuple[int, Way]] = []
        for steps in sorted(older):
            best = min(older[steps], key=worse)
            if worse(best) < least - _WORTH * abs(least):
                bought.append((steps, best))
                least = worse(best)
        return bought[:_MOST_BOUGHT]

    def badness(self, way: Way) -> float:
        """What the ways are ranked by, over all runs of one, the smaller the better."""
        return sum(badness(run, self.by) for run in way.runs) / len(way.runs)

    def _first(self, way: Way) -> float:
        return badness(self._looked_at(way), self.by)

    def _looked_at(self, way: Way) -> Mapping[str, Any]:
        """Its look, also where it has long runs: a few steps are not held against many."""
        return flat(self.search.measure(looked(way.scenario), 0)) if way.decided else way.runs[0]

    def _alike(self, ways: Iterable[Way]) -> Callable[[Way], float]:
        """What some ways are ranked by: their long runs where each has them, else the looks of all."""
        return self.badness if all(way.decided for way in ways) else self._first

    def _look(self, ways: Sequence[Arrangement]) -> list[Way]:
        """Looks at those that nobody has looked at."""
        known = self.search.found.keys() | self._counted.keys()
        new = [(way, way.scenario) for way in ways if way.scenario not in known]
        return self.search.simulated(new, what="looking at ways to use the GPUs") if new else []

    def _shared(self, way: Arrangement) -> list[Way]:
        """A colocated way, where the job's framework can divide an update among so many GPUs."""
        if divides(way.scenario, self.gpus):
            return self._look([way])
        self.search.stuck[way] = StuckError(refusal(way.scenario, self.gpus), ())
        return []

    def _splits(self, made: Made) -> list[Way]:
        """The splits, as `made`: all, or of many those closest at the best."""
        stride = math.ceil(len(self.counts) / _MOST_SPLITS)
        wanted = {*range(0, len(self.counts), stride), len(self.counts) - 1}
        index = {n: i for i, n in enumerate(self.counts)}
        new: list[Way] = []
        tried: set[int] = set()
        while wanted:
            tried |= wanted
            new += self._look([made(self.counts[i]) for i in sorted(wanted)])
            if stride == 1 or not new:
                break
            finer = max(1, stride // 4)
            best = {index[min(new, key=lambda way: badness(way.runs[0], m)).choice.instances] for m in MEASURES}
            near = {j for i in best for j in range(i - stride, i + stride + 1, finer)}
            wanted, stride = {j for j in near if 0 <= j < len(self.counts)} - tried, finer
        return new

    def _tightened(self, look: Callable[[Scenario], list[Way]]) -> None:
        """Looks at the ways of one kind, of the job with ever smaller windows, until the best of all that were looked
        at is fresh enough: with a smaller window no way is faster."""
        # What is on-policy is held against nothing older than one step: that is what a permission would buy.
        target = None if self.oldest is None else max(self.oldest, 1.0)
        numbers = numbers_of(self.job, target)
        waiting: list[tuple[float, float, Way]] = []
        while numbers and not waiting:
            number, *numbers = numbers
            waiting = [(self._first(way), number or 0.0, way) for way in look(numbered(self.job, number))]
        if target is None:
            return
        smaller, known = [n for n in numbers if n is not None], set[float]()
        while waiting:
            best = min(waiting, key=lambda one: one[0])
            waiting.remove(best)
            _, number, way = best
            # one run may show fresher samples than the others
            sure = self.decide([way]) if way.age <= target else [way]
            age = sure[0].age if sure else math.inf
            if age <= target:
                return
            below = [n for n in smaller if n < number]
            wanted = next((n for n in below if n <= number * target / age), below[-1] if below else None)
            if wanted is not None and wanted not in known:
                known.add(wanted)
                waiting += [(self._first(way), wanted, way) for way in look(numbered(self.job, wanted))]


def badness(run: Mapping[str, Any], measure: By) -> float:
    """A measure of a run, the smaller the better, of what it trains whole."""
    value = float(per_whole_step(run)[measure])
    return -value if measure == "goodput" else value


def like(job: Scenario, way: Arrangement, gpus: int) -> Made:
    """What makes splits of other counts as far ahead as this one, of the job that it is a way of."""
    if way.on_policy:
        return lambda instances: split_in_turn(job, instances, gpus)
    there = numbered(job, number_of(job, way))
    return lambda instances: split(there, instances, gpus)


# --- Ways to use the GPUs beside each other: the places that they take, and which are the same within chance.

_UNRANKED: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Outcome(Found[Arrangement]):
    """One arrangement over its replications.

    ratio: of the ranking measure to the first-ranked one, paired (step_s and cost_per_step above 1 are worse, goodput
    below). ties: whether that is within chance. ranks: place by each measure, from 1.
    """

    ratio: Estimate
    ties: bool
    ranks: Mapping[str, int]

    @property
    def arrangement(self) -> Arrangement:
        """The way itself."""
        return self.choice


def ranked(ways: Sequence[Way], by: By) -> tuple[Outcome, ...]:
    """Best first by the mean of the replications; what ran only once comes after what was replicated."""
    most = max(way.replications for way in ways)

    def order(measure: By) -> list[int]:
        def place(i: int) -> tuple[bool, float]:
            runs = ways[i].runs
            return len(runs) < most, sum(badness(run, measure) for run in runs) / len(runs)

        return sorted(range(len(ways)), key=place)

    orders = {measure: order(measure) for measure in MEASURES}
    first = ways[orders[by][0]]
    return tuple(
        outcome_of(ways[i], first, by, {measure: orders[measure].index(i) + 1 for measure in MEASURES})
        for i in orders[by]
    )


def outcome_of(way: Way, first: Way, by: By, ranks: Mapping[str, int] = _UNRANKED) -> Outcome:
    """One way beside another, run by run."""
    ratio = ratio_of(way.whole, first.whole, by)
    ties = not differs(ratio, min(way.replications, first.replications))
    return Outcome(
        choice=way.choice,
        scenario=way.scenario,
        runs=way.runs,
        decided=way.decided,
        ratio=ratio,
        ties=ties,
        ranks=ranks,
    )
