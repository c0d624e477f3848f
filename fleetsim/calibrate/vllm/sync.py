"""What a weight update costs an engine: pause, load, resume, copies beside its decodes, broadcast to another GPU.

Everything goes through vLLM's own interface: `pause_scheduler(mode="keep")` and `resume_scheduler()`, the model's
`load_weights` (tensors as a trainer sends them, by their checkpoint names), the runner's `reload_weights`. A broadcast
is torch.distributed's, in two processes.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from fleetsim.calibrate.loads import Load, Request
from fleetsim.calibrate.vllm.engine import VllmEngine
from fleetsim.records import replace

DECODES, CONTEXT = 256, 1024
TIMES = 3
COPY_BYTES = 1 << 30
STEPS = 20


def measure_sync(engine: VllmEngine, deadline_s: float) -> None:
    """Writes the `phase` record "sync". What fails is written down as NAME_error and the next part goes on."""
    begin = engine.now()
    found: dict[str, Any] = {}

    def part(name: str, measured: Callable[[], Any]) -> None:
        if engine.now() > deadline_s:
            found[f"{name}_error"] = "out of time"
            return
        try:
            value = measured()
        except Exception as error:  # noqa: BLE001 - recorded; one part says nothing of the next
            found[f"{name}_error"] = repr(error)[:300]
            return
        if value is not None:
            found[name] = value

    def in_worker(function: Callable[[Any], Any]) -> Any:
        answer = engine.core.model_executor.collective_rpc(function)
        return answer[0] if isinstance(answer, list) else answer

    part("reset_prefix_cache_s", lambda: seconds_of(engine.core.reset_prefix_cache))
    _decoding(engine)
    part("pause_keep_s", lambda: seconds_of(lambda: _pause(engine)))
    part("resume_to_next_result_s", lambda: seconds_of(lambda: _resume(engine)))
    part("slowdown", lambda: _slowdown(engine, in_worker))
    part("drain_s", lambda: seconds_of(engine.clear))
    engine.recorder.flush()
    part("broadcast_bytes_s", broadcast_rate)
    part("copies", lambda: in_worker(copies))
    part("weights", lambda: in_worker(weights))  # last: an update that fails may leave the model unusable
    updates = {**found.pop("weights", {}), **found.pop("copies", {})}
    if updates:
        found["weights"] = updates
    engine.writer.put("phase", ph="sync", s=round(engine.now() - begin, 3), ok=True, res=found)


def seconds_of(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begin = perf_counter()
    function()
    return round(perf_counter() - begin, 6)


def _decoding(engine: VllmEngine) -> None:
    """Adds requests that decode for as long as the parts take, and steps until all of them do."""
    limits = engine.limits
    context = min(CONTEXT, limits.max_model_len // 4) // limits.block_size * limits.block_size
    output = min(2000, limits.max_model_len - context - 1)
    batch = max(1, min(DECODES, limits.max_num_seqs, limits.kv_tokens // (context + output + limits.block_size)))
    one = Request(0, context + 1, output, cached_tokens=context)
    load = Load("sync", {"B": batch, "C": context}, tuple(replace(one, prompt=i) for i in range(batch)), 10**9)
    engine.recorder.begin(load.phase, dict(load.label), load.warm)
    for request in engine.made(load):
        engine.core.add_request(request)
    computed = 0 if engine.forging else batch * context
    for _ in range(STEPS + -(-computed // limits.max_num_batched_tokens)):
        engine.step()


def _pause(engine: VllmEngine) -> None:
    """Until the engine is at rest: what is under way ends first."""
    engine.core.pause_scheduler(mode="keep", clear_cache=False)
    before = None
    while before != engine.recorder.last:
        before = engine.recorder.last
        if getattr(engine.core, "batch_queue", None):
            engine.step()


def _resume(engine: VllmEngine) -> None:
    """Until the first result with tokens."""
    before = engine.recorder.last
    engine.core.resume_scheduler()
    for _ in range(STEPS):
        engine.step()
        if engine.recorder.last != before and engine.recorder.last_decodes:
            return
    raise RuntimeError(f"no token in {STEPS} iterations after resume")


def _slowdown(engine: VllmEngine, in_worker: Callable[[Callable[[Any], Any]], Any]) -> float | None:
    """Iteration time while weights stream from the host into the GPU, over that without; None without a GPU."""
    alone = _pace(engine)
    if not in_worker(begin_copies):
        return None
    try:
        beside = _pace(engine)
    finally:
        in_worker(end_copies)
    return round(beside / alone, 4)


def _pace(engine: VllmEngine) -> float:
    durations = []
    for _ in range(STEPS):
        before = engine.recorder.last
        engine.step()
        if engine.recorder.last != before:
            durations.append(engine.recorder.last - before)
    return statistics.median(durations)


Tensors = list[tuple[str, tuple[int, ...], Any]]  # name, shape, dtype


def weights(worker: Any) -> dict[str, Any]:
    """In a worker: seconds to load all weights from tensors on its device, and from pinned memory of the host.

    format: checkpoint (the model's `load_weights`, as trainers call it), reload (the runner's reload of a checkpoint,
    where the engine has repacked its weights), kernel (the runner's reload of parameters as they lie in memory, for
    models whose checkpoint names are not known here). A failure may leave the model unusable.
    """
    import torch

    runner = worker.model_runner
    model = runner.get_model()
    first = next(model.parameters())
    tensors = checkpoint_tensors(model, runner.model_config.hf_config, runner.vllm_config)
    if tensors and all(hasattr(p, "weight_loader") for name, p in model.named_parameters() if "proj" in name):
        form, load = "checkpoint", model.load_weights
    elif tensors:
        form, load = "reload", lambda items: runner.reload_weights(weights_iterator=items)
    else:
        form, load = "kernel", lambda items: runner.reload_weights(weights_iterator=items, is_checkpoint_format=False)
        tensors = [(name, tuple(p.shape), p.dtype) for name, p in model.named_parameters()]
    found: dict[str, Any] = {
        "format": form,
        "tensors": len(tensors),
        "bytes": sum(torch.Size(shape).numel() * dtype.itemsize for _, shape, dtype in tensors),
    }
    cuda = first.device.type == "cuda"
    for where, options in (("device", {"device": first.device}), ("pinned_host", {"pin_memory": cuda})):
        with torch.inference_mode():
            # One tensor for all of a shape: what is in them does not matter, and two copies of a model may not fit.
            source = {(shape, dtype): torch.zeros(shape, dtype=dtype, **options) for _, shape, dtype in tensors}
            for tensor in source.values():
                if tensor.dtype.is_floating_point and tensor.element_size() > 1:
                    tensor.uniform_(-1e-3, 1e-3)
            found[f"load_from_{where}_s"] = [_loaded(load, tensors, source, cuda) for _ in range(TIMES)]
            del source
    return found


def _loaded(load: Callable[[Iterable[tuple[str, Any]]], object], tensors: Tensors, source: Any, cuda: bool) -> float:
    def once() -> None:
        load((name, source[shape, dtype]) for name, shape, dtype in tensors)
        if cuda:
            import torch

            torch.cuda.synchronize()

    return seconds_of(once)


def checkpoint_tensors(model: Any, hf: Any, config: Any) -> Tensors | None:
    """What a checkpoint of a dense decoder on one GPU holds; None for any other model.

    Shapes follow from the model's config: an engine may have padded or repacked its own.
    """
    if config.parallel_config.world_size > 1 or config.model_config.quantization:
        return None
    heads, hidden, inner = (getattr(hf, n, None) for n in ("num_attention_heads", "hidden_size", "intermediate_size"))
    if not heads or not hidden or not inner:
        return None
    size = getattr(hf, "head_dim", None) or hidden // heads
    keys = (getattr(hf, "num_key_value_heads", None) or heads) * size
    parts = {
        "qkv_proj": (("q_proj", heads * size, hidden), ("k_proj", keys, hidden), ("v_proj", keys, hidden)),
        "gate_up_proj": (("gate_proj", inner, hidden), ("up_proj", inner, hidden)),
        "o_proj": (("o_proj", hidden, heads * size),),
        "down_proj": (("down_proj", hidden, inner),),
        "embed_tokens": (("embed_tokens", hf.vocab_size, hidden),),
        "lm_head": (("lm_head", hf.vocab_size, hidden),),
    }
    found: Tensors = []
    for name, parameter in model.named_parameters():
        module, kind = name.split(".")[-2:]
        if module in parts:
            for part, rows, columns in parts[module]:
                shape = (rows, columns) if kind == "weight" else (rows,)
                found.append((name.replace(f"{module}.{kind}", f"{part}.{kind}"), shape, parameter.dtype))
        elif "norm" in module:
            found.append((name, tuple(parameter.shape), parameter.dtype))
        else:
            return None
    return found


def copies(worker: Any) -> dict[str, float]:
    """In a worker: GB/s from the host's pinned memory to the device; nothing without a GPU."""
    import torch

    if worker.device.type != "cuda":
        return {}
    device, pinned = _buffers(worker)

    def copy() -> None:
        device.copy_(pinned)
        torch.cuda.synchronize()

    copy()
    return {"h2d_pinned_GBs": round(len(pinned) / 1e9 / seconds_of(copy), 2)}


def _buffers(worker: Any) -> tuple[Any, Any]:
    """As many bytes on a GPU as in its host's pinned memory: a quarter of what is free at most."""
    import torch

    size = min(COPY_BYTES, torch.cuda.mem_get_info()[0] // 4)
    on_device = torch.empty(size, dtype=torch.uint8, device=worker.device)
    return on_device, torch.empty(size, dtype=torch.uint8, pin_memory=True)


def begin_copies(worker: Any) -> bool:
    """In a worker: weights begin to stream in beside whatever else runs, for some seconds. False without a GPU."""
    import torch

    if worker.device.type != "cuda":
        return False
    device, pinned = _buffers(worker)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(200):
            device.copy_(pinned, non_blocking=True)
    worker.fleetsim_copies = (stream, pinned, device)  # alive until they have ended
    return True


def end_copies(worker: Any) -> None:
    """In a worker: waits for the copies of begin_copies."""
    stream, _, _ = worker.__dict__.pop("fleetsim_copies")
    stream.synchronize()


BROADCAST_BYTES = {"nccl": 1 << 29, "gloo": 1 << 24}
BROADCASTS = 5
LONGEST_S = 60.0


def broadcast_rate(backend: str | None = None) -> float | None:
    """Bytes per second between the first two GPUs, None where there are not two. backend: gloo measures host memory.

    Raises what torch raises where it fails, RuntimeError where it hangs.
    """
    import torch
    from torch import multiprocessing

    if backend is None:
        if torch.cuda.device_count() < 2:
            return None
        backend = "nccl"
    rate, until = multiprocessing.get_context("spawn").Value("d", 0.0), perf_counter() + LONGEST_S
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        running = multiprocessing.spawn(_broadcast, (store, backend, rate), nprocs=2, join=False)
        try:
            while not running.join(max(0.0, until - perf_counter())):
                if perf_counter() > until:
                    raise RuntimeError(f"broadcast took longer than {LONGEST_S:g} s")
        finally:
            for process in running.processes:
                process.kill()
                process.join()
    return float(rate.value)


def _broadcast(rank: int, store: str, backend: str, rate: Any) -> None:
    """One of the two processes. rate: takes rank 0's bytes per second."""
    import torch
    from torch import distributed

    distributed.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
    on_gpu = backend == "nccl"
    if on_gpu:
        torch.cuda.set_device(rank)
    tensor = torch.zeros(BROADCAST_BYTES[backend], dtype=torch.uint8, device="cuda" if on_gpu else "cpu")

    def send() -> float:
        begin = perf_counter()
        distributed.broadcast(tensor, src=0)
        if on_gpu:
            torch.cuda.synchronize()
        distributed.barrier()
        return perf_counter() - begin

    send()  # sets up the connection
    fastest = min(send() for _ in range(BROADCASTS))
    if rank == 0:
        rate.value = BROADCAST_BYTES[backend] / fastest
    distributed.destroy_process_group()
