"""The engine that a scenario names: iteration times and limits from a profile, a roofline or a constant rate."""

from __future__ import annotations

from fleetsim.config.profile import Profile, load_profile
from fleetsim.config.scenario import Scenario
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime, constant_rate

# The runbook's engine has no limits of its own; these are large enough never to bind.
UNBOUND_SEQS, UNBOUND_TOKENS, UNBOUND_BLOCKS = 4096, 65_536, 1 << 40


def engine_of(scenario: Scenario) -> tuple[StepTime, EngineLimits]:
    """Iteration times and limits of one instance of the scenario's fleet.

    Raises InputError for an unknown GPU, model or profile, or a model that does not fit the GPU's memory.
    """
    engine = scenario.engine
    given = {
        name: value
        for name in ("max_num_seqs", "max_num_batched_tokens", "kv_blocks")
        if (value := getattr(engine, name)) is not None
    }
    if engine.kind == "constant":
        assert engine.instance_tok_s is not None  # a rule of the scenario
        seqs = given.get("max_num_seqs", UNBOUND_SEQS)
        return constant_rate(engine.instance_tok_s), EngineLimits(
            seqs,
            given.get("max_num_batched_tokens", max(UNBOUND_TOKENS, seqs)),
            given.get("kv_blocks", UNBOUND_BLOCKS),
            engine.block_size,
        )
    if engine.kind == "measured":
        assert engine.profile is not None  # a rule of the scenario
        return _measured(load_profile(engine.profile), given)
    from fleetsim.engine.roofline_step import roofline

    return roofline(
        engine.gpu,
        engine.model,
        tp=engine.tp,
        dtype=engine.dtype,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        block_size=engine.block_size,
        **given,
    )


def _measured(profile: Profile, given: dict[str, int]) -> tuple[StepTime, EngineLimits]:
    c = profile.coefficients
    step_time = StepTime(
        tuple(c.knots_tokens),
        tuple(c.knot_seconds),
        c.per_seq_s.value,
        c.per_prefill_token_s.value,
        c.per_kv_token_s.value,
        c.per_attn_pair_s.value,
        kind="measured",
        source=profile.name,
    )
    limits = profile.limits
    return step_time, EngineLimits(
        given.get("max_num_seqs", limits.max_num_seqs),
        given.get("max_num_batched_tokens", limits.max_num_batched_tokens),
        given.get("kv_blocks", limits.kv_blocks),
        limits.block_size,
    )
