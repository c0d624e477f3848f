"""The table of the frameworks: each row says something of a scenario, and each block is used."""

from __future__ import annotations

from importlib import import_module
from inspect import getsource
from typing import Any

import pytest

from fleetsim.config.scenario import Scenario
from fleetsim.frameworks import tables
from fleetsim.frameworks.tables import FRAMEWORKS

# Blocks whose names the reader puts together.
MADE = {"verl": ["trainer_mode sync"], "nemo-rl": ["graphs of vllm_cfg", "graphs of sglang_cfg"]}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_block_is_put_by_the_reader(framework: str) -> None:
    source = getsource(import_module(f"fleetsim.frameworks.{framework.replace('-', '_')}"))
    unused = [name for name in FRAMEWORKS[framework].blocks if f'"{name}"' not in source]
    assert unused == MADE.get(framework, [])


def test_the_path_of_every_row_is_one_of_a_scenario() -> None:
    paths = {row.path for known in FRAMEWORKS.values() for rows in known.blocks.values() for row in rows}
    schema = Scenario.model_json_schema()
    assert [path for path in paths if not _is_field(schema, schema, path.split("."))] == []


def _is_field(schema: dict[str, Any], node: dict[str, Any], path: list[str]) -> bool:
    """Whether a dotted path leads to a value of a JSON schema."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    if not path:
        return True
    ways = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    below = node.get("properties", {}).get(path[0])
    return (below is not None and _is_field(schema, below, path[1:])) or any(_is_field(schema, w, path) for w in ways)


@pytest.mark.parametrize("rule", ["cuont 1", "count 1, unles 1", "count 1, at least 2"])
def test_a_rule_that_is_none_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=f"frameworks.txt: engine.tp has no such rule: {rule}"):
        tables._row("engine.tp", rule, "tp")
