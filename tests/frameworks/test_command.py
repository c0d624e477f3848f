"""`fleetsim scenario from` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetsim.cli.main import app
from fleetsim.config import load_scenario
from fleetsim.frameworks.convert import FRAMEWORKS
from fleetsim.sim.replications import replicate

DATA = Path(__file__).parent / "data"
# Small enough for a test, and the same semantics.
SMALL = (
    "workload.output_tokens.mean=60",
    "workload.output_tokens.max=200",
    "workload.prompt_tokens=64",
    "engine.model=Qwen/Qwen2.5-0.5B",
    "engine.tp=1",
    "run.steps=4",
    "run.replications=1",
)


def run(*arguments: str, text: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["scenario", "from", *arguments], input=text)


def test_yaml_on_stdout_and_the_report_on_stderr() -> None:
    result = run("verl", str(DATA / "verl_sync.yaml"))
    assert result.exit_code == 0
    assert "trainer.nnodes 2 x trainer.n_gpus_per_node 8 = 16" in result.stdout
    assert result.stdout.startswith("# Made by `fleetsim scenario from verl verl_sync.yaml`")
    for heading in ("took ", "from the mode:", "assumed ", "does not model:", "keys without a bearing"):
        assert heading in result.stderr
    assert "--set workload.output_tokens.mean=TOKENS" in result.stderr
    assert "hybrid_engine" not in result.stderr
    assert "hybrid_engine" in run("verl", str(DATA / "verl_sync.yaml"), "--verbose").stderr


def test_to_a_file_that_is_not_overwritten_unless_told(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    result = run("slime", str(DATA / "slime_sync.sh"), "-o", str(file))
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"next: fleetsim simulate {file}" in result.stderr
    assert "MODEL_ARGS is not set" in result.stderr
    first = file.read_text()
    assert load_scenario(file).trainer.batch_samples == 256
    assert run("slime", str(DATA / "slime_sync.sh"), "-o", str(file)).exit_code == 2
    assert run("slime", str(DATA / "slime_sync.sh"), "-o", str(file), "--force").exit_code == 0
    assert file.read_text() == first


def test_words_behind_two_dashes_are_the_frameworks_own() -> None:
    result = run("verl", str(DATA / "verl_sync.yaml"), "--", "trainer.nnodes=4", "data.train_batch_size=64")
    assert "gpus: 32" in result.stdout
    assert "batch_samples: 512" in result.stdout
    flags = (
        "--rollout-batch-size",
        "8",
        "--hf-checkpoint",
        "Qwen/Qwen3-4B",
        "--colocate",
        "--n-samples-per-prompt",
        "4",
    )
    result = run("slime", "--", *flags)
    assert result.exit_code == 0
    assert "batch_samples: 32" in result.stdout
    assert "name: slime flags" in result.stdout


def test_standard_input() -> None:
    result = run("prime-rl", "-", "--", "--orchestrator.batch-size", "256", text=(DATA / "prime_rl.toml").read_text())
    assert result.exit_code == 0
    assert "batch_samples: 256" in result.stdout
    for text in ("", b"\xff\xfe\x00"):
        result = run("prime-rl", "-", text=text)
        assert result.exit_code == 2
        assert "error: " in result.stderr


def test_json_is_one_document() -> None:
    result = run("trl", str(DATA / "trl_async.sh"), "--json", "--set", "fleet.instances=3")
    document = json.loads(result.stdout)
    assert result.stderr == ""
    assert (document["schema_version"], document["command"]) == (1, "scenario from")
    assert (document["framework"], document["preset"]) == ("trl", "trl-async-grpo")
    assert document["scenario"]["fleet"]["instances"] == 3
    assert {"took", "assumed", "not_modelled", "not_understood", "not_looked_at"} <= document.keys()
    assert {"path": "admission.max_age", "value": 4.0, "settings": ["--max_staleness = 4"], "why": ""} in document[
        "took"
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("verll", "x.yaml"), 'did you mean "verl"'),
        (("verl",), "give the framework's file"),
        (("verl", "no/such/file.yaml"), "no such file"),
        (("verl", str(DATA)), "is a directory"),
        (("roll", str(DATA / "verl_sync.yaml")), "looks like a configuration of verl"),
        (("verl", str(DATA / "verl_sync.yaml"), "--set", "fleet.instanses=3"), 'did you mean "instances"'),
        (("verl", str(DATA / "verl_sync.yaml"), "-o", "no/such/folder/job.yaml"), "its folder does not exist"),
    ],
)
def test_errors_exit_2_and_print_nothing_else(arguments: tuple[str, ...], told: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_the_trainer_is_estimated_from_the_models_shape() -> None:
    result = run("verl", str(DATA / "verl_sync.yaml"), "--json")
    trainer = json.loads(result.stdout)["scenario"]["trainer"]
    # 8 x 7.6e9 FLOPs per token: an update reaches 30 to 60 % of the peak of 16 x 989.4e12, and takes 3 to 4 passes
    assert 0.3 < 8 * 7.615e9 / (16 * 989.4e12) / trainer["per_token_s"] < 0.6
    assert 3 < trainer["per_token_s"] / trainer["phases"][0]["per_token_s"] < 4
    assert trainer["recipe"]["framework"] == "verl"
    assert trainer["recipe"]["reference"]


def test_a_model_without_a_shape_is_said() -> None:
    words = ("--", "actor_rollout_ref.model.path=somebody/novel")
    result = run("verl", str(DATA / "verl_sync.yaml"), *words)
    assert result.exit_code == 0
    assert "--set engine.model=PATH/config.json" in result.stderr
    assert "fixed_s: 20.0" in result.stdout


@pytest.mark.parametrize("file", sorted(p.name for p in DATA.iterdir() if p.is_file()))
def test_every_imported_scenario_runs(file: str, tmp_path: Path) -> None:
    framework = max((n for n in FRAMEWORKS if file.replace("_", "-").startswith(n)), key=len)
    job = tmp_path / "job.yaml"
    sets = [word for text in SMALL for word in ("--set", text)]
    assert run(framework, str(DATA / file), "-o", str(job), *sets).exit_code == 0
    scenario = load_scenario(job)
    result = replicate(scenario)
    trained = result.runs[0].steps["samples"].tolist()
    assert trained == [scenario.trainer.batch_samples] * 4


def test_what_nobody_measured_is_listed_in_the_scenario(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    run("verl", str(DATA / "verl_sync.yaml"), "-o", str(file))
    assumed = load_scenario(file).assumed
    guesses = {"workload.output_tokens.mean", "workload.output_tokens.cv", "workload.prompt_tokens", "engine.gpu"}
    assert guesses | {"trainer.per_token_s", "trainer.phases", "fleet.switch_s"} <= set(assumed)
    # What the framework does by default is known, and a sync by its transport is no value of the file.
    assert not {"engine.max_num_seqs", "sync.pause_s"} & set(assumed)
    run("verl", str(DATA / "verl_sync.yaml"), "-o", str(file), "--force", "--set", "workload.output_tokens.mean=900")
    assert set(assumed) - set(load_scenario(file).assumed) == {"workload.output_tokens.mean"}


def test_the_next_command_of_an_unknown_model_has_its_config(tmp_path: Path) -> None:
    script, file = tmp_path / "run.sh", tmp_path / "job.yaml"
    text = (DATA / "open_instruct.sh").read_text()
    script.write_text(text.replace("meta-llama/Llama-3.1-8B", "allenai/Unheard-of"))
    result = run("open-instruct", str(script), "-o", str(file))
    last = result.stderr.splitlines()[-1]
    assert last == f"wrote {file}; next: fleetsim simulate {file} --set engine.model=PATH/config.json"
    known = run("open-instruct", str(DATA / "open_instruct.sh"), "-o", str(file), "--force")
    assert known.stderr.splitlines()[-1] == f"wrote {file}; next: fleetsim simulate {file}"


@pytest.mark.parametrize(("words", "switch_s"), [((), 0.0), (("--vllm_enable_sleep_mode", "true"), 5.0)])
def test_trl_hands_the_gpus_over_for_nothing_unless_vllm_sleeps(words: tuple[str, ...], switch_s: float) -> None:
    result = run("trl", str(DATA / "trl_grpo.py"), "--json", "--", *words)
    scenario = json.loads(result.stdout)["scenario"]
    assert scenario["fleet"]["placement"] == "colocated"
    assert scenario["fleet"]["switch_s"] == switch_s
    assert ("fleet.switch_s" in scenario["assumed"]) == bool(words)
