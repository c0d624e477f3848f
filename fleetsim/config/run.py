"""The `targets`, `cost`, `run` and `published` sections: what is wanted, what it costs, how long to simulate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from fleetsim.config.base import CountOrZero, Factor, Fraction, Name, PositiveSeconds, Section
from fleetsim.config.fleet import Instances

Price = Annotated[float, Field(ge=0, le=1e9)]
Steps = Annotated[int, Field(ge=1, le=10_000_000)]


class TargetsConfig(Section):
    """What a recommended fleet must hold; null = not asked for."""

    trainer_idle_fraction: Fraction = Field(default=0.05, description="sample-wait / cycle, at most")
    staleness_p99_steps: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        default=None, description="99th percentile of the trained samples' staleness in steps, at most"
    )
    step_s: PositiveSeconds | None = Field(default=None, description="seconds per optimizer step, at most")
    cost_per_step: Annotated[float, Field(gt=0, le=1e12)] | None = Field(
        default=None, description="US dollars per optimizer step, at most"
    )
    headroom: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.8, description="the runbook's derate of an instance's rate, for the rate-matching arithmetic"
    )


class CostConfig(Section):
    """Prices of both pools. A null price is that of the GPU type, which rollout and trainer are taken to share."""

    instance_price_usd_per_gpu_h: Price | None = Field(
        default=None, description="US dollars per rollout GPU and hour; null = of its type, from a table"
    )
    trainer_price_usd_per_gpu_h: Price | None = Field(
        default=None, description="US dollars per trainer GPU and hour; null = of the rollout GPU's type"
    )
    market: Literal["neocloud", "hyperscaler"] = Field(
        default="neocloud", description="whose list prices on demand stand in: calibration/gpu_prices.csv"
    )
    prices: Name | None = Field(
        default=None, description="a CSV file with the columns gpu and usd_per_gpu_h, which goes before the shipped one"
    )


class EventConfig(Section):
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


class RunConfig(Section):
    """How much is simulated."""

    steps: Steps = Field(default=30, description="optimizer steps to simulate")
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


class PublishedConfig(Section):
    """A published outcome, printed beside the prediction."""

    step_s: PositiveSeconds | None = Field(default=None, description="seconds per optimizer step, as published")
    tok_s_per_gpu: Annotated[float, Field(gt=0, le=1e12)] | None = Field(
        default=None, description="tokens per second and GPU, as published (say in note which tokens and GPUs)"
    )
    bottleneck: str | None = Field(default=None, max_length=1000, description="what the authors found to bind")
    note: str = Field(default="", max_length=10_000, description="how the figures were read")
