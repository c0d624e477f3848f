"""Flags to scenario, without a simulation: precedence, lengths, what was given, and every wrong flag at once."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.config import default_scenario, dump_scenario, scenario_from_mapping
from fleetsim.config.load import with_changes
from fleetsim.config.tree import value_at
from fleetsim.config.workload import ConstantTokens, Gamma, Lognormal
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError
from fleetsim.job.assumptions import assumptions_of
from fleetsim.job.job import job_from_flags
from fleetsim.job.settings import PATHS
from fleetsim.workload.lengths import mean_length

EXAMPLES: dict[str, Any] = {
    "batch": 256,
    "group_size": 4,
    "prompt_len": 300,
    "turns": 3,
    "tool_s": 12.5,
    "tool_tokens": 400,
    "sandboxes": 96,
    "sandbox_start_s": 4.0,
    "sandbox_price": 0.05,
    "tool_timeout_s": 60.0,
    "reward_s": 5.0,
    "reward_workers": 32,
    "trainer_step_s": 12.5,
    "trainer_gpus": 16,
    "parallel_share": 0.8,
    "switch_s": 7.0,
    "gpu": "H200-SXM",
    "model": "Qwen/Qwen3-8B",
    "tp": 2,
    "dtype": "fp8",
    "kv_dtype": "fp8",
    "kv_offloading": 32.0,
    "instance_tok_s": 3500.0,
    "slowdown": 1.2,
    "instances": 5,
    "headroom": 0.7,
    "max_staleness": 2.5,
    "sync_pause_s": 3.0,
    "target_idle": 0.1,
    "worth": 2.0,
    "instance_price": 2.0,
    "trainer_price": 4.0,
    "spot": 0.7,
    "spot_price": 1.5,
    "steps": 40,
    "replications": 7,
    "seed": 11,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_flag_is_a_path_of_the_scenario_and_no_longer_assumed(name: str) -> None:
    job = job_from_flags(None, (), {name: EXAMPLES[name]})
    found = value_at(job.scenario, PATHS[name])
    assert (found["value"] if isinstance(found, dict) else found) == EXAMPLES[name]
    assert any(path == PATHS[name] or path.startswith(PATHS[name]) for path in job.given)
    assert PATHS[name] not in [a.path for a in assumptions_of(job.scenario, job.given)]


def test_no_flag_is_forgotten_here() -> None:
    assert set(EXAMPLES) | {"profile", "trainer_point"} == set(PATHS)  # the points of `split` have tests of their own


def test_nothing_given_is_the_default_scenario() -> None:
    """But for what its model and published runs tell, which is called assumed."""
    job, default = job_from_flags(None, (), {}), default_scenario()
    assert set(job.scenario.assumed) == {
        "trainer.fixed_s", "trainer.per_token_s", "trainer.phases", "trainer.gpus", "sync.transport",
        "engine.slowdown",
    }  # fmt: skip
    changes = {path: value_at(default, path) for path in job.scenario.assumed}
    assert with_changes(job.scenario, {**changes, "assumed": []}) == default
    assert job.given == frozenset()


def test_flag_over_environment_over_scenario_over_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("trainer: {batch_samples: 128, gpus: 4}\nsync: {pause_s: 9.0}\nfleet: {instances: 2}\n")
    monkeypatch.setenv("FLEETSIM_TRAINER__GPUS", "6")
    monkeypatch.setenv("FLEETSIM_SYNC__PAUSE_S", "7.0")
    job = job_from_flags(str(file), ("fleet.instances=3",), {"sync_pause_s": 5.0})
    s = job.scenario
    assert (s.trainer.batch_samples, s.trainer.gpus, s.sync.pause_s, s.fleet.instances) == (128, 6, 5.0, 3)
    assert s.workload.group_size == 8
    assert {"trainer.batch_samples", "trainer.gpus", "sync.pause_s", "fleet.instances"} <= job.given
    assert "workload.group_size" not in job.given


@given(mean=st.floats(1.0, 4000.0), cv=st.floats(0.05, 3.0))
def test_len_is_the_mean_of_what_is_generated_cap_included(mean: float, cv: float) -> None:
    try:
        law = job_from_flags(None, (), {"len": mean, "len_cv": cv}).scenario.workload.output_tokens
    except InputError as error:
        assert "--len" in str(error)
        return
    assert isinstance(law, Lognormal)
    assert mean_length(law, at_least=1.0) == pytest.approx(mean, rel=1e-9)
    assert law.max is not None
    assert law.max >= 8192


@pytest.mark.parametrize(("mean", "cap"), [(100.0, 8192.0), (1536.0, 8192.0), (2049.0, 16384.0), (20_000.0, 131_072.0)])
def test_an_assumed_cap_leaves_room_for_the_tail(mean: float, cap: float) -> None:
    law = job_from_flags(None, (), {"len": mean}).scenario.workload.output_tokens
    assert isinstance(law, Lognormal)
    assert law.max == cap


def test_lengths_of_a_scenario_keep_their_law(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"

    def law(text: str, **flags: float) -> Any:
        file.write_text(f"workload: {{output_tokens: {text}}}\n")
        return job_from_flags(str(file), (), flags).scenario.workload.output_tokens

    gamma = law("{kind: gamma, mean: 300, cv: 0.5, max: 2000}", len=500.0)
    assert isinstance(gamma, Gamma)
    assert (gamma.cv, gamma.max) == (0.5, 2000.0)
    assert mean_length(gamma, at_least=1.0) == pytest.approx(500.0)
    assert law("300", len=400.0) == ConstantTokens(value=400)
    assert law("300", len_cv=0.5).cv == 0.5
    assert law("{mean: 300, cv: 1.0}", len_cv=0.0) == ConstantTokens(value=300)
    by_quantiles = law("{median: 800, p99: 6000}", len=1500.0)
    assert mean_length(by_quantiles, at_least=1.0) == pytest.approx(1500.0)
    assert math.log1p(by_quantiles.cv**2) == pytest.approx((math.log(6000 / 800) / 2.3263478740) ** 2)
    buckets = "{le: [100, 200], count: [1, 1]}"
    assert law(buckets, max_len=150.0).max == 150.0
    with pytest.raises(InputError, match="they have no such parameter"):
        law(buckets, len=100.0)


@pytest.mark.parametrize(("batch", "group"), [(512, 8), (100, 5), (509, 1), (4, 4), (36, 6)])
def test_an_assumed_group_divides_the_batch(batch: int, group: int) -> None:
    job = job_from_flags(None, (), {"batch": batch})
    assert job.scenario.workload.group_size == group
    assert f"groups of {group}" in [a.text for a in assumptions_of(job.scenario, job.given)]


def test_an_assumed_batch_is_whole_groups_and_given_ones_are_never_changed() -> None:
    assert job_from_flags(None, (), {"group_size": 7}).scenario.trainer.batch_samples == 511
    with pytest.raises(InputError, match="--batch: 100: must be a multiple"):
        job_from_flags(None, (), {"batch": 100, "group_size": 8})


def test_seconds_per_step_are_all_of_the_trainer_s_seconds(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("trainer: {fixed_s: 1.0, per_token_s: 0.001, phases: [{name: ref, fixed_s: 4.0}]}\n")
    trainer = job_from_flags(str(file), (), {"trainer_step_s": 20.0}).scenario.trainer
    assert (trainer.fixed_s, trainer.per_token_s, trainer.phases) == (20.0, 0.0, ())


def test_a_staleness_budget_goes_where_the_admission_law_keeps_it(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("admission: {law: batches_ahead}\n")
    assert job_from_flags(str(file), (), {"max_staleness": 3.0}).scenario.admission.batches_ahead == 3
    file.write_text("admission: {law: barrier}\n")
    with pytest.raises(InputError, match="law barrier has no such budget"):
        job_from_flags(str(file), (), {"max_staleness": 3.0})


def test_all_problems_at_once_under_the_names_that_the_user_wrote() -> None:
    with pytest.raises(InputError) as caught:
        job_from_flags(
            None,
            ("fleet.instance=3", "trainer.gpus=4"),
            {"batch": 0, "len": math.nan, "max_len": 0.5, "gpu": "H1000", "target_idle": 2.0, "trainer_gpus": 8},
        )
    paths = [p.path for p in caught.value.problems]
    assert sorted(paths) == sorted(
        ["--set", "fleet.instance", "--batch", "--target-idle", "--len", "--max-len", "--gpu"]
    )
    assert all(p.rule and p.remedy for p in caught.value.problems)


def test_two_sources_of_speed_contradict_each_other() -> None:
    with pytest.raises(InputError, match="a profile has its own engine speed"):
        job_from_flags(None, (), {"profile": "x", "instance_tok_s": 4000.0})
    assert "only name the instance" in job_from_flags(None, (), {"gpu": "H100", "instance_tok_s": 4000.0}).notes[0]


def test_set_and_a_flag_may_not_say_the_same_thing() -> None:
    for text, flags in (("engine.tp=2", {"tp": 1}), ("workload.output_tokens.cv=0.5", {"len": 100.0})):
        with pytest.raises(InputError, match="says the same thing"):
            job_from_flags(None, (text,), flags)


KINDS: dict[type, st.SearchStrategy[Any]] = {
    int: st.one_of(st.integers(-3, 2000), st.integers(-(10**21), 10**21)),
    float: st.one_of(st.floats(0, 10_000), st.floats()),
    str: st.one_of(st.text(max_size=8), st.sampled_from(["H100", "Qwen/Qwen3-8B", "\0", "/"])),
}
TYPES = {name: type(value) for name, value in EXAMPLES.items()} | {
    "profile": str, "len": float, "len_cv": float, "max_len": float,
}  # fmt: skip


@given(data=st.data(), names=st.sets(st.sampled_from(sorted(TYPES)), max_size=6))
def test_any_flags_give_a_job_or_say_what_is_wrong(data: st.DataObject, names: set[str]) -> None:
    flags = {name: data.draw(KINDS[TYPES[name]], label=name) for name in sorted(names)}
    try:
        job = job_from_flags(None, (), flags)
    except InputError as error:
        assert error.problems
        assert all(p.path and p.rule and p.remedy for p in error.problems)
        return
    assert job.scenario.trainer.batch_samples % job.scenario.workload.group_size == 0


IMPORTED = """
assumed: [workload.output_tokens.mean, workload.output_tokens.max, workload.prompt_tokens, workload.group_size,
          trainer.fixed_s, trainer.per_token_s, trainer.phases, fleet.switch_s]
workload: {output_tokens: {kind: lognormal, mean: 300, cv: 1.0, max: 1000}, prompt_tokens: 64, group_size: 8}
trainer: {fixed_s: 0.0, per_token_s: 1.0e-5, phases: [{name: log-probs, per_token_s: 2.0e-6}], batch_samples: 64}
fleet: {switch_s: 5.0, placement: colocated}
"""


@pytest.fixture
def imported(tmp_path: Path) -> str:
    file = tmp_path / "imported.yaml"
    file.write_text(IMPORTED)
    return str(file)


def told(file: str, sets: tuple[str, ...] = (), **flags: Any) -> dict[str, tuple[str, str]]:
    """Path -> (flag, sentence) of what a plan lists as assumed."""
    job = job_from_flags(file, sets, flags)
    return {a.path: (a.flag, a.text) for a in assumptions_of(job.scenario, job.given)}


def test_values_that_a_file_calls_assumed_are_not_given(imported: str) -> None:
    job, found = job_from_flags(imported, (), {}), told(imported)
    assert not set(job.given) & set(job.scenario.assumed)
    assert "workload.output_tokens.cv" in job.given
    assert found["workload.output_tokens.mean"] == ("--len", "a mean of 300 generated tokens before the cap")
    assert found["workload.prompt_tokens"][1] == "prompts of 64 tokens"
    assert found["fleet.switch_s"][1] == "fleet.switch_s = 5 (--set fleet.switch_s=VALUE)"
    # Of a known model they are estimated anew, and told as one step.
    flag, text = found["trainer.fixed_s"]
    assert flag == "--trainer-step-s"
    assert re.fullmatch(r"[\d.]+ s of compute per step, log-probs included \(estimated, FSDP, off by \d+ % .*\)", text)
    assert not {"trainer.per_token_s", "trainer.phases"} & found.keys()


def test_assumed_seconds_stand_where_no_model_is_named(imported: str) -> None:
    job, found = job_from_flags(imported, (), {"instance_tok_s": 4000.0}), told(imported, instance_tok_s=4000.0)
    assert (job.scenario.trainer.fixed_s, job.scenario.trainer.per_token_s) == (0.0, 1e-5)
    assert found["trainer.per_token_s"][0] == found["trainer.phases"][0] == "--trainer-step-s"
    assert "trainer.fixed_s" not in found  # 0 s beside seconds per token says nothing


@pytest.mark.parametrize(
    ("sets", "flags", "gone"),
    [
        (("fleet.switch_s=2",), {}, {"fleet.switch_s"}),
        (("fleet={switch_s: 2}",), {}, {"fleet.switch_s"}),
        ((), {"len": 200.0}, {"workload.output_tokens.mean"}),
        ((), {"trainer_step_s": 9.0}, {"trainer.fixed_s", "trainer.per_token_s", "trainer.phases"}),
        (("workload.prompt_tokens.value=70",), {}, {"workload.prompt_tokens"}),
    ],
)
def test_what_the_user_sets_is_assumed_no_longer(
    imported: str, sets: tuple[str, ...], flags: dict[str, Any], gone: set[str]
) -> None:
    before = job_from_flags(imported, (), {}).scenario.assumed
    job = job_from_flags(imported, sets, flags)
    assert set(before) - set(job.scenario.assumed) == gone
    assert load_scenario_text(dump_scenario(job.scenario)) == job.scenario
    assert not gone & told(imported, sets, **flags).keys()


def test_an_assumed_cap_and_group_give_way(imported: str) -> None:
    scenario = job_from_flags(imported, (), {"len": 2500.0, "batch": 20}).scenario
    assert getattr(scenario.workload.output_tokens, "max", None) == 16384
    assert scenario.workload.group_size == 5


def test_an_environment_variable_is_the_users_word_too(imported: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETSIM_FLEET__SWITCH_S", "3")
    job = job_from_flags(imported, (), {})
    assert "fleet.switch_s" not in job.scenario.assumed
    assert "fleet.switch_s" in job.given


def test_a_parameter_of_another_law_is_no_longer_listed(imported: str) -> None:
    found = told(imported, ("workload.output_tokens=500",))
    assert not [path for path in found if path.startswith("workload.output_tokens")]
    pair = told(imported, ("workload.output_tokens.median=200", "workload.output_tokens.p99=900"))
    assert "workload.output_tokens.mean" not in pair


def load_scenario_text(text: str) -> Any:
    return scenario_from_mapping(from_yaml(text, "text"))
