"""`fleetsim replay` from the command line, on a simulated window whose truth is known."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import fleetsim as fs
from fleetsim.cli.main import app
from fleetsim.errors import InputError
from fleetsim.records import replace
from fleetsim.replay import answers
from fleetsim.replay.change.plan import load_plan
from fleetsim.replay.change.recommendation import AdvisedFleet, recommend
from fleetsim.replay.history_fields import AccessFields, WindowFields
from fleetsim.replay.implied.implied_scenario import Implied
from fleetsim.replay.result import METRICS
from fleetsim.sweep.grid import parse_sweep

END = 1_790_000_000
VERL = """python3 -m verl.experimental.fully_async_policy.fully_async_main --config-name=fully_async_ppo_trainer \\
  actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.rollout.tensor_model_parallel_size=1 \\
  rollout.nnodes=1 rollout.n_gpus_per_node={gpus}
"""
# The client's cap binds: 64 samples in flight on two instances that could hold thousands.
JOB = """
name: capped
workload: {output_tokens: {mean: 400, cv: 0.8, max: 2000}, prompt_tokens: 128, group_size: 4}
fleet: {instances: 3, max_in_flight_samples: 48}
trainer: {batch_samples: 96, fixed_s: 4.0}
admission: {law: version_window, max_staleness: 3}
sync: {pause_s: 0.5, trainer_block_s: 0.5}
run: {steps: 120, replications: 1}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay")
    (folder / "job.yaml").write_text(JOB)
    done = CliRunner().invoke(
        app,
        ["simulate", str(folder / "job.yaml"), "--openmetrics", str(folder / "job.om"), "--openmetrics-end", str(END),
         "--scrape-interval", "5"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return folder


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["replay", "--from", str(folder / "job.om"), *arguments])


def test_a_wrong_condition_hides_no_other_flag(folder: Path) -> None:
    result = run(
        folder, "--fail-if", "y", "--start", "soon", "--step", "0s", "--map", "z", "--given", "engine.tp",
        "--set", "fleet.x=1", "--sweep", "x", "--html", "no-such-folder/day.html",
    )  # fmt: skip
    assert result.exit_code == 2
    wrong = [line.removeprefix("error: ").split(":")[0] for line in result.stderr.splitlines()]
    assert wrong == ["--fail-if", "--map", "--step", "--start", "--given", "fleet.x", "--sweep", "--html"]
    assert result.stdout == ""


def test_the_cap_that_binds_is_found(folder: Path) -> None:
    result = run(folder, "--explain")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(result.stdout.split())
    assert text.startswith("The trainer waits for samples")
    assert "FAULT in-flight cap the client keeps 48 samples in flight" in text
    assert "48 at the most (0.50 batches)" in text
    assert "back-test: the window, simulated" in text
    assert "assumed (change with --given" in text


def test_json_is_one_document_and_progress_goes_elsewhere(folder: Path) -> None:
    result = run(folder, "--no-backtest", "--json")
    document = json.loads(result.stdout)
    assert document["schema_version"] == 2
    assert document["verdict"]["binding"] == "in_flight_cap"
    assert document["verdict"]["starves"] == "trainer"
    assert document["observed"]["fleet"]["instances_now"] == 3
    assert document["backtest"] is None
    assert document["implied"] is None
    assert result.stderr.splitlines()[0] == f"reading {folder / 'job.om'}"


def test_what_if_sweep_and_facts(folder: Path) -> None:
    result = run(
        folder, "--no-backtest", "--scenario", str(folder / "job.yaml"), "--given", "engine.tp=2",
        "--set", "fleet.max_in_flight_samples=96", "--sweep", "fleet.instances=2:4:2", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["implied"]["scenario"]["engine"]["tp"] == 2
    effects = {e["metric"]: e for e in document["what_if"]["effects"]}
    assert effects["step_s"]["ratio"]["mean"] < 0.95
    assert effects["step_s"]["changed"]
    assert [p["value"] for p in document["sweep"]["points"]] == [2, 4]
    assert not any("engine.tp" in line for line in document["priced_on_assumptions"])


@pytest.mark.slow
def test_a_plan_its_patch_and_its_verification(folder: Path) -> None:
    plan, patch = folder / "plan.json", folder / "patch.yaml"
    scenario = ("--scenario", str(folder / "job.yaml"))
    wider = ("--set", "fleet.max_in_flight_samples=192", "--set", "fleet.instances=7")
    own = folder / "run.sh"
    own.write_text(VERL.format(gpus=3))
    to = ("--to", "verl", "--config", str(own))
    made = run(
        folder, *scenario, *wider, "--plan-out", str(plan), "--patch", str(patch), "--deployment", "rollout@rl", *to
    )
    assert made.exit_code == 0, made.output
    written = load_plan(plan)
    assert written.baseline.instances == 3
    assert written.recommended.changes["fleet.max_in_flight_samples"] == 192
    assert "fleet.max_in_flight_samples = 192" in " ".join(made.stdout.split())
    assert f"replicas: {written.recommended.instances}" in " ".join(patch.read_text().split())
    # The job's own file: the recommended GPUs, and that verl has no such cap; all else stays as the user has it.
    told = made.stdout[made.stdout.index("verl, fully_async_policy: 1 setting of run.sh changes") :]
    assert f"rollout.n_gpus_per_node: 3 -> {written.recommended.instances} (fleet.instances)" in told
    assert "cannot be told to it:" in told
    assert "fleet.max_in_flight_samples" in told
    own.write_text(VERL.format(gpus=5))
    other = run(folder, *scenario, *wider, *to)
    assert other.exit_code == 2
    assert "has 5 instances, and the fleet that was measured 3" in other.stderr
    assert "kubectl -n rl scale deployment rollout --replicas 3" in " ".join(made.stdout.split())
    assert "--verify" in made.stderr
    assert f"kubectl -n rl patch deployment rollout --type strategic --patch-file {patch}" in made.stderr
    assert "--patch-file FILE" not in made.stdout

    held = run(folder, "--verify", str(plan), "--explain")
    assert held.exit_code == 10
    assert "verification, in the runbook's order" in held.stdout
    assert "--verify: trainer_idle failed" in held.stderr
    assert "back-test: the window" in held.stdout

    again = run(folder, "--recommend", "--plan-out", str(plan))
    assert again.exit_code == 2
    assert "exists already" in again.stderr


def test_a_part_of_a_file_is_counted_from_its_own_end(folder: Path) -> None:
    whole = json.loads(run(folder, "--no-backtest", "--json").stdout)["observed"]
    part = json.loads(run(folder, "--no-backtest", "--json", "--start", "-5m").stdout)["observed"]
    assert part["end_s"] == whole["end_s"]
    assert part["end_s"] - part["start_s"] == pytest.approx(300, abs=5)


def test_what_was_saved_replays_as_the_source_did(folder: Path) -> None:
    saved = folder / "saved.parquet"
    first = run(folder, "--no-backtest", "--json", "--save", str(saved))
    second = CliRunner().invoke(app, ["replay", "--from", str(saved), "--no-backtest", "--json"])
    assert second.exit_code == 0, second.output
    a, b = json.loads(first.stdout), json.loads(second.stdout)
    for part in (a, b):  # next commands name their own file
        for found in part["verdict"]["findings"]:
            found["next"] = found["next"] and re.sub(r"--from \S+", "", found["next"])
    assert a["verdict"] == b["verdict"]
    assert a["observed"]["fleet"] == b["observed"]["fleet"]
    assert run(folder, "--save", str(saved)).exit_code == 2


def test_fail_if_trips_on_what_is_true_and_on_what_nobody_knows(folder: Path) -> None:
    assert run(folder, "--no-backtest", "--fail-if", "trainer_idle_fraction>0.99").exit_code == 0
    tripped = run(folder, "--no-backtest", "--fail-if", "trainer_idle_fraction>0.01", "--fail-if", "model_error>0.1")
    assert tripped.exit_code == 10
    assert "trainer_idle_fraction is 0." in tripped.stderr
    assert "model_error is not known from this window" in tripped.stderr
    assert len(set(METRICS)) == len(METRICS)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "nothing to read"),
        (("--from", "a", "--prometheus", "http://localhost:9"), "one source at a time"),
        (("--prometheus", "http://localhost:9", "--framework", "verl"), "means something with --from only"),
        (("--prometheus", "localhost:9090"), "must begin with http"),
        (("--prometheus", "http://localhost:9", "--start", "6h"), "write -6h"),
        (("--prometheus", "http://localhost:9", "--step", "soon"), "must be auto or a span"),
        (("--prometheus", "http://localhost:9", "--map", "trainer.stp_s=x"), 'did you mean "trainer.step_s"'),
        (("--from", "nowhere.om"), "no such file"),
        (("--from", "a", "--given", "engine.tpp=2"), 'did you mean "tp"'),
        (("--from", "a", "--given", "engine"), "--given: 'engine': must read key.path=value"),
        (("--from", "a", "--set", "fleet.instnces=2"), 'did you mean "instances"'),
        (("--from", "a", "--patch", "p.yaml"), "add --deployment NAME"),
        (("--from", "a", "--deployment", "x"), "add --patch FILE"),
        (("--from", "a", "--verify", "nowhere.json"), "nowhere.json"),
        (("--from", "a", "--fail-if", "idle>1"), "unknown metric"),
    ],
)
def test_wrong_options_are_bad_input_before_anything_is_read(arguments: tuple[str, ...], told: str) -> None:
    result = CliRunner().invoke(app, ["replay", *arguments])
    assert result.exit_code == 2, result.output
    assert told in result.stderr
    assert result.stdout == ""


def test_a_server_that_is_not_there_is_the_outside_world_and_secrets_stay_hidden() -> None:
    result = CliRunner().invoke(app, ["replay", "--prometheus", "http://bob:hunter2@127.0.0.1:9"])
    assert result.exit_code == 3
    assert "127.0.0.1:9" in result.stderr
    assert "hunter2" not in result.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fleet.instances=6:9", ("fleet.instances", (6, 7, 8, 9))),
        ("fleet.instances=6:9:2", ("fleet.instances", (6, 8))),
        ("admission.max_staleness=0:1:0.25", ("admission.max_staleness", (0.0, 0.25, 0.5, 0.75, 1.0))),
        ("fleet.instances=4,8", ("fleet.instances", (4, 8))),
        ("admission.law=barrier,unbounded", ("admission.law", ("barrier", "unbounded"))),
    ],
)
def test_sweeps(text: str, expected: object) -> None:
    assert parse_sweep(text) == expected


@pytest.mark.parametrize(
    "text",
    ["fleet.instances", "fleet.instances=", "fleet.instances=9:6", "fleet.instances=1:2:0", "fleet.instances=1:2:3:4",
     "fleet.instances=a:b", "fleet.instances=1:1e9", "fleet.nothing=1:2", "fleet.instances=1:inf"],
)  # fmt: skip
def test_sweeps_that_are_none(text: str) -> None:
    with pytest.raises(InputError):
        parse_sweep(text)


def commands_in(text: str) -> list[list[str]]:
    """Every command of the view, as a shell reads it."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.strip().startswith("fleetsim ")]


def test_every_next_command_repeats_the_call_and_runs(folder: Path) -> None:
    result = run(folder, "--start", "-10m", "--given", "cost.instance_price_usd_per_gpu_h=2", "--no-backtest")
    found = commands_in(result.stdout)
    assert found, result.stdout
    for command in found:
        source = ["--from", str(folder / "job.om"), "--start", "-10m"]
        assert command[:8] == ["fleetsim", "replay", *source, "--given", "cost.instance_price_usd_per_gpu_h=2"]
        again = CliRunner().invoke(app, command[1:])
        assert again.exit_code == 0, again.output
    document = json.loads(run(folder, "--no-backtest", "--json").stdout)
    following = [f["next"] for f in document["verdict"]["findings"] if f["next"]]
    assert any(str(folder / "job.om") in text for text in following)
    assert not any("..." in text for text in following)


def test_a_call_s_words_hold_no_credentials_but_the_files_of_them(tmp_path: Path) -> None:
    token = tmp_path / "t"
    token.write_text("hidden")
    access = AccessFields(token_file=token, org_id="a", insecure_skip_verify=True, timeout=5.0)
    address, labels, mapping = "http://u:secret@p:9090/graph", 'job="r"', ["trainer.step_s=m"]
    fields = WindowFields(prometheus=address, start="-2h", step="1m", selector=labels, map_=mapping)
    source = fields.ready().through(access)
    assert source.words() == (
        "--prometheus", "http://p:9090", "--selector", labels, "--start", "-2h", "--step", "1m", "--map", *mapping,
        "--token-file", str(token), "--org-id", "a", "--insecure-skip-verify", "--timeout", "5",
    )  # fmt: skip
    assert "hidden" not in " ".join(source.words())
    assert "secret" not in " ".join(source.server_words() or ())


def test_python_s_next_commands_say_how_the_window_was_read(folder: Path) -> None:
    found = fs.replay(folder / "job.om", start="-10m", step_s=10.0, backtest=False)
    following = [f.next for f in found.verdict.findings if f.next]
    assert following
    assert all(f"--from {folder / 'job.om'} --start -10m --step 10s" in text for text in following)


def test_one_sweep_at_a_time(folder: Path) -> None:
    result = run(folder, "--sweep", "fleet.instances=2:3", "--sweep", "sync.every_steps=1,2")
    assert result.exit_code == 2
    assert "one sweep at a time" in result.stderr
    assert "fleet.instances=2:3" in result.stderr


def test_a_file_that_cannot_be_read_or_written_is_named_by_its_flag(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = CliRunner().invoke(app, ["replay", "--from", str(folder / "job.yaml")])
    assert wrong.exit_code == 2
    assert f"--from: '{folder / 'job.yaml'}': YAML is no history; a scenario goes to --scenario" in wrong.stderr
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    day = folder / "day.parquet"
    result = run(folder, "--save", str(day))
    assert result.exit_code == 3
    rule = "Parquet needs pyarrow, which is not installed; pip install 'fleetsim[parquet]'"
    assert f"--save: '{day}': {rule}" in result.stderr
    assert "reading" not in result.stderr  # before anything is read


@pytest.mark.parametrize("name", ["day.csv", "day.json"])
def test_a_window_is_saved_as_parquet_alone(folder: Path, name: str) -> None:
    result = run(folder, "--save", str(folder / name))
    assert result.exit_code == 2
    rule = "is no name for a Parquet file, which a window is saved as"
    assert f"--save: '{folder / name}': {rule}; give {folder / 'day.parquet'}" in result.stderr
    assert not (folder / name).exists()


def test_a_run_log_without_a_clock_has_no_date(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = ({"step": k, "timing_s/step": 10.0, "timing_s/gen": 4.0} for k in range(1, 60))
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = CliRunner().invoke(app, ["replay", "--from", str(log), "--explain"])
    assert result.exit_code == 0, result.output
    assert "no clock, counted from 0 s: 0 s to 9 min 50 s" in " ".join(result.stdout.split())
    assert "1970" not in result.stdout
    assert "01-01" not in result.stdout


def test_a_fleet_that_keeps_its_size_gets_no_patch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(model: Implied, **how: Any) -> AdvisedFleet:
        found = recommend(model, **how)
        return replace(found, instances=found.was)

    monkeypatch.setattr(answers, "recommend", kept)
    patch = folder / "kept.yaml"
    wider = ("--set", "fleet.max_in_flight_samples=192")
    result = run(folder, *wider, "--recommend", "--patch", str(patch), "--deployment", "rollout")
    assert result.exit_code == 0, result.output
    assert f"{patch} is not written: the fleet is to keep its 3 instances" in result.stderr
    assert not patch.exists()
    assert "kubectl patch" not in result.stdout


def test_a_sweep_s_headings_are_whole_words(folder: Path) -> None:
    result = run(folder, "--no-backtest", "--sweep", "fleet.max_in_flight_samples=48,96")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    heading = next(line for line in lines if "step, s" in line)
    assert "value" in heading
    assert any("what if, over fleet.max_in_flight_samples" in line for line in lines)


def test_a_given_target_that_no_fleet_holds_is_no_success(folder: Path) -> None:
    """With a step that must be shorter than the trainer computes, whatever is recommended misses it: exit code 11."""
    faster = ("--set", "fleet.max_in_flight_samples=192", "--scenario", str(folder / "job.yaml"))
    result = run(folder, *faster, "--given", "targets.staleness_p99_steps=0.01", "--recommend", "--json")
    missed = json.loads(result.stdout)["recommendation"]["missed_targets"]
    assert missed
    assert result.exit_code == 11
    assert "no fleet holds" in result.stderr
