"""Levers beside a job, and the moves among them that are told.

Every lever is simulated beside the job under the same draws, at its count; short looks find the count that is best for
it, and rank the levers by what that saves of step time x cost per step. The first of them are decided, and told, by as
many long runs as the job itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError, StuckError
from fleetsim.job.trainer_scaling import count_words, takes_turns
from fleetsim.job.trials import Measure, Tell, Trial, flat, looked, trial_of, unit_of, with_instances
from fleetsim.search.alternative import COUNT, Alternative, Alternatives, cheapest_of, compared, permission_of, risk_of
from fleetsim.search.change import Typed
from fleetsim.search.levers import ONE_MORE, STALENESS, Lever, cuts_many, levers_of
from fleetsim.search.second_search import LEAST_GAIN, Anew, anew
from fleetsim.search.targets import Target
from fleetsim.sim.paired_difference import Runs, differs, ratio_of
from fleetsim.sim.threads import side_by_side

# How often a staleness budget is raised where no fleet holds the targets without it.
_RAISED = 3
# Moves that are told, at most: of those that the recipe allows by itself, and of those that need a permission. Short
# looks find the best of them and their counts, as many long runs as the recommendation has decide and are told.
_FREE, _PERMITTED = 2, 1


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
    levers = levers_of(scenario, grown, more, given, trainer=search and now is not None, preempted=preempted)
    ways = [scenario, *(lever.scenario for lever in levers)]
    jobs = [(way, r) for way in ways for r in range(replications)]
    runs = iter(side_by_side(lambda job: _measured(measure, *job), jobs))
    each = [[next(runs) for _ in range(replications)] for _ in range(1 + len(levers))]
    base, tried, stuck = _complete(each[0]), [], []
    for lever, found in zip(levers, each[1:], strict=True):
        if any(run is None for run in found):
            stuck.append(lever.name)
        else:
            tried.append(compared(lever, _complete(found), base[: len(found)]))
    if now is not None and not search:
        kept = {lever.name: (lever.scenario, _complete(runs)) for lever, runs in zip(levers, each[1:], strict=True)}
        tried = [replace(a, anew=_as_counted(*kept[a.name], now)) if a.name != ONE_MORE else a for a in tried]
    elif now is not None:
        pulled = {lever.name: lever for lever in levers if lever.name != ONE_MORE}
        if own_count:
            pulled[COUNT] = Lever(COUNT, "another count", Typed({}), scenario)
            tried.append(compared(pulled[COUNT], base[:1], base[:1]))
        helps = {lever.name: _helps(found, base) for lever, found in zip(levers, each[1:], strict=True)}
        look = trial_of(now.instances, _complete([_measured(measure, looked(scenario), 0)]))

        def own(a: Alternative) -> Anew | None:
            return _anew(pulled.get(a.name), helps.get(a.name, True), scenario, look, targets, measure)

        searched = side_by_side(own, tried)
        tried = [replace(a, anew=found) for a, found in zip(tried, searched, strict=True)]
        tried = _Moves(tried, pulled, now, targets, measure).told(best_alone)
    safe = cheapest_of([a for a in tried if a.risk is None and a.permission is None])
    return Alternatives(tuple(tried), cheapest_of(tried), safe, tuple(stuck))


class _Moves:
    """Levers with counts of their own, of which looks say how good they are, and long runs those that are told."""

    def __init__(
        self,
        tried: Sequence[Alternative],
        pulled: Mapping[str, Lever],
        now: Trial,
        targets: Sequence[Target],
        measure: Measure,
    ) -> None:
        self._found, self._pulled = {a.name: a for a in tried}, dict(pulled)
        self._now, self._targets, self._measure = now, targets, measure
        self._missed = any(not t.held_by(now.estimates[t.metric]) for t in targets)

    def told(self, best_alone: bool) -> list[Alternative]:
        """All levers; those that are told have a count of their own, of as many long runs as the recommendation.

        Where no fleet holds the targets as the job is, the cheapest with which one does is among them, and the
        staleness budget is raised until one does.
        """
        self._decide(lambda a: a.name == COUNT, 1)
        self._without_the_count()
        if self._missed:
            self._raise()
            self._decide(lambda a: a.anew is not None and a.anew.holds and a.may_be_advised, 1, _cost)
        self._decide(lambda a: a.permission is None, 1 if best_alone else _FREE)
        if not best_alone or not any(a.gain > 0.0 for a in self._found.values() if a.permission is None):
            self._decide(lambda a: a.permission is not None, _PERMITTED)
        self._without_the_count()
        return [a if self._is_decided(a) else replace(a, anew=None) for a in self._found.values()]

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
        """A lever with the count that long runs find."""
        return anew(self._pulled[name].scenario, self._now, self._targets, self._measure)

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
            self._pulled[STALENESS] = lever
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


def _cost(a: Alternative) -> float:
    return a.anew.trial.mean("cost_per_step") if a.anew is not None else math.inf


def _as_counted(changed: Scenario, runs: Runs, now: Trial) -> Anew:
    """A lever with the count as it is."""
    return Anew(changed, trial_of(changed.fleet.instances, runs), now, holds=True)


def _helps(runs: Sequence[dict[str, object] | None], base: Runs) -> bool:
    """Whether the first run of a lever is shorter, or cheaper, at the same count."""
    found = _complete(runs[:1])
    return bool(found) and any(
        ratio_of(found, base[:1], m).mean < 1.0 - LEAST_GAIN for m in ("step_s", "cost_per_step")
    )


def _anew(
    lever: Lever | None, helps: bool, scenario: Scenario, now: Trial, targets: Sequence[Target], measure: Measure
) -> Anew | None:
    """A lever with a count of its own, as looks have it; None for a lever that changes nothing at this count and at
    about half of it. now: a look of the job as it is."""
    if lever is None or cuts_many(lever.truncated):
        return None
    if lever.name != COUNT and not helps:
        half = max(1, now.instances // unit_of(lever.scenario) // 2) * unit_of(lever.scenario)
        ways = [looked(with_instances(job, half)) for job in (lever.scenario, scenario)]
        with_it, without = (_complete([_measured(measure, way, 0)]) for way in ways)
        if not with_it or (without and not differs(ratio_of(with_it, without, "step_s"), 1)):
            return None
    return anew(lever.scenario, now, targets, measure, look=True)


def _measured(measure: Measure, scenario: Scenario, replication: int) -> dict[str, object] | None:
    try:
        return flat(measure(scenario, replication))
    except (StuckError, InputError):  # a cap may leave no room for the longest request
        return None


def _complete(runs: Sequence[dict[str, object] | None]) -> Runs:
    return [run for run in runs if run is not None]
