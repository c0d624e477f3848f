"""A roofline as durations: what a fit falls back on where nothing was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fleetsim.calibrate.sources.source import Duration, iteration, observations_from
from fleetsim.engine.gpus import gpu_spec
from fleetsim.engine.known_error import domain_of, known_error
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.roofline_step import roofline

if TYPE_CHECKING:
    from fleetsim.calibrate.fit.identifiability import Prior

CONTEXTS = (128, 512, 2048, 8192, 32768)
LEAST_SIGMA = 0.1


def roofline_prior(gpu: str, model: str, tp: int, dtype: str, limits: EngineLimits) -> Prior:
    """Durations of a roofline over everything that an engine of these limits may hold, as one prior.

    Decodes over batch and context as far as the KV cache goes, prompts up to the token budget, chunks after cached
    tokens, prompts beside decodes. Its spread is the error to count on for such an engine (`KnownError.sigma`).
    Raises InputError for an unknown GPU or model.
    """
    from fleetsim.calibrate.fit.identifiability import Prior

    step_time, _ = roofline(
        gpu,
        model,
        tp=tp,
        dtype=dtype,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        kv_blocks=limits.kv_blocks,
        block_size=limits.block_size,
    )
    rows = [
        (b, b * c, 0, 0) for b in _doubled(1, limits.max_num_seqs) for c in CONTEXTS if b * c <= limits.kv_tokens
    ] or [(1, CONTEXTS[0], 0, 0)]
    prompts = _doubled(min(64, limits.max_num_batched_tokens), limits.max_num_batched_tokens)
    rows += [(0, 0, p, p * (p + 1) // 2) for p in prompts]
    rows += [(0, 0, p, p * c + p * (p + 1) // 2) for p in prompts[-2:] for c in (2048, 8192)]
    rows += [
        (b, b * 1024, p, p * (p + 1) // 2)
        for b in (16, 128)
        for p in (256, 1024)
        if b <= limits.max_num_seqs and b + p <= limits.max_num_batched_tokens
    ]
    measured = [
        Duration(step_time.seconds(b, p, kv, a), iteration(b, kv, p, a), run=i) for i, (b, kv, p, a) in enumerate(rows)
    ]
    observations, _ = observations_from(measured, "roofline")
    spread = known_error(domain_of(gpu_spec(gpu), model_shape(model), dtype, "vllm")).sigma
    return Prior(observations, max(LEAST_SIGMA, spread), source=f"a {step_time.source}")


def _doubled(low: int, high: int) -> list[int]:
    """low, 2 low, 4 low... and high."""
    steps = low * 2 ** np.arange(int(np.log2(high / low)) + 1)
    return sorted({*(int(s) for s in steps), high})
