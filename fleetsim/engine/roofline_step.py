"""Step time and limits of an engine that nobody has measured: data sheet x model shape x efficiency factors.

One iteration of n tokens, b of them decodes with K tokens of cache between them, and A query-key pairs of prefill:

    iteration_s + layers * layer_s                                              host, launches, small kernels
    + (weights^p + gemm^p)^(1/p)                                                the roofline's knee, smooth
        weights = bytes read / (bandwidth * memory_efficiency)                  experts touched grow with n
        gemm    = 2 * active weights * n / (peak * compute_efficiency)
    + 2 * layers * all-reduce(n * hidden * 2 bytes)                         tp > 1
    + b * (sequence_s + LM head product + sampler passes)
    + K * kv bytes / (bandwidth * grouped_cache_efficiency, or memory_efficiency without grouped heads)
    + A * 4 * heads * head_dim * layers / (peak * compute_efficiency)

Weights, heads and cache are per GPU, that is, divided by tp. The sum over n is put on knots of `StepTime`'s curve.
Source of the form: Williams et al., "Roofline" (2009); of the terms: vLLM's V1 model runner. Assumptions and measured
error: docs/accuracy.md.
"""

from __future__ import annotations

import math
import os

from fleetsim.engine.factors import RooflineFactors, shipped_factors
from fleetsim.engine.gpus import GpuSpec, gpu_spec
from fleetsim.engine.kv_memory import kv_blocks as usable_kv_blocks
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.shapes import DTYPE_BYTES, ModelShape, model_shape
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError, Problem

# Sharpness of the knee: 1 would add the two times (no overlap), infinity takes the larger (perfect overlap).
_KNEE = 3.0
# Passes over a row of float32 logits in temperature, softmax and sampling.
_LOGIT_PASSES = 6
# Large all-reduces leave the one-shot kernel for NCCL's ring or NVLS: later to start, near the link's rate.
_NCCL_START_S = 20e-6
_NCCL_EFFICIENCY = 0.75
# 3.7, 4.8 and 5.9 us for 2, 4 and 8 GPUs of an H100 node (sgl-project/sglang pull request 2904).
_ALLREDUCE_PER_DOUBLING = 0.3
_KNOTS_PER_OCTAVE = 4
_BIG_DEVICE_BYTES = 70 * 2**30


def default_limits(gpu: GpuSpec) -> tuple[int, int]:
    """vLLM's (max_num_seqs, max_num_batched_tokens) for offline `LLM`: by device memory, A100 among the small.

    Source: vLLM, `EngineArgs.get_batch_defaults` (0.26.0 to 0.32.0).
    """
    big = gpu.memory_bytes >= _BIG_DEVICE_BYTES and not gpu.name.startswith("A100")
    return (1024, 16384) if big else (256, 8192)


def _check(shape: ModelShape, gpu: GpuSpec, tp: int, dtype: str, gpu_memory_utilization: float) -> list[Problem]:
    problems = []
    if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1:
        problems.append(Problem("tp", tp, "an integer >= 1", "give the number of GPUs of one instance"))
    elif shape.heads % tp:
        rule = f"a divisor of the {shape.heads} attention heads of {shape.name}"
        problems.append(Problem("tp", tp, rule, "vLLM refuses it too: take a power of two"))
    elif tp > gpu.node_gpus:
        rule = f"at most the {gpu.node_gpus} GPUs that share fast links; tensor parallelism across nodes is"
        problems.append(Problem("tp", tp, f"{rule} not supported yet", "use more instances"))
    if dtype not in DTYPE_BYTES:
        problems.append(Problem("dtype", dtype, f"one of auto, {', '.join(DTYPE_BYTES)}", "float32 is not served"))
    good = isinstance(gpu_memory_utilization, int | float) and not isinstance(gpu_memory_utilization, bool)
    if not good or not 0 < gpu_memory_utilization <= 1:
        problems.append(
            Problem("gpu_memory_utilization", gpu_memory_utilization, "a share in (0, 1]", "vLLM's default is 0.92")
        )
    return problems


def allreduce_seconds(gpu: GpuSpec, tp: int, message_bytes: float, factors: RooflineFactors) -> float:
    """One all-reduce of `message_bytes` over `tp` GPUs: the faster of the one-shot kernel and NCCL."""
    if tp == 1:
        return 0.0
    volume = 2 * (tp - 1) / tp * message_bytes
    small_s = volume / (gpu.link_bytes_s * factors.link_efficiency)
    large_s = _NCCL_START_S + volume / (gpu.link_bytes_s * _NCCL_EFFICIENCY)
    return factors.allreduce_s * (1 + _ALLREDUCE_PER_DOUBLING * math.log2(tp / 2)) + min(small_s, large_s)


def roofline_step_time(
    gpu: GpuSpec, shape: ModelShape, tp: int, dtype: str, factors: RooflineFactors, max_tokens: int
) -> StepTime:
    """StepTime of `shape` on `tp` GPUs, with knots up to `max_tokens` tokens per iteration."""
    size = DTYPE_BYTES[dtype]
    bytes_s = gpu.memory_bytes_s * factors.memory_efficiency
    grouped = shape.kv_heads < shape.heads
    cache_bytes_s = gpu.memory_bytes_s * factors.grouped_cache_efficiency if grouped else bytes_s
    flop_s = gpu.flop_s(dtype) * factors.compute_efficiency
    head_params = shape.vocab * shape.hidden
    fixed_bytes = (shape.trunk_params * size + head_params * 2) / tp
    expert_bytes = shape.moe_layers * shape.expert_params * size / tp
    token_flop = 2 * shape.active_trunk_params / tp
    overhead_s = factors.iteration_s + shape.layers * factors.layer_s
    reduces = 2 * shape.layers if tp > 1 else 0  # after attention and after the MLP

    def seconds(n: float) -> float:
        weights_s = (fixed_bytes + expert_bytes * shape.experts_touched(n)) / bytes_s
        gemm_s = token_flop * n / flop_s
        knee_s = float((weights_s**_KNEE + gemm_s**_KNEE) ** (1 / _KNEE))
        return overhead_s + knee_s + reduces * allreduce_seconds(gpu, tp, n * shape.hidden * 2, factors)

    octaves = math.log2(max_tokens)
    grid = [2 ** (i / _KNOTS_PER_OCTAVE) for i in range(math.ceil(octaves * _KNOTS_PER_OCTAVE))]
    knots = [float(n) for n in sorted({*(round(n) for n in grid), max(2, max_tokens)})]
    return StepTime(
        knots_tokens=tuple(knots),
        knots_s=tuple(seconds(n) for n in knots),
        per_seq_s=factors.sequence_s
        + 2 * head_params / tp / (gpu.bf16_flop_s * factors.compute_efficiency)
        + _LOGIT_PASSES * 4 * shape.vocab / bytes_s,
        per_kv_token_s=shape.kv_bytes_per_token(tp) / cache_bytes_s,
        per_attn_pair_s=4 * shape.heads * shape.head_dim * shape.layers
        / tp / (gpu.bf16_flop_s * factors.compute_efficiency),
        kind="roofline",
        source=f"roofline of {shape.name} on {gpu.name} x{tp}, {dtype}",
    )  # fmt: skip


def roofline(
    gpu: str | GpuSpec,
    model: str | os.PathLike[str] | ModelShape,
    tp: int = 1,
    dtype: str = "bfloat16",
    gpu_memory_utilization: float = 0.92,
    *,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    kv_blocks: int | None = None,
    block_size: int = 16,
    max_model_len: int | None = None,
    factors: RooflineFactors | None = None,
) -> tuple[StepTime, EngineLimits]:
    """Step time and limits of one engine instance of `tp` GPUs.

    gpu: data sheet name ("H100", "MI300X"). model: a built-in Hugging Face id or a path to a config.json. dtype: auto,
    bfloat16, float16 or fp8 (the KV cache stays in 16 bits). max_num_seqs and max_num_batched_tokens default as vLLM's
    offline `LLM` does; kv_blocks to what memory leaves; max_model_len, if given, must fit the KV cache once.
    Raises InputError: unknown names, a tp that does not divide the heads, a model that does not fit.
    """
    spec, shape = gpu_spec(gpu), model_shape(model)
    dtype = shape.dtype if dtype == "auto" else dtype
    problems = _check(shape, spec, tp, dtype, gpu_memory_utilization)
    given = {
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "kv_blocks": kv_blocks,
        "block_size": block_size,
        "max_model_len": max_model_len,
    }
    for key, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            problems.append(Problem(key, value, "an integer >= 1", f"raise {key} or leave it out"))
    if problems:
        raise InputError(problems)

    default_seqs, default_tokens = default_limits(spec)
    seqs = max_num_seqs or (min(default_seqs, max_num_batched_tokens) if max_num_batched_tokens else default_seqs)
    tokens = max_num_batched_tokens or max(default_tokens, seqs)
    blocks = kv_blocks or usable_kv_blocks(spec, shape, tp, dtype, gpu_memory_utilization, seqs, tokens, block_size)
    limits = EngineLimits(seqs, tokens, blocks, block_size)
    if max_model_len is not None and limits.kv_tokens < max_model_len:
        rule = f"at most the {limits.kv_tokens} tokens of KV cache on {spec.name} x{tp}"
        raise InputError([Problem("max_model_len", max_model_len, rule, "lower max_model_len or raise tp")])
    return roofline_step_time(spec, shape, tp, dtype, factors or shipped_factors(), tokens), limits
