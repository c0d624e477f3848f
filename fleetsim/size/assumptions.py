"""What a sized fleet took for granted, and what of that is implausible beside what the user gave."""

from __future__ import annotations

from collections.abc import Collection

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given
from fleetsim.job.assumptions import Assumption, assumptions_of, is_estimated
from fleetsim.job.derived_values import names_a_model
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.trainer_scaling import course_of, law_words, least_trainer_gpus, takes_turns

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
