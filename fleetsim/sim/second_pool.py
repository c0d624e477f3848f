"""The second pool of a fleet: instances of another make behind the same router."""

from __future__ import annotations

from fleetsim.config.judges import in_place
from fleetsim.config.scenario import Scenario
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.pools import EnginePool
from fleetsim.engine.prices import SPOT_PRICE, own_or_listed, prices_of
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace
from fleetsim.sim.engines import engine_of, in_engine
from fleetsim.sim.records import Records
from fleetsim.workload.lengths import mean_length
from fleetsim.workload.turns import response_law


def as_first(scenario: Scenario) -> Scenario:
    """The scenario with the second pool in the first one's place."""
    second, engine = scenario.fleet.second, scenario.engine
    assert second is not None
    own = {
        "gpu": second.gpu or engine.gpu,
        "tp": second.tp or engine.tp,
        "profile": second.profile,
        "instance_tok_s": second.instance_tok_s,
        "gpu_memory_utilization": second.gpu_memory_utilization or engine.gpu_memory_utilization,
        **{name: getattr(second, name) for name in ("max_num_seqs", "max_num_batched_tokens", "kv_blocks")},
    }
    return in_place(scenario, engine.model_copy(update=own), second.instances)


def second_pool(scenario: Scenario) -> tuple[EnginePool, ...]:
    """The second pool as the kernel takes it; () where there is none. Raises InputError as `engine_of`, with its
    paths."""
    second = scenario.fleet.second
    if second is None:
        return ()
    seen = as_first(scenario)
    try:
        step_time, limits = engine_of(seen)
    except InputError as error:
        problems = in_engine(seen, error)
        raise InputError(
            [replace(p, path=f"fleet.second.{p.path.removeprefix('engine.')}") for p in problems]
        ) from None
    weight = second.weight
    if weight is None:
        weight = _full_tok_s(scenario, step_time, limits) / _full_tok_s(scenario, *engine_of(scenario))
    return (EnginePool(step_time, limits, second.instances, weight),)


def _full_tok_s(scenario: Scenario, step_time: StepTime, limits: EngineLimits) -> float:
    """Output tokens per second of an instance that holds as many of the job's requests as it may."""
    w = scenario.workload
    prompt, written = mean_length(w.prompt_tokens, at_least=1.0), mean_length(response_law(w), at_least=1.0)
    held = limits.held_tokens(prompt + written)
    seqs = max(1, int(min(limits.max_num_seqs, limits.kv_tokens / held)))
    return step_time.decode_tok_s(seqs, prompt + written / 2.0)


def counted_as_first(scenario: Scenario) -> float:
    """The second pool in instances of the first one, by their weights."""
    return sum(pool.weight * pool.instances for pool in second_pool(scenario))


def check_one_make(scenario: Scenario, what: str) -> None:
    """Raises InputError where `what` divides GPUs of one make, and the fleet has a second pool."""
    if scenario.fleet.second is not None:
        rule, remedy = f"{what} divides GPUs of one make", "leave it out, or ask size, which counts beside it"
        raise InputError([Problem("fleet.second", scenario.fleet.seconds, rule, remedy)])


def mean_kv_blocks(records: Records) -> float:
    """KV blocks of an instance, the mean of both pools."""
    limits, fleet = records.engine[1], records.scenario.fleet
    others = second_pool(records.scenario)
    if not others:
        return limits.kv_blocks
    blocks = fleet.instances * limits.kv_blocks + sum(o.instances * o.limits.kv_blocks for o in others)
    return blocks / (fleet.instances + fleet.seconds)


def second_gpus(scenario: Scenario) -> int:
    """GPUs of the second pool."""
    return 0 if scenario.fleet.second is None else scenario.fleet.seconds * as_first(scenario).engine.gpus


def second_price(scenario: Scenario) -> float:
    """US dollars per GPU and hour of the second pool: its own price, or its GPU's list price, on demand or on spot."""
    second, cost = scenario.fleet.second, scenario.cost
    if second is None:
        return 0.0
    if second.price_usd_per_gpu_h is not None:
        return second.price_usd_per_gpu_h
    if second.gpu is None:  # it costs what the first one does
        prices = prices_of(scenario)
        return prices.spot if second.on_spot else prices.rollout
    listed = own_or_listed(None, second.gpu, cost)
    return SPOT_PRICE * listed if second.on_spot else listed


def second_paid_gpus(scenario: Scenario) -> float:
    """GPUs of the second pool that are paid for: on spot machines, while they are held."""
    fleet = scenario.fleet
    return second_gpus(scenario) * (fleet.spot.held_share if fleet.seconds_on_spot else 1.0)


def second_usd_per_h(scenario: Scenario) -> float:
    """What the second pool costs in an hour."""
    return second_paid_gpus(scenario) * second_price(scenario)
