"""Split advice: every way to use one set of GPUs, simulated under the same draws, ranked, and a verdict.

All ways are looked at; of many splits some are, and then those around the best. Of those that the recipe permits
(`ways.py`) the best have long runs, until a budget of simulated samples is spent, but always the colocated ones
and the best few by every measure; only these are told. Two ways are compared run by run (`estimates.py`):
the verdict is "split" only if the best split beats the better colocated way by more than chance, because sharing the
GPUs is simpler and fresher.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from fleetsim import units
from fleetsim.config.law_numbers import promised_steps
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import Interrupted
from fleetsim.estimates import Estimate, differs, ratio_of
from fleetsim.job.engine_choices import Drafts, Sides, drafts_of, sides_of
from fleetsim.job.engine_source import engine_source
from fleetsim.job.result import Later
from fleetsim.job.trainer_scaling import least_trainer_gpus, scaled
from fleetsim.job.trials import Measure, Tell, Trials, one_more, planned, remembered, simulated, unit_of, with_instances
from fleetsim.records import replace
from fleetsim.search.alternative import Alternatives
from fleetsim.search.arrangements import Arrangement, Rules, divided, gpus_per_engine, split_counts
from fleetsim.search.explore import Search
from fleetsim.search.makes import check_pools_are_counted
from fleetsim.search.moves import alternatives_of
from fleetsim.search.permissions import Allowed
from fleetsim.search.plan_crews import PlanCrews
from fleetsim.search.reasons import Reasons, as_run
from fleetsim.size.assumptions import age_warnings, implausible, way_assumptions, way_warnings
from fleetsim.size.explain import bound_by, explanation
from fleetsim.split.spread import WaySpread, spread_of
from fleetsim.split.ways import By, Outcome, Ways, outcome_of, ranked

# Replications of each other length of drafts.
_DRAFTS = 3
_ANY_TRAINER = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice(Reasons[WaySpread]):
    """What `split` found.

    scenario: the job, with the trainer's seconds as given. outcomes: ranked by `by`, best first: the colocated ways and
    the `splits` possible splits, or those of many that were simulated (`looked_at`), as far as they are permitted.
    oldest: optimizer steps that 99 % of the trained samples may be old, None where the recipe promises no number.
    bought: (steps, way): what older samples would buy, beside what is advised.

    verdict: split, do_not_split, or no_difference (then nothing is gained by splitting). best_split, best_colocated:
    the better of each by `by`; ratio: best split / best colocated, paired. chosen: what is advised, with its
    alternatives and their explanation. binding: what binds in it. stuck: arrangements that cannot run, with the reason.
    """

    gpus: int
    by: By
    rules: Rules
    outcomes: tuple[Outcome, ...]
    splits: int
    looked_at: int
    oldest: float | None
    bought: tuple[tuple[int, Outcome], ...]
    stuck: tuple[tuple[str, str], ...]
    verdict: Literal["split", "do_not_split", "no_difference"]
    ratio: Estimate | None
    chosen: Outcome
    binding: str
    best_split: Outcome | None
    best_colocated: Outcome | None


def split(
    scenario: Scenario,
    gpus: int,
    *,
    by: By = "step_s",
    rules: Rules = _ANY_TRAINER,
    allowed: Allowed = Allowed(),  # noqa: B008 - it never changes
    given: Collection[str] = (),
    notes: Sequence[str] = (),
    measure: Measure = simulated,
    tell: Tell | None = None,
) -> Advice:
    """Ranks all ways to use `gpus` GPUs for a job; its own instances and placement are ignored.

    rules: for the trainer's GPUs. allowed: how old samples may be beyond what the recipe permits itself. given, notes,
    measure, tell: as for `size`.

    Raises InputError for GPUs that cannot be split, StuckError when no way runs, and Interrupted on Ctrl-C: with the
    job and the outcomes so far, ranked, None before the first.
    """
    check_pools_are_counted(scenario, given)
    job, asked, measure = divided(scenario, frozenset(given)), rules, remembered(measure)
    rules, oldest = _whole(rules, job), allowed.oldest(promised_steps(job, given))
    counts = split_counts(job, gpus, rules)
    ways = _explored(Ways(PlanCrews(job, measure, tell), gpus, counts, by, oldest, Search(measure, tell)))
    outcomes = ranked(ways.allowed(ways.decided), by)
    best_split = next((o for o in outcomes if o.arrangement.apart), None)
    best_colocated = _fresher([o for o in outcomes if not o.arrangement.apart], by)
    verdict, ratio = _verdict(best_split, best_colocated, by)
    chosen = best_split if verdict == "split" else best_colocated
    assert chosen is not None  # _verdict answers for what there is
    try:
        bought = _bought(ways, chosen)
        alternatives, drafts, sides = _beside(job, chosen, given, measure, tell)
        alternatives = replace(alternatives, oldest=None if oldest is None else max(oldest, chosen.age))
        rival = best_colocated if chosen is best_split else best_split
        ways.job = ways.job.model_copy(update={"stations": chosen.scenario.stations})
        if tell is not None:
            tell("simulating ways near the advice with inputs that are off")
        spread = spread_of(ways, chosen, rival, ratio, given, measure)
    except KeyboardInterrupt:
        raise _interrupted(ways) from None
    runs = {way.choice.label for way in ways.found}  # perhaps with another window
    blocked = {way.label: error.what for way, error in ways.search.stuck.items() if way.label not in runs}
    stuck = tuple(blocked.items())
    profile = engine_source(chosen.arrangement.scenario, chosen.arrangement.instances)
    binding = bound_by(chosen.binding, alternatives, chosen.arrangement.scenario, chosen.mean("step_s"))
    return Advice(
        scenario=job,
        gpus=gpus,
        by=by,
        rules=rules,
        outcomes=outcomes,
        splits=len(counts),
        looked_at=len({way.choice.instances for way in ways.found if way.choice.apart}),
        oldest=oldest,
        bought=bought,
        stuck=stuck,
        verdict=verdict,
        ratio=ratio,
        chosen=chosen,
        best_split=best_split,
        best_colocated=best_colocated,
        alternatives=alternatives,
        binding=binding,
        explanation_later=Later(partial(explanation, binding, alternatives, chosen.estimates)),
        assumptions=way_assumptions(job, asked, rules, frozenset(given)),
        warnings=(
            *notes,
            *age_warnings(chosen.age, oldest),
            *way_warnings(job, chosen.arrangement, stuck, profile),
            *implausible(job, frozenset(given)),
        ),
        profile=profile,
        simulations=sum(way.replications for way in ways.found),
        drafts=drafts,
        sides=sides,
        spread=spread,
        change=alternatives.change(),
        allow=alternatives.allow(),
        as_run_s=as_run(Trials(planned(scenario, given), measure, tell), scenario, given),
    )


def best_way(scenario: Scenario, gpus: int, given: Collection[str], measure: Measure) -> Outcome:
    """The way with the shortest step that the recipe permits, without anything beside it. Raises as `split` does."""
    check_pools_are_counted(scenario, given)
    job = divided(scenario, frozenset(given))
    counts, oldest = split_counts(job, gpus, _whole(_ANY_TRAINER, job)), promised_steps(job, given)
    measure = remembered(measure)
    ways = Ways(PlanCrews(job, measure, None), gpus, counts, "step_s", oldest, Search(measure, None))
    ways = _explored(ways, near=True)
    return ranked(ways.allowed(ways.decided), "step_s")[0]


def _whole(rules: Rules, job: Scenario) -> Rules:
    """With the trainer's least GPUs, where nobody said them."""
    return rules if rules.trainer_least is not None else replace(rules, trainer_least=least_trainer_gpus(job))


def _explored(ways: Ways, *, near: bool = False) -> Ways:
    """The ways, each looked at, and those that might be best decided. near: only the best one is asked for. Raises as
    `split` does."""
    try:
        ways.explore()
        if ways.found and near:
            ways.decide(ways.near_the_best())
        if ways.found and not (near and ways.permitted(ways.decided)):
            ways.decide(ways.worth_deciding())
    except KeyboardInterrupt:
        raise _interrupted(ways) from None
    if not ways.decided:
        raise next(iter(ways.search.stuck.values()))
    return ways


def _bought(ways: Ways, chosen: Outcome) -> tuple[tuple[int, Outcome], ...]:
    """What older samples would buy: each way over all replications, beside what is advised."""
    found = ways.decide([way for _, way in ways.worth_a_permission(ways.found, chosen)])  # all of them decide
    return tuple((steps, outcome_of(way, chosen, ways.by)) for steps, way in ways.worth_a_permission(found, chosen))


def _beside(
    job: Scenario, chosen: Outcome, given: Collection[str], measure: Measure, tell: Tell | None
) -> tuple[Alternatives, Drafts | None, Sides | None]:
    """What every lever, speculative decoding and disaggregation do to the way that is advised."""
    here, runs = chosen.arrangement.scenario, chosen.replications
    given = {*given, "trainer.gpus"}
    levers = alternatives_of(
        here,
        _grown(job, chosen.arrangement),
        runs,
        measure,
        now=chosen.trial,
        search=False,
        more=f"{one_more(job)} ({units.plural(gpus_per_engine(job), 'GPU')} more)",
        given=given,
        tell=tell,
    )
    few = min(_DRAFTS, runs)
    return levers, drafts_of(here, few, measure, tell), sides_of(here, few, measure, tell)


def _interrupted(ways: Ways) -> Interrupted:
    """What is known of the ways so far."""
    missing = f"{len(ways.found):,} of {len(ways.counts) + 2:,} ways were looked at, none is advised yet"
    found = ways.decided
    return Interrupted((ways.crewing.asked, ranked(found, ways.by)) if found else None, missing)


def _fresher(colocated: Sequence[Outcome], by: By) -> Outcome | None:
    """The better colocated way; the on-policy one where the other is not better by more than chance."""
    if len(colocated) < 2:
        return next(iter(colocated), None)
    first, second = colocated
    ratio = ratio_of(second.whole, first.whole, by)
    fresh = second.arrangement.kind == "colocated_sync" and not differs(ratio, first.replications)
    return second if fresh else first


def _verdict(
    best_split: Outcome | None, best_colocated: Outcome | None, by: By
) -> tuple[Literal["split", "do_not_split", "no_difference"], Estimate | None]:
    """See the module's docstring. Without one side there is nothing to compare: the other is the answer."""
    if best_split is None:
        return "do_not_split", None
    if best_colocated is None:
        return "split", None
    ratio = ratio_of(best_split.whole, best_colocated.whole, by)
    if not differs(ratio, min(best_split.replications, best_colocated.replications)):
        return "no_difference", ratio
    split_wins = ratio.mean > 1.0 if by == "goodput" else ratio.mean < 1.0
    return ("split" if split_wins else "do_not_split"), ratio


def _grown(job: Scenario, way: Arrangement) -> Scenario:
    """The way with one engine more than the GPUs allow; colocated, the trainer gets those GPUs too."""
    grown = with_instances(way.scenario, way.instances + unit_of(job))
    if way.apart:
        return grown
    return with_changes(grown, scaled(job, way.trainer_gpus + gpus_per_engine(job)))
