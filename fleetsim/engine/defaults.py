"""What an engine takes where nobody says: batch limits, block size and the share of memory, per engine and GPU."""

from __future__ import annotations

from fleetsim.engine.gpus import GpuSpec

# Tokens per KV block: vLLM on CUDA; SGLang's page_size; TensorRT-LLM's KvCacheConfig.tokens_per_block.
BLOCK_SIZE = {"vllm": 16, "sglang": 1, "tensorrt-llm": 32}
# gpu_memory_utilization of vLLM; KvCacheConfig.free_gpu_memory_fraction of TensorRT-LLM, a share of what is free
# beside the weights. SGLang has no constant: `sglang_static_share`.
MEMORY_SHARE = {"vllm": 0.92, "tensorrt-llm": 0.9}

_GIB = 2**30
_MIB = 2**20
_BIG_DEVICE_BYTES = 70 * _GIB


def default_limits(gpu: GpuSpec, engine: str = "vllm") -> tuple[int, int]:
    """(max_num_seqs, max_num_batched_tokens) of an engine that is given neither.

    vLLM: those of offline `LLM`, by device memory, A100 among the small (`EngineArgs.get_batch_defaults`, 0.26.0 to
    0.32.0). SGLang: max_running_requests of a pool that holds less than 4 contexts per request, and
    chunked_prefill_size by device memory (sgl-project/sglang, python/sglang/srt/server_args.py and
    model_executor/model_runner.py). TensorRT-LLM: max_batch_size and max_num_tokens (NVIDIA/TensorRT-LLM,
    tensorrt_llm/llmapi/llm_args.py).
    """
    if engine == "sglang":
        return 2048, _chunked_prefill_size(gpu)
    if engine == "tensorrt-llm":
        return 2048, 8192
    big = gpu.memory_bytes >= _BIG_DEVICE_BYTES and not gpu.name.startswith("A100")
    return (1024, 16384) if big else (256, 8192)


def _chunked_prefill_size(gpu: GpuSpec) -> int:
    for below_gib, tokens in ((35, 2048), (60, 4096), (160, 8192)):
        if gpu.memory_bytes < below_gib * _GIB:
            return tokens
    return 16384


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
