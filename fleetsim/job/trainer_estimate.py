"""The trainer of a job, estimated: on the GPUs that somebody gave, or on the smallest that fits."""

from __future__ import annotations

from collections.abc import Collection

from fleetsim.config.paths import is_given
from fleetsim.config.scenario import Scenario
from fleetsim.trainer.estimate import TrainerEstimate, estimate_of


def trainer_estimate(scenario: Scenario, given: Collection[str]) -> TrainerEstimate:
    """given: dotted paths that somebody wrote. Raises InputError as `estimate_of` does."""
    return estimate_of(scenario, scenario.trainer.gpus if is_given("trainer.gpus", given) else None)
