"""How many KV blocks are left beside the weights: each engine's own subtraction, with its profile run estimated.

    vLLM          KV bytes = memory * gpu_memory_utilization - weights - activation peak - runtime reserve
    SGLang        KV bytes = memory * mem_fraction_static - weights - runtime reserve
    TensorRT-LLM  KV bytes = (memory - weights - activation peak - runtime reserve) * free_gpu_memory_fraction

Where a real engine can be asked ("GPU KV cache size: N tokens" in its log, `vllm:cache_config_info`), its number wins:
give it as `kv_blocks`.

Of several stages (pipeline parallel) the one with the least room decides, because a request holds its tokens on all of
them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fleetsim.engine.gpus import GpuSpec
from fleetsim.engine.layout import Layout
from fleetsim.engine.model.shape import ModelShape
from fleetsim.errors import InputError, Problem

# Peak of the sampler in the profile run, bytes per logit: the 16-bit logits, their float32 copy, and the sort behind
# top-k/top-p (values, 64-bit indices, probabilities, running sum). Checked against logged peaks and block counts.
_BYTES_PER_LOGIT = 28
# Outside PyTorch vLLM logs 0.1 GiB (workspaces of cuBLAS and attention), and 0.2 GiB for captured graphs; with tensor
# parallelism the buffers of NCCL and of the custom all-reduce come on top.
_RUNTIME_BYTES = 0.3e9
_COLLECTIVES_BYTES = 1.0e9
_GIB = 2**30


def activation_peak_bytes(shape: ModelShape, tp: int, max_num_seqs: int, max_num_batched_tokens: int) -> float:
    """Peak of vLLM's profile run: one MLP of `max_num_batched_tokens` tokens, or the sampler on `max_num_seqs` rows.

    The layer holds hidden states (three copies), the gate-and-up product and its activation; a mixture holds them for
    every routed copy of a token in chunks, which is bounded by the same order. Both parts are summed because the
    allocator keeps the blocks of the first for the second only in part.
    """
    width = max((b.mlp.peak_width for b in shape.blocks if b.mlp is not None), default=0)
    mlp = max_num_batched_tokens * (3 * shape.hidden + 3 * width / tp) * 2
    return mlp + max_num_seqs * shape.vocab * _BYTES_PER_LOGIT


def kv_blocks(
    gpu: GpuSpec,
    shape: ModelShape,
    layout: Layout,
    dtype: str,
    memory_share: float,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    block_size: int,
    *,
    engine: str = "vllm",
    element_bytes: float = 2,
) -> int:
    """Usable KV blocks (without vLLM's null block) of numbers of `element_bytes` each.

    Raises InputError when the model leaves no room for any.

    vLLM subtracts weights and the profile run's peak from its share. SGLang's share is weights and cache together:
    activations live in the rest. TensorRT-LLM takes its share of what the weights and its profile run leave free.
    """
    token = block_bytes_per_token(shape, layout, engine, element_bytes)
    reserve = _RUNTIME_BYTES + (_COLLECTIVES_BYTES if layout.gpus > 1 else 0.0)
    budget = gpu.memory_bytes * (1.0 if engine == "tensorrt-llm" else memory_share)
    found = []
    stages = zip(layout.stages(shape.layers, engine), stage_bytes(shape, layout, engine, dtype), strict=True)
    for stage, (layers, weights) in enumerate(stages):
        # Only the last stage samples.
        rows = 0 if stage < layout.pp - 1 else max_num_seqs if engine == "vllm" else 1
        peak = 0.0 if engine == "sglang" else activation_peak_bytes(shape, layout.tp, rows, max_num_batched_tokens)
        cache = budget - weights - peak - reserve
        if engine == "tensorrt-llm":
            cache *= memory_share
        found.append((cache // (token * layers / shape.layers * block_size), weights, peak))
    room, weights, peak = min(found)
    blocks = int(room) - (1 if engine == "vllm" else 0)
    if blocks < 1:
        rule = (
            f"must fit {gpu.name} {layout.text}, but {weights / _GIB:.1f} GiB weights + {peak / _GIB:.1f} GiB "
            f"activations + {reserve / _GIB:.1f} GiB runtime leave no KV cache in {budget / _GIB:.1f} GiB"
        )
        remedy = "raise tp, use dtype fp8, a larger GPU, or lower max_num_seqs or max_num_batched_tokens"
        raise InputError([Problem("model", shape.name, rule, remedy)])
    return blocks


def stage_bytes(shape: ModelShape, layout: Layout, engine: str, dtype: str = "auto") -> tuple[float, ...]:
    """Bytes of weights on each GPU of every stage: its layers, the embedding on the first, the LM head on the last.

    Where layers differ, a stage is taken to have all kinds in the model's proportion.
    """
    if layout.pp == 1:
        return (shape.weight_bytes_per_gpu(layout.tp, layout.dp, dtype),)
    layers = shape.layer_bytes_per_gpu(layout.tp, layout.dp, dtype)
    head, ends = shape.head_bytes_per_gpu(layout.tp, dtype), {0, layout.pp - 1}
    stages = layout.stages(shape.layers, engine)
    return tuple(layers * n / shape.layers + head * (stage in ends) for stage, n in enumerate(stages))


class CacheLayers(NamedTuple):
    """Layers of one block of the cache, and how many blocks the tokens of a block take: in layers that keep all of
    them, and in those that keep a window."""

    layers: int
    whole: int
    window: int


def windows_kept(shape: ModelShape, engine: str, dcp: int = 1) -> CacheLayers | None:
    """How vLLM's hybrid KV cache manager divides a model with a long window; None where the cache keeps all tokens.

    Layers of a kind form groups of as many layers as the rarer kind has, or all of the other kind where those are less
    than half as many again; each group has blocks of its own out of one pool. Blocks that have left the window are
    freed. It needs layers of one size. Source: vllm-project/vllm, v1/core/kv_cache_utils.py
    (`_get_kv_cache_groups_uniform_page_size`) and single_type_kv_cache_manager.py (`SlidingWindowManager`). SGLang has
    a second pool of fixed size for such layers, and TensorRT-LLM one for each window: neither gives the other layers
    what it saves. Chunks are counted as if they were kept, too.
    """
    if engine != "vllm" or not shape.window or shape.chunked or dcp > 1 or any(shape.states):
        return None
    sizes = {m.token_bytes() for _, m in shape.attentions}
    near = sum(n for n, m in shape.attentions if shape.in_window(m))
    rest = [(n, m) for n, m in shape.attentions if not shape.in_window(m)]
    if len(sizes) > 1 or any(m.window for _, m in rest):
        return None
    full = sum(n for n, _ in rest)
    if full == 0:
        return CacheLayers(near, 0, 1)
    few, many = sorted((near, full))
    layers = many if many < 1.5 * few else few
    return CacheLayers(layers, 1, math.ceil(near / layers)) if full <= layers else None


def block_bytes_per_token(shape: ModelShape, layout: Layout, engine: str, element_bytes: float = 2) -> float:
    """Bytes on a GPU of one of the tokens that a block of the cache is for, in all layers that it holds them for."""
    kept = windows_kept(shape, engine, layout.dcp)
    token = kv_bytes_per_token(shape, layout, element_bytes)
    return token if kept is None else token * kept.layers / sum(n for n, _ in shape.attentions)


def kv_bytes_per_token(shape: ModelShape, layout: Layout, element_bytes: float = 2) -> float:
    """Bytes of one token's cache on a GPU, over all stages together: a request holds its tokens on each of them."""
    return shape.kv_bytes_per_token(layout.tp, element_bytes) / layout.dcp
