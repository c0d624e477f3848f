"""What answers took for granted beyond their job's defaults (`job/assumptions.py`), and what one should know before
acting on them: of a sized fleet, of a split, of a plan."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from fleetsim import units
from fleetsim.config.law_numbers import promised_steps, steps_per_version
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given
from fleetsim.errors import InputError, StuckError
from fleetsim.faces import setting
from fleetsim.job.assumptions import Assumption, assumptions_of, is_estimated
from fleetsim.job.derived_values import names_a_model, price_notes
from fleetsim.job.engine_source import EngineSource
from fleetsim.job.facts import steps_old
from fleetsim.job.grounds import backlog_warnings, error_warnings, range_warnings
from fleetsim.job.lengths import share_at_cap
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.result import Later
from fleetsim.job.trainer_scaling import count_words, course_of, law_words, least_trainer_gpus, takes_turns, time_factor
from fleetsim.job.trials import Measure, Trial, trial_of, with_instances
from fleetsim.search.arrangements import Arrangement, Rules
from fleetsim.search.front import Found
from fleetsim.search.levers import samples_held
from fleetsim.search.objective import Target
from fleetsim.search.permissions import Allowed
from fleetsim.size.headroom import QueueCap
from fleetsim.workload.turns import response_law

_SHARE = "trainer.scaling.parallel_share"
# What an answer in GPUs says itself, and what stands for rates that are matched.
_NONE_OF_TURNS = ("trainer.gpus", "targets.headroom")


def fleet_assumptions(asked: Scenario, job: Scenario, given: Collection[str]) -> tuple[Assumption, ...]:
    """The defaults that bear on the answer. asked: the scenario as it was given; job: as it is sized.

    Where both pools take turns on the same GPUs, these are the answer, and no assumption. Of how many GPUs the
    trainer's seconds are then is: seconds that somebody gave, or that a file says, are those of other GPUs by a law.
    """
    found = assumptions_of(asked, given)
    if not takes_turns(job):
        return found
    found = tuple(a for a in found if a.path not in _NONE_OF_TURNS)
    if is_estimated(job) or is_given(_SHARE, given):
        return found
    law, t = law_words(job.trainer, course_of(job)), job.trainer
    text = f"the trainer's {units.seconds(mean_step_s(job))} on {units.plural(t.gpus, 'GPU')} scale with them: {law}"
    return (*found, Assumption(_SHARE, t.scaling.parallel_share, "--trainer-point --parallel-share", text))


def implausible(scenario: Scenario, given: Collection[str]) -> tuple[str, ...]:
    """A warning for each default that does not fit beside what the user gave; nothing is changed.

    given: dotted paths that the user wrote. scenario: with the fleet that it will have, because a broadcast takes
    longer to more engines.
    """
    trainer, least = scenario.trainer, least_trainer_gpus(scenario) if names_a_model(scenario, given) else 0
    if least <= trainer.gpus:
        return ()
    return (
        f"a trainer of {units.plural(trainer.gpus, 'GPU')} cannot hold weights, gradients and Adam states of "
        f"{trainer.recipe.model or scenario.engine.model}, one of {least:,} could: --trainer-gpus {least}, unless it "
        "is trained otherwise (--set trainer.recipe.offload=adam, tune=lora)",
    )


# --- What one should know before acting on a plan: each with its number, its reason and the way out.

_MUCH_AT_CAP = 0.05
# A step that is longer by less is hardly so.
_LONGER = 0.005


def fleet_warnings(
    scenario: Scenario,
    chosen: Trial,
    missed: tuple[Target, ...],
    queue_cap: Later[QueueCap],
    profile: EngineSource,
    *,
    asked: Scenario,
    given: Collection[str],
    measure: Measure,
) -> tuple[str, ...]:
    """The warnings of a plan, in the order of their weight. asked: the scenario before it was planned. given: dotted
    paths that the user wrote; a budget of staleness that is assumed promises nobody anything. measure: as for `size`.
    """
    found = [_missed(scenario, t, chosen) for t in missed]
    found += range_warnings(profile)
    found += error_warnings(profile)
    target = scenario.targets.staleness_p99_steps  # held, or among those that are missed
    budget = promised_steps(scenario, given) if target is None else None
    # A queue with a cap makes no sample older, so only a fleet whose own are too old is looked at with one.
    p99 = chosen.mean("staleness_steps.p99")
    if budget is not None and p99 > budget and not (cap := queue_cap()).within_budget:
        dropping = _dropping(with_instances(scenario, chosen.instances), budget, measure)
        found.append(
            f"99 % of the trained samples are at most {units.plural(steps_old(p99), 'step')} old, the "
            f"budget is {cap.budget_steps:g}: the admission law bounds how far the fleet runs ahead, not how "
            f"long a response takes; lower --max-len{dropping}"
        )
    found += backlog_warnings(with_instances(scenario, chosen.instances), chosen.estimates)
    preempted = chosen.mean("preemptions")
    if preempted > 0.01 * scenario.trainer.batch_samples:
        found.append(
            f"{units.count(round(preempted, 1))} preemptions per step: the KV cache is too small for this many long "
            f"samples{_held(with_instances(scenario, chosen.instances), measure)}"
        )
    at_cap = share_at_cap(response_law(scenario.workload))
    if at_cap > _MUCH_AT_CAP:
        found.append(
            f"{units.share(at_cap)} of the responses are cut at the cap: check --len against --max-len, "
            "real lengths may have a shorter tail"
        )
    if any(e.instances is not None or e.lose_instance is not None for e in asked.run.events):
        found.append("run.events changes the instances; those events were left out, because size chooses the fleet")
    return tuple(found)


def _dropping(here: Scenario, budget_steps: float, measure: Measure) -> str:
    """What it takes, and loses, to drop what is older than the budget; nothing where the job would get stuck."""
    drop = {
        "admission.age_action": "drop_on_dequeue",
        "admission.max_age": math.floor(budget_steps / steps_per_version(here)),
    }
    if (found := _beside(here, drop, measure)) is None:
        return ""
    then, longer = found
    lost, tail = (units.share(then.mean(f"samples_lost.{of}")) for of in ("all", "longest_tenth"))
    told = " ".join(setting(path, value) for path, value in drop.items())
    return f", or drop old samples with {told}, which loses {lost} of all, {tail} of the longest tenth, and {longer}"


def _held(here: Scenario, measure: Measure) -> str:
    """What a cap does that leaves instances no more samples than their KV cache holds; nothing where there is none."""
    cap = {"fleet.max_in_flight_samples_per_instance": samples_held(here)}
    if not all(cap.values()) or (found := _beside(here, cap, measure)) is None:
        return ""
    return f"; a cap on them ({setting(*next(iter(cap.items())))}) {found[1]}"


def _beside(here: Scenario, changes: Mapping[str, Any], measure: Measure) -> tuple[Trial, str] | None:
    """A job with some changes, and what they do to its step, in words; None where it would get stuck."""
    try:
        now, then = (trial_of(here.fleet.instances, [measure(s, 0)]) for s in (here, with_changes(here, changes)))
    except (StuckError, InputError):
        return None
    change = then.mean("step_s") / now.mean("step_s") - 1.0
    if abs(change) <= _LONGER:
        return then, f"makes a step hardly {'longer' if change > 0 else 'shorter'}"
    return then, f"makes a step {units.share(abs(change), 0)} {'longer' if change > 0 else 'shorter'}"


def stuck_warnings(stuck: Mapping[int, StuckError]) -> tuple[str, ...]:
    """Counts that were left out because their runs can never go on."""
    if not stuck:
        return ()
    first = min(stuck)
    limits = "; ".join(str(p) for p in stuck[first].limits[:1])
    one, more = units.plural(first, "instance"), f"{len(stuck)} counts from {first:,} to {max(stuck):,}"
    which = one if len(stuck) == 1 else more
    return (f"{which} cannot run this job and were left out: {stuck[first].what} ({limits})",)


def _missed(scenario: Scenario, target: Target, chosen: Trial) -> str:
    estimate = chosen.estimates[target.metric]
    return (
        f"{target.name} is {estimate.mean:.3g} [{estimate.ci_low:.3g}, {estimate.ci_high:.3g}] at "
        f"{count_words(scenario, chosen.instances)}; the target of {target.limit:g} is out of reach"
    )


# --- Of a split.

# A trainer of so many times more or fewer GPUs than its seconds are known for rests on the law alone.
_FAR = 2.0
_NOT_OF_A_SPLIT = ("targets.", "trainer.gpus", "trainer.fixed_s", "fleet.placement", "fleet.switch_s")


def way_assumptions(job: Scenario, asked: Rules, rules: Rules, given: frozenset[str]) -> tuple[Assumption, ...]:
    """The defaults of a plan without its targets, and those that only a split has. asked: the rules before theirs."""
    own = tuple(_own(job, rules.trainer_least if asked.trainer_least is None else None, given))
    whole = any(a.path == "trainer.fixed_s" for a in own)  # all seconds of a step in one line
    not_here = (*_NOT_OF_A_SPLIT, "trainer.per_token_s", "trainer.phases") if whole else _NOT_OF_A_SPLIT
    return (*(a for a in assumptions_of(job, given) if not a.path.startswith(not_here)), *own)


def _own(job: Scenario, least: int | None, given: frozenset[str]) -> Iterator[Assumption]:
    trainer = job.trainer
    seconds = ("trainer.fixed_s", "trainer.per_token_s", "trainer.phases", "trainer.scaling.points")
    at = {"trainer.gpus"} if trainer.scaling.points else set()  # points say at how many GPUs they were measured
    if not any(is_given(path, given) for path in seconds) or not is_given("trainer.gpus", given | at):
        text = f"{mean_step_s(job):.3g} s of compute per step on {units.plural(trainer.gpus, 'GPU')}"
        yield Assumption("trainer.fixed_s", trainer.fixed_s, "--trainer-step-s --trainer-gpus", text)
    if not trainer.scaling.points and not is_given(_SHARE, given):
        text = "the law by which they scale (above)"
        yield Assumption(_SHARE, trainer.scaling.parallel_share, "--trainer-point --parallel-share", text)
    if not is_given("fleet.switch_s", given):
        text = f"colocated: the trainer offloads its states, {job.fleet.switch_s:g} s to hand the GPUs over, each way"
        yield Assumption("fleet.switch_s", job.fleet.switch_s, "--switch-s", text)
    if least is not None and least > 1:
        holds = "weights, gradients, Adam states"
        text = f"a split's trainer has at least {units.plural(least, 'GPU')} ({holds})"
        yield Assumption("trainer.gpus", least, "--trainer-min-gpus", text)


def _slower_on_more(job: Scenario) -> Iterator[str]:
    """Points at which more GPUs take longer: rarely so, and the ranking rests on them."""
    rising = [(a, b) for a, b in pairwise(job.trainer.scaling.points) if b[1] > a[1]]
    if rising:
        each = " and ".join(f"{b[1]:g} s on {units.plural(b[0], 'GPU')} but {a[1]:g} s on {a[0]}" for a, b in rising)
        yield (
            f"the trainer's points are slower on more GPUs ({each}), and the ranking follows them: check that "
            "--trainer-point is GPUS:SECONDS of a whole step, the same batch at every count"
        )


def unused_names(allowed: Allowed) -> Iterator[str]:
    """Permissions of things that a split does not choose."""
    if allowed.names:
        names = units.listed(sorted(allowed.names))
        yield f"--allow {names} changes nothing here: split keeps the engines as they are, fleetsim plan chooses them"


def age_warnings(age: float, oldest: float | None) -> Iterator[str]:
    """Samples that are older than is permitted, because no way is fresher. age: of the advised way."""
    if oldest is not None and age > oldest:
        limit = "on-policy" if oldest == 0 else f"at most {units.plural(oldest, 'step')} old"
        yield (
            f"99 % of the trained samples are to be {limit}, and no way that runs keeps that: of the advised one they "
            f"are up to {units.plural(age, 'step')} old"
        )


def way_warnings(
    job: Scenario, chosen: Arrangement, stuck: Sequence[tuple[str, str]], profile: EngineSource
) -> tuple[str, ...]:
    """In the order of their weight."""
    found = [*_slower_on_more(job), *range_warnings(profile), *error_warnings(profile)]
    trainer, gpus = job.trainer, chosen.trainer_gpus
    counts = [count for count, _ in trainer.scaling.points] or [trainer.gpus]
    if gpus > _FAR * max(counts) or gpus < min(counts) / _FAR:
        known = mean_step_s(job)
        there = known * time_factor(trainer, gpus, course_of(job))
        found.append(
            f"the trainer's {known:.3g} s on {units.plural(trainer.gpus, 'GPU')} are taken to be "
            f"{there:.3g} s on {gpus}, by the law alone: measure a step there "
            f"(--trainer-point {gpus}:SECONDS) before moving GPUs"
        )
    reasons: dict[str, list[str]] = {}
    for label, reason in stuck:
        reasons.setdefault(reason, []).append(label)
    found += [f"{units.listed(labels)} cannot run: {reason}" for reason, labels in reasons.items()]
    return tuple(found)


# --- Of a plan.

# What a plan chooses beside the engine, and targets, which it does not aim at.
_CHOSEN = (
    "targets.",
    "fleet.instances",
    "fleet.pools.",
    "fleet.placement",
    "fleet.switch_s",
    "trainer.gpus",
    "sync.every_steps",
)


def plan_assumptions(
    job: Scenario, best: Scenario, given: frozenset[str], chosen: Sequence[str]
) -> tuple[Assumption, ...]:
    """The defaults behind the recommended plan, without what was chosen; and how old samples may be by the recipe.

    chosen: paths of the engine.
    """
    found = [a for a in assumptions_of(best, given) if not a.path.startswith((*_CHOSEN, *chosen, "admission"))]
    found += [a for a in assumptions_of(job, given) if a.path.startswith("admission")]
    if not is_given("fleet.switch_s", given):
        text = f"colocated: {best.fleet.switch_s:g} s to hand the GPUs over, each way"
        found.append(Assumption("fleet.switch_s", best.fleet.switch_s, "--switch-s", text))
    return tuple(found)


def plan_warnings(rows: Sequence[Found[Any]], stuck: Sequence[StuckError], profile: EngineSource) -> tuple[str, ...]:
    """In the order of their weight."""
    fleets = [(row.scenario.engine.gpu, row.scenario.cost) for row in rows]
    prices = price_notes(fleets, "give a table of prices, --set cost.prices=FILE.csv")
    left_out = f"{units.plural(len(stuck), 'plan')} cannot run and are left out, the first because " if stuck else ""
    return (*range_warnings(profile), *error_warnings(profile), *(left_out + one.what for one in stuck[:1]), *prices)
