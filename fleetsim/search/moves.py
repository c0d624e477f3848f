"""Levers beside a job, and the moves among them that are told.

Every lever is simulated beside the job under the same draws, at its count; short looks find the count that is best for
it, and rank the levers by what that saves of step time x cost per step. The first of them are decided, and told, by as
many long runs as the job itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from fleetsim.config.scenario import Scenario
from fleetsim.estimates import Runs, differs
from fleetsim.job.looks import looked
from fleetsim.job.result import Later
from fleetsim.job.trainer_scaling import count_words, takes_turns
from fleetsim.job.trials import (
    PER_STEP,
    Measure,
    Tell,
    Trial,
    Trials,
    runs_of,
    trial_of,
    unit_of,
    whole_ratio,
    with_instances,
)
from fleetsim.job.words import reached_limits
from fleetsim.policies.samples import AGE_ACTIONS
from fleetsim.records import replace
from fleetsim.search.alternative import (
    COUNT,
    LEAST_GAIN,
    Alternative,
    Alternatives,
    Anew,
    anew,
    compared,
    is_free,
    own_cost,
    permission_of,
)
from fleetsim.search.change import Typed
from fleetsim.search.levers import ONE_MORE, STALENESS, Lever, cuts_many, levers_of, risk_of
from fleetsim.search.objective import Target, objective
from fleetsim.search.rate_matching import matched

_INSTEAD = " instead of "
# How often a staleness budget is raised where no fleet holds the targets without it.
_RAISED = 3
# Moves that are told, at most: of those that the recipe allows by itself, and of those that need a permission. Short
# looks find the best of them and their counts, as many long runs as the recommendation has decide and are told.
_FREE, _PERMITTED = 2, 1
# So large a share of samples that is lost is worth a lower cap.
_MANY_LOST = 0.02


def alternatives_of(
    scenario: Scenario,
    grown: Scenario,
    replications: int,
    measure: Measure,
    *,
    now: Trial | None = None,
    targets: Sequence[Target] = (),
    more: str = "one more instance",
    given: Collection[str] | None = None,
    own_count: bool = False,
    search: bool = True,
    best_alone: bool = False,
    tell: Tell | None = None,
) -> Alternatives:
    """The levers of a scenario as it is, each over `replications` runs beside the scenario's own.

    grown: the scenario with one more instance, `more` in words. now: what the scenario came to; the count is searched
    anew for each lever, by its objective and `targets`. given: as in levers_of. own_count: the scenario's count was not
    chosen: the best one is a lever as well. search: False where the GPUs are given, so that every lever keeps the
    count, and nobody has one more. best_alone: only the best move is told. measure should remember runs: the scenario's
    own and often the grown one's have been made before.
    """
    if tell is not None:
        tell("trying what else would help")
    preempted = now is not None and now.mean("preemptions") > 0.01 * scenario.trainer.batch_samples
    too_old = now is not None and drops_many(scenario, now)
    trainer, full = search and now is not None, () if now is None else reached_limits(scenario, now.estimates)
    levers = levers_of(scenario, grown, more, given, trainer=trainer, preempted=preempted, too_old=too_old, full=full)
    beside = _Beside(scenario, levers, replications, measure)
    if now is not None and own_count:
        beside.levers[COUNT] = Lever(COUNT, "another count", Typed({}), scenario)
    if now is None or not (search and best_alone):
        beside.made((scenario, *(lever.scenario for lever in beside.levers.values())), replications)
    found: dict[str, Alternative] = {}
    if now is not None and not search:
        for name, lever in beside.levers.items():
            if name != ONE_MORE and (one := beside.compared(name)) is not None:
                trial = trial_of(lever.scenario.fleet.instances, beside.runs(lever.scenario))
                found[name] = replace(one, anew=Anew(lever.scenario, trial, now, holds=True))
    elif now is not None:
        found = _Moves(beside, now, targets, measure).told(best_alone)
        if COUNT not in found:
            beside.levers.pop(COUNT, None)
    each = {name: Later(partial(_told, beside, name, found.get(name))) for name in beside.levers}
    moved = tuple(a for a in found.values() if a.anew is not None)
    looked: Callable[[str], float] = beside.step_by_look if search else lambda name: 0.0
    return Alternatives(each, moved, looked=looked, texts={name: lever.text for name, lever in beside.levers.items()})


def drops_many(scenario: Scenario, now: Trial) -> bool:
    """Whether many samples are dropped as too old."""
    return AGE_ACTIONS[scenario.admission.age_action].drops and now.mean("samples_lost.all") > _MANY_LOST


class _Beside:
    """The levers of a job beside it, at its count. levers: by name."""

    def __init__(self, scenario: Scenario, levers: Sequence[Lever], replications: int, measure: Measure) -> None:
        self.scenario, self._replications, self._measure = scenario, replications, measure
        self.levers = {lever.name: lever for lever in levers}

    def made(self, ways: Iterable[Scenario], replications: int = 0) -> dict[Scenario, Runs]:
        """So many long runs of each, or a look, side by side; none where one gets stuck, or a cap has no room for the
        longest request."""
        each = max(1, replications)
        found = runs_of({way: way if replications else looked(way) for way in ways}, each, self._measure)
        return {way: runs if len(runs) == each else [] for way, runs in found.items()}

    def runs(self, scenario: Scenario) -> Runs:
        """Long runs of the job, or of it with a lever; none where one of them gets stuck."""
        return self.made([scenario], self._replications)[scenario]

    def compared(self, name: str) -> Alternative | None:
        """A lever by its long runs; None where it gets stuck."""
        lever, base = self.levers[name], self.runs(self.scenario)
        found = base if name == COUNT else self.runs(lever.scenario)
        return compared(lever, found, base) if found and base else None

    def look(self, scenario: Scenario) -> Runs:
        """A look of a job; none where it gets stuck."""
        return self.made([scenario])[scenario]

    def step_by_look(self, name: str) -> float:
        """The step of a lever over that of the job, in looks; 0 where one of them says nothing."""
        found, base = self.look(self.levers[name].scenario) if name in self.levers else [], self.look(self.scenario)
        return whole_ratio(found, base, "step_s").mean if found and base else 0.0


def _told(beside: _Beside, name: str, moved: Alternative | None) -> Alternative | None:
    """A lever at the job's count, with the count of its own that was decided."""
    found = beside.compared(name)
    if found is None or moved is None or moved.anew is None:
        return found
    own = {key: getattr(moved, key) for key in ("anew", "risk", "permission", "text", "flag")}
    return replace(found, **own)


class _Moves:
    """Levers with counts of their own, of which looks say how good they are, and long runs those that are told."""

    def __init__(self, beside: _Beside, now: Trial, targets: Sequence[Target], measure: Measure) -> None:
        self._beside, self._now, self._targets, self._measure = beside, now, targets, measure
        self._missed = any(not t.held_by(now.estimates[t.metric]) for t in targets)
        self._pulled = {name: lever for name, lever in beside.levers.items() if name != ONE_MORE}
        self._found: dict[str, Alternative] = {}

    def told(self, best_alone: bool) -> dict[str, Alternative]:
        """The levers that were looked at, by name; those that are told have a count of their own, of as many long runs
        as the recommendation.

        Where no fleet holds the targets as the job is, the cheapest with which one does is among them, and the
        staleness budget is raised until one does.
        """
        free = [name for name in self._pulled if is_free(name)]
        self._look([name for name in free if name == COUNT], 1)
        self._decide(lambda a: a.name == COUNT, 1)
        self._without_the_count()
        if self._missed:
            self._look(list(self._pulled), len(self._pulled))
            self._raise()
            self._decide(lambda a: a.anew is not None and a.anew.holds and a.may_be_advised, 1, own_cost)
        self._look(free, _FREE)
        self._decide(lambda a: a.permission is None, 1 if best_alone else _FREE)
        allowed = max((a.gain for a in self._found.values() if a.permission is None), default=0.0)
        least = allowed + LEAST_GAIN if best_alone and allowed else 0.0  # what saves no more is not told
        self._look(list(self._pulled), _PERMITTED, least)
        self._decide(lambda a: a.permission is not None and a.gain >= least, _PERMITTED)
        self._without_the_count()
        return {n: a if self._is_decided(a) else replace(a, anew=None) for n, a in self._found.items()}

    def _look(self, names: Sequence[str], most: int, beyond: float = 0.0) -> None:
        """Looks at levers that were not, what helps most at this count first, each for a count of its own: as long as
        it may save more than luck, more than the best count alone, more than `most` others that it competes with, and
        as much as `beyond`.
        """
        ways = {name: self._pulled[name].scenario for name in names if name not in self._found}
        looks = self._beside.made((self._beside.scenario, *ways.values()))
        here = looks[self._beside.scenario]
        look = trial_of(self._now.instances, here)
        new = {name: looks[way] for name, way in ways.items() if looks[way]}
        found = {name: compared(self._pulled[name], runs, here) for name, runs in new.items()}
        others: list[float] = []
        for name in sorted(found, key=lambda name: found[name].step_ratio.mean * found[name].cost_ratio.mean):
            count = self._found.get(COUNT)
            least = LEAST_GAIN + (count.gain if count is not None and count.name != name else 0.0)
            least = max([least, beyond, *sorted(others, reverse=True)[most - 1 : most]])
            helps, lever = name == COUNT or _helps(new[name], here), self._pulled[name]
            own = self._by_looks(lever, helps, look, least)
            self._found[name] = replace(found[name], anew=own)
            others.append(self._found[name].gain)

    def _is_decided(self, a: Alternative) -> bool:
        return a.anew is not None and a.anew.instead_of is self._now

    def _decide(
        self, among: Callable[[Alternative], bool], count: int, by: Callable[[Alternative], float] | None = None
    ) -> None:
        """The first few of some moves, by what they save or what else is said, are so by long runs."""
        while True:
            wanted = [a for a in self._found.values() if among(a) and (by is not None or a.gain > 0.0)]
            best = sorted(wanted, key=by or (lambda a: -a.gain))[:count]
            open_ = [a for a in best if not self._is_decided(a)]
            if not open_:
                return
            for a in open_:
                self._found[a.name] = self._with(a, self._anew(a.name))

    def _with(self, a: Alternative, found: Anew | None) -> Alternative:
        """A move as long runs have it: what it asks of the algorithm, and whether the recipe allows that."""
        lever = self._pulled[a.name]
        risk = a.risk if found is None else risk_of(lever, self._now.mean, found.trial.mean)
        permission = permission_of(lever, risk)
        return replace(a, anew=found, risk=risk, permission=permission, text=lever.text, flag=lever.flag)

    def _anew(self, name: str) -> Anew | None:
        """A lever with the count that long runs find, by the search that a job with it would have."""
        changed = self._pulled[name].scenario
        return anew(Trials(changed, self._measure), matched(changed)[1], self._now, self._targets)

    def _by_looks(self, lever: Lever, helps: bool, now: Trial, least: float) -> Anew | None:
        """A lever with a count of its own, as looks have it; None for a lever that changes nothing at this count and at
        about half of it. now: a look of the job as it is. least: the share of its objective that it must save."""
        if cuts_many(lever.truncated):
            return None
        scenario = self._beside.scenario
        if not helps:
            half = max(1, now.instances // unit_of(lever.scenario) // 2) * unit_of(lever.scenario)
            with_it, without = (self._beside.look(with_instances(job, half)) for job in (lever.scenario, scenario))
            if not with_it or (without and not differs(whole_ratio(with_it, without, "step_s"), 1)):
                return None
        beat = (1.0 - least) * objective(scenario, now.instances, now.whole("step_s"))
        trials = Trials(lever.scenario, self._measure)
        return anew(trials, now.instances, now, self._targets, look=True, beat=beat)

    def _raise(self) -> None:
        """Raises the staleness budget until a fleet holds the targets."""
        older, own = self._found.get(STALENESS), None
        if older is None:
            return
        for _ in range(_RAISED):
            own = self._anew(STALENESS)
            if own is None or own.holds:
                break
            lever = next((x for x in levers_of(own.scenario, own.scenario, "") if x.name == STALENESS), None)
            if lever is None:
                break
            self._pulled[STALENESS] = _beyond(self._pulled[STALENESS], lever)
        if own is not None:
            self._found[STALENESS] = self._with(older, own)

    def _without_the_count(self) -> None:
        """Levers that gain no more than the best count alone does are no moves; and that count in words."""
        count = self._found.get(COUNT)
        if count is None:
            return
        if count.anew is None:
            del self._found[COUNT]
            return
        n, least = count.anew.instances, count.gain + LEAST_GAIN
        self._found = {a.name: a if a.gain >= least else replace(a, anew=None) for a in self._found.values()}
        there = count.anew.scenario
        typed = {"fleet.instances": n} | ({"trainer.gpus": there.trainer.gpus} if takes_turns(there) else {})
        self._found[COUNT] = replace(count, text=count_words(there, n), flag=Typed(typed))


def _beyond(lever: Lever, more: Lever) -> Lever:
    """A lever that was pulled once more, as one lever of the job: beside what the job has, with all that is typed."""
    further, _, _ = more.text.partition(_INSTEAD)
    _, instead, now = lever.text.partition(_INSTEAD)
    text = f"{further}{instead}{now}" if instead else f"{lever.text}, {further}"
    flag = Typed({**lever.flag.changes, **more.flag.changes}, {**lever.flag.options, **more.flag.options})
    return replace(more, text=text, flag=flag)


def _helps(runs: Runs, base: Runs) -> bool:
    """Whether a look of a lever is shorter, or cheaper, at the same count."""
    return any(whole_ratio(runs, base, m).mean < 1.0 - LEAST_GAIN for m in PER_STEP)
