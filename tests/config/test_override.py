"""--set and FLEETSIM_ variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config import env_overrides, load_scenario, scenario_from_mapping
from fleetsim.config.tree import field_at
from fleetsim.config.workload import ConstantTokens, Empirical, Gamma, Lognormal
from fleetsim.errors import InputError


def with_set(*overrides: str, raw: dict[str, Any] | None = None) -> Any:
    return scenario_from_mapping(raw or {}, overrides=overrides)


def test_values_are_yaml() -> None:
    s = with_set(
        "fleet.instances=12", "fleet.speed_factors=[1, 1.2]", "engine.prefix_caching=false", "name=a=b",
        "workload.prompt_tokens={mean: 300, cv: 0.5}", "buffer.capacity_samples=null", "sync.pause_s = 2",
        "run.events=[{step: 3, instances: 9}]",
    )  # fmt: skip
    assert s.fleet.instances == 12
    assert s.fleet.speed_factors == (1.0, 1.2)
    assert s.engine.prefix_caching is False
    assert s.name == "a=b"
    assert s.workload.prompt_tokens == Lognormal(mean=300.0, cv=0.5)
    assert s.sync.pause_s == 2.0
    assert s.run.events[0].instances == 9


def test_the_mapping_given_is_not_changed() -> None:
    raw: dict[str, Any] = {"fleet": {"instances": 3}, "workload": {"turns": {"count": 2}}}
    assert with_set("fleet.instances=4", "workload.turns.count=3", raw=raw).workload.turns.count == 3
    assert raw == {"fleet": {"instances": 3}, "workload": {"turns": {"count": 2}}}


def test_one_parameter_of_the_default_law_keeps_the_others() -> None:
    assert with_set("workload.output_tokens.mean=2000").workload.output_tokens == Lognormal(
        mean=2000.0, cv=1.0, max=8192.0
    )
    assert with_set("workload.output_tokens.kind=gamma").workload.output_tokens == Gamma(
        mean=1536.0, cv=1.0, max=8192.0
    )
    assert with_set("workload.output_tokens.median=800", "workload.output_tokens.p99=6000").workload.output_tokens == (
        Lognormal(median=800.0, p99=6000.0, max=8192.0)
    )
    written = {"workload": {"prompt_tokens": 100}}
    assert with_set("workload.prompt_tokens.value=200", raw=written).workload.prompt_tokens == ConstantTokens(value=200)


@pytest.mark.parametrize("typed", ["{0}.file=lengths.csv", "{0}={{file: lengths.csv, column: n}}", ""])
def test_a_file_that_is_typed_lies_in_the_working_directory(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a scenario names lies beside the scenario, whatever is typed of others."""
    for folder in ("jobs", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "lengths.csv").write_text("n\n1\n2\n")
    law = "{file: lengths.csv, column: n}"
    (tmp_path / "jobs" / "job.yaml").write_text(f"workload: {{output_tokens: {law}, prompt_tokens: {law}}}\n")
    monkeypatch.chdir(tmp_path / "here")
    sets = [typed.format("workload.output_tokens")] if typed else []
    s = load_scenario(tmp_path / "jobs" / "job.yaml", [*sets, "fleet.spot.trace=spot.csv"])
    assert isinstance(s.workload.output_tokens, Empirical)
    assert isinstance(s.workload.prompt_tokens, Empirical)
    assert Path(s.workload.output_tokens.file).parent == tmp_path / ("here" if typed else "jobs")
    assert Path(s.workload.prompt_tokens.file).parent == tmp_path / "jobs"
    assert s.fleet.spot.trace == str(tmp_path / "here" / "spot.csv")


@pytest.mark.parametrize(
    "path",
    ["workload.turns.count", "workload.turns.output_tokens", "evaluation.output_tokens", "evaluation.prompt_tokens",
     *(f"stations.{who}.{what}_tokens" for who in ("judge", "teacher", "reference") for what in ("output", "prompt"))],
)  # fmt: skip
def test_one_parameter_of_a_law_without_a_default_begins_it(path: str) -> None:
    both = {"FLEETSIM_" + path.upper().replace(".", "__") + "__MEAN": "150"}
    law = field_at(with_set(*env_overrides(both), f"{path}.cv=0.5"), path)
    assert law == Lognormal(mean=150.0, cv=0.5)
    with pytest.raises(InputError, match=f"{path}: .*mean and cv"):
        with_set(f"{path}.mean=150")


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("fleet.instance=3", 'did you mean "instances"'),
        ("flete.instances=3", 'did you mean "fleet"'),
        ("instances=3", "fleet.instances"),
        ("fleet.instances", "key.path=value"),
        ("=3", "key.path=value"),
        ("fleet.instances=[", "valid YAML"),
        ("fleet.instances=&a 1", "anchors"),
        ("run.events.0.step=1", "set as a whole"),
        ("fleet.instances.x=1", "unknown key"),
        ("fleet.instances=", "whole number"),
        ("fleet.instances='12'", "without quotes"),
        ("workload.output_tokens.mean=-1", "workload.output_tokens.mean"),
    ],
)
def test_wrong_overrides(override: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        with_set(override)
    assert text in str(caught.value)


def test_a_scalar_above_the_path_is_reported() -> None:
    with pytest.raises(InputError, match="is no mapping"):
        with_set("fleet.instances=3", raw={"fleet": 7})


def test_environment() -> None:
    found = env_overrides(
        {
            "FLEETSIM_FLEET__INSTANCES": "12",
            "fleetsim_workload__output_tokens__mean": "900",
            "FLEETSIM_DEBUG": "/var/cache",
            "HOME__X": "1",
        }
    )
    assert found == ("fleet.instances=12", "workload.output_tokens.mean=900")
    assert with_set(*found, "fleet.instances=13").fleet.instances == 13  # a flag wins over the environment
    with pytest.raises(InputError, match=r"FLEETSIM_FLEET__INSTANCE: .*did you mean"):
        env_overrides({"FLEETSIM_FLEET__INSTANCE": "12"})


@given(st.text(max_size=40) | st.builds("{}={}".format, st.sampled_from(
    ["fleet.instances", "workload.output_tokens.mean", "workload.turns", "run.events", "published.step_s", "name",
     "workload.turns.output_tokens.mean", "stations.judge.output_tokens.cv", "workload.turns.count.mean"]
), st.text(max_size=20)))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_any_override_gives_a_scenario_or_an_input_error(override: str) -> None:
    try:
        with_set(override)
    except InputError as error:
        assert error.problems
