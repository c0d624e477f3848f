"""What a layer's mixer costs: its matrices for all tokens of an iteration, its cache and its prompts' pairs."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

from fleetsim.engine.gpus import GpuSpec
from fleetsim.engine.model.gemm import Gemm
from fleetsim.engine.model.indexer import Indexer
from fleetsim.engine.model.mixers import Attention, CompressedAttention
from fleetsim.engine.model.precision import Precision
from fleetsim.engine.model.shape import Attending, Mixer
from fleetsim.engine.model.states import StateMixer
from fleetsim.engine.operators.curves import DecodeCurve
from fleetsim.engine.operators.device import Device, Tokens
from fleetsim.records import replace

Each = TypeVar("Each", float, Tokens)

# Reading and writing a state of fixed size: small pieces, one for each head of each sequence.
_STATE_BANDWIDTH = 0.7
_STATE_START_S = 8e-6
# A prompt's token goes through such a layer in chunks, which takes so much of what a decode's reading and writing of
# its state does. Qwen3.5's kernels in NVIDIA's tables (aiconfigurator-core 0.12.0, gdn_perf) with 65,536 tokens on a
# B200 and an H100: 1/12 and 1/18 under SGLang, 1/16 and 1/30 under TensorRT-LLM, 1/39 and 1/73 under vLLM.
_CHUNKED = {"sglang": 1 / 15, "tensorrt-llm": 1 / 22, "vllm": 1 / 53}
# Scores and top-k of sparse attention: a chain of small kernels, at shares that the indexer's own kernels reach.
_INDEXER_START_S = 20e-6
_INDEXER_BANDWIDTH, _INDEXER_COMPUTE = 0.8, 0.35


class Core(Struct, frozen=True):
    """Seconds of layers beside their matrices: for each iteration, sequence, cached token, pair and prompt token.

    window_token_s, window_pair_s: for each cached token and pair that layers with the model's long window see.
    """

    start_s: float = 0.0
    sequence_s: float = 0.0
    kv_token_s: float = 0.0
    pair_s: float = 0.0
    prompt_token_s: float = 0.0
    window_token_s: float = 0.0
    window_pair_s: float = 0.0


def gemms_s(device: Device, n: Tokens, gemms: tuple[Gemm, ...], precision: Precision) -> Tokens:
    """Seconds of n tokens through weight matrices that tensor parallelism divides as each says."""
    total = 0.0 * n
    for g in gemms:
        total += device.gemm_s(n, *g.on(device.tp), precision)
    return total


def core_of(
    device: Device, mixer: Mixer, cache_bytes: float, queries: int = 1, dcp: int = 1, engine: str = "vllm"
) -> Core:
    """What one layer's mixer costs beside its matrices. cache_bytes: of one number in the KV cache.

    queries: tokens of each decode, more than one where drafts are verified. They read the cache together; a state is
    written after each of them, for any may be the last that is accepted. dcp: GPUs that divide the cached tokens.
    """
    if isinstance(mixer, StateMixer):
        once_s = mixer.state_bytes / device.tp / (device.gpu.memory_bytes_s * _STATE_BANDWIDTH)
        return Core(_STATE_START_S, (1 + queries) * once_s, prompt_token_s=2 * once_s * _CHUNKED[engine])
    core = _whole(device, mixer, cache_bytes, queries, dcp)
    if mixer.indexer is not None:
        core = _picked(device, mixer.indexer, core, _ratio(mixer), queries)
    if mixer.near:
        return _windowed(core, mixer.window)
    if isinstance(mixer, CompressedAttention):
        return replace(
            core,
            sequence_s=core.sequence_s
            + mixer.window_bytes(device.tp, cache_bytes)
            / _cache_bytes_s(device.gpu, _curve(device, mixer), cache_bytes),
            prompt_token_s=core.prompt_token_s + mixer.window_flop / device.tp / _prefill_flop_s(device),
        )
    return core


def _whole(device: Device, mixer: Attending, cache_bytes: float, queries: int, dcp: int) -> Core:
    """Attention that sees the whole context: reading its cache, or multiplying with a latent for all heads, binds.

    GPUs that divide the cache read their part of it, for the heads of all of them: as many operations as before.
    """
    scored = mixer.indexer.cached_bytes / _ratio(mixer) if mixer.indexer is not None else 0.0
    curve, flop = _curve(device, mixer), 0.0 if isinstance(mixer, Attention) else mixer.decode_flop / device.tp
    moved = mixer.token_bytes(device.tp, cache_bytes) - scored
    read_s, once_s = cached_token_s(device.gpu, curve, moved, flop, cache_bytes)
    pair_s = mixer.prefill_flop / device.tp / _prefill_flop_s(device)
    if isinstance(mixer, Attention):
        multiply_s = pair_s * queries if queries > 1 else 0.0  # one query alone never binds
    else:
        multiply_s = once_s * queries
    return Core(start_s=curve.start_s, kv_token_s=max(read_s / dcp, multiply_s), pair_s=pair_s)


def cached_token_s(
    gpu: GpuSpec, curve: DecodeCurve, moved_bytes: Each, flop: Each, cache_bytes: float = 2.0
) -> tuple[Each, Each]:
    """Seconds to read what one cached token has on a GPU, and to multiply a query with it. cache_bytes: of a number."""
    return moved_bytes / _cache_bytes_s(gpu, curve, cache_bytes), flop / (gpu.bf16_flop_s * curve.compute)


def _picked(device: Device, indexer: Indexer, dense: Core, ratio: int, queries: int) -> Core:
    """Sparse attention: the indexer scores the whole context, attention sees `top_k` tokens, or groups of `ratio`."""
    gpu = device.gpu
    scores_s = indexer.pair_flop / ratio / (gpu.flop_s("fp8") * _INDEXER_COMPUTE)
    read_s = indexer.cached_bytes / ratio / (gpu.memory_bytes_s * _INDEXER_BANDWIDTH)
    seen = indexer.top_k * ratio
    return Core(
        start_s=dense.start_s + _INDEXER_START_S,
        sequence_s=dense.sequence_s + seen * dense.kv_token_s,
        kv_token_s=max(scores_s * queries, read_s),
        pair_s=scores_s,
        prompt_token_s=seen * dense.pair_s,
    )


def _windowed(core: Core, window: int) -> Core:
    return Core(
        start_s=core.start_s,
        sequence_s=core.sequence_s + window * core.kv_token_s,
        prompt_token_s=core.prompt_token_s + window * core.pair_s,
    )


def _ratio(mixer: Attending) -> int:
    """Tokens that one cached vector stands for."""
    return (mixer.ratio or 1) if isinstance(mixer, CompressedAttention) else 1


def _curve(device: Device, mixer: Attending) -> DecodeCurve:
    return device.family.decode if isinstance(mixer, Attention) else device.family.latent


def _cache_bytes_s(gpu: GpuSpec, curve: DecodeCurve, cache_bytes: float) -> float:
    return gpu.memory_bytes_s * (curve.bandwidth if cache_bytes >= 2 else curve.bandwidth_fp8)


def _prefill_flop_s(device: Device) -> float:
    return device.gpu.bf16_flop_s * device.family.prefill
