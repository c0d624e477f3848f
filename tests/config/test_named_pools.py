"""Pools by name: the short form of one, paths into each, none of them, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from fleetsim.config.load import default_scenario, dump_short, scenario_from_mapping, with_changes
from fleetsim.config.tree import field_at, given_paths, value_at
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError

TWO = {"fleet": {"second": {"gpu": "H200"}, "pools": {"spot-1": {"on_spot": True, "instances": 3}}}}


def test_the_second_make_is_a_pool_of_this_name() -> None:
    long = {"fleet": {"pools": {"second": {"gpu": "H200"}, "spot-1": {"on_spot": True, "instances": 3}}}}
    found = scenario_from_mapping(TWO)
    assert found == scenario_from_mapping(long)
    assert found.fleet.pooled == 4
    assert given_paths(found) == {
        "fleet.pools.second.gpu",
        "fleet.pools.spot-1.on_spot",
        "fleet.pools.spot-1.instances",
    }
    assert scenario_from_mapping(from_yaml(dump_short(found), "again")) == found
    assert pickle.loads(pickle.dumps(found)) == found
    assert hash(found) == hash(scenario_from_mapping(long))


def test_a_path_goes_into_one_pool() -> None:
    found = scenario_from_mapping(TWO, overrides=["fleet.second.instances=5", "fleet.pools.third.tp=2"])
    assert [pool.instances for pool in found.fleet.pools.values()] == [3, 5, 1]
    changed = with_changes(found, {"fleet.second.tp": 4, "fleet.pools.spot-1": None})
    assert {name: pool.tp for name, pool in changed.fleet.pools.items()} == {"second": 4, "third": 2}
    assert value_at(changed, "fleet.pools.second.tp") == field_at(changed, "fleet.pools.second.tp") == 4
    assert value_at(changed, "fleet.pools")["third"]["tp"] == 2
    assert field_at(changed, "fleet.pools.fourth.tp") is None
    with pytest.raises(AttributeError):
        value_at(changed, "fleet.pools.fourth.tp")


@pytest.mark.parametrize("none", [{}, {"second": None}, {"pools": None}, {"pools": {"a": None, "b": {"instances": 0}}}])
def test_what_is_set_to_null_or_has_no_instances_is_not_there(none: dict[str, Any]) -> None:
    assert scenario_from_mapping({"fleet": none}) == default_scenario()


@pytest.mark.parametrize(
    ("fleet", "path", "told"),
    [
        ({"pools": {"a.b": {}}}, "fleet.pools", "letters, digits"),
        ({"pools": {"a": {"gpuu": "H200"}}}, "fleet.pools.a.gpuu", 'did you mean "gpu"'),
        ({"pools": {"a": {"instances": -1}}}, "fleet.pools.a.instances", "at least 0"),
        ({"pools": {f"p{n}": {} for n in range(17)}}, "fleet.pools", "at most 16"),
        ({"second": {"tp": 1}, "pools": {"second": {"tp": 2}}}, "fleet.second", "give one of them"),
    ],
)
def test_what_is_no_pool_is_told(fleet: dict[str, Any], path: str, told: str) -> None:
    with pytest.raises(InputError) as refused:
        scenario_from_mapping({"fleet": fleet})
    found = [problem for problem in refused.value.problems if problem.path == path]
    assert found
    assert told in f"{found[0].rule}; {found[0].remedy}"
