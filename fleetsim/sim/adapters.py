"""The adapters that a scenario's engine holds: iteration times and limits with them.

It is imported where a scenario has adapters: models and operators take a while to import.
"""

from __future__ import annotations

import math

import numpy as np

from fleetsim.config.engine import EngineConfig, LoraConfig
from fleetsim.engine.gpus import gpu_of, gpu_spec
from fleetsim.engine.kv_memory import block_bytes_per_token
from fleetsim.engine.layout import layout_of
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.precision import KV_BYTES
from fleetsim.engine.operators.adapters import Adapters
from fleetsim.engine.operators.curves import shipped_curves
from fleetsim.engine.operators.device import Device
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace


def with_adapters(
    engine: EngineConfig, given: LoraConfig, step_time: StepTime, limits: EngineLimits
) -> tuple[StepTime, EngineLimits]:
    """A roofline's iteration times and limits with adapters: their kernels for every token, their memory at the start.

    Raises InputError where they leave no KV cache, and for several pipeline stages.
    """
    if engine.pp > 1:
        rule = "adapters are modelled on one stage"
        raise InputError([Problem("pp", engine.pp, rule, "use pp 1, or no engine.lora")])
    gpu, shape, layout, curves = (
        gpu_spec(gpu_of(engine)),
        model_shape(engine.model),
        layout_of(engine),
        shipped_curves(),
    )
    adapters = Adapters(given.rank, given.max_loras, given.experts)
    knots = np.asarray(step_time.knots_tokens, np.float64)
    added = adapters.tokens_s(Device(gpu, curves.families[gpu.family], engine.tp), shape, layout, knots)
    seconds = np.maximum.accumulate(np.asarray(step_time.knots_s, np.float64) + added)
    slower = replace(step_time, knots_s=tuple(seconds.tolist()))
    if engine.kv_blocks is not None:
        return slower, limits
    held = adapters.bytes_per_gpu(shape, layout)
    token = block_bytes_per_token(shape, layout, engine.name, KV_BYTES[shape.cache_type(engine.kv_dtype)])
    blocks = limits.kv_blocks - math.ceil(held / (token * limits.block_size))
    if blocks < 1:
        rule = f"its {held / 1e9:.1f} GB of adapters leave no KV cache on {gpu.name} x{engine.tp}"
        raise InputError([Problem("lora.max_loras", given.max_loras, rule, "hold fewer, or raise tp")])
    return slower, replace(limits, kv_blocks=blocks)
