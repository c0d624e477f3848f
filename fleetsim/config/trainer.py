"""The `trainer` section: what one optimizer step costs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from fleetsim.config.base import Count, Fraction, Name, PositiveSeconds, Seconds, Section

ScalingPoint = Annotated[tuple[Count, PositiveSeconds], Field(strict=False)]


class PhaseConfig(Section):
    """One pass before the update (log-probs, reference model), named in the report."""

    name: Name = Field(description="as it appears in the report")
    fixed_s: Seconds = Field(default=0.0, description="seconds per optimizer step")
    per_token_s: Seconds = Field(default=0.0, description="seconds per trained token (prompt + output) of the batch")


class CheckpointConfig(Section):
    """Saving the trainer's state, while it does not train."""

    every_steps: Count | None = Field(default=None, description="optimizer steps between checkpoints; null = never")
    stall_s: Seconds = Field(default=0.0, description="seconds that the trainer stands still for one")


class ScalingConfig(Section):
    """How the compute seconds change with the trainer's GPUs; they are given at trainer.gpus.

    Only plans that move GPUs between the pools use it. Checkpoints and weight sync do not scale.
    """

    parallel_share: Fraction | None = Field(
        default=None,
        description="share p of the seconds at trainer.gpus that more GPUs divide: on g GPUs they take "
        "(1 - p) + p * gpus / g times as long; null = 1 / (1 + gpus / 90), from published verl runs",
    )
    points: tuple[ScalingPoint, ...] = Field(
        default=(),
        strict=False,
        max_length=1000,
        description="measured [GPUs, seconds of a step]: between them a power law, beyond them the law above",
    )

    @field_validator("points")
    @classmethod
    def _every_count_once(cls, points: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
        """Sorted by GPUs. Two times for one count cannot both hold."""
        counts = [gpus for gpus, _ in points]
        if len(set(counts)) < len(counts):
            raise PydanticCustomError(
                "points", "a GPU count stands there twice", {"remedy": "give one time for each GPU count"}
            )
        return tuple(sorted(points))


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
    scaling: ScalingConfig = ScalingConfig()
