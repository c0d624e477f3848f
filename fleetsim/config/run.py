"""The `run` section: how much is simulated, and what changes on the way."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from fleetsim.config.base import ConfigSection, CountOrZero, Factor
from fleetsim.config.fleet import Instances

Steps = Annotated[int, Field(ge=1, le=10_000_000)]


class EventConfig(ConfigSection):
    """One change during the run: the rebalance, or something that becomes slower, longer, or is lost.

    Factors are of what the scenario says, not of what an earlier event has made of it.
    """

    step: CountOrZero = Field(description="takes place when this optimizer step (from 0) begins")
    instances: Instances | None = Field(default=None, description="resize the fleet to this many instances")
    trainer_slowdown: Factor | None = Field(default=None, description="multiply the trainer's compute time by this")
    sync_slowdown: Factor | None = Field(default=None, description="multiply all times of a weight sync by this")
    length_factor: Factor | None = Field(
        default=None, description="multiply the output tokens of what is sent from now on by this; the cap still holds"
    )
    lose_instance: CountOrZero | None = Field(
        default=None, description="this instance (from 0) fails and does not come back; its work is queued again"
    )

    @model_validator(mode="after")
    def _changes_something(self) -> EventConfig:
        changes = sorted(EventConfig.model_fields.keys() - {"step"})
        if all(getattr(self, name) is None for name in changes):
            raise PydanticCustomError(
                "event", "an event must change something", {"remedy": f"give one of {', '.join(changes)}"}
            )
        return self


class RunConfig(ConfigSection):
    """How much is simulated."""

    steps: Steps | None = Field(
        default=None, description="optimizer steps to simulate; null = until the mean of its steps is known"
    )
    warmup_steps: CountOrZero | None = Field(
        default=None, description="first steps left out of the metrics; null = by the stated rule"
    )
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(default=0, description="same seed, same result")
    replications: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=5, description="independent runs behind every interval"
    )
    events: tuple[EventConfig, ...] = Field(
        default=(), strict=False, max_length=10_000, description="changes during the run, sorted by step"
    )
