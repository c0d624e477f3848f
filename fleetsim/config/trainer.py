"""The `trainer` section: what one optimizer step costs."""

from __future__ import annotations

from pydantic import Field

from fleetsim.config.base import Count, Name, Seconds, Section


class PhaseConfig(Section):
    """One pass before the update (log-probs, reference model), named in the report."""

    name: Name = Field(description="as it appears in the report")
    fixed_s: Seconds = Field(default=0.0, description="seconds per optimizer step")
    per_token_s: Seconds = Field(default=0.0, description="seconds per trained token (prompt + output) of the batch")


class CheckpointConfig(Section):
    """Saving the trainer's state, while it does not train."""

    every_steps: Count | None = Field(default=None, description="optimizer steps between checkpoints; null = never")
    stall_s: Seconds = Field(default=0.0, description="seconds that the trainer stands still for one")


class TrainerConfig(Section):
    """The trainer's GPUs, batch and compute time."""

    gpus: Count = Field(default=8, description="GPUs of the trainer")
    batch_samples: Count = Field(default=512, description="samples per optimizer step (B), a multiple of group_size")
    fixed_s: Seconds = Field(default=20.0, description="compute seconds per optimizer step, whatever the batch holds")
    per_token_s: Seconds = Field(default=0.0, description="seconds per trained token (prompt + output) of the batch")
    phases: tuple[PhaseConfig, ...] = Field(
        default=(), strict=False, max_length=100, description="passes before the update, in order"
    )
    minibatches: Count = Field(
        default=1,
        description="streaming: equal parts of the batch, each trained as soon as it is complete; fixed seconds are "
        "spread evenly over them",
    )
    checkpoint: CheckpointConfig = CheckpointConfig()
