"""What a vLLM engine says of itself, as the `start` record of the raw measurements, and whether it is one we know."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetsim.errors import OutsideError

TESTED = ("0.26.0", "0.32.0")
CACHE = (
    "num_gpu_blocks block_size gpu_memory_utilization enable_prefix_caching cache_dtype num_gpu_blocks_override "
    "kv_cache_memory_bytes prefix_caching_hash_algo kv_cache_size_tokens kv_cache_max_concurrency"
)
SCHEDULER = (
    "max_num_batched_tokens max_num_scheduled_tokens max_num_seqs enable_chunked_prefill async_scheduling policy "
    "long_prefill_token_threshold max_num_partial_prefills scheduler_reserve_full_isl watermark stream_interval"
)
ENVIRONMENT = ("VLLM_", "CUDA_", "PYTORCH_", "NCCL_")
# Inside vLLM, what the recorder and the driver hold on to.
NEEDED = {
    "engine core": "step_fn post_step add_request preprocess_add_request abort_requests scheduler",
    "scheduler": "schedule update_from_output _preempt_request running waiting requests has_requests "
    "max_num_scheduled_tokens max_num_running_reqs kv_cache_manager",
    "KV cache manager": "allocate_slots free block_pool",
    "block pool": "num_gpu_blocks get_num_free_blocks get_new_blocks free_blocks",
}


def core_of(llm: Any) -> Any:
    """The engine core inside a vllm.LLM. Raises OutsideError where this release is built differently."""
    core = llm
    for name in ("llm_engine", "engine_core", "engine_core"):
        core = _get(core, name, type(core).__name__)
    scheduler = _get(core, "scheduler", "engine core")
    manager = _get(scheduler, "kv_cache_manager", "scheduler")
    parts = (core, scheduler, manager, _get(manager, "block_pool", "KV cache manager"))
    for part, (what, names) in zip(parts, NEEDED.items(), strict=True):
        for name in names.split():
            _get(part, name, what)
    return core


def _get(part: Any, name: str, what: str) -> Any:
    try:
        return getattr(part, name)
    except AttributeError:
        version = getattr(sys.modules.get("vllm"), "__version__", "of unknown version")
        raise OutsideError(
            f"vLLM {version}: its {what} has no {name!r}, which fleetsim needs to record iterations "
            f"(tested with {' and '.join(TESTED)}); install one of those, or start `vllm serve` and give its --url"
        ) from None


def facts(llm: Any, core: Any) -> dict[str, Any]:
    """The engine as it came up: versions, limits, graphs, model, hardware. Fills its KV cache on the way."""
    import torch
    import vllm

    config = llm.llm_engine.vllm_config
    model, compilation, parallel = config.model_config, config.compilation_config, config.parallel_config
    drafts = getattr(config, "speculative_config", None)
    modes = {name: str(value) for name, value in _fields(compilation, "mode cudagraph_mode").items()}
    sizes = {"sizes": getattr(compilation, "cudagraph_capture_sizes", None)}
    fields: dict[str, Any] = {
        **({} if drafts is None else {"speculation": _fields(drafts, "method num_speculative_tokens")}),
        "kind": "inproc",
        "engine": "vllm",
        "vllm": vllm.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "tp": parallel.tensor_parallel_size,
        "cache": _fields(config.cache_config, CACHE),
        "sched": _fields(config.scheduler_config, SCHEDULER),
        "comp": {**modes, **sizes, **_fields(compilation, "backend compilation_time")},
        "model": {**_fields(model, "dtype max_model_len enforce_eager quantization"), "hf": model.hf_config.to_dict()},
        "executor": str(getattr(parallel, "distributed_executor_backend", None)),
        "v2_runner": getattr(config, "use_v2_model_runner", None),
        "scheduler_class": type(core.scheduler).__name__,
        "batch_queue": getattr(core, "batch_queue_size", None),
        "gpu": gpu(),
        "host": {"cpu": cpu_name(), "cores": os.cpu_count()},
        "config": str(config)[:6000],
    }
    for name, measure in (("weights", weights), ("kv_filled_bytes", fill_kv)):
        try:
            found = core.model_executor.collective_rpc(measure)
            fields[name] = found[0] if isinstance(found, list) and found else found
        except Exception as error:  # noqa: BLE001 - a fact less, not a failure
            fields[f"{name}_error"] = repr(error)[:200]
    return fields


def _fields(source: Any, names: str) -> dict[str, Any]:
    return {name: getattr(source, name, None) for name in names.split()}


def gpu() -> dict[str, Any] | None:
    """The first GPU, how many there are, and the driver; None without one."""
    import torch

    if not torch.cuda.is_available():
        return None
    found = torch.cuda.get_device_properties(0)
    return {
        "name": found.name,
        "mem": found.total_memory,
        "sms": found.multi_processor_count,
        "cc": [found.major, found.minor],
        "count": torch.cuda.device_count(),
        "driver": driver(),
    }


def driver() -> str | None:
    """The version of NVIDIA's driver, None where it does not say."""
    try:
        from vllm.third_party import pynvml

        pynvml.nvmlInit()
        found = pynvml.nvmlSystemGetDriverVersion()
        return found.decode() if isinstance(found, bytes) else str(found)
    except Exception:  # noqa: BLE001 - any failure of the management library means the same
        return None


def cpu_name() -> str:
    """The processor as the kernel names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def weights(worker: Any) -> dict[str, Any]:
    """In a worker: bytes and number of the model's parameters."""
    runner = worker.model_runner
    parameters = {id(p): p for p in runner.get_model().parameters()}.values()
    return {
        "bytes": sum(p.numel() * p.element_size() for p in parameters),
        "params": sum(p.numel() for p in parameters),
    }


def fill_kv(worker: Any) -> int:
    """In a worker: fills the KV cache with random numbers; bytes. Zeros draw less power in a GPU than real contents."""
    import torch

    filled: dict[int, int] = {}
    if worker.device.type == "cpu":
        return 0
    with torch.inference_mode():
        for layer in worker.model_runner.kv_caches:
            for tensor in layer if isinstance(layer, (list, tuple)) else [layer]:
                if tensor.is_floating_point() and tensor.element_size() > 1 and tensor.data_ptr() not in filled:
                    tensor.normal_()
                    filled[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
    return sum(filled.values())


def published(fields: Mapping[str, Any], args: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The record as it may be published: every absolute path cut down to its last part, secrets starred out."""
    said = [(k, v) for source in (args, environment) for k, v in source.items() if isinstance(v, str) and v]
    secrets = {v for k, v in said if k.lower().endswith(("token", "key", "secret", "password"))}
    text = json.dumps({**fields, "engine_args": dict(args), "env": dict(environment)}, default=str)
    for secret in secrets:
        text = text.replace(json.dumps(secret)[1:-1], "***")
    cut: dict[str, Any] = json.loads(re.sub(r"(?<![\w.:/+-])(?:/[\w.@+-]+)+/(?=[\w.@+-])", "", text))
    return cut
