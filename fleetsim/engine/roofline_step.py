"""Step time and limits of an engine that nobody has measured: data sheet x model shape x efficiency factors.

One iteration of n tokens, b of them decodes with K tokens of cache between them, and A query-key pairs of prefill:

    iteration_s + layers * layer_s                                              host, launches, small kernels
    + (weights^p + gemm^p)^(1/p)                                                the roofline's knee, smooth
        weights = bytes read / (bandwidth * memory_efficiency)                  experts touched grow with n
        gemm    = 2 * active weights * n / (peak * compute_efficiency)
    + 2 * layers * all-reduce(n * hidden * 2 bytes)                         tp > 1
    + MoE layers * all-reduce over dp ranks(n * dp * hidden * 2 bytes)      dp > 1: all-gather and reduce-scatter
    + b * (sequence_s + LM head product + sampler passes + linear layers' state, read and written)
    + K * kv bytes / (bandwidth * grouped_cache_efficiency, or memory_efficiency without grouped heads)
    + A * 4 * heads * head_dim * layers / (peak * compute_efficiency)

Weights, heads and cache are per GPU, that is, divided by tp. Under MLA the cache is one latent per token, on every GPU,
and a decode multiplies it with all heads: K costs the longer of reading and multiplying. Data-parallel ranks share the
experts: each GPU keeps 1 / (tp dp) of them and reads those that the tokens of all ranks pick, n per rank. The sum
over n is put on knots of `StepTime`'s curve.
Source of the form: Williams et al., "Roofline" (2009); of the terms: vLLM's V1 model runner. Assumptions and measured
error: docs/accuracy.md.
"""

from __future__ import annotations

import math
import os
from functools import lru_cache

from fleetsim.engine.defaults import BLOCK_SIZE, MEMORY_SHARE, default_limits, sglang_static_share
from fleetsim.engine.factors import RooflineFactors, shipped_factors
from fleetsim.engine.gpus import GpuSpec, gpu_spec
from fleetsim.engine.kv_memory import kv_blocks as usable_kv_blocks
from fleetsim.engine.limits import SCHEDULERS, EngineLimits
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.precision import KV_BYTES, PRECISIONS
from fleetsim.engine.model.shape import ModelShape
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


def _check(shape: ModelShape, gpu: GpuSpec, tp: int, dp: int, gpu_memory_utilization: float | None) -> list[Problem]:
    problems = []
    if isinstance(dp, bool) or not isinstance(dp, int) or dp < 1:
        problems.append(Problem("dp", dp, "an integer >= 1", "give the number of ranks that share the experts"))
    elif isinstance(tp, int) and shape.mixture and dp > 1 and tp * dp > gpu.node_gpus:
        rule = f"tp x dp at most the {gpu.node_gpus} GPUs that share fast links; experts across nodes are"
        problems.append(Problem("dp", dp, f"{rule} not supported yet", "lower dp"))
    if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1:
        problems.append(Problem("tp", tp, "an integer >= 1", "give the number of GPUs of one instance"))
    elif shape.heads % tp:
        rule = f"a divisor of the {shape.heads} attention heads of {shape.name}"
        problems.append(Problem("tp", tp, rule, "vLLM refuses it too: take a power of two"))
    elif tp > gpu.node_gpus:
        rule = f"at most the {gpu.node_gpus} GPUs that share fast links; tensor parallelism across nodes is"
        problems.append(Problem("tp", tp, f"{rule} not supported yet", "use more instances"))
    good = isinstance(gpu_memory_utilization, int | float) and not isinstance(gpu_memory_utilization, bool)
    if gpu_memory_utilization is not None and not (good and 0 < gpu_memory_utilization <= 1):
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


@lru_cache(maxsize=64)
def roofline_step_time(
    gpu: GpuSpec,
    shape: ModelShape,
    tp: int,
    dtype: str,
    factors: RooflineFactors,
    max_tokens: int,
    dp: int = 1,
    kv_dtype: str = "bfloat16",
) -> StepTime:
    """StepTime of `shape` on `tp` GPUs, with knots up to `max_tokens` tokens per iteration.

    dp: ranks that share the experts; each is taken to hold as many tokens as this one. kv_dtype: of the KV cache.
    """
    element = KV_BYTES[kv_dtype]
    bytes_s = gpu.memory_bytes_s * factors.memory_efficiency
    cache_bytes_s = gpu.memory_bytes_s * factors.grouped_cache_efficiency if shape.grouped_cache else bytes_s
    attention_flop_s = gpu.bf16_flop_s * factors.compute_efficiency
    latent_s = shape.decode_pair_flop / tp / attention_flop_s if shape.latent else 0.0
    head_params = shape.vocab * shape.hidden
    fixed_bytes = (shape.trunk_bytes(dtype) + head_params * PRECISIONS[shape.stored(dtype).head].weight_bytes) / tp
    expert_bytes = shape.moe_layers * shape.expert_params * PRECISIONS[shape.stored(dtype).expert].weight_bytes
    expert_bytes /= tp * dp
    gemms = [
        (2 * params / tp, gpu.flop_s(PRECISIONS[name].computes) * factors.compute_efficiency)
        for name, params in shape.active_by_precision(dtype).items()
    ]
    overhead_s = factors.iteration_s + shape.layers * factors.layer_s
    reduces = 2 * shape.layers if tp > 1 else 0  # after attention and after the MLP

    def seconds(n: float) -> float:
        weights_s = (fixed_bytes + expert_bytes * shape.experts_touched(n * dp)) / bytes_s
        gemm_s = sum(token_flop * n / flop_s for token_flop, flop_s in gemms)
        knee_s = float((weights_s**_KNEE + gemm_s**_KNEE) ** (1 / _KNEE))
        tp_s = reduces * allreduce_seconds(gpu, tp, n * shape.hidden * 2, factors)
        dp_s = shape.moe_layers * allreduce_seconds(gpu, dp, n * dp * shape.hidden * 2, factors)
        return overhead_s + knee_s + tp_s + dp_s

    octaves = math.log2(max_tokens)
    grid = [2 ** (i / _KNOTS_PER_OCTAVE) for i in range(math.ceil(octaves * _KNOTS_PER_OCTAVE))]
    knots = [float(n) for n in sorted({*(round(n) for n in grid), max(2, max_tokens)})]
    return StepTime(
        knots_tokens=tuple(knots),
        knots_s=tuple(seconds(n) for n in knots),
        per_seq_s=factors.sequence_s
        + 2 * head_params / tp / (gpu.bf16_flop_s * factors.compute_efficiency)
        + _LOGIT_PASSES * 4 * shape.vocab / bytes_s
        + 2 * shape.state_bytes(tp) / bytes_s
        + shape.window_bytes(tp, element) / cache_bytes_s,
        per_kv_token_s=max(shape.kv_bytes_per_token(tp, element) / cache_bytes_s, latent_s),
        per_prefill_token_s=shape.window_flop / tp / attention_flop_s,
        per_attn_pair_s=shape.prefill_pair_flop / tp / attention_flop_s,
        kind="roofline",
        source=f"roofline of {shape.name} on {gpu.name} x{tp}{f' of {dp} ranks' if dp > 1 else ''}, {dtype}"
        + (", KV cache in fp8" if kv_dtype == "fp8" else ""),
    )  # fmt: skip


def roofline(
    gpu: str | GpuSpec,
    model: str | os.PathLike[str] | ModelShape,
    tp: int = 1,
    dtype: str = "auto",
    gpu_memory_utilization: float | None = None,
    *,
    kv_dtype: str = "auto",
    dp: int = 1,
    engine: str = "vllm",
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    kv_blocks: int | None = None,
    block_size: int | None = None,
    max_model_len: int | None = None,
    factors: RooflineFactors | None = None,
) -> tuple[StepTime, EngineLimits]:
    """Step time and limits of one engine instance of `tp` GPUs.

    gpu: data sheet name ("H100", "MI300X"). model: a built-in Hugging Face id or a path to a config.json. dtype: of the
    weights: auto (as the checkpoint has them), bfloat16, float16, fp8, nvfp4, mxfp4 or int4. kv_dtype: of the KV cache:
    auto (as the checkpoint asks, else 16 bits), bfloat16 or fp8. dp: ranks that share a mixture's experts, of which
    this instance is one. engine: vllm, sglang or tensorrt-llm, whose defaults (`fleetsim.engine.defaults`) stand in for
    what is not given and whose rules the limits carry; kv_blocks defaults to what memory leaves; max_model_len, if
    given, must fit the KV cache once.
    Raises InputError: unknown names, a tp that does not divide the heads, a model that does not fit.
    """
    spec, shape = gpu_spec(gpu), model_shape(model)
    problems = _check(shape, spec, tp, dp, gpu_memory_utilization)
    for asked, named in ((dtype, shape.weights_type), (kv_dtype, shape.cache_type)):
        try:
            named(asked)
        except InputError as error:
            problems += error.problems
    if engine not in SCHEDULERS:
        problems.append(Problem("engine", engine, f"one of {', '.join(SCHEDULERS)}", "name the engine"))
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

    dtype, kv_dtype = shape.weights_type(dtype), shape.cache_type(kv_dtype)
    element = KV_BYTES[kv_dtype]
    default_seqs, default_tokens = default_limits(spec, engine)
    if engine == "sglang":
        seqs, tokens = max_num_seqs or default_seqs, max_num_batched_tokens or default_tokens
    else:
        seqs = max_num_seqs or (min(default_seqs, max_num_batched_tokens) if max_num_batched_tokens else default_seqs)
        tokens = max_num_batched_tokens or max(default_tokens, seqs)
    size = block_size or BLOCK_SIZE[engine]
    share = gpu_memory_utilization or MEMORY_SHARE.get(engine) or sglang_static_share(spec, tp, tokens)
    blocks = kv_blocks or usable_kv_blocks(
        spec, shape, tp, dtype, share, seqs, tokens, size, engine=engine, dp=dp, element_bytes=element
    )
    held = shape.state_bytes(tp) + shape.window_bytes(tp, element)
    state_blocks = math.ceil(held / (shape.kv_bytes_per_token(tp, element) * size))
    limits = EngineLimits(seqs, tokens, blocks, size, state_blocks, scheduler=engine)
    if max_model_len is not None and limits.kv_tokens < max_model_len:
        rule = f"at most the {limits.kv_tokens} tokens of KV cache on {spec.name} x{tp}"
        raise InputError([Problem("max_model_len", max_model_len, rule, "lower max_model_len or raise tp")])
    found = factors or shipped_factors()
    return roofline_step_time(spec, shape, tp, dtype, found, max(tokens, seqs), dp, kv_dtype), limits
