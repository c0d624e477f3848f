"""The `published` section: what a real run came to, to be printed beside the prediction."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleetsim.config.base import ConfigSection, PositiveSeconds


class PublishedConfig(ConfigSection):
    """A published outcome, printed beside the prediction."""

    step_s: PositiveSeconds | None = Field(default=None, description="seconds per optimizer step, as published")
    tok_s_per_gpu: Annotated[float, Field(gt=0, le=1e12)] | None = Field(
        default=None, description="tokens per second and GPU, as published (say in note which tokens and GPUs)"
    )
    bottleneck: str | None = Field(default=None, max_length=1000, description="what the authors found to bind")
    note: str = Field(default="", max_length=10_000, description="how the figures were read")
