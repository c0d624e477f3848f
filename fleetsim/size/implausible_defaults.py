"""Defaults that are implausible beside what the user gave. The user is told, with a value that would fit; nothing is
changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fleetsim import units
from fleetsim.config.scenario import Scenario
from fleetsim.job.derived_values import names_a_model
from fleetsim.job.trainer_scaling import least_trainer_gpus


def implausible(scenario: Scenario, given: Collection[str]) -> tuple[str, ...]:
    """A warning for each default that does not fit. given: dotted paths that the user wrote.

    scenario: with the fleet that it will have, because a broadcast takes longer to more engines.
    """
    if not names_a_model(scenario, given):
        return ()
    return tuple(_trainer_memory(scenario))


def _trainer_memory(s: Scenario) -> Iterator[str]:
    least = least_trainer_gpus(s)
    if least > s.trainer.gpus:
        yield (
            f"a trainer of {_gpus(s)} cannot hold weights, gradients and Adam states of "
            f"{s.trainer.recipe.model or s.engine.model}, one of {least:,} could: --trainer-gpus {least}, unless it is "
            "trained otherwise (--set trainer.recipe.offload=adam, tune=lora)"
        )


def _gpus(s: Scenario) -> str:
    return units.plural(s.trainer.gpus, "GPU")
