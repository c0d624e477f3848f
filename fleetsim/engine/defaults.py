"""What an engine takes where nobody says: batch limits, block size and the share of memory, per engine and GPU."""

from __future__ import annotations

from msgspec import Struct

from fleetsim.engine.gpus import GpuSpec

# Tokens per KV block: vLLM on CUDA; SGLang's page_size; TensorRT-LLM's KvCacheConfig.tokens_per_block.
BLOCK_SIZE = {"vllm": 16, "sglang": 1, "tensorrt-llm": 32}
# gpu_memory_utilization of vLLM; KvCacheConfig.free_gpu_memory_fraction of TensorRT-LLM, a share of what is free
# beside the weights. SGLang has no constant: `sglang_static_share`.
MEMORY_SHARE = {"vllm": 0.92, "tensorrt-llm": 0.9}
SGLANG_DRAFTING = 48  # max_running_requests with drafts of any kind, where nobody gives it (server_args.py)

_GIB = 2**30
_MIB = 2**20
_BIG_DEVICE_BYTES = 70 * _GIB


class EntryPoint(Struct, frozen=True):
    """A way to start vLLM, and the (max_num_seqs, max_num_batched_tokens) that it takes there by itself.

    big: on a GPU with 70 GiB or more that is no A100. small: on all others. words: as a report says it.
    """

    big: tuple[int, int]
    small: tuple[int, int]
    words: str


# By the usage context that vLLM is told (vllm-project/vllm, vllm/engine/arg_utils.py, EngineArgs.get_batch_defaults,
# 0.11 to 0.32): that of the OpenAI server, LLM_CLASS, and any other, ENGINE_CONTEXT among them, which
# AsyncLLM.from_engine_args takes where nobody says: then what stands in vllm/config/scheduler.py, whatever the GPU
# (NVIDIA-NeMo/RL pull request 4221 and vllm-project/vllm 37393 say the same). The two other engines start with the same
# limits everywhere: SGLang's Engine and server share ServerArgs, TensorRT-LLM's LLM and trtllm-serve share LlmArgs.
ENTRY_POINTS = {
    "api_server": EntryPoint((1024, 8192), (256, 2048), "an API server"),
    "llm": EntryPoint((1024, 16384), (256, 8192), "an offline LLM"),
    "async_engine": EntryPoint((128, 2048), (128, 2048), "an AsyncLLM from engine arguments"),
}


def default_limits(gpu: GpuSpec, engine: str = "vllm", entry_point: str = "api_server") -> tuple[int, int]:
    """(max_num_seqs, max_num_batched_tokens) of an engine that is given neither.

    vLLM: by entry point and GPU (`ENTRY_POINTS`). SGLang: max_running_requests before the cache is known
    (`sglang_running_requests`), and chunked_prefill_size by device memory (sgl-project/sglang,
    python/sglang/srt/server_args.py). TensorRT-LLM: max_batch_size, max_num_tokens (tensorrt_llm/llmapi/llm_args.py).
    """
    if engine == "sglang":
        return sglang_running_requests(1, None), _chunked_prefill_size(gpu)
    if engine == "tensorrt-llm":
        return 2048, 8192
    point = ENTRY_POINTS[entry_point]
    big = gpu.memory_bytes >= _BIG_DEVICE_BYTES and not gpu.name.startswith("A100")
    return point.big if big else point.small


def _chunked_prefill_size(gpu: GpuSpec) -> int:
    for below_gib, tokens in ((35, 2048), (60, 4096), (160, 8192)):
        if gpu.memory_bytes < below_gib * _GIB:
            return tokens
    return 16384


def sglang_running_requests(kv_tokens: int, context: int | None) -> int:
    """max_running_requests where nobody gives it: 512 per context that the cache holds, from 2,048 to 4,096.

    context: tokens that the model was made to read, None = not known. Source: sgl-project/sglang,
    python/sglang/srt/model_executor/model_runner.py.
    """
    return 2048 if context is None else min(max(512 * kv_tokens // context, 2048), 4096)


def sglang_static_share(gpu: GpuSpec, tp: int, chunked_prefill_size: int) -> float:
    """mem_fraction_static where nobody gives it: what is left beside activations and CUDA graphs.

    In MiB: 512, 1.5 per token of a chunk (2,048 at least), 2 per sequence of the largest graph, tp / 8 GiB; at least
    10 GiB on a GPU with more than 60. Source: sgl-project/sglang, python/sglang/srt/server_args.py.
    """
    gib = gpu.memory_bytes / _GIB
    if gib < 35:
        graph = 24 if tp < 4 else 80
    elif gib < 60:
        graph = 32 if tp < 4 else 160
    elif gib < 160:
        graph = 256 if tp < 4 else 512
    else:
        graph = 512
    reserved = 512 + 1.5 * max(chunked_prefill_size, 2048) + 2 * graph + tp / 8 * 1024
    if gib > 60:
        reserved = max(reserved, 10 * 1024)
    return 1.0 - reserved * _MIB / gpu.memory_bytes
