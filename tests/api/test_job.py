"""Jobs: immutable, the last word wins, and what is wrong is told at once in Python's own names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleetsim as fs
from fleetsim.config.load import default_scenario
from fleetsim.config.tree import value_at
from fleetsim.job.base_job import load
from fleetsim.job.options import NAMES
from fleetsim.job.settings import LENGTH_FLAGS, PATHS, SETTINGS


def test_every_flag_of_a_job_is_an_option() -> None:
    assert set(NAMES) == {*PATHS, *LENGTH_FLAGS, "run"}


def test_the_table_of_settings_points_to_the_schema() -> None:
    """Each record has a name and a path of its own, and the scenario has a value at each of its paths."""
    assert len({s.name for s in SETTINGS}) == len({s.path for s in SETTINGS}) == len(SETTINGS)
    scenario = default_scenario()
    for setting in SETTINGS:
        for path in (setting.path, *(text.partition("=")[0] for text in setting.also)):
            value_at(scenario, path)


def test_a_job_imports_no_feature() -> None:
    """Features stand above a job: without the Python interface none of them is imported for one."""
    code = (
        "import sys; from fleetsim.job.base_job import load; load(None, batch=64).with_(len=300);"
        "print(*sorted({m.split('.')[1] for m in sys.modules if m.startswith('fleetsim.')}))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = set(ended.stdout.split())
    assert "job" in rooms
    assert not rooms & {"api", "cli", "compare", "plan", "replay", "search", "simulate", "size", "split", "sweep"}


def test_every_job_can_be_asked() -> None:
    """Also one that a feature makes: the class of all jobs is Python's."""
    kind = fs.Job
    assert type(load()) is type(load().with_(batch=64)) is kind
    assert all(callable(getattr(load(), name)) for name in ("simulate", "size", "split", "plan", "sweep", "replay"))


def test_a_file_a_name_a_mapping_a_scenario_and_a_job_are_one(tmp_path: Path) -> None:
    job = fs.load("async-one-step")
    file = job.save(tmp_path / "job.yaml")
    assert fs.load(file).scenario == job.scenario == fs.load(job.scenario).scenario == fs.load(job).scenario
    assert fs.load({"fleet": {"instances": 9}}).scenario == fs.load(None, {"fleet.instances": 9}).scenario
    assert fs.load("presets/trl-grpo") == fs.load("trl-grpo")
    assert len({fs.load("trl-grpo"), fs.load("trl-grpo"), fs.load()}) == 2


def test_what_is_known_of_a_job_survives_a_round_through_its_scenario() -> None:
    job = fs.load({"fleet": {"instances": 9}, "assumed": ["fleet.instances"]})
    again = fs.load(job.scenario)
    assert again.given == job.given
    assert again.scenario == job.scenario


def test_the_last_word_wins() -> None:
    job = fs.load("async-one-step", {"trainer.batch_samples": 256}, len=1000)
    assert job.with_(batch=128)["trainer.batch_samples"] == 128
    assert job.with_(batch=128).with_({"trainer.batch_samples": 512})["trainer.batch_samples"] == 512
    assert job.with_({"trainer": {"batch_samples": 64, "gpus": 4}}).with_(batch=32)["trainer.gpus"] == 4
    assert job.with_(instance_tok_s=4000)["engine.kind"] == "constant"
    assert job["trainer.batch_samples"] == 256  # the first one is what it was


def test_a_change_that_contradicts_an_option_is_an_error_not_a_choice() -> None:
    with pytest.raises(fs.InputError, match="says the same thing"):
        fs.load(None, {"workload.output_tokens.cv": 0.5}, len=1000)


def test_a_profile_and_a_gpu_take_each_other_back(tmp_path: Path) -> None:
    from fleetsim.calibrate.derivation import estimate_profile
    from fleetsim.config.engine_profile import profile_text

    file = tmp_path / "x.profile.json"
    file.write_text(profile_text(estimate_profile("H100", "Qwen/Qwen2.5-7B")))
    assert fs.profile(file).provenance.gpu.startswith("H100")
    measured = fs.load(gpu="H200").with_(profile=file)
    assert measured["engine.kind"] == "measured"
    assert measured.with_(gpu="H200")["engine.kind"] == "roofline"


def test_numpy_numbers_are_numbers() -> None:
    job = fs.load(None, {"fleet.instances": np.int64(5)}, batch=np.int64(64), len=np.float32(500))
    assert (job["fleet.instances"], job["trainer.batch_samples"]) == (5, 64)


def test_all_problems_are_told_at_once_under_the_names_of_python() -> None:
    with pytest.raises(fs.InputError) as caught:
        fs.load("async-one-step", {"fleet.instances": 0, "flet.x": 1}, trainer_step_s=-1)
    places = {problem.path for problem in caught.value.problems}
    assert {"fleet.instances", "trainer_step_s"} < places
    assert "--" not in str(caught.value).replace("--set", "")
    with pytest.raises(fs.InputError, match=r"bach: .*did you mean \"batch\""):
        fs.load(bach=3)  # type: ignore[call-arg]
    with pytest.raises(fs.InputError, match="no value of a scenario"):
        fs.load(None, {"fleet.instances": object()})
    with pytest.raises(fs.InputError, match="is no scenario"):
        fs.load(3)  # type: ignore[arg-type]


def test_an_unknown_path_or_metric_says_which_was_meant() -> None:
    with pytest.raises(KeyError, match='did you mean "instances"'):
        fs.load()["fleet.instnces"]
    with pytest.raises(KeyError, match="no such value"):
        fs.load()["fleet.instances.x"]
    metrics = fs.Metrics({"step_s": fs.Estimate(1.0, 0.5, 1.5)})
    with pytest.raises(KeyError, match='did you mean "step_s"'):
        metrics["steps"]
    assert "steps" not in metrics
    assert repr(metrics) == "step_s  1 ± 0.5"


@given(st.sampled_from(NAMES), st.none() | st.integers() | st.floats() | st.text() | st.lists(st.integers()))
def test_any_value_of_any_option_is_taken_or_refused_as_ours(name: str, value: Any) -> None:
    try:
        job = fs.load(**{name: value})  # type: ignore[arg-type]
    except fs.InputError as error:
        assert error.problems
        assert all(p.rule and p.remedy for p in error.problems)
    else:
        assert job.with_(**{name: None}) == job


@given(st.dictionaries(st.text(max_size=20), st.integers() | st.text(max_size=5) | st.none(), max_size=3))
def test_any_change_is_taken_or_refused_as_ours(changes: dict[str, Any]) -> None:
    try:
        fs.load(None, changes)
    except fs.InputError as error:
        assert error.problems


def test_simulate_refuses_what_it_cannot_do() -> None:
    job = fs.load("async-one-step")
    with pytest.raises(fs.InputError, match="give one of the two"):
        job.simulate(hours=1, steps=3)
    with pytest.raises(fs.InputError, match="a year at most"):
        job.simulate(hours=-1)
    with pytest.raises(fs.InputError, match="1 to 3600"):
        job.simulate(scrape_interval_s=0.1)
    with pytest.raises(fs.InputError) as caught:
        job.split(0, by="speed", trainer_unit=0)  # type: ignore[arg-type]
    assert {p.path for p in caught.value.problems} == {"gpus", "by", "trainer_unit"}


@pytest.mark.parametrize("preset", ["verl-one-step-off", "skyrl-fully-async", "trl-grpo"])
def test_a_preset_s_trainer_is_that_of_the_model_that_is_asked_for(preset: str) -> None:
    """A dense model of four times the parameters takes about four times the seconds of a token and GPU, whatever was
    written for the preset's own model; and both pools of a colocated preset stay the same GPUs."""

    def gpu_seconds_per_token(job: fs.Job) -> float:
        trainer = job.scenario.trainer
        return trainer.gpus * (trainer.per_token_s + sum(p.per_token_s for p in trainer.phases))

    small, large = (fs.load(f"presets/{preset}", model=f"Qwen/Qwen3-{size}B") for size in (8, 32))
    assert gpu_seconds_per_token(large) / gpu_seconds_per_token(small) == pytest.approx(32.76 / 8.19, rel=0.3)
    assert not small.given & {"trainer.per_token_s", "trainer.phases", "engine.tp", "trainer.gpus"}
    own = fs.load(f"presets/{preset}")
    assert fs.load(f"presets/{preset}", model=own["engine.model"]) == own
    kept = fs.load(f"presets/{preset}", model="Qwen/Qwen3-32B", trainer_step_s=33.0)
    assert (kept["trainer.fixed_s"], kept["engine.tp"]) == (33.0, large["engine.tp"])
    if large["fleet.placement"] == "colocated":
        fleet, engine = large.scenario.fleet, large.scenario.engine
        assert fleet.instances * engine.gpus == own["fleet.instances"] * own["engine.tp"]


def test_seconds_that_a_user_wrote_stay_with_a_note_where_the_model_is_another(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("engine: {model: Qwen/Qwen2.5-7B}\ntrainer: {gpus: 8, fixed_s: 20}\n")
    other = fs.load(file, model="Qwen/Qwen3-32B")
    assert other["trainer.fixed_s"] == 20.0
    assert any("trainer.fixed_s" in note and "Qwen/Qwen2.5-7B" in note for note in other.notes)
    for same in (fs.load(file), fs.load(file, model="Qwen/Qwen2.5-7B"), fs.load(file, model="Qwen3-32B", len=900.0)):
        assert any("trainer.fixed_s" in note for note in same.notes) == (same["engine.model"] == "Qwen3-32B")
    assert not fs.load(file, model="Qwen/Qwen3-32B", trainer_step_s=90.0).notes
