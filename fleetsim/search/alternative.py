"""What each lever does, beside the job as it is: at the same count, and with a count of its own.

The price of a lever at the same count is what a step costs more, divided by the seconds that it becomes shorter; one
that needs no GPU is free in money. What a recipe does not say anyway (older samples, fewer syncs, cut responses) needs
permission, and says for what. A lever that throws notably more samples away than now, or cuts many of them, is never
advised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msgspec import Struct

from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.estimates import Estimate, Runs, differs, ratio_of
from fleetsim.job.result import Later
from fleetsim.job.trials import Trial, Trials, per_whole_step, with_instances
from fleetsim.records import field_names
from fleetsim.search.best import best_of, decided_trial
from fleetsim.search.change import Change, OfWholeSamples, Typed
from fleetsim.search.levers import LOST, OF_THE_ALGORITHM, ON_DEMAND, Lever, cuts_many, more_lost, risk_of
from fleetsim.search.objective import Target

# --- A changed job with the fleet that is best for it: what the change saves once the count is chosen anew.
#
#     A lever that buys nothing at the recommended count may still make that fleet far too large: with a higher cap on
#     samples in flight five instances may be enough where fifty were needed. So the count is searched again by the rule
#     of the recommendation, and what it comes to is simulated as long as the recommendation was.

# Of an alternative the best count is looked for down to this ratio between two counts.
_FINE = 4 / 3
# A gain below this share of the objective is none.
LEAST_GAIN = 0.02
# Shares of a batch that are trained whole are others if they differ by more.
_OTHERWISE = 0.005
# By so much of itself a share that is lost may be larger in one look than in another, by luck.
_LUCK = 0.05


class Anew(Struct, frozen=True):
    """A changed job with its own count.

    scenario: with that count; trial: what it came to. instead_of: the trial of the job as it is. holds: whether it
    holds all targets. looked: whether both are looks.
    """

    scenario: Scenario
    trial: Trial
    instead_of: Trial
    holds: bool
    looked: bool = False

    @property
    def instances(self) -> int:
        """Its count."""
        return self.trial.instances

    @property
    def step_ratio(self) -> float:
        """Its step / that of the job as it is; no gain beside a look that saw nothing but a burst of ready batches."""
        now = self.instead_of.whole("step_s")
        return self.trial.whole("step_s") / now if now else math.inf

    @property
    def saves_s(self) -> float:
        """Seconds that a step becomes shorter."""
        return self.instead_of.whole("step_s") - self.trial.whole("step_s")

    @property
    def saves_usd(self) -> float:
        """US dollars that a step becomes cheaper."""
        return self.instead_of.whole("cost_per_step") - self.trial.whole("cost_per_step")

    @property
    def gain(self) -> float:
        """The share by which step time x cost per step becomes less."""
        cost, now = (trial.whole("cost_per_step") for trial in (self.trial, self.instead_of))
        worth = self.scenario.targets.worth
        return 1.0 - math.pow(self.step_ratio, worth) * (cost / now if now else 1.0)

    @property
    def loses_more(self) -> bool:
        """Whether notably more samples are thrown away than in the job as it is."""
        luck = 1.0 + _LUCK * self.looked
        return any(more_lost((luck * self.instead_of.mean(metric), self.trial.mean(metric))) for metric in LOST)

    @property
    def saves(self) -> bool:
        """Whether that is more than luck."""
        return self.gain > LEAST_GAIN


def anew(
    trials: Trials, start: int, now: Trial, targets: Sequence[Target], *, look: bool = False, beat: float = math.inf
) -> Anew | None:
    """The count that is best for a changed job; None where it gets stuck.

    trials: of that job; what was looked at before is known. start: where the search begins. now: the job as it is.
    targets: as for the recommendation. look: by one look at each of few counts, as `now` is one; else by as many long
    runs as the job's. beat: see `least`.
    """
    runs = min(now.replications, trials.scenario.run.replications)
    try:
        if look:
            trials = trials.looks
            best = best_of(trials, start, targets, runs, fine=_FINE, beat=beat)
        else:
            best = best_of(trials, start, targets, runs)
        trial = decided_trial(trials, best.instances, targets, runs)
    except StuckError:
        return None
    holds = all(t.held_by(trial.estimates[t.metric]) for t in targets)
    return Anew(with_instances(trials.scenario, best.instances), trial, now, holds, look)


# The lever that leaves all as it is but the count.
COUNT = "instances"
# A trainer that waits for less than this share of its time never waits: it is written as 0.0 %.
_NEVER = 0.0005


class Alternative(Struct, frozen=True):
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
        found = {name: getattr(self, name) for name in field_names(self) if name != "anew"}
        a = self.anew
        own = a and {
            "instances": a.instances, "instead_of": a.instead_of.instances, "holds": a.holds, "gain": a.gain,
            "step_s": a.trial.mean("step_s"), "cost_per_step": a.trial.mean("cost_per_step"),
            "trainer_idle_fraction": a.trial.mean("trainer_idle_fraction"),
            "staleness_p99_steps": a.trial.mean("staleness_steps.p99"), "saves_usd": a.saves_usd,
            "saves_s": a.saves_s, "replications": a.trial.replications,
        }  # fmt: skip
        return {**found, "free": self.free, "anew": own}


@dataclass(frozen=True, eq=False)
class Alternatives:
    """The levers of a job, in the order of levers_of.

    each: what one does beside the job at its count, simulated when it is first asked for; None for one with which the
    job gets stuck. moved: those with a count of their own that as many long runs as the job's decided. oldest: steps
    that samples may be old (p99) with the cheapest of them; None = any. looked: the step of a lever over that of the
    job, in a look at its count; 0 where nobody looks. texts: each in words.
    """

    each: Mapping[str, Later[Alternative | None]]
    moved: tuple[Alternative, ...] = ()
    oldest: float | None = None
    looked: Callable[[str], float] = lambda name: 0.0
    texts: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def tried(self) -> tuple[Alternative, ...]:
        """All levers with which the job runs."""
        return tuple(found for later in self.each.values() if (found := later()) is not None)

    @property
    def stuck(self) -> tuple[str, ...]:
        """Levers with which the job gets stuck."""
        return tuple(name for name, later in self.each.items() if later() is None)

    @property
    def cheapest(self) -> str | None:
        """The lever whose second of step time is cheapest, None where none makes a step shorter without losing more
        samples."""
        return _cheapest_of([a for a in self.tried if self.oldest is None or a.staleness_p99_steps <= self.oldest])

    @property
    def cheapest_without_risk(self) -> str | None:
        """The same among the levers that do not change the algorithm."""
        return _cheapest_of([a for a in self.tried if a.risk is None and a.permission is None])

    def named(self, name: str) -> Alternative | None:
        """The alternative of a lever, None where the scenario does not have it."""
        return self.each[name]() if name in self.each else None

    @property
    def beside_on_demand(self) -> tuple[float, float] | None:
        """Of a fleet with spot machines: its step and its cost over those of as many instances on demand; None where it
        has none, or would get stuck."""
        found = self.named(ON_DEMAND)
        return None if found is None else (1.0 / found.step_ratio.mean, 1.0 / found.cost_ratio.mean)

    def moves(self) -> tuple[Alternative, ...]:
        """Those that save something with a count of their own: without permission first, what saves most first."""
        return tuple(sorted((a for a in self.moved if a.gain > 0.0), key=lambda a: (a.permission is not None, -a.gain)))

    def change(self, *, mends: bool = False, counted: bool = False) -> Change | None:
        """The move that saves most of step time x cost per step, None where none saves some. What the recipe does not
        allow comes after what it allows.

        mends: no fleet holds the targets as the job is: the cheapest move with which one does comes first. counted: it
        is told to a command that is told its count of instances.
        """
        holding = [a for a in self.moved if a.anew is not None and a.anew.holds and a.may_be_advised]
        if mends and holding:
            return _change(min(holding, key=own_cost), counted, mends=True)
        moves = self.moves()
        return _change(moves[0], counted) if moves else None

    def allow(self, *, counted: bool = False) -> Change | None:
        """What would save more than that, if the recipe allowed it; None without one. counted: as of `change`."""
        first, *others = self.moves() or (None,)
        if first is None or first.permission is not None:
            return None
        more = (a for a in others if a.permission is not None and a.gain >= first.gain + LEAST_GAIN)
        return next((_change(a, counted) for a in more), None)

    @property
    def enough(self) -> int | None:
        """The count that is best where the fleet makes more than its trainer takes, for good: it never waits, and with
        fewer instances hardly. None elsewhere, and where nobody asked for another count."""
        own = next((a.anew for a in self.moved if a.name == COUNT), None)
        if own is None or not own.saves or own.instances >= own.instead_of.instances or not never_waits(own.instead_of):
            return None
        limit = own.scenario.targets.idle_limit
        return own.instances if own.trial.mean("trainer_idle_fraction") <= limit else None

    def told(self) -> dict[str, Any]:
        """As they stand in a JSON document."""
        cheapest = {name: getattr(self, name) for name in ("cheapest", "cheapest_without_risk")}
        return {"tried": [a.told() for a in self.tried], **cheapest, "stuck": self.stuck}


def own_cost(a: Alternative) -> float:
    """US dollars of a step with the count of its own; infinite without one."""
    return a.anew.trial.whole("cost_per_step") if a.anew is not None else math.inf


def _change(a: Alternative, counted: bool, *, mends: bool = False) -> Change:
    own = a.anew
    assert own is not None  # only those with a count of their own are moves
    step_s, flag = own.trial.whole("step_s"), a.flag.counted if counted else a.flag.own
    now, then = (trial.whole("step_s") / trial.mean("step_s") for trial in (own.instead_of, own.trial))
    return (OfWholeSamples if abs(now - then) > _OTHERWISE else Change)(
        a.text, flag, own.instances, own.instead_of.instances, own.saves_usd, own.saves_s, step_s, a.risk, mends,
        a.permission, bool(a.flag.options),
    )  # fmt: skip


def never_waits(trial: Trial) -> bool:
    """Whether the trainer has a batch whenever it wants one: then more samples are of no use to it."""
    return trial.mean("trainer_idle_fraction") < _NEVER


def compared(lever: Lever, runs: Runs, base: Runs) -> Alternative:
    """One lever's runs beside those without it."""
    n, runs, base = len(runs), *([per_whole_step(run) for run in of] for of in (runs, base))

    def mean(of: Runs, metric: str) -> float:
        return sum(float(run[metric]) for run in of) / n

    step, cost = ratio_of(runs, base, "step_s"), ratio_of(runs, base, "cost_per_step")
    gain = mean(base, "step_s") - mean(runs, "step_s")
    change = mean(runs, "cost_per_step") - mean(base, "cost_per_step")
    significant = differs(step, n)
    lost = [(mean(base, metric), mean(runs, metric)) for metric in LOST]
    risk = risk_of(lever, lambda metric: mean(base, metric), lambda metric: mean(runs, metric))
    return Alternative(
        name=lever.name,
        text=lever.text,
        flag=lever.flag,
        replications=n,
        step_ratio=step,
        cost_ratio=cost,
        gain_s=gain,
        cost_change=change,
        staleness_p99_steps=mean(runs, "staleness_steps.p99"),
        samples_lost=lost[0][1],
        long_samples_lost=lost[1][1],
        loses_more=any(map(more_lost, lost)),
        truncated=lever.truncated,
        shortens=significant and gain > 0,
        lengthens=significant and gain < 0,
        price_usd_per_s=change / gain if significant and gain > 0 else None,
        risk=risk,
        permission=permission_of(lever, risk),
    )


def permission_of(lever: Lever, risk: str | None) -> str | None:
    """What it needs a permission for; None where the recipe allows it by itself."""
    return None if is_free(lever.name) else risk or "another recipe"


def is_free(name: str) -> bool:
    """Whether a lever of this name needs no permission."""
    return name not in OF_THE_ALGORITHM


def _cheapest_of(tried: Sequence[Alternative]) -> str | None:
    """The name of the lever whose second of step time is cheapest, of those that may be advised."""
    useful = [a for a in tried if a.shortens and a.may_be_advised]
    free = [a for a in useful if a.free]
    if free:
        return max(free, key=lambda a: a.gain_s).name
    return min(useful, key=lambda a: a.price_usd_per_s or 0.0).name if useful else None
