"""What a sized fleet took for granted, and what of that is implausible beside what the user gave."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from fleetsim import units
from fleetsim.config.law_numbers import steps_per_version
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given
from fleetsim.config.workload import ConstantTokens
from fleetsim.errors import InputError, StuckError
from fleetsim.faces import setting
from fleetsim.job.assumptions import Assumption, assumptions_of, is_estimated
from fleetsim.job.caveats import backlog_warnings, error_warnings, range_warnings
from fleetsim.job.derived_values import names_a_model
from fleetsim.job.engine_source import EngineSource
from fleetsim.job.facts import steps_old
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.result import Later
from fleetsim.job.trainer_scaling import count_words, course_of, law_words, least_trainer_gpus, takes_turns
from fleetsim.job.trials import Measure, Trial, trial_of, with_instances
from fleetsim.search.levers import samples_held
from fleetsim.search.objective import Target
from fleetsim.size.headroom import QueueCap, staleness_budget

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


def warnings_of(
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
    budget_given = any(path.startswith("admission.") for path in given)
    found = [_missed(scenario, t, chosen) for t in missed]
    found += range_warnings(profile)
    found += error_warnings(profile)
    watched = "staleness_p99_steps" in [t.name for t in missed]
    budget = staleness_budget(scenario) if budget_given and not watched else None
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
            f"samples; cap them with --set fleet.max_in_flight_samples_per_instance={samples_held(scenario)}, or use a "
            "larger --tp"
        )
    at_cap = _share_at_cap(scenario)
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
    try:
        now, then = (trial_of(here.fleet.instances, [measure(s, 0)]) for s in (here, with_changes(here, drop)))
    except (StuckError, InputError):
        return ""
    lost, tail = (units.share(then.mean(f"samples_lost.{of}")) for of in ("all", "longest_tenth"))
    longer = then.mean("step_s") / now.mean("step_s") - 1.0
    told = " ".join(setting(path, value) for path, value in drop.items())
    step = f"makes a step {units.share(longer, 0)} longer" if longer > _LONGER else "makes a step hardly longer"
    return f", or drop old samples with {told}, which loses {lost} of all, {tail} of the longest tenth, and {step}"


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


def _share_at_cap(scenario: Scenario) -> float:
    """Share of the law's mass on its cap, from its quantiles in steps of half a percent."""
    from fleetsim.workload.lengths import quantile_length

    law = scenario.workload.output_tokens
    if isinstance(law, ConstantTokens) or law.max is None:
        return 0.0
    return sum(quantile_length(law, i / 200) >= law.max for i in range(1, 200)) / 200
