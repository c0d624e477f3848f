"""An engine whose prompts are computed apart: its prefill side, the way of the KV cache, and its decode side."""

from __future__ import annotations

from collections.abc import Callable

from fleetsim.config.engine import EngineConfig
from fleetsim.engine.gpus import GpuSpec
from fleetsim.engine.kv_memory import kv_bytes_per_token
from fleetsim.engine.layout import Layout, layout_of
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.model.precision import KV_BYTES
from fleetsim.engine.model.shape import ModelShape
from fleetsim.engine.operators.device import NETWORK_SHARE
from fleetsim.engine.step_time import PrefillSide, StepTime
from fleetsim.records import replace

OneEngine = Callable[[EngineConfig], tuple[StepTime, EngineLimits]]


def disaggregated(
    engine: EngineConfig, one: OneEngine, parts: tuple[GpuSpec, ModelShape] | None
) -> tuple[StepTime, EngineLimits]:
    """Iteration times and limits of an instance whose prompts are computed by engines of their own.

    one: makes the engine of a section. parts: its GPU and its model; of None nothing is known, and the cache takes no
    time to move. The decode engines are assumed to be evenly loaded: together they hold the sum of what each holds, and
    an iteration takes as long as on one of them. Raises InputError as `one` does, for either side.
    """
    given = engine.disaggregation
    assert given is not None  # who asks has seen it
    decode, limits = one(engine.model_copy(update={"disaggregation": None, "dp": given.decode_dp}))
    step, own = one(prefill_engine(engine))
    unknown = 0.0, 0.0, "the way of the KV cache takes no time"
    fixed_s, token_s, words = unknown if parts is None else _moved(engine, *parts)
    side = PrefillSide(
        given.prefill, step, replace(own, block_size=limits.block_size), given.latency_s + fixed_s, token_s, words
    )
    n = given.decode
    both = replace(
        limits,
        max_num_seqs=limits.max_num_seqs * n,
        max_num_batched_tokens=limits.max_num_batched_tokens * n,
        kv_blocks=limits.kv_blocks * n,
    )
    return replace(decode, prefill=side, engines=n), both


def prefill_engine(engine: EngineConfig) -> EngineConfig:
    """The section of one of the prefill engines."""
    given = engine.disaggregation
    assert given is not None  # who asks has seen it
    tokens = given.max_num_batched_tokens
    return engine.model_copy(
        update={
            "disaggregation": None,
            "tp": engine.prefill_tp,
            "dp": given.prefill_dp,
            "dcp": 1,
            "kv_blocks": None,
            "max_num_batched_tokens": engine.max_num_batched_tokens if tokens is None else tokens,
        }
    )


def _moved(engine: EngineConfig, gpu: GpuSpec, shape: ModelShape) -> tuple[float, float, str]:
    """Seconds to move the cache of a request: a fixed part, and a part for each token; and how, in words.

    The GPUs of an engine send and receive their shares at the same time; the side with fewer GPUs sets the time.
    """
    given = engine.disaggregation
    assert given is not None  # who asks has seen it
    near = engine.gpus <= gpu.node_gpus
    rate = (gpu.link_bytes_s if near else gpu.nic_bytes_s) * NETWORK_SHARE
    way = "inside the server" if near else "through the network"
    if given.link_gb_s is not None:
        rate, way = given.link_gb_s * 1e9, "as given"
    element = KV_BYTES[shape.cache_type(engine.kv_dtype)]
    sides = (Layout(engine.prefill_tp), layout_of(engine))
    token = max(kv_bytes_per_token(shape, side, element) for side in sides)
    fixed = max(shape.state_bytes(side.tp) + shape.window_bytes(side.tp, element) for side in sides)
    return fixed / rate, token / rate, f"KV cache {way}, {rate / 1e9:.0f} GB/s of a GPU"
