"""The `admission` and `buffer` sections: which group may start, and which samples make a batch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleetsim.config.base import Count, Section, unsupported


class AdmissionConfig(Section):
    """The law that lets groups start, and what an old sample means."""

    law: Annotated[
        Literal[
            "barrier",
            "batches_ahead",
            "version_window",
            "fixed_pool",
            "unbounded",
            "per_sync_window",
            "cumulative_ratio",
            "target_step",
            "adaptive",
        ],
        unsupported("per_sync_window", "cumulative_ratio", "target_step", "adaptive"),
    ] = Field(default="version_window", description="which group may start, and when")
    batches_ahead: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, description="law batches_ahead: batches that generation may be ahead of training"
    )
    max_staleness: Annotated[float, Field(ge=0, le=1e6)] = Field(
        default=1.0, description="law version_window: eta, in weight versions; may be fractional"
    )
    pool_samples: Count | None = Field(default=None, description="law fixed_pool: samples in flight at all times")
    age_reference: Annotated[
        Literal["submission", "oldest_token", "creation"], unsupported("oldest_token", "creation")
    ] = Field(default="submission", description="the weight version that a sample's age is counted from")
    age_action: Annotated[
        Literal["train_anyway", "drop_on_dequeue", "drop_and_refill", "cancel_in_flight", "wait"],
        unsupported("drop_and_refill", "cancel_in_flight", "wait"),
    ] = Field(default="train_anyway", description="what happens to a sample older than max_age")
    max_age: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        default=None, description="age limit in weight versions, for age_action drop_on_dequeue"
    )


class BufferConfig(Section):
    """Finished samples between the fleet and the trainer."""

    capacity_samples: Count | None = Field(default=None, description="samples that fit; null = no limit")
    on_full: Literal["block", "drop_oldest"] = Field(default="block", description="what happens when it is full")
    batch_rule: Annotated[
        Literal["fifo", "oldest_version_first", "first_finished", "exact_target_step"],
        unsupported("exact_target_step"),
    ] = Field(default="oldest_version_first", description="which finished samples make the next batch")
    oversampling: Annotated[float, Field(ge=1, le=1000)] = Field(
        default=1.0, description="first_finished: samples started per sample trained"
    )
    leftover: Literal["abort", "carry_over"] = Field(
        default="abort", description="first_finished: what happens to the samples that came too late"
    )
