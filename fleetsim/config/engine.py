"""The `engine` section: which engine, on which GPU, with which of vLLM's limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fleetsim.config.base import Count, Name, Section, unsupported


class EngineConfig(Section):
    """One rollout instance. Null limits mean vLLM's default for the GPU, or what the memory leaves."""

    kind: Literal["roofline", "measured", "constant"] = Field(
        default="roofline", description="where iteration times come from: GPU and model, a profile, or a rate"
    )
    name: Annotated[Literal["vllm", "sglang", "tensorrt-llm"], unsupported("sglang", "tensorrt-llm")] = Field(
        default="vllm", description="whose scheduler is simulated"
    )
    gpu: Name = Field(default="H100-SXM", description="GPU type, for kind roofline")
    model: Name = Field(
        default="Qwen/Qwen2.5-7B", description="Hugging Face id, or path of a config.json, for kind roofline"
    )
    tp: Annotated[int, Field(ge=1, le=1024)] = Field(default=1, description="GPUs per instance (tensor parallel)")
    dtype: Name = Field(default="bfloat16", description="type of weights and KV cache")
    profile: Name | None = Field(default=None, description="profile name or file, for kind measured")
    instance_tok_s: Annotated[float, Field(gt=0, le=1e12)] | None = Field(
        default=None, description="output tokens per second of one instance, for kind constant"
    )
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.92, description="share of the GPU's memory that the engine may use"
    )
    max_num_seqs: Count | None = Field(default=None, description="running requests per instance")
    max_num_batched_tokens: Count | None = Field(default=None, description="tokens per engine iteration")
    kv_blocks: Count | None = Field(default=None, description="usable KV blocks; null = from the memory")
    block_size: Annotated[int, Field(ge=1, le=65_536)] = Field(default=16, description="tokens per KV block")
    prefix_caching: bool = Field(default=True, description="siblings of a group reuse the prompt's KV blocks")

    @model_validator(mode="before")
    @classmethod
    def _kind_of_what_is_given(cls, given: Any) -> Any:
        """A profile or a rate says which kind is meant, unless the kind is written as well."""
        if not isinstance(given, dict) or "kind" in given:
            return given
        for key, kind in (("profile", "measured"), ("instance_tok_s", "constant")):
            if given.get(key) is not None:
                return {**given, "kind": kind}
        return given
