"""The rollout fleet with the least step time x cost per step, or the smallest that holds the targets, and everything
one asks next.

Rate matching gives the first guess, `search/best.py` searches from there: by looks where it looks around, by long runs
and the rule in `targets.RULE` where it decides. Then headroom, queue and all levers are looked at, each lever beside
the answer and with the count that is best for it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec import Struct

from fleetsim.config.scenario import Scenario
from fleetsim.job.engine_choices import drafts_of, sides_of
from fleetsim.job.engine_source import engine_source
from fleetsim.job.nameplate import nameplate_rate
from fleetsim.job.result import Later
from fleetsim.job.trainer_scaling import anchored, can_be, next_count, takes_turns, with_all_gpus
from fleetsim.job.trials import (
    Measure,
    Tell,
    Trial,
    Trials,
    one_more,
    planned,
    remembered,
    simulated,
    unit_of,
    with_instances,
)
from fleetsim.records import replace
from fleetsim.search.alternative import Alternatives, Anew
from fleetsim.search.best import Best, best_of, decided_trial
from fleetsim.search.doubt import JointDoubt
from fleetsim.search.levers import ONE_MORE
from fleetsim.search.makes import with_counted_pools
from fleetsim.search.moves import alternatives_of
from fleetsim.search.objective import Target, targets_of
from fleetsim.search.rate_matching import RateMatching, look_at_next, matched, may_stop
from fleetsim.search.reasons import Reasons, as_run
from fleetsim.search.workers import Crew, Crewing
from fleetsim.size.assumptions import fleet_assumptions, fleet_warnings, implausible, stuck_warnings
from fleetsim.size.explain import bound_by, explanation
from fleetsim.size.headroom import Headroom, QueueCap, headroom_of, queue_cap_of
from fleetsim.size.spread import CountSpread, count_doubt, spread_of

# Replications of fleets far from the recommendation, of drafts and of sides: few are enough.
_FEW = 3
# A fleet is about half, or about twice, of another up to this factor.
_NEAR = 1.5
# A step that is longer by so much is so by more than the luck of a look.
_SLOWER = 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing(Reasons[CountSpread]):
    """What `size` found.

    instances: the recommendation, recommended: its trial. largest: where no fleet holds all targets, the largest one
    that was tried, else None. knee: the count with the least step time x cost per step, where no target decides.
    missed: targets that the recommendation does not hold. candidates: the recommendation and the next larger fleet,
    about half and twice of it, and the rate-matching count, ascending, without those that get stuck. confidence: the
    share of cases that it was sized for, None = the likeliest; enough: whether some count is enough in so many.
    crews: the workers of each station, and what fewer of them do; the scenario has those that were chosen. longer: a
    larger fleet that makes a step longer, where that is known. as_given:
    station -> the fleet that is best with the workers that the job has, where they are others.
    """

    instances: int
    recommended: Trial
    binding: str
    largest: Trial | None
    knee: int | None
    missed: tuple[Target, ...]
    targets: tuple[Target, ...]
    rate_matching: RateMatching
    headroom_later: Later[Headroom] = field(repr=False, compare=False)
    queue_cap_later: Later[QueueCap] = field(repr=False, compare=False)
    candidates_later: Later[tuple[Trial, ...]] = field(repr=False, compare=False)
    confidence: float | None = None
    enough: bool | None = None
    crews: tuple[Crew, ...] = ()
    longer: Trial | None = None
    as_given: Mapping[str, Later[Anew | None]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def headroom(self) -> Headroom:
        """Where the headroom goes: worked out when it is first asked for, by runs that nothing else needs."""
        return self.headroom_later()

    @property
    def queue_cap(self) -> QueueCap:
        """How many finished samples may wait for the trainer: worked out when it is first asked for."""
        return self.queue_cap_later()

    @property
    def candidates(self) -> tuple[Trial, ...]:
        """Fleets about the answer: simulated when they are first asked for."""
        return self.candidates_later()

    @property
    def at_knee(self) -> bool:
        """Whether the answer is the count with the least step time x cost per step: no target decides it."""
        return self.knee == self.instances

    @property
    def feasible(self) -> bool:
        """Whether every target is held, in as many cases as asked."""
        return self.enough is not False and not self.missed

    def candidate(self, instances: int) -> Trial:
        """The trial of one of the candidates."""
        return next(c for c in self.candidates if c.instances == instances)


class Decided(Struct, frozen=True):
    """The count alone. job: as it is sized; guess: where rate matching put it; trials: its runs so far; crewing: what
    counts its workers."""

    job: Scenario
    rate: RateMatching
    guess: int
    targets: tuple[Target, ...]
    trials: Trials
    best: Best
    crewing: Crewing


def decided(scenario: Scenario, given: Collection[str], measure: Measure, tell: Tell | None = None) -> Decided:
    """Chooses the count, in the likeliest case. Arguments and errors as of `size`."""
    job = planned(scenario, given)
    if takes_turns(job):  # on all GPUs of its trainer, with the seconds that its points measured
        job = with_all_gpus(anchored(job, frozenset(given)))
    targets = targets_of(job)
    measure = remembered(measure)
    job = with_counted_pools(job, given, targets, measure, tell)
    rate, guess = matched(job)
    crewing = Crewing(job, measure, tell, given)
    job, near = crewing.job(guess, targets)
    trials = Trials(job, measure, tell)
    best = best_of(trials, near, targets, job.run.replications)
    return Decided(job, rate, guess, targets, trials, best, crewing)


def size(
    scenario: Scenario,
    *,
    given: Collection[str] = (),
    notes: Sequence[str] = (),
    confidence: float | None = None,
    brief: bool = False,
    measure: Measure = simulated,
    tell: Tell | None = None,
) -> Sizing:
    """Sizes the rollout fleet of a scenario; its own `fleet.instances` is ignored, and so is the count of another
    pool that is not among what was given.

    given: dotted paths that the user wrote, the rest is reported as assumed; targets among them are binding wishes.
    notes: warnings of the caller, put before those of the plan. confidence: the share of cases that the count is to be
    enough for, above 0.5; None = the likeliest case.
    measure: one run to its metrics, the simulator by default. tell: hears what is being simulated.

    Raises InputError for a scenario that cannot be sized and StuckError when its limits block each other
    in every fleet that was tried; a count that alone gets stuck is left out, with a warning.
    """
    measure = remembered(measure)
    found = decided(scenario, given, measure, tell)
    job, rate, targets, trials, guess = found.job, found.rate, found.targets, found.trials, found.guess
    best, crewing = found.best, found.crewing
    replications = job.run.replications
    doubt = count_doubt(job, best.instances, given, targets, measure, tell)
    best, enough = _enough(best, doubt, confidence)
    instances, chosen = best.instances, decided_trial(trials, best.instances, targets, replications)
    missed = tuple(t for t in targets if not t.held_by(chosen.estimates[t.metric]))
    # Where no target is held, or it takes turns, the trainer takes what it gets, elsewhere what it can.
    can = best.knee is None and not takes_turns(job)
    consumed = rate.consume_tok_s if can else rate.batch_tokens / chosen.mean("step_s")
    headroom = Later(partial(headroom_of, job, instances, consumed, nameplate_rate(job)(instances), measure, tell))
    queue_cap = Later(partial(queue_cap_of, job, instances, measure, tell))
    candidates = Later(partial(_candidates, trials, best, guess, replications))
    here, few = with_instances(job, instances), min(_FEW, replications)
    alternatives = alternatives_of(
        here, with_instances(here, next_count(here, instances)), 1, measure, now=chosen, targets=targets,
        more=one_more(here), given=given, best_alone=brief, tell=tell,
    )  # fmt: skip
    drafts, sides = drafts_of(here, few, measure, tell), sides_of(here, few, measure, tell)
    binding = bound_by(chosen.binding, alternatives, here, chosen.mean("step_s"))
    crews = crewing.crews(here)
    profile = engine_source(job, instances)
    look_at_next(trials, instances, replications)
    said = fleet_warnings(job, chosen, missed, queue_cap, profile, asked=scenario, given=given, measure=measure)
    return Sizing(
        scenario=job,
        instances=instances,
        recommended=chosen,
        binding=binding,
        largest=best.largest,
        knee=best.knee,
        missed=missed,
        targets=targets,
        rate_matching=rate,
        headroom_later=headroom,
        queue_cap_later=queue_cap,
        candidates_later=candidates,
        alternatives=alternatives,
        explanation_later=Later(partial(explanation, binding, alternatives, chosen.estimates)),
        assumptions=fleet_assumptions(scenario, job, given),
        warnings=(*notes, *said, *stuck_warnings(trials.stuck), *implausible(here, given)),
        profile=profile,
        simulations=trials.runs,
        drafts=drafts,
        sides=sides,
        spread=spread_of(doubt, chosen),
        confidence=confidence,
        enough=enough,
        as_run_s=as_run(trials, job, given, few),
        crews=crews,
        longer=_longer(trials, instances, alternatives),
        as_given={crew.station: Later(partial(crewing.as_given, crew, chosen, targets)) for crew in crews},
        change=alternatives.change(mends=bool(missed)),
        allow=None if missed else alternatives.allow(),
    )


def _longer(trials: Trials, instances: int, alternatives: Alternatives) -> Trial | None:
    """The next larger fleet, if it makes a step longer: by a look, where there is one, and then by a long run."""
    if not may_stop(trials.scenario) or alternatives.looked(ONE_MORE) < _SLOWER:
        return None
    more = alternatives.named(ONE_MORE)
    longer = more is not None and more.lengthens and more.step_ratio.mean > _SLOWER
    return trials.at(next_count(trials.scenario, instances), 1) if longer else None


def _enough(best: Best, doubt: JointDoubt | None, confidence: float | None) -> tuple[Best, bool | None]:
    """The count that is enough in so many cases, and whether one is; if none is, the likeliest case's stands."""
    if confidence is None or doubt is None:
        return best, None if confidence is None else True
    enough = doubt.enough(confidence)
    return (best, False) if enough is None else (replace(best, instances=enough), True)


def _candidates(trials: Trials, best: Best, guess: int, replications: int) -> tuple[Trial, ...]:
    """The trials that are shown, ascending, without those that get stuck."""
    unit = unit_of(trials.scenario)
    shown = _shown(trials, best, math.ceil(guess / unit) * unit, replications)
    tried = (trials.at(n, runs) for n, runs in sorted(shown.items()))
    return tuple(trial for trial in tried if trial.stuck is None)


def _shown(trials: Trials, best: Best, matched: int, replications: int) -> dict[int, int]:
    """Counts that show where cost bends, each with its replications: the answer and the next larger one; with fewer
    runs the matched one, about half of the answer, and where no fleet holds the targets about twice of it. Of these,
    counts that were tried come first. The next smaller one is shown where the search has decided by it."""
    n, job, few = best.instances, trials.scenario, min(_FEW, replications)
    unit = unit_of(job)
    found = dict.fromkeys((n, next_count(job, n)), replications)
    for beside in (n, next_count(job, n, -1)):
        if (made := trials.replications(beside)) >= replications:
            found[beside] = made
    for wanted in (n / 2, 2 * n) if best.knee is not None else (n / 2,):
        near = [k for k in (matched, *trials.counts()) if k % unit == 0 and 1 / _NEAR <= k / wanted <= _NEAR]
        beside = max(1, round(wanted / unit)) * unit
        if not near and not can_be(job, beside):
            continue
        found.setdefault(min(near, key=lambda k: (k != matched, abs(math.log(k / wanted))), default=beside), few)
    found.setdefault(matched, few)
    return found
