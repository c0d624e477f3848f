"""What a scenario may say: defaults, strict types, values that are refused, rules that join fields."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleetsim.config import Scenario, default_scenario, dump_scenario, json_schema, scenario_from_mapping, with_changes
from fleetsim.config.workload import ConstantSeconds, ConstantTokens, Empirical, Gamma, Histogram, Lognormal
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError, Problem


def nested(path: str, value: object) -> dict[str, Any]:
    """{"a": {"b": value}} for "a.b"."""
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def problems(mapping: dict[str, Any]) -> dict[str, Problem]:
    with pytest.raises(InputError) as caught:
        scenario_from_mapping(mapping)
    found = {p.path: p for p in caught.value.problems}
    assert len(found) == len(caught.value.problems), "a path is reported twice"
    for p in found.values():
        assert p.rule
        assert p.remedy
    return found


def test_an_empty_mapping_is_the_default_scenario() -> None:
    assert scenario_from_mapping({}) == default_scenario() == Scenario()
    assert default_scenario().groups_per_step == 64
    assert default_scenario().workload.output_tokens == Lognormal(mean=1536.0, cv=1.0, max=8192.0)


def test_a_section_without_keys_means_its_defaults() -> None:
    assert scenario_from_mapping({"fleet": None, "workload": {"turns": None}}) == default_scenario()


@pytest.mark.parametrize(
    ("given", "law"),
    [
        (512, ConstantTokens(value=512)),
        ({"value": 512}, ConstantTokens(value=512)),
        ({"kind": "constant", "value": 512}, ConstantTokens(value=512)),
        ({"mean": 100, "cv": 1}, Lognormal(mean=100.0, cv=1.0)),
        (
            {"kind": "lognormal", "median": 800, "p99": 6000, "max": 9000},
            Lognormal(median=800.0, p99=6000.0, max=9000.0),
        ),
        ({"kind": "gamma", "mean": 100, "cv": 0.5}, Gamma(mean=100.0, cv=0.5)),
        ({"le": [1, 2], "count": [3, 4]}, Histogram(le=(1.0, 2.0), count=(3.0, 4.0))),
    ],
)
def test_short_and_long_forms_of_a_law(given: object, law: object) -> None:
    assert scenario_from_mapping({"workload": {"prompt_tokens": given}}).workload.prompt_tokens == law


@pytest.mark.parametrize(
    ("path", "value", "rule", "remedy"),
    [
        ("fleet.instances", "8", "whole number", "without quotes"),
        ("fleet.instances", True, "whole number", "not true or false"),
        ("fleet.instances", 8.0, "whole number", "use 8"),
        ("fleet.instances", 0, "at least 1", "at least 1"),
        ("fleet.instances", 10**30, "whole number|at most", ""),
        ("fleet.instances", None, "whole number", ""),
        ("trainer.fixed_s", float("nan"), "finite", ""),
        ("trainer.fixed_s", float("inf"), "finite", ""),
        ("trainer.fixed_s", -0.1, "at least 0", ""),
        ("trainer.fixed_s", True, "number", "not true or false"),
        ("trainer.fixed_s", 10**400, "number", ""),
        ("engine.prefix_caching", 1, "true or false", ""),
        ("engine.gpu", 5, "text", "quotes"),
        ("engine.gpu", "", "empty", ""),
        ("fleet.routing", "round-robin", "one of", 'did you mean "round_robin"'),
        ("fleet.speed_factors", 3, "list", ""),
        ("fleet", 3, "mapping", ""),
        ("schema_version", 2, "must be 1", "use 1"),
        ("workload.filter.zero_variance_share", 1, "below 1", ""),
        ("workload.length_drift_per_step", -1, "above -1", ""),
        ("workload.prompt_tokens", "512", "number or a mapping", "write 512 without quotes"),
        ("workload.prompt_tokens", "long", "number or a mapping", "one of constant, lognormal"),
        ("zzz", 1, "unknown key", "known here"),
        ("fleet.failures", "x", "mapping", ""),
        ("workload.output_tokens", {"kind": "gama", "mean": 1, "cv": 1}, "one of constant", 'did you mean "gamma"'),
        ("workload.output_tokens", {"kind": "gamma", "mean": 1}, "required", "add cv"),
        ("workload.prompt_tokens", {}, "which law", "lognormal"),
        ("workload.prompt_tokens", 1.5, "whole number", ""),
        ("workload.output_tokens", {"mean": 3}, "mean and cv, or median and p99", "one of the two pairs"),
        ("workload.output_tokens", {"mean": 3, "cv": 1, "p99": 9}, "mean and cv", ""),
        ("workload.output_tokens", {"median": 30, "p99": 9}, "p99 must be above", ""),
        ("workload.output_tokens", {"le": [2, 1], "count": [1, 1]}, "le must increase", ""),
        ("workload.output_tokens", {"le": [1, 2], "count": [1]}, "same length", "2 bounds and 1 counts"),
        ("workload.output_tokens", {"le": [1, 2], "count": [0, 0]}, "hold an observation", ""),
        ("workload.output_tokens", {"file": "a.txt", "column": "x"}, "must end in", ""),
        ("run.events", [{"step": 1}], "change something", ""),
    ],
)
def test_wrong_values_are_named_with_rule_and_remedy(path: str, value: object, rule: str, remedy: str) -> None:
    found = problems(nested(path, value))
    assert len(found) == 1
    where, problem = next(iter(found.items()))
    assert where.startswith(path)
    assert re.search(rule, problem.rule), problem
    assert remedy in problem.remedy, problem


@pytest.mark.parametrize(
    ("mapping", "path"),
    [
        ({"trainer": {"batch_samples": 100}}, "trainer.batch_samples"),
        ({"trainer": {"batch_samples": 4}}, "trainer.batch_samples"),
        ({"engine": {"kind": "measured"}}, "engine.profile"),
        ({"engine": {"kind": "constant"}}, "engine.instance_tok_s"),
        ({"admission": {"age_action": "drop_on_dequeue"}}, "admission.max_age"),
        ({"admission": {"law": "fixed_pool"}}, "admission.pool_samples"),
        ({"admission": {"law": "fixed_pool", "pool_samples": 7}}, "admission.pool_samples"),
        ({"buffer": {"oversampling": 1.5}}, "buffer.oversampling"),
        ({"buffer": {"batch_rule": "first_finished"}}, "buffer.batch_rule"),
        ({"buffer": {"batch_rule": "exact_target_step"}}, "buffer.batch_rule"),
        ({"buffer": {"batch_rule": "fifo", "wait_for_oldest": True}}, "buffer.wait_for_oldest"),
        ({"buffer": {"leftover": "defer"}, "admission": {"law": "barrier"}}, "buffer.leftover"),
        ({"trainer": {"minibatches": 7}}, "trainer.minibatches"),
        ({"trainer": {"minibatches": 2}, "fleet": {"placement": "colocated"}}, "trainer.minibatches"),
        ({"sync": {"trigger": "pulls"}}, "sync.every_pulls"),
        ({"sync": {"every_samples": 9}}, "sync.every_samples"),
        ({"sync": {"scope": "rolling"}, "fleet": {"placement": "colocated"}}, "sync.scope"),
        ({"admission": {"age_action": "wait"}}, "admission.max_age"),
        ({"admission": {"adaptive": {"target_kv": 0.85}}}, "admission.adaptive"),
        ({"admission": {"adaptive": {"start_samples": 4096}}}, "admission.adaptive.start_samples"),
        ({"fleet": {"placement": "colocated_lending", "lending": {"instances": 9}}}, "fleet.lending.instances"),
        ({"fleet": {"placement": "colocated_lending"}, "engine": {"tp": 16}}, "fleet.lending.instances"),
        ({"sync": {"transport": "cuda_ipc"}}, "sync.transport"),
        ({"sync": {"transport": "cuda_ipc"}, "fleet": {"placement": "disaggregated"}}, "sync.transport"),
        ({"sync": {"transport": "relay"}, "fleet": {"placement": "colocated"}}, "sync.transport"),
        ({"sync": {"link": {"model_bytes": 10}}}, "sync.link.model_bytes"),
        ({"sync": {"transport": "relay", "link": {"delta_over": "storage"}}}, "sync.link.delta_over"),
        ({"sync": {"transport": "rdma_p2p", "link": {"prefetch": True}}}, "sync.link.prefetch"),
        ({"sync": {"transport": "rdma_p2p", "link": {"load": "in_place", "calls": "per_tensor"}}}, "sync.link.calls"),
        ({"workload": {"shared_prefix_tokens": 513}}, "workload.shared_prefix_tokens"),
        (
            {"workload": {"shared_prefix_tokens": 99, "prompt_tokens": {"mean": 98, "cv": 1}}},
            "workload.shared_prefix_tokens",
        ),
        ({"workload": {"output_tokens": 0}}, "workload.output_tokens"),
        ({"workload": {"output_tokens": 3, "turns": {"count": 4}}}, "workload.turns.count"),
        ({"run": {"steps": 5, "warmup_steps": 5}}, "run.warmup_steps"),
        ({"run": {"events": [{"step": 9, "instances": 2}, {"step": 8, "instances": 3}]}}, "run.events[1].step"),
        ({"fleet": {"instances": 2, "speed_factors": [1, 1, 1]}}, "fleet.speed_factors"),
        ({"trainer": {"phases": [{"name": "ref"}, {"name": "ref"}]}}, "trainer.phases[1].name"),
        ({"buffer": {"capacity_samples": 7}}, "buffer.capacity_samples"),
        ({"trainer": {"minibatches": 500_000_000}}, "trainer.minibatches"),  # at once, not after so many divisions
        ({"fleet": {"repack": {"every_s": 0.01}}}, "fleet.repack.every_s"),  # a million looks at the fleet
        ({"buffer": {"capacity_samples": 1, "on_full": "drop_oldest"}}, "buffer.capacity_samples"),
    ],
)  # fmt: skip
def test_rules_that_join_fields(mapping: dict[str, Any], path: str) -> None:
    found = problems(mapping)
    assert list(found) == [path]
    assert found[path].value != found[path].rule  # what was given, and what is wrong with it


@pytest.mark.parametrize(
    "mapping",
    [
        {"buffer": {"capacity_samples": 8}},  # a buffer below a batch is the run's StuckError, not the loader's
        {"fleet": {"max_in_flight_samples": 1}, "sync": {"in_flight": "drain"}},
        {"admission": {"law": "barrier", "max_age": 0}},
        {"buffer": {"batch_rule": "first_finished", "oversampling": 1.5}, "admission": {"law": "batches_ahead"}},
        {"fleet": {"instances": 1, "speed_factors": [1, 2]}, "run": {"events": [{"step": 3, "instances": 2}]}},
        {"engine": {"kind": "constant", "instance_tok_s": 4000}},
        {"workload": {"shared_prefix_tokens": 512}},
    ],
)
def test_what_only_a_run_can_judge_is_accepted(mapping: dict[str, Any]) -> None:
    assert isinstance(scenario_from_mapping(mapping), Scenario)


def test_all_problems_come_at_once() -> None:
    found = problems(
        {
            "workload": {"group_sise": 4, "output_tokens": {"kind": "lognormal", "mean": -1, "cv": "x"}},
            "fleet": {"instances": "8", "placement": "somewhere"},
            "sync": {"scope": "rolled"},
            "batch_samples": 64,
            "admission": {"age_action": "drop_on_dequeue"},
            "run": {"steps": 5, "warmup_steps": 9},
        }
    )
    assert set(found) == {
        "workload.group_sise", "workload.output_tokens.mean", "workload.output_tokens.cv", "fleet.instances",
        "fleet.placement", "sync.scope", "batch_samples", "admission.max_age", "run.warmup_steps",
    }  # fmt: skip
    assert found["workload.group_sise"].remedy == 'did you mean "group_size"?'
    assert found["batch_samples"].remedy == "it belongs at trainer.batch_samples"


def test_a_wrong_field_raises_no_second_complaint_from_a_rule_that_reads_it() -> None:
    # nor do odd keys hide the rules that can still be checked
    assert list(problems({"x y": 1, "trainer": {"batch_samples": 9}})) == ['"x y"', "trainer.batch_samples"]
    assert list(problems({"workload": {"group_size": 7.5}, "trainer": {"batch_samples": 100}})) == [
        "workload.group_size"
    ]


def test_rules_hold_for_scenarios_built_in_python_too() -> None:
    with pytest.raises(ValidationError, match=r"multiple of workload\.group_size"):
        Scenario.model_validate({"trainer": {"batch_samples": 7}})


def test_with_changes_leaves_the_mappings_that_it_is_given_alone() -> None:
    turns = {"count": 3, "tool_latency_s": {"mean": 5.0, "cv": 1.0}}
    changed = with_changes(default_scenario(), {"workload.turns": turns, "workload.turns.tool_latency_s": 4.0})
    assert changed.workload.turns.tool_latency_s == ConstantSeconds(value=4.0)
    assert turns == {"count": 3, "tool_latency_s": {"mean": 5.0, "cv": 1.0}}


def test_with_changes_sets_paths_and_validates() -> None:
    s = with_changes(default_scenario(), {"fleet.instances": 12, "workload.output_tokens": {"median": 9, "p99": 99}})
    assert s.fleet.instances == 12
    assert s.workload.output_tokens == Lognormal(median=9.0, p99=99.0)
    assert default_scenario().fleet.instances == 8
    with pytest.raises(InputError, match=r"trainer.batch_samples"):
        with_changes(s, {"trainer.batch_samples": 9})
    with pytest.raises(InputError, match="unknown key"):
        with_changes(s, {"fleet.instnaces": 9})
    with pytest.raises(InputError):
        with_changes(s, {"fleet.instances.x": 9})
    law = Gamma(mean=5.0, cv=1.0)
    assert with_changes(s, {"workload.output_tokens": law}).workload.output_tokens == law


def test_scenarios_are_frozen_and_hashable() -> None:
    assert hash(default_scenario()) == hash(Scenario())
    with pytest.raises(ValidationError):
        default_scenario().fleet.instances = 3


def test_every_field_says_what_it_is_in_the_editor_schema() -> None:
    schema = json_schema()
    json.dumps(schema)
    for name, model in schema["$defs"].items():
        for key, field in model["properties"].items():
            if "$ref" not in field and key not in ("kind", "max"):
                assert field.get("description"), f"{name}.{key} has no description"
    text = json.dumps(schema)
    assert "colocated_lending" in text
    assert '"oneOf"' not in text  # {mean, cv} without kind fits two laws


def test_empirical_paths_are_relative_to_the_base(tmp_path: Any) -> None:
    (tmp_path / "l.csv").write_text("x\n3\n")
    given = {"workload": {"output_tokens": {"file": "l.csv", "column": "x"}}}
    law = scenario_from_mapping(given, base=tmp_path).workload.output_tokens
    assert isinstance(law, Empirical)
    assert law.file == str(tmp_path / "l.csv")
    assert list(problems(given)) == ["workload.output_tokens.file"]


def test_a_profile_or_a_rate_says_which_kind_of_engine_is_meant() -> None:
    assert scenario_from_mapping({"engine": {"profile": "p.json"}}).engine.kind == "measured"
    assert scenario_from_mapping({"engine": {"instance_tok_s": 4000.0}}).engine.kind == "constant"
    assert scenario_from_mapping({"engine": {"profile": "p.json", "kind": "roofline"}}).engine.kind == "roofline"
    assert scenario_from_mapping({"engine": {"profile": None}}).engine.kind == "roofline"


def test_assumed_paths_are_known_and_survive_a_round_trip() -> None:
    paths = ["workload.output_tokens.mean", "trainer.phases", "fleet"]
    scenario = scenario_from_mapping({"assumed": paths})
    assert scenario.assumed == tuple(paths)
    assert scenario_from_mapping(from_yaml(dump_scenario(scenario), "text")) == scenario
    assert with_changes(scenario, {"fleet.instances": 3}).assumed == tuple(paths)
    found = problems({"assumed": ["workload.output_token.mean", "trainer.phases[0].fixed_s", 3], "fleet": {"x": 1}})
    assert found["assumed[0]"].rule == "names no value of a scenario"
    assert found["assumed[0]"].remedy == 'did you mean "output_tokens"?'
    assert found.keys() == {"assumed[0]", "assumed[1]", "assumed[2]", "fleet.x"}


@given(st.lists(st.text(max_size=30), min_size=1, max_size=4))
def test_any_text_among_the_assumed_paths_is_taken_or_told(paths: list[str]) -> None:
    try:
        scenario = scenario_from_mapping({"assumed": paths})
    except InputError as error:
        assert all(p.path.startswith("assumed[") for p in error.problems)
    else:
        assert all(hasattr(scenario, path.partition(".")[0]) for path in paths)
