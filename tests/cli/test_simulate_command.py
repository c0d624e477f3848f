from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetsim.cli.main import app
from fleetsim.config import load_scenario
from fleetsim.job.trials import flat
from fleetsim.quantities import METRICS
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate

pytestmark = pytest.mark.usefixtures("quick")

JOB = """
name: small
workload: {output_tokens: {mean: 200, cv: 0.8, max: 800}, prompt_tokens: 64, group_size: 4}
engine: {slowdown: 1}
fleet: {instances: 2}
trainer: {batch_samples: 32, fixed_s: 2.0}
published: {step_s: 4.0, tok_s_per_gpu: 900.0, bottleneck: rollout, note: invented for this test}
run: {steps: 8, replications: 2}
"""
SYNC = "sync: {pause_s: 1.0, trainer_block_s: 1.0}\n"


@pytest.fixture
def job(tmp_path: Path) -> str:
    file = tmp_path / "job.yaml"
    file.write_text(JOB + SYNC)
    return str(file)


@pytest.fixture
def job_without_sync(tmp_path: Path) -> str:
    file = tmp_path / "no_sync.yaml"
    file.write_text(JOB)
    return str(file)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments])


def test_the_view_says_where_the_seconds_go(job: str) -> None:
    result = run(job, "--explain")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("small: a step takes ")
    assert "fleet    2 instances (H100-SXM x 1), 8 trainer GPUs, 32 samples per step" in result.stdout
    text = " ".join(result.stdout.split())
    for told in ("What binds:", "trainer idle", "where the seconds go", "queue depth", "tokens generated per trained"):
        assert told in text
    assert "invented for this test" in text
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_the_bars_are_the_records(job: str) -> None:
    steps = simulate(load_scenario(job)).steps
    lines = [
        line.split() for line in run(job, "--explain").stdout.splitlines() if "█" in line and line.split()[0].isdigit()
    ]
    assert len(lines) == 8
    for line, step in zip(lines, steps, strict=True):
        drawn = [float(x) for x in line[-4:]]
        told = [step["end_s"] - step["start_s"], step["wait_s"], step["train_s"], step["sync_block_s"]]
        assert drawn == pytest.approx([float(x) for x in told], abs=0.051)


def test_json_holds_every_metric_with_its_interval(job: str) -> None:
    first = run(job, "--json")
    assert first.stdout_bytes == run(job, "--json").stdout_bytes
    document = json.loads(first.stdout)
    metrics = document["metrics"]
    for name in METRICS:
        leaf = metrics
        for key in name.split("."):
            leaf = leaf[key]
        assert leaf.keys() == {"mean", "ci_low", "ci_high"}
    assert isinstance(metrics["binding"], str)
    assert document["replications"] == 2


def test_the_metrics_that_fail_if_knows_are_those_of_a_run(job: str) -> None:
    assert set(METRICS) | {"binding"} == set(flat(metrics_of(simulate(load_scenario(job)))))


def test_a_transport_says_what_it_derived(job: str, job_without_sync: str) -> None:
    transport = ("--set", "sync.transport=collective_broadcast", "--set", "sync.trainer_block_s=0.5")
    text = " ".join(run(job_without_sync, "--explain", *transport).stdout.split())
    assert "Weight sync: publish 0 s, pause 3.5 s: from 15.2 GB in 339 tensors (collective_broadcast), most" in text
    times = json.loads(run(job_without_sync, "--json", *transport).stdout)["sync_times"]
    assert (times["derived"], times["trainer_block_s"]) == (["publish_s", "pause_s"], 0.5)
    assert "Weight sync:" not in run(job, "--explain").stdout


def test_a_weight_sync_without_seconds_is_a_broadcast_and_says_so(job_without_sync: str) -> None:
    text = " ".join(run(job_without_sync, "--explain").stdout.split())
    assert "Weight sync: publish 0 s, pause 3.5 s, trainer held 3.5 s: from 15.2 GB in 339 tensors" in text
    assert "weights by collective broadcast" in text


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        (("sync.transport=cuda_ipc",), "sync.transport"),
        (("sync.transport=relay", "engine.instance_tok_s=4000"), "sync.link.model_bytes"),
        (("sync.link.model_bytes=10",), "sync.link.model_bytes"),
    ],
)
def test_a_transport_that_cannot_be_is_exit_code_2(changes: tuple[str, ...], path: str, job: str) -> None:
    result = run(job, *(argument for change in changes for argument in ("--set", change)))
    assert result.exit_code == 2
    assert f"error: {path}" in result.output


def test_flags_win_over_the_file(job: str) -> None:
    document = json.loads(
        run(job, "--json", "--steps", "5", "--seed", "3", "--replications", "1", "--set", "fleet.instances=3").stdout
    )
    s = document["scenario"]
    assert (s["run"]["steps"], s["run"]["seed"], s["run"]["replications"], s["fleet"]["instances"]) == (5, 3, 1, 3)


def test_fail_if_gates_after_the_result_is_printed(job: str) -> None:
    result = run(job, "--json", "--fail-if", "step_s>0.001")
    assert result.exit_code == 10
    assert json.loads(result.stdout)
    assert "step_s>0.001 tripped" in result.stderr
    assert run(job, "--fail-if", "steps_s>1").exit_code == 2


def test_parquet_is_the_records_of_all_replications(job: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "new" / "records"
    assert run(job, "--parquet", str(folder)).exit_code == 0
    assert sorted(p.name for p in folder.iterdir()) == [
        "failures.parquet", "groups.parquet", "samples.parquet", "steps.parquet", "syncs.parquet",
    ]  # fmt: skip
    table = parquet.read_table(folder / "steps.parquet").to_pydict()
    runs = [simulate(load_scenario(job), replication=r) for r in range(2)]
    assert table["replication"] == [0] * 8 + [1] * 8
    assert table["wait_s"] == [float(w) for r in runs for w in r.steps["wait_s"]]


def test_a_folder_that_is_none_is_refused_before_the_work(job: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    result = run(job, "--parquet", job)
    assert result.exit_code == 2
    assert "is no folder" in result.stderr
    assert run(job, "--parquet", f"{job}/below").exit_code == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["job.yaml"]


def test_a_run_that_cannot_go_on_says_which_limits_block_it(job: str) -> None:
    result = run(job, "--set", "buffer.capacity_samples=8")
    assert result.exit_code == 2
    assert "nothing can happen any more" in result.stderr
    assert "buffer.capacity_samples" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("text", ["", "]", "fleet: {instances: -1, instnces: 2}", "- 1", "fleet: {instances: .nan}"])
def test_a_wrong_scenario_is_exit_code_2(text: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    result = run(str(file))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")


def test_the_view_names_what_nobody_measured(job: str) -> None:
    assert "fleet.switch_s" not in run(job, "--explain").stdout
    assumed = "assumed=[workload.output_tokens.mean, fleet.switch_s]"
    shown = " ".join(run(job, "--explain", "--set", assumed).stdout.split())
    assert "fleet.switch_s = 0 (--set fleet.switch_s=VALUE)" in shown
    mine = run(job, "--explain", "--set", assumed, "--set", "fleet.switch_s=3").stdout
    assert "fleet.switch_s" not in mine


def test_dollars_stand_beside_their_prices(job: str) -> None:
    assert "cost per step, at $3.64 a GPU-hour  " in run(job, "--explain").stdout
    shown = run(job, "--explain", "--set", "cost.trainer_price_usd_per_gpu_h=4.5").stdout
    assert "cost per step, at $3.64 a rollout and $4.50 a trainer GPU-hour" in " ".join(shown.split())


def test_what_is_assumed_can_be_pasted(tmp_path: Path) -> None:
    """Every setting of the line is taken as it is printed, and is then no longer assumed."""
    file = tmp_path / "job.yaml"
    file.write_text("fleet: {instances: 4}\nrun: {steps: 8, replications: 2}\n")
    said = run(str(file)).stdout
    lines = said[said.index("assumed") :].split("measure")[0].split()[1:]
    settings = " ".join(lines).split(", ")
    assert any(s.startswith("--len ") for s in settings)
    again = run(str(file), *(word for s in settings for word in s.split(" ", 1)))
    assert again.exit_code == 0, again.output
    assert not any(s in " ".join(again.stdout.split()) for s in settings)
