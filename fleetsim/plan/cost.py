"""What an optimizer step costs: both pools are paid for, working or waiting."""

from __future__ import annotations

from dataclasses import dataclass

from fleetsim.config.scenario import Scenario


@dataclass(frozen=True, slots=True)
class StepCost:
    """US dollars of one optimizer step, by pool."""

    rollout_usd: float
    trainer_usd: float

    @property
    def total_usd(self) -> float:
        """Both pools."""
        return self.rollout_usd + self.trainer_usd


def step_cost(scenario: Scenario, instances: int, step_s: float) -> StepCost:
    """step_s / 3600 * (instances * tp * rollout price + trainer GPUs * trainer price).

    Prices are US dollars per GPU and hour. Colocated instances run on the trainer's GPUs, which are paid for once.
    """
    hours = step_s / 3600.0
    trainer = hours * scenario.trainer.gpus * scenario.cost.trainer_price_usd_per_gpu_h
    if scenario.fleet.placement != "disaggregated":
        own = max(0, instances * scenario.engine.tp - scenario.trainer.gpus)
    else:
        own = instances * scenario.engine.tp
    return StepCost(hours * own * scenario.cost.instance_price_usd_per_gpu_h, trainer)
