"""The `engine` section: which engine, on which GPU, with which limits (vLLM's names stand for the others' too)."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from fleetsim.config.base import ConfigSection, Count, ModelName, Name
from fleetsim.config.speculation import SpeculationConfig

# The keys of `fleetsim.engine.defaults.ENTRY_POINTS`.
EntryPointName = Literal["api_server", "llm", "async_engine"]
Rate = Annotated[float, Field(gt=0, le=1e6)]


Gpus = Annotated[int, Field(ge=1, le=1024)]


class LoraConfig(ConfigSection):
    """LoRA adapters in the engine. Where the trainer merges them into the weights that it sends, there are none."""

    rank: Annotated[int, Field(ge=1, le=1024)] = Field(description="r: as the engine was started (vLLM: max_lora_rank)")
    max_loras: Count = Field(
        default=1,
        description="adapters in the engine's memory, all of them in use; versions that end beside a newer one",
    )
    experts: bool = Field(default=True, description="routed experts have adapters, too; all other matrices always have")


class DisaggregationConfig(ConfigSection):
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
    def _whole_groups_of_ranks(self) -> Self:
        """Ranks that share experts are there together."""
        for ranks, engines, name in (
            (self.prefill_dp, self.prefill, "prefill"),
            (self.decode_dp, self.decode, "decode"),
        ):
            if engines % ranks:
                raise ValueError(f"{name}_dp {ranks} must divide the {engines} {name} engines that share the experts")
        return self


class GpuSheet(ConfigSection):
    """The data sheet of a GPU that is not built in: peaks are dense, memory is what a process sees of it."""

    name: Name = Field(default="own GPU", description="what engine.gpu calls it")
    memory_gib: Rate = Field(description="GiB that a process sees")
    memory_tb_s: Rate = Field(description="memory bandwidth, TB/s")
    bf16_tflop_s: Rate = Field(description="dense bf16 and fp16, TFLOP/s")
    fp8_tflop_s: Rate | None = Field(default=None, description="dense fp8, TFLOP/s; null = it has none")
    fp4_tflop_s: Rate | None = Field(default=None, description="dense fp4, TFLOP/s; null = it has none")
    link_gb_s: Rate = Field(default=16.0, description="to its peers, one direction, GB/s; the default is PCIe's")
    node_gpus: Count = Field(default=8, description="GPUs that such links join")


class EngineConfig(ConfigSection):
    """One rollout instance. Null limits mean the engine's own default for the GPU, or what the memory leaves."""

    kind: Literal["roofline", "measured", "constant"] = Field(
        default="roofline", description="where iteration times come from: GPU and model, a profile, or a rate"
    )
    name: Literal["vllm", "sglang", "tensorrt-llm"] = Field(
        default="vllm", description="whose scheduler, defaults and prefix cache are simulated"
    )
    entry_point: EntryPointName = Field(
        default="api_server",
        description="how vLLM is started, which decides its limits where they are null: api_server (on a GPU of 70 GiB "
        "or more that is no A100 1,024 requests and 8,192 tokens, else 256 and 2,048), llm (offline LLM: 1,024 and "
        "16,384, else 256 and 8,192), async_engine (AsyncLLM from engine arguments: 128 and 2,048)",
    )
    gpu: Name = Field(
        default="H100-SXM", description="GPU type, for kind roofline; or a mapping, which is put into gpu_sheet"
    )
    gpu_sheet: GpuSheet | None = Field(default=None, description="a GPU of one's own, used where gpu has its name")
    model: ModelName = Field(
        default="Qwen/Qwen2.5-7B",
        description="Hugging Face id, or path of a config.json, from the scenario's folder too, for kind roofline",
    )
    tp: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1, description="GPUs that divide every layer (tensor parallel); more than a server has use its network"
    )
    dp: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1,
        description="data-parallel ranks that share the experts of a mixture; each is an instance, with its own "
        "scheduler and KV cache",
    )
    pp: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1,
        description="stages among which the layers are divided (pipeline parallel): an instance has tp x pp GPUs, and "
        "as many batches in flight as stages",
    )
    dcp: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1,
        description="GPUs, of the tp, that divide cached tokens of which each would hold a copy (decode context "
        "parallel): for latent attention, or more GPUs than heads of keys and values",
    )
    expert_exchange: Literal["auto", "gather", "all_to_all"] = Field(
        default="auto",
        description="how tokens reach the experts of other ranks: all tokens are gathered on every GPU, or each goes "
        "to its experts only (DeepEP); auto = gather within a server, all_to_all across servers",
    )
    overlap: Literal["none", "two_batch"] = Field(
        default="none",
        description="two_batch: ranks that share experts divide each iteration's tokens into two batches, one of which "
        "computes while the other's are on their way",
    )
    nic_gb_s: Rate | None = Field(
        default=None,
        description="network of one GPU to other servers, one direction, GB/s; null = the usual card of engine.gpu",
    )
    dtype: Name = Field(
        default="auto",
        description="type of the weights: bfloat16, float16, fp8, nvfp4, mxfp4, int4, or auto = as the checkpoint has "
        "them",
    )
    kv_dtype: Name = Field(
        default="auto",
        description="type of the KV cache: bfloat16, fp8, or auto = as the checkpoint asks, else 16 bits",
    )
    profile: Name | None = Field(default=None, description="profile name or file, for kind measured")
    instance_tok_s: Annotated[float, Field(gt=0, le=1e12)] | None = Field(
        default=None, description="output tokens per second of one instance, for kind constant"
    )
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="share of the GPU's memory that the engine may use (SGLang: mem_fraction_static; TensorRT-LLM: of "
        "the memory that is free beside the weights); null = the engine's default",
    )
    max_num_seqs: Count | None = Field(
        default=None, description="running requests per instance (max_running_requests, max_batch_size)"
    )
    max_num_batched_tokens: Count | None = Field(
        default=None, description="tokens per engine iteration (SGLang: chunked_prefill_size, prompts only)"
    )
    capacity_scheduler_policy: Literal["guaranteed_no_evict", "max_utilization"] = Field(
        default="guaranteed_no_evict",
        description="tensorrt-llm: a request starts if its longest output fits, or as soon as its prompt fits",
    )
    kv_blocks: Count | None = Field(default=None, description="usable KV blocks; null = from the memory")
    block_size: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None, description="tokens per KV block; null = the engine's: vLLM 16, SGLang 1, TensorRT-LLM 32"
    )
    prefix_caching: bool = Field(
        default=True,
        description="cached prompts are reused: by siblings, by all groups that share a system prompt, by later turns",
    )
    kv_offloading_gib: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        default=None,
        description="GiB of host memory for copies of an instance's KV blocks (vLLM: kv_offloading_size; SGLang: "
        "hicache_size x tp, in GB)",
    )
    kv_offloading_ratio: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        default=None, description="the same over the KV cache (SGLang: hicache_ratio)"
    )
    host_link_gb_s: Rate | None = Field(
        default=None, description="a GPU's way to host memory, one direction, GB/s; null = that of engine.gpu"
    )
    enforce_eager: bool = Field(
        default=False,
        description="without CUDA graphs (SGLang: disable_cuda_graph): an iteration takes no less than its launches",
    )
    slowdown: Annotated[float, Field(gt=0, le=1e6)] = Field(
        default=1.0,
        description="time of an iteration inside the training job over that of the engine alone (client, tokenizers, "
        "host), but for log-probs, 10 us a token on top; where a plan or a run is not told it, that of published runs "
        "of trainer.recipe.framework",
    )
    lora: LoraConfig | None = Field(
        default=None, description="LoRA adapters that the engine multiplies and a weight sync sends; null = none"
    )
    speculation: SpeculationConfig | None = Field(
        default=None, description="speculative decoding; null = each iteration brings one token of each sequence"
    )

    disaggregation: DisaggregationConfig | None = Field(
        default=None, description="prompts are computed by engines of their own; null = where tokens are decoded"
    )

    @property
    def offloads(self) -> bool:
        """Whether host memory keeps copies of KV blocks."""
        return bool(self.kv_offloading_gib or self.kv_offloading_ratio)

    @property
    def gpus(self) -> int:
        """GPUs of one instance, those of its prefill engines too."""
        apart = self.disaggregation
        own = self.tp * self.pp
        return own if apart is None else apart.decode * own + apart.prefill * self.prefill_tp

    @property
    def ranks(self) -> int:
        """Engines that share the experts of a mixture, of the side that has more."""
        apart = self.disaggregation
        return self.dp if apart is None else max(apart.prefill_dp, apart.decode_dp)

    @property
    def prefill_tp(self) -> int:
        """GPUs of one of the engines that compute prompts."""
        apart = self.disaggregation
        return self.tp if apart is None or apart.prefill_tp is None else apart.prefill_tp

    @model_validator(mode="before")
    @classmethod
    def _sheet_in_place_of_a_name(cls, given: Any) -> Any:
        """`gpu: {name: X, memory_gib: ...}` is the sheet of X, and X."""
        if not isinstance(given, dict) or not isinstance(given.get("gpu"), dict):
            return given
        sheet = given["gpu"]
        return {**given, "gpu": sheet.get("name", GpuSheet.model_fields["name"].default), "gpu_sheet": sheet}

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
