"""The `workload` section: what the trainer asks of the rollout engines, per sample and per group."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleetsim.config.base import ConfigSection, CountOrZero, Fraction, Tokens
from fleetsim.config.lengths import ConstantSeconds, ConstantTokens, Latency, Length, Lognormal


class TurnsConfig(ConfigSection):
    """Agentic rollouts: `count` generations with a tool call between each two."""

    count: Annotated[int, Field(ge=1, le=10_000)] = Field(default=1, description="generations per sample")
    tool_latency_s: Latency = Field(
        default=ConstantSeconds(value=0.0), description="seconds of one tool call, while the sample generates nothing"
    )
    tool_tokens: Length = Field(
        default=ConstantTokens(value=0), description="tokens that one tool answer adds to the context"
    )


class RewardConfig(ConfigSection):
    """What happens between a sample's last token and its readiness for training."""

    latency_s: Latency = Field(default=ConstantSeconds(value=0.0), description="seconds to score one sample")


class FilterConfig(ConfigSection):
    """Groups whose rewards are all equal carry no gradient: DAPO-style filters drop and refill them."""

    zero_variance_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="share of finished groups that are dropped and refilled"
    )
    retry_limit: CountOrZero | None = Field(
        default=None,
        description="the run fails after more than this many filtered groups in a row in one trainer wait; null = none",
    )


class WorkloadConfig(ConfigSection):
    """Prompts, outputs, groups, turns, rewards and filtering."""

    prompt_tokens: Length = Field(
        default=ConstantTokens(value=512), description="tokens of a group's prompt, shared system prompt included"
    )
    output_tokens: Length = Field(
        default=Lognormal(mean=1536.0, cv=1.0, max=8192.0),
        description="generated tokens of one sample, all its turns together",
    )
    group_size: Annotated[int, Field(ge=1, le=1_000_000)] = Field(default=8, description="samples per prompt (G)")
    group_correlation: Fraction = Field(
        default=0.0, description="share of the log-variance of output_tokens common to the siblings of a group"
    )
    shared_prefix_tokens: Tokens = Field(
        default=0, description="tokens of the system prompt that all groups share; prompts are at least this long"
    )
    turns: TurnsConfig = TurnsConfig()
    reward: RewardConfig = RewardConfig()
    filter: FilterConfig = FilterConfig()
    length_drift_per_step: Annotated[float, Field(gt=-1, le=10)] = Field(
        default=0.0, description="relative growth of the mean output length per optimizer step (0.01 = 1 % a step)"
    )
