"""What a plan chooses, a record for each choice: its keys in a scenario, the values that job and hardware permit, and
which permission each of them needs.

Choices are made in the order of the table, each of a scenario in which those before it are made. What the user wrote is
not chosen again. Where rollout and trainer stand, and on how many GPUs, is in `search/shares.py`; how far generation
runs ahead in `search/permissions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import product

from msgspec import Struct

from fleetsim.config.law_numbers import law_of
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given, is_touched
from fleetsim.engine.gpus import gpu_of
from fleetsim.engine.layout import layout_of
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.precision import KV_BYTES, PRECISIONS
from fleetsim.errors import InputError
from fleetsim.job.derived_values import longest_context
from fleetsim.job.nameplate import context_in_flight, samples_in_flight
from fleetsim.search.shares import Value
from fleetsim.sim.engines import engine_of
from fleetsim.sim.speculation import longest_draft

# Servers that one engine may fill: stages of a model that fits no server, ranks that share a mixture's experts.
_STAGES, _EXPERT_SERVERS = (1, 2, 4), 4
# Lengths of drafts that are tried, and how many tokens an iteration may hold.
_DRAFTS = (1, 3, 5)
_ITERATION_TOKENS = (16_384, 32_768)
# Shares of the samples in flight that one instance may hold, of the mean over all.
_CAPS = (1.0, 1.5)


class ChoiceInputs(Struct, frozen=True):
    """Whom the choices are made for. scenario: the job. given: dotted paths that somebody wrote. gpu_types: at hand, as
    they were written; empty = the job's own."""

    scenario: Scenario
    given: frozenset[str]
    gpu_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """name: what it is called. paths: its keys. values: all that job and hardware permit, the job's own among them."""

    name: str
    paths: tuple[str, ...]
    values: Callable[[Scenario, ChoiceInputs], Iterator[Value]] = field(repr=False)

    def open_to(self, given: Collection[str]) -> bool:
        """Whether nobody wrote any of its keys."""
        return not any(is_touched(path, given) for path in self.paths)


_AS_IT_IS = Value({})


def _gpus(scenario: Scenario, asked: ChoiceInputs) -> Iterator[Value]:
    if not asked.gpu_types or scenario.engine.kind != "roofline":
        yield _AS_IT_IS
        return
    for name in asked.gpu_types:
        yield Value({"engine.gpu": name})


def _weights(scenario: Scenario, asked: ChoiceInputs) -> Iterator[Value]:
    """As the checkpoint has them, and in fewer bits that the GPU multiplies in."""
    yield _AS_IT_IS
    if scenario.engine.kind != "roofline" or is_given("engine.dtype", asked.given):
        return
    gpu, own = gpu_of(scenario.engine), PRECISIONS[model_shape(scenario.engine.model).weights_type("auto")]
    for name, speed in (("fp8", gpu.fp8_flop_s), ("nvfp4", gpu.fp4_flop_s)):
        if speed is not None and PRECISIONS[name].bits < own.bits:
            yield Value({"engine.dtype": name}, name)


def _cache(scenario: Scenario, asked: ChoiceInputs) -> Iterator[Value]:
    yield _AS_IT_IS
    if scenario.engine.kind != "roofline" or is_given("engine.kv_dtype", asked.given):
        return
    own = model_shape(scenario.engine.model).cache_type("auto")
    if KV_BYTES[own] > KV_BYTES["fp8"] and gpu_of(scenario.engine).fp8_flop_s is not None:
        yield Value({"engine.kv_dtype": "fp8"}, "fp8")


def _layouts(scenario: Scenario, asked: ChoiceInputs) -> Iterator[Value]:
    """GPUs of an engine: tensor parallel up to a server, expert ranks of a mixture up to four, and stages where a
    server is not enough. Those that hold the job's longest sample."""
    given = {name for name in ("tp", "pp", "dp") if is_given(f"engine.{name}", asked.given)}
    if scenario.engine.kind != "roofline" or given == {"tp", "pp", "dp"}:
        yield _AS_IT_IS
        return
    engine, shape, node = scenario.engine, model_shape(scenario.engine.model), gpu_of(scenario.engine).node_gpus
    server = min(node, 8)
    powers = [1 << n for n in range(11)]
    tps = (engine.tp,) if "tp" in given else [n for n in powers if n <= server and shape.heads % n == 0]
    pps = (engine.pp,) if "pp" in given else _STAGES
    ranks = _EXPERT_SERVERS * server if shape.mixture is not None else 1
    dps = (engine.dp,) if "dp" in given else [n for n in powers if n <= ranks]
    fit = [one for one in product(tps, pps, dps) if _holds(scenario, *one)]
    for tp, pp, dp in fit:
        if pp > 1 and "pp" not in given and ((tp, 1, 1) in fit or dp > 1):
            continue  # stages are for what tensors alone do not fit
        if dp > 1 and "dp" not in given and (tp * dp % server or tp * dp > _EXPERT_SERVERS * server):
            continue  # ranks that share experts fill whole servers
        yield Value({"engine.tp": tp, "engine.pp": pp, "engine.dp": dp})


def _holds(scenario: Scenario, tp: int, pp: int, dp: int) -> bool:
    try:
        there = with_changes(
            scenario, {"engine.tp": tp, "engine.pp": pp, "engine.dp": dp, "fleet.instances": dp, "engine.dcp": 1}
        )
        limits = engine_of(there)[1]
        return limits.kv_tokens >= limits.cache_tokens(longest_context(there)[0])
    except InputError:  # a layout that the model cannot have, or weights that do not fit
        return False


def _overlaps(scenario: Scenario, asked: ChoiceInputs) -> Iterator[Value]:
    """One batch, or two that overlap, where tokens go to their experts on other servers."""
    yield _AS_IT_IS
    engine = scenario.engine
    if engine.kind != "roofline" or engine.dp == 1 or engine.overlap != "none":
        return
    if not layout_of(engine).gathers(gpu_of(engine).node_gpus):
        yield Value({"engine.overlap": "two_batch"})


def _drafts(scenario: Scenario, asked: ChoiceInputs) -> Iterator[Value]:
    """Without drafts, or with an EAGLE-3 head, which there is for most models; a recipe's own drafter keeps its k."""
    own = scenario.engine.speculation
    if own is not None or scenario.engine.kind != "roofline" or is_touched("engine.speculation", asked.given):
        yield _AS_IT_IS
        return
    yield _AS_IT_IS
    if scenario.engine.pp > 1:
        return
    for k in _DRAFTS:
        drafts = {"method": "eagle3", "num_speculative_tokens": k}
        there = with_changes(scenario, {"engine.speculation": drafts})
        assert there.engine.speculation is not None  # just set
        if k <= longest_draft(there.engine.speculation):
            yield Value({"engine.speculation": drafts}, "speculation")


def _iterations(scenario: Scenario, asked: ChoiceInputs) -> Iterator[Value]:
    """More prompt tokens in an iteration; SGLang's limit means another thing."""
    yield _AS_IT_IS
    if scenario.engine.kind == "roofline" and scenario.engine.name != "sglang":
        for tokens in _ITERATION_TOKENS:
            yield Value({"engine.max_num_batched_tokens": tokens})


def _running(scenario: Scenario, asked: ChoiceInputs) -> Iterator[Value]:
    """Half or a quarter of the requests at once: each then goes faster, and none loses its cache."""
    yield _AS_IT_IS
    if scenario.engine.kind == "roofline":
        most = engine_of(scenario)[1].max_num_seqs
        for seqs in {most // 2, most // 4} - {0}:
            yield Value({"engine.max_num_seqs": seqs})


def _caps(scenario: Scenario, asked: ChoiceInputs) -> Iterator[Value]:
    """Samples in flight on one instance: what the cache holds at the mean length, so that none loses its cache."""
    yield _AS_IT_IS
    if scenario.engine.kind == "constant" or scenario.fleet.max_in_flight_samples is not None:
        return
    limits = engine_of(scenario)[1]
    held = limits.kv_tokens / limits.cache_tokens(context_in_flight(scenario))
    unit = scenario.workload.group_size if scenario.fleet.group_placement == "together" else 1
    for share in _CAPS:
        cap = int(held * share) // unit * unit
        if law_of(scenario).cap is None and unit <= cap < samples_in_flight(scenario) / scenario.fleet.instances:
            yield Value({"fleet.max_in_flight_samples_per_instance": cap})


GPU = Choice("GPU", ("engine.gpu",), _gpus)
# What an engine is: each combination is looked at.
ENGINE: tuple[Choice, ...] = (
    GPU,
    Choice("weights", ("engine.dtype",), _weights),
    Choice("KV cache", ("engine.kv_dtype",), _cache),
    Choice("GPUs of an engine", ("engine.tp", "engine.pp", "engine.dp"), _layouts),
    Choice("overlap", ("engine.overlap",), _overlaps),
    Choice("drafts", ("engine.speculation",), _drafts),
)
# Limits that rarely matter: tried one after the other on the plans that are left.
LIMITS: tuple[Choice, ...] = (
    Choice("tokens of an iteration", ("engine.max_num_batched_tokens",), _iterations),
    Choice("requests at once", ("engine.max_num_seqs",), _running),
    Choice("in-flight cap", ("fleet.max_in_flight_samples_per_instance",), _caps),
)
# The paths of both, but for the GPU's name, which is told where nobody said it.
CHOSEN = tuple(path for choice in (*ENGINE, *LIMITS) for path in choice.paths if choice is not GPU)


def combined(scenario: Scenario, asked: ChoiceInputs, choices: tuple[Choice, ...] = ENGINE) -> Iterator[Value]:
    """Every combination of some choices as one value; `needs` then holds all permissions, separated by spaces.

    Combinations that a scenario cannot hold, or an engine cannot have, are left out.
    """
    if not choices:
        yield _AS_IT_IS
        return
    for value in choices[0].values(scenario, asked):
        try:
            there = with_changes(scenario, value.changes) if value.changes else scenario
        except InputError:
            continue
        for rest in combined(there, asked, choices[1:]):
            needs = " ".join(sorted({*value.needs.split(), *rest.needs.split()}))
            yield Value({**value.changes, **rest.changes}, needs)
