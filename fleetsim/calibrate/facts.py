"""What an engine says of itself: limits, versions, flags, GPU. Copied, never estimated."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from fleetsim.calibrate.raw import Raw
from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, Problem


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """An engine as it came up.

    kv_blocks: usable ones (the engine keeps a null block for itself). graph_sizes: batch sizes that decode graphs were
    captured for, empty where none run. model_shape: the model's config. unknown: limits that had to be assumed.
    """

    engine: str
    version: str
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int
    block_size: int
    max_model_len: int
    prefix_caching: bool
    graph_sizes: tuple[int, ...]
    model: str
    model_shape: dict[str, Any]
    dtype: str
    tp: int
    gpu: str
    gpu_count: int | None
    driver: str
    cuda: str
    torch: str
    flags: tuple[str, ...]
    unknown: tuple[str, ...] = ()


def facts_of(raw: Raw) -> EngineFacts:
    """The facts of the last engine that came up. Raises InputError where a start record lacks the limits."""
    start = raw.starts[-1]
    cache, sched, comp = (start.get(k) or {} for k in ("cache", "sched", "comp"))
    model, gpu, args = (start.get(k) or {} for k in ("model", "gpu", "engine_args"))
    needed = {
        "cache.num_gpu_blocks": cache.get("num_gpu_blocks"),
        "cache.block_size": cache.get("block_size"),
        "sched.max_num_seqs": sched.get("max_num_seqs"),
        "sched.max_num_batched_tokens": sched.get("max_num_batched_tokens"),
    }
    problems = [
        Problem(f"start.{name}", value, "an integer >= 1", "measure again: the engine's limits were not recorded")
        for name, value in needed.items()
        if isinstance(value, bool) or not isinstance(value, int) or value < 1
    ]
    if problems:
        raise InputError(problems)
    no_graphs = str(comp.get("cudagraph_mode")) in ("NONE", "None", "0", "CUDAGraphMode.NONE")
    return EngineFacts(
        engine=str(start.get("engine") or "vllm"),
        version=str(start.get("vllm") or start.get("version") or ""),
        max_num_seqs=sched["max_num_seqs"],
        max_num_batched_tokens=sched["max_num_batched_tokens"],
        kv_blocks=max(1, cache["num_gpu_blocks"] - (0 if start.get("kind") == "server_tokens" else 1)),
        block_size=cache["block_size"],
        max_model_len=int(model.get("max_model_len") or 0),
        prefix_caching=bool(cache.get("enable_prefix_caching")),
        graph_sizes=() if no_graphs else tuple(sorted(int(n) for n in comp.get("sizes") or ())),
        model=str(raw.meta.get("model") or args.get("model") or ""),
        model_shape=dict(model.get("hf") or {}),
        dtype=str(model.get("dtype") or "").removeprefix("torch."),
        tp=int(start.get("tp") or args.get("tensor_parallel_size") or 1),
        gpu=str(gpu.get("name") or ""),
        gpu_count=gpu.get("count"),
        driver=str(gpu.get("driver") or _driver(raw.meta)),
        cuda=str(start.get("cuda") or ""),
        torch=str(start.get("torch") or ""),
        flags=tuple(f"{k}={v}" for k, v in sorted(args.items())),
        unknown=tuple(start.get("assumed") or ()),
    )


def _driver(meta: dict[str, Any]) -> str:
    """The driver's version in a line of nvidia-smi's CSV (name, driver_version, ...)."""
    rows = str(meta.get("smi") or "").splitlines()
    cells = rows[1].split(",") if len(rows) > 1 else []
    return cells[1].strip() if len(cells) > 1 else ""


@dataclass(frozen=True, slots=True)
class GivenFlags:
    """Values of the flags of `fleetsim calibrate`; None where a flag is not given. kv_blocks: usable ones."""

    model: str | None = None
    gpu: str | None = None
    tp: int | None = None
    dtype: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    kv_blocks: int | None = None
    block_size: int | None = None
    gpu_memory_utilization: float | None = None

    @classmethod
    def of(cls, asked: object) -> GivenFlags:
        """What a question says whose options have these names."""
        return cls(**{name: getattr(asked, name) for name in NAMES})


NAMES = tuple(f.name for f in fields(GivenFlags))
