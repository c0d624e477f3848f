"""The `engine.disaggregation` section: prompts are computed on other GPUs than tokens are decoded (P/D)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from fleetsim.config.base import Count, Section

Gpus = Annotated[int, Field(ge=1, le=1024)]


class DisaggregationConfig(Section):
    """An instance is `prefill` engines that compute prompts and `decode` engines that go on from there. All other keys
    of `engine` are those of a decode engine, and of a prefill engine too where none of these says otherwise."""

    prefill: Gpus = Field(default=1, description="prefill engines of an instance")
    decode: Gpus = Field(default=1, description="decode engines of an instance; its requests are shared evenly")
    prefill_tp: Gpus | None = Field(default=None, description="GPUs of a prefill engine; null = engine.tp")
    prefill_dp: Gpus = Field(default=1, description="prefill engines that share the experts of a mixture")
    decode_dp: Gpus = Field(default=1, description="decode engines that share the experts of a mixture")
    max_num_batched_tokens: Count | None = Field(
        default=None, description="tokens per iteration of a prefill engine; null = as of a decode engine"
    )
    link_gb_s: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None,
        description="one GPU's way for the KV cache, GB/s; null = the links of a server where an instance fits one, "
        "else the network card",
    )
    latency_s: Annotated[float, Field(ge=0, le=60)] = Field(
        default=0.0, description="seconds that handing a request over takes beside moving its KV cache"
    )

    @model_validator(mode="after")
    def _whole_groups_of_ranks(self) -> DisaggregationConfig:
        """Ranks that share experts are there together."""
        for ranks, engines, name in (
            (self.prefill_dp, self.prefill, "prefill"),
            (self.decode_dp, self.decode, "decode"),
        ):
            if engines % ranks:
                raise ValueError(f"{name}_dp {ranks} must divide the {engines} {name} engines that share the experts")
        return self
