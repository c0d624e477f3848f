"""Step time and limits of an engine that nobody has measured: data sheet x model x the curves of its operators.

One iteration of n tokens, b of them decodes with K tokens of cache between them, p of prompts with A query-key pairs:

    f(n) = host + sum over layers of
             gap, and passes over the hidden states of n tokens                 norms, residuals, rotations, launches
             + products of n tokens with each weight matrix of one GPU          (bytes^k + operations^k)^(1/k) + start
             + routed experts: start + bytes of those touched + operations      experts touched grow with n
             + start of the attention, or of the state's update
             + all-reduce of n hidden states, once per mixer and MLP            tp > 1
             + gather and scatter, or exchange, of the ranks' hidden states     dp > 1
             + all-reduce of queries and partial sums                           dcp > 1
           + the LM head's weights
    + b * (host + LM head's operations + sampler's passes + heads of the attention + state, read and written)
    + K * cache bytes per token / bandwidth, or what multiplying with the latent takes
    + p * (host + what sparse and windowed attention look at, chunks of linear attention)
    + A * operations per pair / compute of the attention
    + the same of the tokens and pairs within a long window, for the layers that see no more

Matrices, heads and cache are per GPU, that is, divided by tp. Under MLA the cache is one latent per token, on every
GPU. Data-parallel ranks share the experts: each GPU keeps 1 / (tp dp) of them and reads those that the tokens of all
ranks pick, n per rank. Of pp stages an iteration is a round of pp batches, each with its part of the sequences
(`Layers.tokens_s`). f is put on knots of `StepTime`'s curve. The operators are in `fleetsim.engine.operators`, their
numbers in `calibration/engine_curves.json`; assumptions and measured error: docs/accuracy.md.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from fleetsim.engine.defaults import (
    BLOCK_SIZE,
    ENTRY_POINTS,
    MEMORY_SHARE,
    default_limits,
    sglang_running_requests,
    sglang_static_share,
)
from fleetsim.engine.gpus import GpuSpec, gpu_spec
from fleetsim.engine.kv_memory import block_bytes_per_token, windows_kept
from fleetsim.engine.kv_memory import kv_blocks as usable_kv_blocks
from fleetsim.engine.layout import Exchange, Layout, Overlap, layout_problems
from fleetsim.engine.limits import SCHEDULERS, EngineLimits
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.precision import KV_BYTES, PRECISIONS
from fleetsim.engine.model.shape import ModelShape
from fleetsim.engine.operators.curves import Curves, shipped_curves
from fleetsim.engine.operators.device import Device
from fleetsim.engine.operators.layers import Layers
from fleetsim.engine.step_time import StepTime
from fleetsim.engine.window import AttentionWindow
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace

_KNOTS_PER_OCTAVE = 4
# Without CUDA graphs the host launches every kernel of every layer, and the GPU waits for it: an iteration takes no
# less than the launches. Public seconds of a token at small batches, over the layers. Dense: 0.26 ms (Llama 3.1 8B on
# H100, 8.4 ms, 5.1 with graphs: cloudai.pt), 0.26 and 0.29 (Llama 3 8B, sgl-project/sglang pull request 1401), 0.36
# (Qwen3-0.6B, pytorch/torchtitan pull request 2373), 0.80 (Qwen2.5-Omni-7B on a shared A800, vllm-project/vllm-omni
# issue 7960): the median. Mixtures launch more: Qwen3-30B-A3B, 33.9 ms, 10.0 with graphs (vllm issue 45709).
_LAUNCH_S, _LAUNCH_MIXTURE_S = 0.29e-3, 0.71e-3


@lru_cache(maxsize=64)
def roofline_step_time(
    gpu: GpuSpec,
    shape: ModelShape,
    layout: Layout,
    dtype: str,
    curves: Curves,
    max_tokens: int,
    engine: str = "vllm",
    kv_dtype: str = "bfloat16",
) -> StepTime:
    """StepTime of `shape` on one instance's GPUs, with knots up to `max_tokens` tokens per iteration.

    layout: ranks that share the experts are taken to hold as many tokens as this one. engine: whose host it is.
    kv_dtype: of the KV cache.
    """
    device = Device(gpu, curves.families[gpu.family], layout.tp)
    layers = Layers(device, shape, dtype, layout, curves, curves.hosts[engine], engine)
    core = layers.cores(KV_BYTES[kv_dtype])
    tokens, near = shape.window, (core.window_token_s, core.window_pair_s)
    octaves = math.log2(max_tokens)
    grid = [2 ** (i / _KNOTS_PER_OCTAVE) for i in range(math.ceil(octaves * _KNOTS_PER_OCTAVE))]
    knots = np.array(sorted({*(round(n) for n in grid), max(2, max_tokens)}), dtype=np.float64)
    step_time = StepTime(
        knots_tokens=tuple(knots.tolist()),
        # More tokens are never faster: a curve that falls by rounding is held.
        knots_s=tuple(np.maximum.accumulate(layers.tokens_s(knots)).tolist()),
        per_seq_s=core.sequence_s,
        per_prefill_token_s=core.prompt_token_s,
        per_kv_token_s=core.kv_token_s,
        per_attn_pair_s=core.pair_s,
        kind="roofline",
        source=f"roofline of {shape.name} on {gpu.name} {layout.text}, {dtype}"
        + (", KV cache in fp8" if kv_dtype == "fp8" else ""),
        window=AttentionWindow(tokens, *near, chunked=shape.chunked) if tokens else None,
    )
    return step_time.slower(curves.factor_of(shape, engine, PRECISIONS[shape.weights_type(dtype)].bits))


def roofline(
    gpu: str | GpuSpec,
    model: str | os.PathLike[str] | ModelShape,
    tp: int = 1,
    dtype: str = "auto",
    gpu_memory_utilization: float | None = None,
    *,
    kv_dtype: str = "auto",
    dp: int = 1,
    pp: int = 1,
    dcp: int = 1,
    expert_exchange: Exchange = "auto",
    overlap: Overlap = "none",
    engine: str = "vllm",
    entry_point: str = "api_server",
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    kv_blocks: int | None = None,
    block_size: int | None = None,
    max_model_len: int | None = None,
    enforce_eager: bool = False,
    curves: Curves | None = None,
) -> tuple[StepTime, EngineLimits]:
    """Step time and limits of one engine instance of `tp` x `pp` GPUs.

    gpu: data sheet name ("H100", "MI300X"). model: a built-in Hugging Face id or a path to a config.json. dtype: of the
    weights: auto (as the checkpoint has them), bfloat16, float16, fp8, nvfp4, mxfp4 or int4. kv_dtype: of the KV cache:
    auto (as the checkpoint asks, else 16 bits), bfloat16 or fp8. dp: ranks that share a mixture's experts, of which
    this instance is one. pp, dcp, expert_exchange, overlap: as in `fleetsim.engine.layout.Layout`; tp and dp beyond a
    server cross its network. engine: vllm, sglang or tensorrt-llm, whose defaults (`fleetsim.engine.defaults`) stand in
    for what is not given and whose rules the limits carry. entry_point: how vLLM is started, one of its `ENTRY_POINTS`.
    kv_blocks defaults to what memory leaves; max_model_len, if given, must fit the KV cache once.
    Raises InputError: unknown names, a layout that the model cannot have, a model that does not fit.
    """
    spec, shape = gpu_spec(gpu), model_shape(model)
    layout = Layout(tp, pp, dp, dcp, expert_exchange, overlap)
    counts = {
        "max_num_seqs": max_num_seqs, "max_num_batched_tokens": max_num_batched_tokens, "kv_blocks": kv_blocks,
        "block_size": block_size, "max_model_len": max_model_len,
    }  # fmt: skip
    problems = [
        *layout_problems(shape, layout),
        *_wrong_share(gpu_memory_utilization),
        *_wrong_names(shape, dtype, kv_dtype, engine, entry_point),
        *_wrong_counts(counts),
    ]
    if problems:
        raise InputError(problems)

    dtype, kv_dtype = shape.weights_type(dtype), shape.cache_type(kv_dtype)
    element = KV_BYTES[kv_dtype]
    seqs, tokens = _batch_limits(
        default_limits(spec, engine, entry_point), engine, max_num_seqs, max_num_batched_tokens
    )
    size = block_size or BLOCK_SIZE[engine]
    share = gpu_memory_utilization or MEMORY_SHARE.get(engine) or sglang_static_share(spec, tp, tokens)
    blocks = kv_blocks or usable_kv_blocks(
        spec, shape, layout, dtype, share, seqs, tokens, size, engine=engine, element_bytes=element
    )
    if engine == "sglang" and max_num_seqs is None:
        seqs = sglang_running_requests(blocks * size, shape.max_position)
    tokens *= pp  # each of the batches in flight has its own budget
    state_blocks = _state_blocks(shape, layout, engine, element, size)
    limits = EngineLimits(seqs, tokens, blocks, size, state_blocks, scheduler=engine)
    kept = windows_kept(shape, engine, dcp)
    if kept is not None:
        limits = replace(limits, window_tokens=shape.window, window_blocks=kept.window, whole_blocks=kept.whole)
    if max_model_len is not None and limits.kv_tokens < limits.cache_tokens(max_model_len):
        rule = f"must be at most the {limits.kv_tokens} tokens of KV cache on {spec.name} {layout.text}"
        raise InputError([Problem("max_model_len", max_model_len, rule, "lower max_model_len or raise tp")])
    found = curves or shipped_curves()
    step_time = roofline_step_time(spec, shape, layout, dtype, found, max(tokens, seqs), engine, kv_dtype)
    return launched(step_time, shape) if enforce_eager else step_time, limits


def launched(step_time: StepTime, shape: ModelShape) -> StepTime:
    """The same without CUDA graphs: while the host still launches, the GPU has nothing to do."""
    least_s = shape.layers * (_LAUNCH_S if shape.mixture is None else _LAUNCH_MIXTURE_S)
    return replace(step_time, knots_s=tuple(max(s, least_s) for s in step_time.knots_s))


def _wrong_names(shape: ModelShape, dtype: str, kv_dtype: str, engine: str, entry_point: str) -> Iterator[Problem]:
    for asked, named in ((dtype, shape.weights_type), (kv_dtype, shape.cache_type)):
        try:
            named(asked)
        except InputError as error:
            yield from error.problems
    if engine not in SCHEDULERS:
        yield Problem("engine", engine, f"must be one of {', '.join(SCHEDULERS)}", "name the engine")
    if entry_point not in ENTRY_POINTS:
        yield Problem("entry_point", entry_point, f"must be one of {', '.join(ENTRY_POINTS)}", "name one of them")


def _wrong_counts(counts: Mapping[str, int | None]) -> Iterator[Problem]:
    for key, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            yield Problem(key, value, "must be an integer >= 1", f"raise {key} or leave it out")


def _state_blocks(shape: ModelShape, layout: Layout, engine: str, element: float, block_size: int) -> int:
    """Blocks that the states and windows of one sequence take."""
    held = shape.state_bytes(layout.tp) + shape.window_bytes(layout.tp, element)
    return math.ceil(held / (block_bytes_per_token(shape, layout, engine, element) * block_size))


def _batch_limits(default: tuple[int, int], engine: str, seqs: int | None, tokens: int | None) -> tuple[int, int]:
    """Sequences and tokens of an iteration: as given, else the engine's defaults. vLLM and TensorRT-LLM take no more
    sequences than tokens."""
    default_seqs, default_tokens = default
    if engine == "sglang":
        return seqs or default_seqs, tokens or default_tokens
    seqs = seqs or (min(default_seqs, tokens) if tokens else default_seqs)
    return seqs, tokens or max(default_tokens, seqs)


def _wrong_share(share: float | None) -> list[Problem]:
    good = isinstance(share, int | float) and not isinstance(share, bool)
    if share is None or (good and 0 < share <= 1):
        return []
    return [Problem("gpu_memory_utilization", share, "must be a share in (0, 1]", "vLLM's default is 0.92")]
