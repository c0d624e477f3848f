"""The engine speed of a window as a profile file, so that every command can use it (`--profile FILE`)."""

from __future__ import annotations

from fleetsim.config.coefficients import Coefficients, EstimateFields
from fleetsim.config.engine_profile import Profile, ProfileError, ProfileLimits, Provenance, Ranges
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime
from fleetsim.replay.implied.implied import Implied

# A profile's counts end here; beyond, nothing binds anyway.
_MOST = 1_000_000_000


def profile_of_window(implied: Implied, name: str, source: str, date: str) -> Profile | None:
    """The implied engine as a derived profile; None where the scenario's own engine section is all there is.

    name: how it is called. source: the window, in words. date: ISO.
    """
    if implied.engine is None:
        return None
    step_time, limits = implied.engine
    speed = implied.speed
    error = ProfileError()
    ranges = Ranges()
    if speed is not None:
        ranges = Ranges(decodes=speed.loads)
        if speed.held_out is not None:
            error = ProfileError(median=speed.held_out, what="iteration time on the second half of the window")
    e = implied.scenario.engine
    return Profile(
        name=name[:1000],
        kind="derived",
        coefficients=coefficients_of(step_time.seeing_all),
        ranges=ranges,
        limits=limits_of(limits),
        error=error,
        provenance=Provenance(source=source, engine=e.name, model=e.model, tp=e.tp, date=date, gpu=e.gpu),
    )


def coefficients_of(step_time: StepTime) -> Coefficients:
    """The coefficients of a step time."""

    def value(seconds: float) -> EstimateFields:
        return EstimateFields(value=seconds)

    return Coefficients(
        knots_tokens=step_time.knots_tokens,
        knots_s=tuple(value(s) for s in step_time.knots_s),
        per_seq_s=value(step_time.per_seq_s),
        per_prefill_token_s=value(step_time.per_prefill_token_s),
        per_kv_token_s=value(step_time.per_kv_token_s),
        per_attn_pair_s=value(step_time.per_attn_pair_s),
    )


def limits_of(limits: EngineLimits) -> ProfileLimits:
    """The limits of an engine, as a profile holds them."""
    return ProfileLimits(
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        kv_blocks=min(limits.keeping_all.kv_blocks, _MOST),
        block_size=limits.block_size,
    )
