"""An engine as the fields of a profile; `sim/engines.py` makes the engine of a profile again."""

from __future__ import annotations

from fleetsim.config.base import MAX_COUNT
from fleetsim.config.engine_profile import Coefficients, EstimateFields, ProfileLimits
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime


def coefficients_of(step_time: StepTime) -> Coefficients:
    """A step time as a profile holds it, without intervals; every digit is kept."""
    return Coefficients(
        knots_tokens=step_time.knots_tokens,
        knots_s=tuple(EstimateFields(value=s) for s in step_time.knots_s),
        per_seq_s=EstimateFields(value=step_time.per_seq_s),
        per_prefill_token_s=EstimateFields(value=step_time.per_prefill_token_s),
        per_kv_token_s=EstimateFields(value=step_time.per_kv_token_s),
        per_attn_pair_s=EstimateFields(value=step_time.per_attn_pair_s),
    )


def limit_fields(limits: EngineLimits) -> ProfileLimits:
    """An engine's limits as a profile holds them; counts beyond the largest that it may hold never bind either."""
    return ProfileLimits(
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        kv_blocks=min(limits.keeping_all.kv_blocks, MAX_COUNT),
        block_size=limits.block_size,
    )
