"""The `evaluation` section: the model is evaluated every N steps, on which engines, and who waits for it."""

import math
from typing import Literal

from pydantic import Field

from fleetsim.config.base import ConfigSection, Count, PositiveSeconds
from fleetsim.config.pools import TrainerConfig
from fleetsim.config.workload import Length


class EvaluationConfig(ConfigSection):
    """An evaluation after every `every_steps`-th optimizer step, with the weights of that step."""

    every_steps: Count | None = Field(default=None, description="optimizer steps between evaluations; null = never")
    samples: Count = Field(default=512, description="responses of one evaluation: prompts x tries of each")
    prompt_tokens: Length | None = Field(default=None, description="tokens of a prompt; null = as in training")
    output_tokens: Length | None = Field(default=None, description="tokens of a response; null = as in training")
    at: Literal["rollout", "trainer", "own"] = Field(
        default="rollout",
        description="engines: the rollout instances, beside their other requests; the trainer's GPUs, which train "
        "nothing meanwhile; or instances of its own, which are paid for the whole run",
    )
    instances: Count | None = Field(
        default=None, description="of at: own (null = 1), or at: trainer (null = as many as fit on trainer.gpus)"
    )
    blocking: bool = Field(
        default=True,
        description="the trainer waits for its end (at: trainer, always); else only where the next one is due earlier",
    )
    seconds: PositiveSeconds | None = Field(
        default=None, description="as measured; no engine is simulated for it then, and none is busy with it"
    )

    @property
    def own_instances(self) -> int:
        """Instances that do nothing else, and are paid for the whole run."""
        return (self.instances or 1) if self.every_steps is not None and self.at == "own" else 0

    @property
    def on_fleet(self) -> bool:
        """Whether its requests go through the rollout instances."""
        return self.every_steps is not None and self.at == "rollout" and self.seconds is None


def period_steps(trainer: TrainerConfig, evaluation: EvaluationConfig) -> int:
    """Optimizer steps after which evaluations and checkpoints come round again together; 1 without either."""
    saving = trainer.checkpoint
    return math.lcm(evaluation.every_steps or 1, (saving.every_steps or 1) if saving.costs else 1)
