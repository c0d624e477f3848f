"""The other pools of a fleet: instances of other makes behind the same router."""

from __future__ import annotations

from fleetsim.config.makes import as_first
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


def pools_of(scenario: Scenario) -> tuple[EnginePool, ...]:
    """The other pools as the kernel takes them, in their order. Raises InputError as `engine_of`, with their paths."""
    return tuple(_pool(scenario, name) for name in scenario.fleet.pools)


def _pool(scenario: Scenario, name: str) -> EnginePool:
    pool, seen = scenario.fleet.pools[name], as_first(scenario, name)
    try:
        step_time, limits = engine_of(seen)
    except InputError as error:
        problems = in_engine(seen, error)
        raise InputError(
            [replace(p, path=f"fleet.pools.{name}.{p.path.removeprefix('engine.')}") for p in problems]
        ) from None
    weight = pool.weight
    if weight is None:
        weight = _full_tok_s(scenario, step_time, limits) / _full_tok_s(scenario, *engine_of(scenario))
    return EnginePool(step_time, limits, pool.instances, weight)


def _full_tok_s(scenario: Scenario, step_time: StepTime, limits: EngineLimits) -> float:
    """Output tokens per second of an instance that holds as many of the job's requests as it may."""
    w = scenario.workload
    prompt, written = mean_length(w.prompt_tokens, at_least=1.0), mean_length(response_law(w), at_least=1.0)
    held = limits.held_tokens(prompt + written)
    seqs = max(1, int(min(limits.max_num_seqs, limits.kv_tokens / held)))
    return step_time.decode_tok_s(seqs, prompt + written / 2.0)


def counted_as_first(scenario: Scenario) -> float:
    """The other pools in instances of the first one, by their weights."""
    return sum(pool.weight * pool.instances for pool in pools_of(scenario))


def check_one_make(scenario: Scenario, what: str) -> None:
    """Raises InputError where `what` divides GPUs of one make, and the fleet has other pools."""
    if scenario.fleet.pools:
        rule, remedy = f"{what} divides GPUs of one make", "leave them out, or ask size, which counts beside them"
        raise InputError([Problem("fleet.pools", ", ".join(scenario.fleet.pools), rule, remedy)])


def mean_kv_blocks(records: Records) -> float:
    """KV blocks of an instance, the mean of all pools."""
    limits, fleet = records.engine[1], records.scenario.fleet
    if not fleet.pools:
        return limits.kv_blocks
    blocks = sum(pool.instances * pool.limits.kv_blocks for pool in pools_of(records.scenario))
    return (fleet.instances * limits.kv_blocks + blocks) / (fleet.instances + fleet.pooled)


def gpus_each(scenario: Scenario, name: str) -> int:
    """GPUs of an instance of one of the other pools."""
    return as_first(scenario, name).engine.gpus


def pool_price(scenario: Scenario, name: str) -> float:
    """US dollars per GPU and hour of one: its own price, or its GPU's list price, on demand or on spot."""
    pool, cost = scenario.fleet.pools[name], scenario.cost
    if pool.price_usd_per_gpu_h is not None:
        return pool.price_usd_per_gpu_h
    if pool.gpu is None:  # it costs what the first one does
        prices = prices_of(scenario)
        return prices.spot if pool.on_spot else prices.rollout
    listed = own_or_listed(None, pool.gpu, cost)
    return SPOT_PRICE * listed if pool.on_spot else listed


def pools_gpus(scenario: Scenario) -> int:
    """GPUs of all other pools."""
    return sum(pool.instances * gpus_each(scenario, name) for name, pool in scenario.fleet.pools.items())


def pools_paid(scenario: Scenario) -> tuple[float, float]:
    """GPUs of all other pools that are paid for, on spot machines while they are held, and what they cost in an hour
    (US dollars)."""
    gpus, usd, held = 0.0, 0.0, scenario.fleet.held_share(scenario.fleet.instances)
    for name, pool in scenario.fleet.pools.items():
        paid = pool.instances * gpus_each(scenario, name) * (held if pool.on_spot else 1.0)
        gpus, usd = gpus + paid, usd + paid * pool_price(scenario, name)
    return gpus, usd
