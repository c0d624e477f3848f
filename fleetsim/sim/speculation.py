"""The speculative decoding that a scenario asks for: what is accepted, and what drafts cost on its engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fleetsim.config.engine import EngineConfig
from fleetsim.config.speculation import CURVES, METHODS, STANDS_IN, SpeculationConfig
from fleetsim.engine.acceptance import (
    aged,
    fewer_drafted_s,
    knots_of,
    lengths_of_curve,
    lengths_of_law,
    lengths_of_shares,
    share_of_length,
)
from fleetsim.engine.defaults import SGLANG_DRAFTING
from fleetsim.engine.gpus import gpu_of, gpu_spec
from fleetsim.engine.kv_memory import block_bytes_per_token
from fleetsim.engine.layout import layout_of
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.precision import KV_BYTES, PRECISIONS
from fleetsim.engine.model.shape import ModelShape
from fleetsim.engine.operators.curves import shipped_curves
from fleetsim.engine.operators.device import Device, Tokens
from fleetsim.engine.operators.drafting import Drafting, drafting, looked_up, nothing
from fleetsim.engine.operators.layers import Layers
from fleetsim.engine.roofline_step import launched
from fleetsim.engine.speculation import Speculation
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace

if TYPE_CHECKING:
    from fleetsim.config.engine_profile import Profile


class Accepted(NamedTuple):
    """L(0) to L(most) of a drafter that is new, and where they are from, in words."""

    lengths: tuple[float, ...]
    source: str


def accepted(given: SpeculationConfig, most: int, profile: Profile | None = None) -> Accepted:
    """What a scenario says of acceptance, for up to `most` drafted tokens; where it says nothing, what its profile
    measured, else a published curve.

    Raises InputError for an unknown curve, or drafts that are longer than it was measured with.
    """
    if given.acceptance_length is not None:
        share = share_of_length(given.acceptance_length, given.num_speculative_tokens)
        measured = f"{given.acceptance_length:g} tokens measured with k {given.num_speculative_tokens}"
        return Accepted(lengths_of_law(share, most), measured)
    if profile is not None and profile.speculation is not None and given.acceptance is None and given.curve is None:
        return Accepted(lengths_of_shares(profile.speculation.acceptance, most), f"measured: profile {profile.name}")
    if isinstance(given.acceptance, tuple):
        return Accepted(lengths_of_shares(given.acceptance, most), "acceptance by position, as given")
    stands_in = given.acceptance if given.acceptance is not None else given.curve or STANDS_IN[given.method]
    guessed = "assumed: " if given.acceptance is None and given.curve is None else ""
    if isinstance(stands_in, str):
        return Accepted(lengths_of_curve(stands_in, most), f"{guessed}curve {stands_in}")
    return Accepted(lengths_of_law(stands_in, most), f"{guessed}{stands_in:.3g} of each token")


def longest_draft(given: SpeculationConfig) -> int:
    """The largest k for which a scenario's acceptance is known, 8 where it follows a law."""
    curve = given.curve
    if curve is None and given.acceptance is None and given.acceptance_length is None:
        stands_in = STANDS_IN[given.method]
        curve = stands_in if isinstance(stands_in, str) else None
    return len(CURVES[curve].lengths) if curve in CURVES else 8


def with_speculation(
    engine: EngineConfig,
    given: SpeculationConfig,
    step_time: StepTime,
    limits: EngineLimits,
    profile: Profile | None = None,
) -> tuple[StepTime, EngineLimits]:
    """The engine's iteration times and limits with the drafts that it is asked for.

    A roofline's drafts cost what their operators take, and the drafter's weights and cache take memory from the
    engine's. A profile of an engine that drafted has both in it. Of another profile, verification costs what its curve
    says of as many tokens.
    Raises InputError as `accepted`, for an unknown draft model, a drafter that leaves no cache, or one that the profile
    knows nothing of.
    """
    measured = None if profile is None else profile.speculation
    if profile is not None:
        _refuse_unmeasured(given, profile)
    ks = sorted({k for _, k in given.schedule})
    found = accepted(given, ks[-1], profile)
    tree = given.num_draft_tokens
    lengths, schedule, rows = found.lengths, given.schedule, 1
    if tree is not None and tree != ks[-1] + 1:
        # A tree of so many tokens is verified in one go; what is accepted is one path of k steps through it.
        lengths = tuple(found.lengths[min(k, ks[-1])] for k in range(tree))
        schedule = tuple((n, tree - 1 if k else 0) for n, k in schedule)
        rows = max(1, round((tree - 1) / ks[-1]))
    if measured is not None:
        costs = _Costs(Drafting(nothing, nothing), limits)
    elif engine.kind == "roofline":
        costs = _of_operators(engine, given, len(lengths) - 1, limits)
        if engine.name == "vllm" and not engine.enforce_eager and ks[-1]:
            step_time = _without_graphs(step_time, model_shape(engine.model))
    else:
        own = looked_up(given.method) if given.method in ("ngram", "suffix") else Drafting(nothing, nothing)
        costs = _Costs(own, limits)
    if given.draft_s is not None:
        fixed = given.draft_s / costs.factor
        costs = costs._replace(drafting=replace(costs.drafting, pass_s=lambda n: fixed + 0.0 * n, kv_token_s=0.0))
    knots = knots_of(limits.max_num_seqs)
    passes = [0, *(k if tree is None or tree == ks[-1] + 1 else ks[-1] for k in range(1, len(lengths)))]
    added = tuple(costs.added_s(k, n, rows, knots) for k, n in enumerate(passes))
    if measured is not None:
        each = measured.drafted_tokens / measured.num_speculative_tokens
        added = tuple(fewer_drafted_s(step_time, k, k * each, knots) for k in range(len(lengths)))
    speculation = Speculation(
        schedule,
        aged(lengths, given.decay_per_version, given.redrafted_every),
        knots,
        added,
        tuple(costs.added_kv_token_s(k, n) for k, n in enumerate(passes)),
        given.redrafted_every is not None,
        costs.drafting.prompt_token_s,
        f"{_drafter(engine, given, profile)}, {found.source}",
    )
    own = engine.kind == "roofline" and engine.name == "sglang" and engine.max_num_seqs is None
    limits = replace(costs.limits, max_num_seqs=SGLANG_DRAFTING) if own else costs.limits
    return replace(step_time, speculation=speculation.slower(costs.factor)), limits


def _without_graphs(step_time: StepTime, shape: ModelShape) -> StepTime:
    """vLLM replays no whole graph of a model with states while it drafts: an iteration of eight took 29.6 ms instead of
    10.8 on a mixture (vllm-project/recipes pull request 923; vllm-project/vllm issues 35387, 43295)."""
    return launched(step_time, shape) if any(shape.states) else step_time


def _drafter(engine: EngineConfig, given: SpeculationConfig, profile: Profile | None) -> str:
    """What drafts, in words; and that it may not be there."""
    measured = None if profile is None else profile.speculation
    if measured is not None and measured.method is None:
        return "drafts"
    if engine.kind == "roofline" and given.method == "mtp" and not (shape := model_shape(engine.model)).mtp:
        return f"MTP ({shape.name} is not known to have such a layer: one like its last layer drafts here)"
    return METHODS[given.method]


def _refuse_unmeasured(given: SpeculationConfig, profile: Profile) -> None:
    """Raises InputError where a profile cannot say what these drafts take."""
    measured = profile.speculation
    if measured is None:
        if given.method in ("ngram", "suffix") or given.draft_s is not None:
            return
        rule = f"profile {profile.name} was measured without drafts and says nothing of what {given.method} takes"
        remedy = "give seconds per drafted token, calibrate the engine while it drafts, or use kind: roofline"
        raise InputError([Problem("speculation.draft_s", None, rule, remedy)])
    if measured.method is not None and measured.method != given.method:
        rule = f"profile {profile.name} was measured with {measured.method}"
        remedy = f"use method {measured.method}, or leave engine.speculation out: the profile's is then taken"
        raise InputError([Problem("speculation.method", given.method, rule, remedy)])
    if given.draft_s is not None:
        rule = f"the seconds of profile {profile.name} hold its drafter's"
        raise InputError([Problem("speculation.draft_s", given.draft_s, rule, "leave it out")])


class _Costs(NamedTuple):
    """The drafter, and the limits that it leaves. verified: what so many queries of a sequence take more than one does,
    in seconds per sequence and per cached token. shared_s: what f(n) of the verified tokens has too much, because they
    share experts, by drafts and decodes; beside prompts, which visit all experts anyway, it is less. factor: of the
    model's published runs, on all seconds."""

    drafting: Drafting
    limits: EngineLimits
    verified: Callable[[int], tuple[float, float]] = lambda queries: (0.0, 0.0)
    shared_s: Callable[[int, Tokens], Tokens] = lambda drafts, n: 0.0 * n
    factor: float = 1.0

    def added_s(self, k: int, passes: int, rows: int, sequences: Sequence[float]) -> tuple[float, ...]:
        """Seconds that an iteration with k drafted tokens takes more, by sequences."""
        n = np.asarray(sequences, np.float64)
        if k == 0:
            return (0.0,) * len(n)
        seconds = self.drafting.once_s(n) + passes * self.drafting.pass_s(n * rows) + n * self.verified(k + 1)[0]
        return tuple((np.maximum.accumulate(seconds) - self.shared_s(k, n)).tolist())

    def added_kv_token_s(self, k: int, passes: int) -> float:
        """The same for each cached token."""
        if k == 0:
            return 0.0
        return passes * self.drafting.kv_token_s + self.drafting.once_kv_token_s + self.verified(k + 1)[1]


def _draft_shape(given: SpeculationConfig) -> ModelShape | None:
    """The shape of the model that drafts, where one does. Raises InputError that names its own key."""
    if given.draft_model is None:
        return None
    try:
        return model_shape(given.draft_model)
    except InputError as error:
        raise InputError([replace(p, path="speculation.draft_model") for p in error.problems]) from None


def _of_operators(engine: EngineConfig, given: SpeculationConfig, most: int, limits: EngineLimits) -> _Costs:
    """What drafts cost on the GPU and model of a roofline. most: tokens drafted for each sequence."""
    if engine.pp > 1:
        rule = "drafts are verified on one stage here: engines draft on the last one, after all others"
        raise InputError([Problem("pp", engine.pp, rule, "use pp 1, or no engine.speculation")])
    gpu, shape, curves = gpu_spec(gpu_of(engine)), model_shape(engine.model), shipped_curves()
    dtype, kv_dtype = shape.weights_type(engine.dtype), shape.cache_type(engine.kv_dtype)
    device = Device(gpu, curves.families[gpu.family], engine.tp)
    layers = Layers(device, shape, dtype, layout_of(engine), curves, curves.hosts[engine.name])
    element = KV_BYTES[kv_dtype]
    drafter = drafting(layers, given.method, element, _draft_shape(given))
    alone = layers.cores(element)

    def verified(queries: int) -> tuple[float, float]:
        core = layers.cores(element, queries)
        of_tokens = core.kv_token_s - alone.kv_token_s + (core.window_token_s - alone.window_token_s)
        return core.sequence_s - alone.sequence_s, of_tokens

    token = block_bytes_per_token(shape, layout_of(engine), engine.name, element)
    blocks = limits.kv_blocks
    if engine.kv_blocks is None:
        own = drafter.weight_bytes / limits.block_size
        blocks = int((blocks * token - own) // (token + drafter.kv_bytes))
        if blocks < 1:
            rule = f"its drafter's {drafter.weight_bytes / 1e9:.1f} GB leave no KV cache on {gpu.name} x{engine.tp}"
            raise InputError([Problem("speculation.method", given.method, rule, "raise tp, or use another method")])
    # Any drafted token may be the last that is accepted: a state is kept for each.
    states = math.ceil(shape.state_bytes(engine.tp) * most / (token * limits.block_size))

    def shared_s(drafts: int, n: Tokens) -> Tokens:
        alike = replace(layers, drafts=drafts)
        return layers.tokens_s(n * (drafts + 1)) - alike.tokens_s(n * (drafts + 1))

    left = replace(limits, kv_blocks=blocks, state_blocks=limits.state_blocks + states)
    return _Costs(drafter, left, verified, shared_s, curves.factor_of(shape, engine.name, PRECISIONS[dtype].bits))
