"""The `engine.lora` section: adapters that an engine multiplies beside its weights."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleetsim.config.base import Count, Section


class LoraConfig(Section):
    """LoRA adapters in the engine. Where the trainer merges them into the weights that it sends, there are none."""

    rank: Annotated[int, Field(ge=1, le=1024)] = Field(description="r: as the engine was started (vLLM: max_lora_rank)")
    max_loras: Count = Field(
        default=1,
        description="adapters in the engine's memory, all of them in use; versions that end beside a newer one",
    )
    experts: bool = Field(default=True, description="routed experts have adapters, too; all other matrices always have")
