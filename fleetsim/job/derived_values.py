"""What follows from a job's model, GPUs and framework where nobody said it: the GPUs of an instance, the trainer's
seconds and GPUs, how weights are sent, and how much slower engines are in such a job.

Such values are written into the scenario, and their paths into its `assumed`. So they are worked out anew for a
scenario that was written to a file and is read again. The GPUs of an instance are those with the cheapest tokens:
weights that leave little room for the KV cache make an instance slow, and more GPUs than a model needs lose time in
collectives. So the sizes 1, 2, 4, ... up to a server are compared by their tokens per second and GPU. Each holds as
many samples as the job keeps in flight, as its memory holds, and as its limits allow. Where none of these sizes holds
the model, the answer is the fewest servers that do, up to four.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from fleetsim import units
from fleetsim.config.engine import EngineConfig
from fleetsim.config.load import with_changes
from fleetsim.config.pools import PhaseConfig, TrainerConfig
from fleetsim.config.scenario import Scenario
from fleetsim.config.sections import CostConfig
from fleetsim.config.tree import given_paths, is_given, is_touched
from fleetsim.config.workload import LengthSpec, longest_length
from fleetsim.engine.gpus import gpu_of
from fleetsim.engine.kv_memory import windows_kept
from fleetsim.engine.layout import layout_of
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.shape import ModelShape
from fleetsim.engine.prices import UNKNOWN, listed_price, trainer_type
from fleetsim.engine.slowdown import slowdown_of
from fleetsim.engine.transport import sync_times
from fleetsim.errors import InputError
from fleetsim.faces import flag, text
from fleetsim.job.nameplate import mean_step_s, nameplate_rate
from fleetsim.sim.engines import engine_of, seen_in_a_job
from fleetsim.trainer.estimate import TrainerEstimate, check_recipe, estimate_of, is_known
from fleetsim.workload.lengths import quantile_length
from fleetsim.workload.turns import quantile_turns, response_law

# --- What is odd about a job: what its model cannot do, what the engine counts otherwise, and prices that nobody knows.

# Of a law without a cap: the response that one in a thousand exceeds.
_NEARLY_ALL = 0.999


def model_notes(scenario: Scenario, given: Collection[str]) -> tuple[str, ...]:
    """Warnings about the model of a job. given: dotted paths that somebody wrote; beside an engine that is no roofline
    a model that nobody named says nothing."""
    if scenario.engine.kind != "roofline" and not is_given("engine.model", given):
        return ()
    try:
        shape = model_shape(scenario.engine.model)
        context, words = longest_context(scenario)
    except InputError:  # of an engine that was measured the name is enough; a file of lengths is looked at elsewhere
        return ()
    roofline = scenario.engine.kind == "roofline"
    found = [f"{shape.name}: {note}" for note in shape.notes if roofline]
    found += _unseen_layout(scenario, shape) if roofline else ()
    windows = _unseen_window(scenario.engine, shape, context) if roofline else ()
    return (*found, *_too_long(shape, context, words), *windows)


def _unseen_layout(scenario: Scenario, shape: ModelShape) -> Iterator[str]:
    """Layouts that none of the published runs has which the error of an engine comes from."""
    layout, node = layout_of(scenario.engine), gpu_of(scenario.engine).node_gpus
    across = layout.sharing if shape.mixture is not None else layout.tp
    servers = f"{across} GPUs over {-(-across // node)} servers"
    if across > node and layout.dp > 1:
        # tests/engine/test_disaggregation.py holds the prediction against them.
        yield (
            f"{servers}: the error that is shown is that of engines within a server. DeepSeek-V3 on 32 to 144 H100 and "
            "H800 was predicted at 0.85 to 1.08 of the published tokens per second where it decodes, and at 1.01 to "
            "1.26 where it computes prompts"
        )
    found = [
        words
        for words, there in (
            (f"{layout.pp} pipeline stages", layout.pp > 1),
            (servers, across > node and layout.dp == 1),
            (f"a cache divided by {layout.dcp}", layout.dcp > 1),
        )
        if there
    ]
    if found:
        yield (
            f"{' and '.join(found)}: what that takes comes from data sheets and published kernels; no published run "
            "has such a layout, so the error that is shown is that of engines within a server"
        )


def _too_long(shape: ModelShape, context: float, words: str) -> Iterator[str]:
    if shape.max_position is not None and context > shape.max_position:
        yield (
            f"{words} make a context of {context:,.0f} tokens, and {shape.name} reads {shape.max_position:,} "
            "(max_position_embeddings): an engine refuses such a request or cuts it; lower --max-len or the prompts, "
            "or give a config.json with rope_scaling"
        )


def _unseen_window(engine: EngineConfig, shape: ModelShape, context: float) -> Iterator[str]:
    layers, window = shape.held_whole
    if layers and context > window and windows_kept(shape, engine.name, engine.dcp) is None:
        yield (
            f"{layers} of the {shape.layers} layers of {shape.name} look back {window:,} tokens; here their cache is "
            f"kept for the whole context, of up to {context:,.0f} tokens, so that it holds fewer samples than the real "
            "one"
        )


def longest_context(s: Scenario) -> tuple[float, str]:
    """Tokens of the longest sample, and what they are."""
    w = s.workload
    known = w.turns.most_tokens(w.output_tokens)
    prompt, response = _longest(w.prompt_tokens), _longest(response_law(w)) if known is None else known
    turns = quantile_turns(w, _NEARLY_ALL)
    tools = (turns - 1) * _longest(w.turns.tool_tokens)
    if w.turns.max_trajectory_tokens is not None:
        tools = min(tools, w.turns.max_trajectory_tokens - min(turns, response))
    uncapped = known is None
    parts = [f"prompts of up to {prompt:,.0f}", f"responses of {'over' if uncapped else 'up to'} {response:,.0f}"]
    parts += [f"tools' answers of up to {tools:,.0f}"] if tools else []
    return prompt + response + tools, f"{', '.join(parts[:-1])} and {parts[-1]} tokens"


def _longest(law: LengthSpec) -> float:
    most = longest_length(law)
    return quantile_length(law, _NEARLY_ALL) if most is None else most


PRICE = "cost.instance_price_usd_per_gpu_h"


def price_notes(fleets: Iterable[tuple[str, CostConfig]], remedy: str) -> Iterator[str]:
    """A sentence where an answer compares GPU types and the price of one is a guess; else nothing.

    fleets: GPU type and prices of each fleet in one answer. remedy: how to give each type its own price there.
    """
    types: dict[str, bool] = {}
    for gpu, cost in fleets:
        listed = listed_price(gpu, cost.market, cost.prices)
        known = listed.known or cost.instance_price_usd_per_gpu_h is not None
        types[listed.name] = types.get(listed.name, True) and known
    unknown = [name for name, known in types.items() if not known]
    if len(types) > 1 and unknown:
        yield (
            f"no price of {units.listed(unknown)} is on record, and {units.price(UNKNOWN)} per GPU-hour is taken: "
            f"costs do not compare; {remedy}"
        )


def unlisted_price(scenario: Scenario) -> Iterator[str]:
    """A sentence where no list of prices has the job's GPU, so that its dollars are a guess; else nothing."""
    cost = scenario.cost
    types = {
        scenario.engine.gpu: cost.instance_price_usd_per_gpu_h,
        **({} if cost.trainer_price_usd_per_gpu_h is not None else {trainer_type(scenario): None}),
    }
    for gpu in (gpu for gpu, price in types.items() if price is None):
        listed = listed_price(gpu, cost.market, cost.prices)
        if not listed.known:
            stands_in = (
                f"{listed.words}: {units.price(UNKNOWN)} per GPU-hour stands in, and dollars are as wrong as that"
            )
            yield text(f"{stands_in}; give {{}} and {{}}", flag("instance_price"), flag("trainer_price"))


SECONDS = ("trainer.fixed_s", "trainer.per_token_s", "trainer.phases", "trainer.scaling.points")
SLOWDOWN = "engine.slowdown"
SYNC = ("sync.transport", "sync.publish_s", "sync.pause_s", "sync.trainer_block_s")


def names_a_model(scenario: Scenario, given: Collection[str]) -> bool:
    """Whether engine.model is the model of this job. Where the speed is only a number, the model is often left out."""
    named = scenario.engine.kind != "constant" or is_given("engine.model", given)
    return named or scenario.trainer.recipe.model is not None


def with_derived(scenario: Scenario, given: Collection[str]) -> Scenario:
    """The scenario with all values that nobody gave and that follow from its model. given: dotted paths that somebody
    wrote.

    Raises InputError for a trainer that is too small for its model.
    """
    slowed = _with_slowdown(scenario, given)
    if not names_a_model(slowed, given):
        return slowed
    return _with_transport(_with_trainer(slowed, given), given)


def _with_slowdown(scenario: Scenario, given: Collection[str]) -> Scenario:
    """With the slowdown of published runs, which an engine that was seen in a job includes already."""
    if is_given(SLOWDOWN, given) or seen_in_a_job(scenario):
        return scenario
    return _assuming(scenario, {SLOWDOWN: slowdown_of(scenario.trainer.recipe.framework)})


def as_alone(scenario: Scenario) -> Scenario:
    """Without a slowdown that is only assumed: for windows, which show how fast engines were in their own job."""
    if SLOWDOWN not in scenario.assumed:
        return scenario
    assumed = tuple(path for path in scenario.assumed if path != SLOWDOWN)
    engine = scenario.engine.model_copy(update={"slowdown": 1.0})
    return scenario.model_copy(update={"engine": engine, "assumed": assumed})


def _with_trainer(scenario: Scenario, given: Collection[str]) -> Scenario:
    if any(is_touched(path, given) for path in SECONDS):
        return scenario
    if not is_known(scenario):
        check_recipe(scenario)
        return scenario
    chosen = not is_given("trainer.gpus", given) and scenario.fleet.placement == "disaggregated"
    try:
        found = estimate_of(scenario, None if chosen else scenario.trainer.gpus)
    except InputError:
        if "trainer.per_token_s" in scenario.assumed:  # of a configuration that somebody runs: its own estimate stands
            return scenario
        raise
    changes = seconds_of(found, scenario)
    if chosen:
        changes["trainer.gpus"] = found.gpus
    return _assuming(scenario, changes)


def trainer_estimate(scenario: Scenario, given: Collection[str]) -> TrainerEstimate:
    """The trainer of a job, on the GPUs that somebody gave, or on the smallest that fits.

    given: dotted paths that somebody wrote. Raises InputError as `estimate_of` does.
    """
    return estimate_of(scenario, scenario.trainer.gpus if is_given("trainer.gpus", given) else None)


def seconds_of(found: TrainerEstimate, scenario: Scenario) -> dict[str, Any]:
    """An estimate as values of its scenario: the seconds of every step, and of every trained token."""
    tokens, seconds = found.plan.batch.tokens, found.seconds
    fixed = seconds.fixed_of_update
    phases: list[PhaseConfig] = []
    recipe = found.plan.recipe
    own = seconds.passes - recipe.reference
    for name, passes in (("log-probs", own), ("reference log-probs", int(recipe.reference))):
        if passes:
            per_token = _few(passes * seconds.forward / tokens)
            phases.append(PhaseConfig(name=name, per_token_s=per_token))
    return {
        "trainer.fixed_s": _few(fixed),
        "trainer.per_token_s": _few((seconds.update - fixed) / tokens),
        "trainer.phases": (*phases, *fetching(scenario)),
    }


# What verl's fully asynchronous trainer takes to get a batch out of its queue, where every response stands padded to
# the longest prompt and response: seconds per padded token to fetch it, prompt by prompt, from a Ray actor, and to
# unpickle and join it. aishukamal/rl-time-slicing at 6a343557756d, async-rl-benchmarks: a pull of samples that are
# ready waits 1.01 s on one server and 1.43 s on two (2,048 responses of 10,240 tokens), 0.20 s (512 of 6,144): 48, 68
# and 64 ns; timing_s/gen less total_wait_time is 0.9 to 1.0 s of the same pulls, 0.45 s (512 of 18,432), 0.34 s (512 of
# 10,240): 44, 47 and 64 ns. Of the pulls of a sync window one waits for its samples, and fetches them as they come.
FETCH_TOKEN_S, JOIN_TOKEN_S = 55e-9, 45e-9
# Its prompts are padded to 2,048 tokens in these runs and in verl's own scripts.
_PADDED_PROMPT = 2048
FETCH = "fetching the batch"


def fetching(scenario: Scenario) -> tuple[PhaseConfig, ...]:
    """The phase of a trainer that gets its batch out of verl's queue; none for others, or where no response has a
    cap."""
    trainer, longest = scenario.trainer, longest_length(scenario.workload.output_tokens)
    if scenario.admission.law != "per_sync_window" or longest is None:
        return ()
    each = JOIN_TOKEN_S + FETCH_TOKEN_S * (1 - 1 / trainer.minibatches)
    return (PhaseConfig(name=FETCH, fixed_s=_few(trainer.batch_samples * (longest + _PADDED_PROMPT) * each)),)


def slower(trainer: TrainerConfig, factor: float) -> dict[str, Any]:
    """The changes that multiply the seconds of a step."""
    phases = [
        {**phase.model_dump(), "fixed_s": factor * phase.fixed_s, "per_token_s": factor * phase.per_token_s}
        for phase in trainer.phases
    ]
    seconds = {"fixed_s": factor * trainer.fixed_s, "per_token_s": factor * trainer.per_token_s, "phases": phases}
    return {f"trainer.{name}": value for name, value in seconds.items()}


def training_step_s(scenario: Scenario) -> float:
    """Seconds of a training step on a mean batch: those of the scenario, else of the trainer's model. Raises InputError
    for a file that cannot be read."""
    try:
        return mean_step_s(with_derived(scenario, given_paths(scenario)))
    except InputError:  # a trainer that is too small for its model: the file is told as it is
        return mean_step_s(scenario)


def _with_transport(scenario: Scenario, given: Collection[str]) -> Scenario:
    if any(is_given(path, given) for path in SYNC):
        return scenario
    transport = "cuda_ipc" if scenario.fleet.placement == "colocated" else "collective_broadcast"
    changed = _assuming(scenario, {"sync.transport": transport})
    try:
        sync_times(changed)
    except InputError:  # a GPU or model of unknown size
        return scenario
    return changed


def _assuming(scenario: Scenario, changes: dict[str, Any]) -> Scenario:
    """The scenario with changed values of sections, which are called assumed; what counts as written stays the same."""
    assumed = tuple(dict.fromkeys([*scenario.assumed, *changes]))
    sections: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        section, name = path.split(".")
        sections.setdefault(section, {})[name] = value
    copies = {name: getattr(scenario, name).model_copy(update=values) for name, values in sections.items()}
    return scenario.model_copy(update={**copies, "assumed": assumed})


def _few(value: float) -> float:
    """Four digits: no estimate has more."""
    return float(f"{value:.4g}")


TP = "engine.tp"
# More GPUs must be better by so much: a smaller instance is easier to place, and its speed is better known.
_WORTH = 1.03


def instance_gpus(scenario: Scenario, given: Collection[str]) -> int | None:
    """The tensor parallelism to take; None where there is nothing to choose, because it is given or the engine is no
    roofline.

    A model that fits no server gets two or four of them. One that is still too large gets a server, and the engine then
    says that it is too large. given: dotted paths that somebody wrote.
    """
    if scenario.engine.kind != "roofline" or is_given(TP, given):
        return None
    try:
        node, heads = gpu_of(scenario.engine).node_gpus, model_shape(scenario.engine.model).heads
    except InputError:
        return None
    server = max(1, node // (scenario.engine.dp * scenario.engine.pp))
    sizes = [1 << n for n in range(server.bit_length()) if heads % (1 << n) == 0]
    beyond = [n for n in (2 * node, 4 * node) if heads % n == 0]
    found = dict(rates_by_tp(scenario, sizes)) or dict(rates_by_tp(scenario, beyond))
    best, best_rate = sizes[-1], 0.0
    for tp, rate in found.items():
        if rate > best_rate * _WORTH:
            best, best_rate = tp, rate
    return best


def rates_by_tp(scenario: Scenario, sizes: Iterable[int]) -> Iterator[tuple[int, float]]:
    """Each size that holds the longest sample of the job, and its output tokens per second and GPU."""
    for tp in sizes:
        candidate = with_changes(scenario, {TP: tp})
        try:
            step_time, limits = engine_of(candidate)
            holds = step_time.blocks_of_one(limits.kv_blocks) * limits.block_size
            if holds >= limits.cache_tokens(longest_context(candidate)[0]):
                yield tp, nameplate_rate(candidate)(1) / candidate.engine.gpus
        except InputError:  # the weights do not fit
            continue
