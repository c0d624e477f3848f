"""The `admission` and `buffer` sections: which group may start, and which samples make a batch."""

from typing import Annotated, Literal

from pydantic import Field

from fleetsim.config.base import ConfigSection, Count, CountOrZero, Fraction, Interval, plain
from fleetsim.policies.law import LawName
from fleetsim.policies.samples import AgeActionName, BatchRuleName

# Counted in weight versions.
Age = Annotated[float, Field(ge=0, le=1e6)]


class AdaptiveConfig(ConfigSection):
    """Law adaptive: additive-increase, multiplicative-decrease on the KV cache, as prime-rl's orchestrator does it."""

    start_samples: Count = Field(default=64, description="samples in flight at the start")
    most_samples: Count = Field(default=1024, description="samples in flight at most")
    grow: Annotated[float, Field(gt=1, le=100)] = Field(default=1.25, description="factor of a step up")
    grow_below_kv: Fraction = Field(default=0.6, description="KV use under which the pool grows, once a turnover")
    trim_above_kv: Fraction = Field(default=0.8, description="KV use above which nothing new starts")
    cancel_above_kv: Fraction = Field(default=0.9, description="KV use above which the youngest groups are cancelled")
    target_kv: Fraction = Field(default=0.7, description="KV use that trimming and cancelling aim at")
    interval_s: Interval = Field(default=1.0, description="seconds between two looks at the engines")


class AdmissionConfig(ConfigSection):
    """The law that lets groups start, and what an old sample means."""

    law: LawName = Field(default="version_window", description="which group may start, and when")
    batches_ahead: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, description="law batches_ahead: batches that generation may be ahead of training"
    )
    # 4 as TRL (AsyncGRPOConfig.max_staleness) and SkyRL (fully_async.max_staleness_steps) have it, whose laws this one
    # is; AReaL's examples take 2, its paper 4 and 8 (arXiv 2505.24298). The repositories stand in the presets.
    max_staleness: Age = Field(
        default=4.0, description="laws version_window and target_step: eta, in weight versions; may be fractional"
    )
    staleness_threshold: Age = Field(
        default=0.1, description="law per_sync_window: share of a sync window's samples that may start beyond it (verl)"
    )
    async_ratio: Age = Field(
        default=0.0, description="law cumulative_ratio: batches that may start ahead of training (ROLL's alpha)"
    )
    extra_groups: CountOrZero = Field(
        default=0,
        description="law cumulative_ratio: groups that are kept running when the law's count is used up (ROLL's "
        "max_additional_running_prompts)",
    )
    adaptive: AdaptiveConfig = plain(AdaptiveConfig)
    pool_samples: Count | None = Field(default=None, description="law fixed_pool: samples in flight at all times")
    age_reference: Literal["submission", "oldest_token", "creation"] = Field(
        default="submission",
        description="whose weight version a group's age is counted from: when it was sent, of its oldest token, or "
        "when admission let it in",
    )
    age_action: AgeActionName = Field(
        default="train_anyway",
        description="what happens to a group older than max_age: it is trained; dropped when the trainer comes upon "
        "it; dropped at the publication that makes it too old; cancelled then, even in flight; the trainer waits for "
        "the groups that the next publication would make too old; or it fills its place in the batch and is masked",
    )
    max_age: Age | None = Field(
        default=None, description="age limit in weight versions, for every age_action but train_anyway"
    )


class BufferConfig(ConfigSection):
    """Finished samples between the fleet and the trainer."""

    capacity_samples: Count | None = Field(default=None, description="samples that fit; null = no limit")
    on_full: Literal["block", "drop_oldest"] = Field(default="block", description="what happens when it is full")
    batch_rule: BatchRuleName = Field(
        default="oldest_version_first", description="which finished samples make the next batch"
    )
    wait_for_oldest: bool = Field(
        default=False,
        description="oldest_version_first: an older version's unfinished groups are waited for before a newer is taken",
    )
    oversampling: Annotated[float, Field(ge=1, le=1000)] = Field(
        default=1.0, description="first_finished: groups started per group trained"
    )
    group_oversampling: Annotated[float, Field(ge=1, le=1000)] = Field(
        default=1.0, description="samples started per sample kept of a group: its first group_size to finish count"
    )
    leftover: Literal["abort", "carry_over", "defer"] = Field(
        default="abort",
        description="first_finished: groups that came too late are thrown away, kept for the next batch, or deferred "
        "to a long round of their own that starts once they fill a batch (tail batching)",
    )
