"""What a trainer's seconds come to on a data sheet, where nobody has measured them."""

from __future__ import annotations

from fleetsim.config.engine import EngineConfig
from fleetsim.engine.gpus import gpu_of, gpu_spec
from fleetsim.engine.model.names import model_shape
from fleetsim.errors import InputError

# FLOPs per active parameter and token. An update: forward, forward again for recomputed activations, backward twice
# that; a log-prob pass: forward (Narayanan et al., arXiv 2104.04473, without the attention term).
UPDATE_FLOPS, PASS_FLOPS = 8, 2
# Part of the dense bf16 peak that a trainer reaches.
OF_PEAK = 0.5


def trainer_s_per_token(model: str, gpu: str | EngineConfig, gpus: int) -> tuple[float, float] | None:
    """Seconds per trained token of an update and of a log-prob pass, at half of the GPUs' dense bf16 peak.

    gpu: a name, or the engine whose GPU it is. None for a model or GPU that is not known.
    """
    try:
        spec = gpu_spec(gpu) if isinstance(gpu, str) else gpu_of(gpu)
        parameters, peak = model_shape(model).active_params, spec.bf16_flop_s * OF_PEAK * gpus
    except InputError:
        return None
    return UPDATE_FLOPS * parameters / peak, PASS_FLOPS * parameters / peak
