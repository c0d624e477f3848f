"""What is odd about a job: what its model cannot do, what the engine counts otherwise, and prices that nobody knows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from fleetsim import units
from fleetsim.config.engine import EngineConfig
from fleetsim.config.scenario import Scenario
from fleetsim.config.sections import CostConfig
from fleetsim.config.tree import is_given
from fleetsim.config.workload import LengthSpec, longest_length
from fleetsim.engine.gpus import gpu_of
from fleetsim.engine.kv_memory import windows_kept
from fleetsim.engine.layout import layout_of
from fleetsim.engine.model.names import model_shape
from fleetsim.engine.model.shape import ModelShape
from fleetsim.engine.prices import UNKNOWN, listed_price
from fleetsim.errors import InputError
from fleetsim.faces import flag, text
from fleetsim.workload.lengths import quantile_length

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
    prompt, response = _longest(w.prompt_tokens), _longest(w.output_tokens)
    tools = (w.turns.count - 1) * _longest(w.turns.tool_tokens)
    uncapped = longest_length(w.output_tokens) is None
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
    given = cost.instance_price_usd_per_gpu_h, cost.trainer_price_usd_per_gpu_h
    listed = listed_price(scenario.engine.gpu, cost.market, cost.prices)
    if not listed.known and None in given:
        stands_in = f"{listed.words}: {units.price(UNKNOWN)} per GPU-hour stands in, and dollars are as wrong as that"
        yield text(f"{stands_in}; give {{}} and {{}}", flag("instance_price"), flag("trainer_price"))
