"""What each lever buys: it is simulated beside the job under the same draws, at its count and with a count of its own.

Levers are ranked by what a count of their own saves of step time x cost per step. The price of a lever at the same
count is what a step costs more, divided by the seconds that it becomes shorter; one that needs no GPU is free in money.

What a recipe does not say anyway (older samples, fewer syncs, cut responses) needs permission, and says for what. A
lever that throws notably more samples away than now, or cuts many of them, is never advised.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from typing import Any

from fleetsim.config.scenario import Scenario
from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, StuckError
from fleetsim.estimates import Estimate
from fleetsim.job.change import Typed
from fleetsim.job.levers import (
    ONE_MORE,
    OUTSIDE_THE_ALGORITHM,
    STALENESS,
    Lever,
    cuts_many,
    levers_of,
    more_lost,
    risk_words,
)
from fleetsim.job.shared_gpus import count_words, takes_turns
from fleetsim.job.trials import Measure, Tell, Trial, flat, looked, trial_of, unit_of, with_instances
from fleetsim.search.second_search import LEAST_GAIN, Anew, anew
from fleetsim.search.targets import Target
from fleetsim.sim.paired_difference import Runs, differs, ratio_of
from fleetsim.sim.threads import side_by_side

# The lever that leaves all as it is but the count.
COUNT = "instances"
# How often a staleness budget is raised where no fleet holds the targets without it.
_RAISED = 3
# Moves whose own counts are decided by as many runs as the recommendation.
_DECIDED = 1


@dataclass(frozen=True, slots=True)
class Alternative:
    """What one lever does.

    step_ratio, cost_ratio: with the lever / without it at the same count, paired. gain_s: seconds that a step becomes
    shorter (negative: longer). cost_change: US dollars per step. shortens: whether the gain is larger than chance.
    price_usd_per_s: dollars per step for each second gained, None without a gain. loses_more: whether notably more
    samples are thrown away than without it; samples_lost and long_samples_lost: the shares of all samples and of the
    longest tenth. risk: what it asks of the algorithm, in words. permission: that, where the recipe does not allow it
    by itself. anew: the same with the count that is best for it, where that was searched.
    """

    name: str
    text: str
    flag: Typed
    replications: int
    step_ratio: Estimate
    cost_ratio: Estimate
    gain_s: float
    cost_change: float
    staleness_p99_steps: float
    samples_lost: float
    long_samples_lost: float
    loses_more: bool
    truncated: float
    shortens: bool
    lengthens: bool
    price_usd_per_s: float | None
    risk: str | None
    permission: str | None = None
    anew: Anew | None = None

    @property
    def free(self) -> bool:
        """Whether the step does not become dearer."""
        return self.cost_change <= 0.0

    @property
    def may_be_advised(self) -> bool:
        """Whether no more samples are thrown away than without it, and few are cut."""
        loses = self.loses_more if self.anew is None else self.anew.loses_more
        return not loses and not cuts_many(self.truncated)

    @property
    def gain(self) -> float:
        """The share of step time x cost per step that it saves with a count of its own; 0 where it is no advice."""
        return self.anew.gain if self.anew is not None and self.anew.saves and self.may_be_advised else 0.0

    def told(self) -> dict[str, Any]:
        """As it stands in a JSON document."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "anew"}
        a = self.anew
        own = a and {
            "instances": a.instances, "instead_of": a.instead_of.instances, "holds": a.holds, "gain": a.gain,
            "step_s": a.trial.mean("step_s"), "cost_per_step": a.trial.mean("cost_per_step"),
            "trainer_idle_fraction": a.trial.mean("trainer_idle_fraction"),
            "staleness_p99_steps": a.trial.mean("staleness_steps.p99"), "saves_usd": a.saves_usd,
            "saves_s": a.saves_s, "replications": a.trial.replications,
        }  # fmt: skip
        return {**found, "free": self.free, "anew": own}


@dataclass(frozen=True, slots=True)
class Alternatives:
    """All levers with which the job runs, in the order of levers_of.

    cheapest: the name of one of them, None where none makes a step shorter without losing more samples.
    cheapest_without_risk: the same among the levers that do not change the algorithm. stuck: levers with which the job
    gets stuck.
    """

    tried: tuple[Alternative, ...]
    cheapest: str | None
    cheapest_without_risk: str | None
    stuck: tuple[str, ...]

    def named(self, name: str) -> Alternative | None:
        """The alternative of a lever, None where the scenario does not have it."""
        return next((a for a in self.tried if a.name == name), None)

    def moves(self) -> tuple[Alternative, ...]:
        """Those that save something with a count of their own: without permission first, what saves most first."""
        return tuple(sorted((a for a in self.tried if a.gain > 0.0), key=lambda a: (a.permission is not None, -a.gain)))

    def told(self) -> dict[str, Any]:
        """As they stand in a JSON document."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**found, "tried": [a.told() for a in self.tried]}


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
    tell: Tell | None = None,
) -> Alternatives:
    """The levers of a scenario as it is, each over `replications` runs beside the scenario's own.

    grown: the scenario with one more instance, `more` in words. now: what the scenario came to;
    the count is searched anew for each lever, by its objective and `targets`. given: as in levers_of.
    own_count: the scenario's count was not chosen: the best one is a lever as well. search: False where the GPUs are
    given, so that every lever keeps the count, and nobody has one more. measure should remember runs: the
    scenario's own and often the grown one's have been made before.
    """
    if tell is not None:
        tell("trying what else would help")
    preempted = now is not None and now.mean("preemptions") > 0.01 * scenario.trainer.batch_samples
    levers = levers_of(scenario, grown, more, given, trainer=search and now is not None, preempted=preempted)
    jobs = [(way, r) for way in (scenario, *(lever.scenario for lever in levers)) for r in range(replications)]
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
        one = trial_of(now.instances, base[:1])
        pulled = {lever.name: lever for lever in levers if lever.name != ONE_MORE}
        if own_count:
            pulled[COUNT] = Lever(COUNT, "another count", Typed({}), scenario)
            tried.append(compared(pulled[COUNT], base[:1], base[:1]))
        helps = {lever.name: _helps(found, base) for lever, found in zip(levers, each[1:], strict=True)}

        def own(a: Alternative) -> Anew | None:
            return _anew(pulled.get(a.name), helps.get(a.name, True), scenario, one, targets, measure)

        searched = side_by_side(own, tried)
        tried = [replace(a, anew=found) for a, found in zip(tried, searched, strict=True)]
        missed = [t for t in targets if not t.held_by(now.estimates[t.metric])]
        tried = _without_the_count(_decided(tried, pulled, now, targets, measure, mends=bool(missed)))
    safe = _cheapest([a for a in tried if a.risk is None and a.permission is None])
    return Alternatives(tuple(tried), _cheapest(tried), safe, tuple(stuck))


def _decided(
    tried: Sequence[Alternative],
    pulled: dict[str, Lever],
    now: Trial,
    targets: Sequence[Target],
    measure: Measure,
    *,
    mends: bool,
) -> list[Alternative]:
    """The same, the few that save most with the counts that all runs decide, as if their jobs had been asked for; of
    those with and those without permission.

    mends: no fleet holds the targets as it is: then the staleness budget is raised until one does.
    """
    found = {a.name: a for a in tried}
    for free in (True, False):
        for _ in range(_DECIDED + 1):
            best = sorted((a for a in found.values() if (a.permission is None) is free), key=lambda a: -a.gain)
            open_ = [a for a in best[:_DECIDED] if a.gain > 0.0 and a.anew and a.anew.instead_of is not now]
            if not open_:
                break
            for a in open_:
                found[a.name] = replace(a, anew=anew(pulled[a.name].scenario, now, targets, measure) or a.anew)
    older = found.get(STALENESS)
    if mends and older is not None:
        for _ in range(_RAISED):
            own = anew(pulled[STALENESS].scenario, now, targets, measure)
            if own is None or own.holds:
                break
            lever = next((x for x in levers_of(own.scenario, own.scenario, "") if x.name == STALENESS), None)
            if lever is None:
                break
            pulled[STALENESS] = lever
        if own is not None:
            lever = pulled[STALENESS]
            found[STALENESS] = replace(older, anew=own, text=lever.text, flag=lever.flag)
    return list(found.values())


def _as_counted(changed: Scenario, runs: Runs, now: Trial) -> Anew:
    """A lever with the count as it is."""
    return Anew(changed, trial_of(changed.fleet.instances, runs), now, holds=True)


def _without_the_count(tried: Sequence[Alternative]) -> list[Alternative]:
    """Levers that gain no more than the best count alone does are no moves; and that count in words."""
    count = next((a for a in tried if a.name == COUNT), None)
    if count is None or count.anew is None:
        return [a for a in tried if a is not count]
    n, least = count.anew.instances, count.gain + LEAST_GAIN
    there = count.anew.scenario
    typed = {"fleet.instances": n} | ({"trainer.gpus": there.trainer.gpus} if takes_turns(there) else {})
    said = replace(count, text=count_words(there, n), flag=Typed(typed))
    return [said if a is count else a if a.gain >= least else replace(a, anew=None) for a in tried]


def _helps(runs: Sequence[dict[str, object] | None], base: Runs) -> bool:
    """Whether the first run of a lever is shorter, or cheaper, at the same count."""
    found = _complete(runs[:1])
    return bool(found) and any(
        ratio_of(found, base[:1], m).mean < 1.0 - LEAST_GAIN for m in ("step_s", "cost_per_step")
    )


def _anew(
    lever: Lever | None, helps: bool, scenario: Scenario, now: Trial, targets: Sequence[Target], measure: Measure
) -> Anew | None:
    """A lever with a count of its own, from one long run; None for a lever that changes nothing at this count and at
    about half of it."""
    if lever is None or cuts_many(lever.truncated):
        return None
    if lever.name != COUNT and not helps:
        half = max(1, now.instances // unit_of(lever.scenario) // 2) * unit_of(lever.scenario)
        ways = [looked(with_instances(job, half)) for job in (lever.scenario, scenario)]
        with_it, without = (_complete([_measured(measure, way, 0)]) for way in ways)
        if not with_it or (without and not differs(ratio_of(with_it, without, "step_s"), 1)):
            return None
    return anew(lever.scenario, now, targets, measure, 1)


def _measured(measure: Measure, scenario: Scenario, replication: int) -> dict[str, object] | None:
    try:
        return flat(measure(scenario, replication))
    except (StuckError, InputError):  # a cap may leave no room for the longest request
        return None


def _complete(runs: Sequence[dict[str, object] | None]) -> Runs:
    return [run for run in runs if run is not None]


def compared(lever: Lever, runs: Runs, base: Runs) -> Alternative:
    """One lever's runs beside those without it."""
    n = len(runs)

    def mean(of: Runs, metric: str) -> float:
        return sum(float(run[metric]) for run in of) / n

    step, cost = ratio_of(runs, base, "step_s"), ratio_of(runs, base, "cost_per_step")
    gain = mean(base, "step_s") - mean(runs, "step_s")
    change = mean(runs, "cost_per_step") - mean(base, "cost_per_step")
    significant = differs(step, n)
    stale, stale_mean, lost, lost_of_all = (
        (mean(base, metric), mean(runs, metric))
        for metric in (
            "staleness_steps.p99",
            "staleness_steps.mean",
            "samples_lost.longest_tenth",
            "samples_lost.all",
        )
    )
    risk = risk_words(lever, stale, stale_mean, lost, lost_of_all)
    return Alternative(
        name=lever.name,
        text=lever.text,
        flag=lever.flag,
        replications=n,
        step_ratio=step,
        cost_ratio=cost,
        gain_s=gain,
        cost_change=change,
        staleness_p99_steps=stale[1],
        samples_lost=lost_of_all[1],
        long_samples_lost=lost[1],
        loses_more=more_lost(lost) or more_lost(lost_of_all),
        truncated=lever.truncated,
        shortens=significant and gain > 0,
        lengthens=significant and gain < 0,
        price_usd_per_s=change / gain if significant and gain > 0 else None,
        risk=risk,
        permission=None if lever.name in (COUNT, *OUTSIDE_THE_ALGORITHM) else risk or "another recipe",
    )


def fresh_enough(found: Alternatives, oldest: float | None) -> Alternatives:
    """The same, with the cheapest of those that leave samples no older than so many steps (p99); None: of all."""
    if oldest is None:
        return found
    return replace(found, cheapest=_cheapest([a for a in found.tried if a.staleness_p99_steps <= oldest]))


def _cheapest(tried: Sequence[Alternative]) -> str | None:
    """See the module's docstring."""
    useful = [a for a in tried if a.shortens and a.may_be_advised]
    free = [a for a in useful if a.free]
    if free:
        return max(free, key=lambda a: a.gain_s).name
    return min(useful, key=lambda a: a.price_usd_per_s or 0.0).name if useful else None
