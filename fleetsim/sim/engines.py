"""The engine that a scenario names: iteration times and limits from a profile, a roofline or a constant rate."""

from __future__ import annotations

import os
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from fleetsim.config.engine import EngineConfig
from fleetsim.config.scenario import Scenario
from fleetsim.config.speculation import SpeculationConfig
from fleetsim.engine.defaults import BLOCK_SIZE
from fleetsim.engine.gpus import gpu_of, gpu_spec
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.shape import ModelShape
from fleetsim.engine.slowdown import LOG_PROBS_S
from fleetsim.engine.step_time import StepTime, constant_rate
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace

if TYPE_CHECKING:
    from fleetsim.config.engine_profile import Profile

# The runbook's engine has no limits of its own; these are large enough never to bind.
UNBOUND_SEQS, UNBOUND_TOKENS, UNBOUND_BLOCKS = 4096, 65_536, 1 << 40


Engine = tuple[StepTime, EngineLimits]
"""How long an engine's iterations take, and what it may hold."""


def in_engine(scenario: Scenario, error: InputError) -> list[Problem]:
    """The problems of an engine with their full paths: the engine does not know in which section of a scenario it
    stands."""
    fields = type(scenario.engine).model_fields
    return [replace(p, path=f"engine.{p.path}") if p.path.partition(".")[0] in fields else p for p in error.problems]


def engine_of(scenario: Scenario, *, log_probs: bool = True) -> Engine:
    """Iteration times and limits of one instance of the scenario's fleet, with the rules of the engine that it names.

    The times are those inside the training job: engine.slowdown is in them. log_probs: whether it is asked for those of
    the tokens that it generates; a constant rate, and a profile that was measured in a job, include them.

    Raises InputError for an unknown GPU, model or profile, a model that does not fit the GPU's memory, or a profile of
    another tensor-parallel size.
    """
    one = partial(_one_engine, scenario)
    if scenario.engine.disaggregation is None:
        step_time, limits = one(scenario.engine)
    else:
        from fleetsim.engine.disaggregation import disaggregated

        e = scenario.engine
        parts = (gpu_of(e), model_shape(e.model)) if e.kind == "roofline" else None
        step_time, limits = disaggregated(e, one, parts)
    cap = scenario.workload.turns.most_tokens(scenario.workload.output_tokens)
    inside = step_time.slower(scenario.engine.slowdown)
    if log_probs and not seen_in_a_job(scenario):
        inside = replace(inside, per_seq_s=inside.per_seq_s + LOG_PROBS_S)
    return inside, replace(
        limits,
        no_evict=scenario.engine.capacity_scheduler_policy == "guaranteed_no_evict",
        max_output_tokens=None if cap is None else max(1, round(cap)),
    )


def seen_in_a_job(scenario: Scenario) -> bool:
    """Whether what its engines are said to do is what they do inside a job: a constant rate, a profile from one."""
    profile = profile_of(scenario)
    return scenario.engine.kind == "constant" or (profile is not None and profile.provenance.in_a_job)


def _one_engine(scenario: Scenario, engine: EngineConfig) -> Engine:
    """An engine of the scenario, or of one of its sides, with its adapters and its drafts."""
    step_time, limits = _engine_of(scenario, engine)
    if engine.lora is not None:
        from fleetsim.sim.adapters import with_adapters

        step_time, limits = with_adapters(engine, engine.lora, step_time, limits)
    drafts = speculation_of(scenario)
    if drafts is not None:
        from fleetsim.sim.speculation import with_speculation

        step_time, limits = with_speculation(engine, drafts, step_time, limits, profile_of(scenario))
    return step_time, _with_host(engine, limits) if engine.offloads else limits


def _with_host(engine: EngineConfig, limits: EngineLimits) -> EngineLimits:
    """The limits of an engine whose host keeps copies of its blocks. Each GPU moves its own part over its own link."""
    from fleetsim.engine.kv_memory import kv_bytes_per_token
    from fleetsim.engine.layout import layout_of
    from fleetsim.engine.model.precision import KV_BYTES

    if limits.state_blocks or limits.window_blocks:
        rule = f"of models whose layers keep all tokens: those of {engine.model} have states or windows"
        size = engine.kv_offloading_gib or engine.kv_offloading_ratio
        raise InputError([Problem("kv_offloading_gib", size, rule, "leave it out")])
    gpu, shape = gpu_spec(gpu_of(engine)), model_shape(engine.model)
    element = KV_BYTES[shape.cache_type(engine.kv_dtype)]
    block = limits.block_size * kv_bytes_per_token(shape, layout_of(engine), element)
    blocks = (engine.kv_offloading_ratio or 0.0) * limits.kv_blocks
    if engine.kv_offloading_gib:
        blocks = engine.kv_offloading_gib * 2**30 // (block * engine.tp)
    link = gpu.host_bytes_s if engine.host_link_gb_s is None else engine.host_link_gb_s * 1e9
    return replace(limits, host_blocks=int(blocks), load_block_s=block / engine.pp / link)


def _engine_of(scenario: Scenario, engine: EngineConfig) -> Engine:
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
            engine.block_size or BLOCK_SIZE[engine.name],
            scheduler=engine.name,
        )
    profile = profile_of(scenario)
    if profile is not None:
        problem = other_tp(profile, engine.tp)
        if problem is not None:
            raise InputError([problem])
        limits = profile.limits
        return step_time_of(profile), EngineLimits(
            given.get("max_num_seqs", limits.max_num_seqs),
            given.get("max_num_batched_tokens", limits.max_num_batched_tokens),
            given.get("kv_blocks", limits.kv_blocks),
            limits.block_size,
            scheduler=engine.name,
        )
    return _roofline_of(engine, model_shape(engine.model))


@lru_cache(maxsize=64)
def _roofline_of(engine: EngineConfig, shape: ModelShape) -> Engine:
    """The roofline of an engine of this model. Remembered: the runs of a search ask for the same few engines."""
    from fleetsim.engine.roofline_step import roofline

    return roofline(
        gpu_of(engine),
        shape,
        tp=engine.tp,
        dp=engine.dp,
        pp=engine.pp,
        dcp=engine.dcp,
        expert_exchange=engine.expert_exchange,
        overlap=engine.overlap,
        engine=engine.name,
        entry_point=engine.entry_point,
        dtype=engine.dtype,
        kv_dtype=engine.kv_dtype,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        kv_blocks=engine.kv_blocks,
        block_size=engine.block_size,
        enforce_eager=engine.enforce_eager,
    )


def profile_of(scenario: Scenario) -> Profile | None:
    """The profile that a scenario names, None where its engine is none. Read once as long as the file stays the same.

    Raises InputError as `load_profile` does.
    """
    if scenario.engine.kind != "measured":
        return None
    assert scenario.engine.profile is not None  # a rule of the scenario
    from fleetsim.config.engine_profile import find_profile, load_profile

    path = find_profile(scenario.engine.profile)
    try:
        state = os.stat(path)
    except OSError:
        return load_profile(path)  # says what is wrong
    return _loaded(os.path.abspath(path), state.st_mtime_ns, state.st_size)


def speculation_of(scenario: Scenario) -> SpeculationConfig | None:
    """The drafts of a scenario's engine: as the scenario asks for them, else as its profile measured them; None for
    neither.

    A profile may not know by which method its engine drafted. Its seconds are right all the same, so any method is
    named.
    """
    given = scenario.engine.speculation
    if given is None:
        profile = profile_of(scenario)
        measured = None if profile is None else profile.speculation
        if measured is None:
            return None
        return SpeculationConfig(
            method=measured.method or "draft_model", num_speculative_tokens=measured.num_speculative_tokens
        )
    return given if any(k for _, k in given.schedule) else None


def without_drafts(scenario: Scenario) -> Scenario:
    """The same scenario whose engine drafts nothing."""
    from fleetsim.config.load import with_changes

    profile = profile_of(scenario)
    if profile is None or profile.speculation is None:
        return with_changes(scenario, {"engine.speculation": None})
    given = speculation_of(scenario)
    if given is None:
        return scenario
    return with_changes(scenario, {"engine.speculation": {"method": given.method, "num_speculative_tokens": 0}})


@lru_cache(maxsize=8)
def _loaded(path: str, modified_ns: int, size: int) -> Profile:
    from fleetsim.config.engine_profile import load_profile

    return load_profile(path)


def step_time_of(profile: Profile) -> StepTime:
    """The iteration times of a profile."""
    c = profile.coefficients
    return StepTime(
        tuple(c.knots_tokens),
        tuple(c.knot_seconds),
        c.per_seq_s.value,
        c.per_prefill_token_s.value,
        c.per_kv_token_s.value,
        c.per_attn_pair_s.value,
        kind="measured",
        source=profile.name,
    )


def step_time_as_measured(profile: Profile) -> StepTime:
    """The iteration times of a profile, with the drafts that its engine made."""
    drafts = profile.speculation
    if drafts is None:
        return step_time_of(profile)
    from fleetsim.engine.acceptance import with_measured_drafts

    held = drafts.acceptance, drafts.drafted_tokens, profile.limits.max_num_seqs
    return with_measured_drafts(step_time_of(profile), *held, source=f"measured: profile {profile.name}")


def other_tp(profile: Profile, tp: int) -> Problem | None:
    """What is wrong when a profile is used for instances of `tp` GPUs and was measured on another number of them."""
    measured = profile.provenance.tp
    if measured is None or measured == tp:
        return None
    rule = f"profile {profile.name} was measured with {measured} {'GPU' if measured == 1 else 'GPUs'} per instance"
    return Problem("tp", tp, rule, f"use tp {measured}, or a profile that was measured with tp {tp}")
