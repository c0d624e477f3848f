"""What nobody measured: a roofline as a profile, and as durations that a fit falls back on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fleetsim import __version__
from fleetsim.calibrate.sources.source import Duration, config_of, iteration, observations_from
from fleetsim.config.engine_profile import Profile, ProfileError, Provenance
from fleetsim.engine.gpus import gpu_spec
from fleetsim.engine.known_error import domain_of, known_error
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.profile_fields import coefficients_of, limit_fields
from fleetsim.engine.roofline_step import roofline

if TYPE_CHECKING:
    from fleetsim.calibrate.fit.identifiability import Prior

CONTEXTS = (128, 512, 2048, 8192, 32768)
LEAST_SIGMA = 0.1
UTILIZATION = 0.92


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


def estimate_profile(
    gpu: str,
    model: str,
    tp: int = 1,
    dtype: str = "auto",
    *,
    name: str | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    kv_blocks: int | None = None,
    block_size: int = 16,
    gpu_memory_utilization: float = UTILIZATION,
) -> Profile:
    """The roofline of a model on a GPU as a profile, to be saved, edited, compared: the same numbers as engine.kind
    roofline gives. Nothing in it was measured on this GPU with this model, so it has no ranges. Raises InputError as
    `roofline` does."""
    model = config_of(model) or model
    step_time, limits = roofline(
        gpu,
        model,
        tp=tp,
        dtype=dtype,
        gpu_memory_utilization=gpu_memory_utilization,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        kv_blocks=kv_blocks,
        block_size=block_size,
    )
    spec, shape = gpu_spec(gpu), model_shape(model)
    known = known_error(domain_of(spec, shape, dtype, "vllm"))
    what = f"the roofline's own: median and 90th percentile {known.what}"
    last = shape.name.rsplit("/", 1)[-1]
    said = {"max_num_seqs": max_num_seqs, "max_num_batched_tokens": max_num_batched_tokens, "kv_blocks": kv_blocks}
    return Profile(
        name=name or f"{spec.name}-{last}-tp{tp}-roofline".lower(),
        kind="derived",
        coefficients=coefficients_of(step_time.seeing_all),
        limits=limit_fields(limits),
        error=ProfileError(median=known.median, worst=known.p90, what=what),
        provenance=Provenance(
            source="roofline",
            gpu=spec.name,
            engine="vllm",
            model=model,
            dtype=shape.weights_type(dtype),
            tp=tp,
            assumed=(step_time.source, *guesses([k for k, v in said.items() if v is None], limits)),
            fleetsim_version=__version__,
        ),
    )


def guesses(missing: Sequence[str], limits: EngineLimits) -> tuple[str, ...]:
    """Which limits were guessed, in words."""
    why = {"kv_blocks": "what memory leaves"}
    return tuple(f"{n} {getattr(limits, n):,}: {why.get(n, 'vLLM on this GPU by default')}" for n in missing)
