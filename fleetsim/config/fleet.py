"""The `fleet` section: how many instances, how samples reach them, and what goes wrong with them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleetsim.config.base import MAX_SECONDS, ConfigSection, Count, CountOrZero, Factor, Fraction, Interval, Seconds

Instances = Annotated[int, Field(ge=1, le=1_000_000)]


class FailuresConfig(ConfigSection):
    """Instance failures: exponential times between them; lost work is queued again and counted."""

    mtbf_s: Annotated[float, Field(ge=1, le=MAX_SECONDS)] | None = Field(
        default=None, description="mean seconds between failures of one instance; null = never"
    )
    restart_s: Seconds = Field(default=300.0, description="seconds until a failed instance serves again")


class LendingConfig(ConfigSection):
    """Placement colocated_lending: the trainer's GPUs serve rollout while it waits for samples."""

    instances: Count | None = Field(
        default=None, description="instances that the trainer's GPUs make; null = as many as fit on trainer.gpus"
    )
    return_at: Fraction = Field(
        default=1.0,
        description="share of the batch that is ready when the trainer calls its GPUs back; below 1 for a trainer that "
        "streams mini-batches",
    )


class RepackConfig(ConfigSection):
    """Tail consolidation (Laminar): the requests of nearly empty instances move to fuller ones that have room."""

    every_s: Interval | None = Field(default=None, description="seconds between two looks; null = never")
    below_kv_use: Fraction = Field(default=0.5, description="instances under this KV use, nothing waiting, are emptied")
    up_to_kv_use: Fraction = Field(default=0.9, description="KV use up to which a receiving instance is filled")


class FleetConfig(ConfigSection):
    """The rollout instances and the client in front of them."""

    placement: Literal["disaggregated", "colocated", "colocated_lending"] = Field(
        default="disaggregated",
        description="own GPUs for rollout; the trainer's GPUs in turn; or own ones, and the trainer's while it waits",
    )
    instances: Instances = Field(
        default=8,
        description="rollout engine replicas of engine.tp x engine.pp GPUs each, or of engine.disaggregation",
    )
    max_in_flight_samples: Count | None = Field(
        default=None, description="samples that the client keeps in flight over the whole fleet; null = no cap"
    )
    max_in_flight_samples_per_instance: Count | None = Field(
        default=None, description="samples in flight on one instance; null = no cap"
    )
    in_flight_unit: Literal["samples", "groups"] = Field(
        default="samples",
        description="what holds a place under these caps: a sample, until it is generated; or a group, which holds "
        "group_size places until its last sample has its reward (the cap per instance then counts over the whole "
        "fleet: so many for each instance)",
    )
    group_placement: Literal["together", "spread"] = Field(
        default="together", description="the samples of a group go to one instance, or anywhere"
    )
    routing: Literal["round_robin", "least_loaded", "prefix_affinity"] = Field(
        default="least_loaded", description="which instance takes the next sample or group"
    )
    imbalance_limit: CountOrZero = Field(
        default=8, description="prefix_affinity: samples above the least loaded instance before affinity gives way"
    )
    switch_s: Seconds = Field(default=0.0, description="colocated and lending: seconds to hand the GPUs over, each way")
    lending: LendingConfig = LendingConfig()
    repack: RepackConfig = RepackConfig()
    speed_factors: tuple[Factor, ...] = Field(
        default=(),
        strict=False,
        max_length=1_000_000,
        description="iteration time multiplier per instance (1.2 = 20 % slower); missing ones are 1.0",
    )
    straggler_share: Fraction = Field(default=0.0, description="share of the instances (rounded) that are slow")
    straggler_slowdown: Annotated[float, Field(ge=1, le=1e6)] = Field(
        default=1.0, description="iteration time multiplier of the slow instances"
    )
    failures: FailuresConfig = FailuresConfig()
