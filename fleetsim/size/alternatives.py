"""What each lever buys: it is simulated beside the plan under the same draws. And which lever is cheapest.

The price of a lever is what a step costs more, divided by the seconds that it becomes shorter. A lever that needs no
GPU makes the step shorter on the same GPUs, and so cheaper: it is free in money. What it asks of the algorithm is named
beside it. Free levers come first, the one with the largest gain before the others; then come the others by their price.

A lever that throws notably more samples away than now is never called the cheapest: it gains speed by dropping the
responses that were not ready. Neither is one that cuts many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from fleetsim.config.scenario import Scenario
from fleetsim.dataclass import dataclass
from fleetsim.errors import StuckError
from fleetsim.estimates import Estimate
from fleetsim.job.change import Typed
from fleetsim.job.levers import ONE_MORE, OUTSIDE_THE_ALGORITHM, Lever, cuts_many, levers_of, more_lost, risk_words
from fleetsim.job.trials import Measure, Tell, Trial, flat, trial_of, unit_of, with_instances
from fleetsim.sim.paired_difference import Runs, differs, ratio_of
from fleetsim.sim.threads import side_by_side
from fleetsim.size.second_search import Anew, anew
from fleetsim.size.targets import Target


@dataclass(frozen=True, slots=True)
class Alternative:
    """What one lever does.

    anew: the same with the count that is best for it, where that was searched. step_ratio, cost_ratio: with the lever /
    without it at the same count, paired. gain_s: seconds that a step becomes shorter (negative: longer). cost_change:
    US dollars per step. shortens: whether the gain is larger than chance. price_usd_per_s: dollars per step for each
    second gained, None without a gain. loses_more: whether notably more samples are thrown away than without it;
    samples_lost and long_samples_lost: the shares of all samples and of the longest tenth. risk: what it asks of the
    algorithm, in words.
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
    anew: Anew | None = None

    @property
    def free(self) -> bool:
        """Whether the step does not become dearer."""
        return self.cost_change <= 0.0

    @property
    def may_be_advised(self) -> bool:
        """Whether no more samples are thrown away than without it, and few are cut."""
        return not self.loses_more and not cuts_many(self.truncated)

    @property
    def saves_usd(self) -> float:
        """US dollars that a step costs less with the count that is then best; 0 where it is nothing to advise."""
        advised = self.anew is not None and self.anew.saves and self.anew.holds and self.may_be_advised
        return self.anew.saves_usd if self.anew is not None and advised else 0.0


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


def alternatives_of(
    scenario: Scenario,
    grown: Scenario,
    replications: int,
    measure: Measure,
    *,
    targets: Sequence[Target] | None = None,
    of_grown: int | None = None,
    more: str = "one more instance",
    given: Collection[str] | None = None,
    tell: Tell | None = None,
) -> Alternatives:
    """The levers of a scenario as it is, each over `replications` runs beside the scenario's own.

    grown: the scenario with one more instance, `more` in words, over `of_grown` runs if given. targets: the count is
    searched anew for each lever, to hold these. given: as in levers_of. measure should remember runs: the scenario's
    own and often the grown one's have been made before.
    """
    if tell is not None:
        tell("trying what else would help")
    levers = levers_of(scenario, grown, more, given)
    more_runs = of_grown or replications
    ways = [(scenario, max(replications, more_runs))]
    ways += [(lever.scenario, more_runs if lever.name == ONE_MORE else replications) for lever in levers]
    jobs = [(way, r) for way, n in ways for r in range(n)]
    runs = iter(side_by_side(lambda job: _measured(measure, *job), jobs))
    each = [[next(runs) for _ in range(n)] for _, n in ways]
    base, tried, stuck = _complete(each[0]), [], []
    for lever, found in zip(levers, each[1:], strict=True):
        if any(run is None for run in found):
            stuck.append(lever.name)
        else:
            tried.append(compared(lever, _complete(found), base[: len(found)]))
    if targets is not None:
        now, by_all = (trial_of(scenario.fleet.instances, runs) for runs in (base[:1], base))
        pulled = {lever.name: lever for lever in levers if lever.name != ONE_MORE}
        tried = [replace(a, anew=_anew(pulled.get(a.name), a, now, targets, scenario, measure)) for a in tried]
        tried = _decided(tried, lambda a: anew(pulled[a.name].scenario, by_all, targets, measure))
    safe = _cheapest([a for a in tried if a.risk is None and a.name in OUTSIDE_THE_ALGORITHM])
    return Alternatives(tuple(tried), _cheapest(tried), safe, tuple(stuck))


def _decided(tried: Sequence[Alternative], by_all: Callable[[Alternative], Anew | None]) -> list[Alternative]:
    """The same, the one that saves most with the count that all runs decide, as if its job had been asked for."""
    found = {a.name: a for a in tried}
    doubted = set(found)
    while True:
        most = max(found.values(), key=lambda a: a.saves_usd, default=None)
        if most is None or most.name not in doubted or most.saves_usd <= 0.0:
            return list(found.values())
        doubted.remove(most.name)
        found[most.name] = replace(most, anew=by_all(most))


def _anew(
    lever: Lever | None,
    found: Alternative,
    now: Trial,
    targets: Sequence[Target],
    scenario: Scenario,
    measure: Measure,
) -> Anew | None:
    """A lever with a count of its own; None for a lever that changes nothing at this count and at about half of it."""
    if lever is None or found.lengthens:
        return None
    if not found.shortens:
        unit = unit_of(scenario)
        half = max(1, now.instances // unit // 2) * unit
        runs = [_measured(measure, with_instances(job, half), 0) for job in (lever.scenario, scenario)]
        with_it, without = _complete(runs[:1]), _complete(runs[1:])
        if not with_it or (without and not differs(ratio_of(with_it, without, "step_s"), 1)):
            return None
    return anew(lever.scenario, now, targets, measure)


def _measured(measure: Measure, scenario: Scenario, replication: int) -> dict[str, object] | None:
    try:
        return flat(measure(scenario, replication))
    except StuckError:
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
        risk=risk_words(lever, stale, stale_mean, lost, lost_of_all),
    )


def _cheapest(tried: Sequence[Alternative]) -> str | None:
    """See the module's docstring."""
    useful = [a for a in tried if a.shortens and a.may_be_advised]
    free = [a for a in useful if a.free]
    if free:
        return max(free, key=lambda a: a.gain_s).name
    return min(useful, key=lambda a: a.price_usd_per_s or 0.0).name if useful else None
