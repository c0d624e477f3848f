"""GPUs of one instance where nobody says: the tensor parallelism with the cheapest tokens.

Weights that leave little room for the KV cache make an instance slow, and more GPUs than a model needs lose time in
collectives. So the sizes 1, 2, 4, ... up to a server are compared by their tokens per second and GPU. Each holds as
many samples as the job keeps in flight, as its memory holds, and as its limits allow. Where none of these sizes holds
the model, the answer is the fewest servers that do, up to four.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from fleetsim.config.load import with_changes
from fleetsim.config.paths import is_given
from fleetsim.config.scenario import Scenario
from fleetsim.engine.gpus import gpu_of
from fleetsim.engine.model.names import model_shape
from fleetsim.errors import InputError
from fleetsim.job.nameplate import nameplate_rate
from fleetsim.job.notes import longest_context
from fleetsim.sim.engines import engine_of

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
    found = dict(_rates(scenario, sizes)) or dict(_rates(scenario, [n for n in (2 * node, 4 * node) if heads % n == 0]))
    best, best_rate = sizes[-1], 0.0
    for tp, rate in found.items():
        if rate > best_rate * _WORTH:
            best, best_rate = tp, rate
    return best


def _rates(scenario: Scenario, sizes: Iterable[int]) -> Iterator[tuple[int, float]]:
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
