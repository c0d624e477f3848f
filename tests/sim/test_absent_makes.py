"""A make of no instances is as if it were not there: in a run byte for byte, and in what `size` and `plan` choose."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config.load import default_scenario, dump_short, scenario_from_mapping, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.yaml_text import from_yaml
from fleetsim.engine.prices import prices_of
from fleetsim.errors import InputError
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate

TABLES = ("steps", "samples", "groups", "syncs")


def _job(changes: dict[str, Any]) -> Scenario:
    return with_changes(default_scenario(), {"run.steps": 8, **changes})


_ENGINES: list[dict[str, Any]] = [
    {"gpu": "H200", "max_num_seqs": 24},
    {"gpu": "L40S", "price_usd_per_gpu_h": 0.8},
    {"tp": 2, "weight": 1.5},
]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=4, max_size=4).filter(any), st.permutations(range(3)), st.booleans())
def test_a_make_of_no_instances_is_as_if_it_were_not_there(counts: list[int], order: list[int], on_spot: bool) -> None:
    """Byte for byte, wherever it stands: the first, between others, or several of them. What is left is written by hand
    with its first make as the fleet's."""
    first, *others = counts
    told = [dict(_ENGINES[i], on_spot=on_spot) for i in order]
    if any(others[i] and "weight" in told[i] for i in range(3)):  # pools are weighed all, or none
        told = [{"weight": 1.0, **one} for one in told]
    own = {"engine.tp": 1, "trainer.batch_samples": 32, "run.steps": 3, "fleet.straggler_share": 0.5}
    own |= {"fleet.straggler_slowdown": 1.4, "cost.spot_price_usd_per_gpu_h": 1.1, "fleet.spot.mean_life_s": 300.0}
    pools = {f"p{i}": {**told[i], "instances": n} for i, n in enumerate(others)}
    there = {name: pool for name, pool in pools.items() if pool["instances"]}
    by_hand: dict[str, Any] = {**own, "fleet.instances": first, "fleet.pools": there}
    if not first:
        name, made = next(iter(there.items()))
        rest = {k: dict(pool, weight=pool["weight"] / made["weight"]) if "weight" in pool else pool
                for k, pool in there.items() if k != name}  # fmt: skip
        engine = {f"engine.{key}": made[key] for key in ("gpu", "tp", "max_num_seqs") if key in made}
        by_hand |= {**engine, "fleet.instances": made["instances"], "fleet.pools": rest, "fleet.straggler_share": 0.0}
        by_hand["fleet.spot.share"] = float(on_spot)
        if "gpu" in made:
            by_hand |= {"trainer.recipe.gpu": "H100-SXM", "cost.spot_price_usd_per_gpu_h": None}
        if "price_usd_per_gpu_h" in made:
            what = "spot" if on_spot else "instance"
            by_hand[f"cost.{what}_price_usd_per_gpu_h"] = made["price_usd_per_gpu_h"]
    asked, wanted = (_job({**own, "fleet.instances": first, "fleet.pools": pools}), _job(by_hand))
    assert with_changes(asked, {"fleet.first": None}) == wanted
    a, b = simulate(asked), simulate(wanted)
    for table in TABLES:
        assert getattr(a, table).tobytes() == getattr(b, table).tobytes()
    assert metrics_of(a) == metrics_of(b)


def test_a_make_of_no_instances_changes_no_price() -> None:
    """One of the first make that serves next to nothing costs what it costs; with none of it that money is gone, and
    nothing else changes by more than what it served."""
    pools = {"b": {"gpu": "L40S", "instances": 6, "weight": 1e5}}
    one, none = (metrics_of(simulate(_job({"fleet.instances": n, "fleet.pools": pools}))) for n in (1, 0))
    paid = prices_of(_job({})).rollout * one["step_s"] / 3600.0
    assert none["step_s"] == pytest.approx(one["step_s"], rel=0.02)
    assert none["cost_per_step"] == pytest.approx(one["cost_per_step"] - paid, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"fleet.pools": {"b": {"instances": 0}}}, "fleet.instances"),
        ({"fleet.pools": {"b": {}}, "run.events": [{"step": 2, "instances": 4}]}, "fleet.instances"),
        ({"fleet.pools": {"b": {}}, "fleet.placement": "colocated", "admission.law": "barrier"}, "fleet.pools"),
        ({"fleet.pools": {"b": {}, "c": {"weight": 2.0}}}, "fleet.pools.c.weight"),
    ],
)
def test_none_of_the_first_where_none_may_stand_in_is_refused(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as refused:
        _job({"fleet.instances": 0, **changes})
    assert path in [problem.path for problem in refused.value.problems]


def test_what_stands_in_the_first_place_is_said_once() -> None:
    """A later word about the pool would make another one beside it."""
    job = _job({"fleet.instances": 0, "fleet.pools": {"b": {"instances": 5}}})
    assert (job.fleet.instances, job.fleet.first, dict(job.fleet.pools)) == (5, "b", {})
    assert scenario_from_mapping(from_yaml(dump_short(job), "again")) == job
    with pytest.raises(InputError, match="stands in the first one's place"):
        with_changes(job, {"fleet.pools.b.instances": 7})
