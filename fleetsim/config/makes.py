"""Makes of engines beside the fleet's first: each in the first one's place, where what can be asked of any engine is
asked of it, and where it stands for good when there are none of the first."""

from __future__ import annotations

from typing import Any

from fleetsim.config.judges import S, in_place
from fleetsim.config.sections import Sections
from fleetsim.config.tree import put
from fleetsim.errors import InputError, Problem

# What a pool says of its engines; of the last, nothing is as in `engine`.
_ENGINE = ("gpu", "tp", "gpu_memory_utilization")
_OWN = ("profile", "instance_tok_s", "max_num_seqs", "max_num_batched_tokens", "kv_blocks")
# Prices of the first make, on demand and on spot.
_PRICES = ("instance_price_usd_per_gpu_h", "spot_price_usd_per_gpu_h")


def as_first(scenario: S, name: str) -> S:
    """The scenario with this pool in the first one's place, alone."""
    pool, engine = scenario.fleet.pools[name], scenario.engine
    own = {field: getattr(pool, field) or getattr(engine, field) for field in _ENGINE}
    own |= {field: getattr(pool, field) for field in _OWN}
    return in_place(scenario, engine.model_copy(update=own), pool.instances)


def without_the_absent(scenario: Sections) -> dict[str, Any] | None:
    """The raw scenario in which the next pool stands in the first one's place, as if that had never been; None where
    the first has instances, or none may stand there.

    What is said of the first one's instances goes with them; its GPU stays the trainer's. Raises InputError where
    weights are in instances that are not there.
    """
    fleet = scenario.fleet
    if fleet.instances or not fleet.pools or fleet.placement != "disaggregated" or scenario.engine.disaggregation:
        return None
    (name, pool), *rest = fleet.pools.items()
    raw = scenario.model_dump(exclude_unset=True)
    said = raw["fleet"]["pools"].pop(name)
    own = {field: said[field] for field in (*_ENGINE, *_OWN) if said.get(field) is not None}
    raw["engine"] = {f: value for f, value in raw.get("engine", {}).items() if f not in _OWN} | own
    raw["fleet"].pop("straggler_share", None)
    raw["fleet"] |= {"instances": pool.instances, "first": name}
    if fleet.spot.share != pool.on_spot:
        put(raw, "fleet.spot.share", float(pool.on_spot))
    if pool.gpu is not None:
        put(raw, "trainer.recipe.gpu", scenario.trainer.recipe.gpu or scenario.engine.gpu)
        raw["cost"] = {field: value for field, value in raw.get("cost", {}).items() if field not in _PRICES}
    if pool.price_usd_per_gpu_h is not None:
        put(raw, f"cost.{_PRICES[pool.on_spot]}", pool.price_usd_per_gpu_h)
    for other, told in rest:
        if (told.weight is None) != (pool.weight is None):
            rule = f"is in instances of the first make, of which there are none, and {name} stands in its place"
            raise InputError([Problem(f"fleet.pools.{other}.weight", told.weight, rule, "weigh all pools, or none")])
        if told.weight is not None and pool.weight is not None:
            raw["fleet"]["pools"][other]["weight"] = told.weight / pool.weight
    return raw
