"""Results read back: whatever was done to a document, it is read or refused, and what is read can be compared."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.compare.compare import headline_of
from fleetsim.compare.facts import compare_document
from fleetsim.compare.facts import document as told
from fleetsim.compare.question import Compare, spans_of
from fleetsim.compare.runs import compare_runs
from fleetsim.compare.saved_result import is_result, result_of
from fleetsim.config import scenario_from_mapping
from fleetsim.errors import InputError
from fleetsim.job.engine_source import engine_source
from fleetsim.job.trials import flat
from fleetsim.quantities import METRICS
from fleetsim.sim.replications import replicate
from fleetsim.simulate.facts import simulate_document
from fleetsim.tell.data import dumps
from fleetsim.tell.terminal import draw

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=5,
)


@cache
def document() -> dict[str, Any]:
    scenario = scenario_from_mapping(
        {
            "engine": {"kind": "constant", "instance_tok_s": 3000},
            "workload": {"group_size": 4},
            "trainer": {"batch_samples": 16},
            "run": {"steps": 6, "replications": 3},
        }
    )
    result = replicate(scenario)
    source, values = engine_source(scenario, 1), [flat(run) for run in result.values]
    found: dict[str, Any] = json.loads(dumps(simulate_document(scenario, 3, source, (), result.metrics, values)))
    return found


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a document, what stands high in it first."""
    found, below = [], [value]
    while below:
        here = below.pop(0)
        keys = list(here) if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()
        found += [(here, key) for key in keys]
        below += [here[key] for key in keys]
    return found


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_result_is_read_or_refused(data: st.DataObject) -> None:
    damaged = copy.deepcopy(document())
    for _ in range(data.draw(st.integers(1, 3))):
        there = places(damaged)
        near = data.draw(st.sampled_from([min(14, len(there)), len(there)]))
        container, key = there[data.draw(st.integers(0, near - 1))]
        if data.draw(st.booleans()) and isinstance(container, dict):
            del container[key]
        else:
            container[key] = data.draw(json_values)
    if not is_result(damaged):
        return
    try:
        read = result_of(damaged, "b.json", "B")
    except InputError as error:
        assert all(p.rule and p.remedy for p in error.problems)
        return
    found = compare_runs(result_of(document(), "a.json", "A"), read)
    assert [c.metric for c in found.changes] == list(METRICS)
    assert headline_of(found) == found.headline
    dumps(compare_document(found))
    draw(told(found))


def test_numbers_whose_squares_are_none_are_refused() -> None:
    other = copy.deepcopy(document())
    for run in other["values"]:
        run["step_s"] = 1e305
    with pytest.raises(InputError, match="no complete result"):
        result_of(other, "b.json", "B")


def test_inputs_that_this_version_cannot_read_are_shown_as_written() -> None:
    other = copy.deepcopy(document())
    other["scenario"]["trainer"]["batch_samples"] = "many"
    read = result_of(other, "b.json", "B")
    found = compare_runs(result_of(document(), "a.json", "A"), read)
    assert read.scenario is None
    assert not found.paired
    assert [(d.path, d.a, d.b) for d in found.inputs] == [("trainer.batch_samples", 16, "many")]
    assert any("cannot read its scenario" in note for note in found.notes)


def test_an_undamaged_one_is_its_own() -> None:
    found = compare_runs(result_of(document(), "a.json", "A"), result_of(document(), "b.json", "B"))
    assert found.paired
    assert found.headline == f"B equals A in all {len(METRICS)} metrics"


@given(
    st.text(max_size=30) | st.tuples(*[st.sampled_from(["", "now", "-6h", "3", "2026-11-21T08:00"])] * 2).map("..".join)
)
def test_a_window_is_understood_or_refused(text: str) -> None:
    for call in (
        Compare(a="a.om", window_a=text),
        Compare(prometheus="http://127.0.0.1:9090", window_a=text, window_b="-1h.."),
    ):
        try:
            spans = spans_of(call, one_history=True)
        except InputError as error:
            assert all(p.rule and p.remedy for p in error.problems)
            continue
        assert spans["A"] is not None
        assert ".." in text
