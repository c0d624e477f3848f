"""`fleetsim compare`: what A and B are, results as good as scenarios, gates, and what is refused."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fleetsim.cli.main import app
from fleetsim.history.files import read_file
from tests.once import forget

pytestmark = pytest.mark.usefixtures("quick")

JOB = """
name: small
workload: {output_tokens: {mean: 200, cv: 0.8, max: 800}, prompt_tokens: 64, group_size: 4}
engine: {kind: constant, instance_tok_s: 400}
fleet: {instances: 2}
admission: {law: barrier}
trainer: {batch_samples: 32, fixed_s: 20.0}
run: {steps: 40, replications: 3}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compare", *arguments])


def document(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """job.yaml; a.json and b.json, of 2 and of 3 instances; a.om and b.om."""
    place = tmp_path_factory.mktemp("compare")
    (place / "job.yaml").write_text(JOB)
    for name, more in (("a", ()), ("b", ("--set", "fleet.instances=3"))):
        flags = [*more, "--json", "--openmetrics", str(place / f"{name}.om"), "--openmetrics-end", "1700000000"]
        result = CliRunner().invoke(app, ["simulate", str(place / "job.yaml"), *flags])
        assert result.exit_code == 0, result.output
        (place / f"{name}.json").write_text(result.stdout)
    return place


@pytest.fixture
def job(folder: Path) -> str:
    return str(folder / "job.yaml")


@pytest.fixture
def results(folder: Path) -> tuple[str, str]:
    return str(folder / "a.json"), str(folder / "b.json")


def bare(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The changes, without what only a simulation can say of them: what doubt about inputs does."""
    return [change | {"likely": None} for change in found["changes"]]


def test_the_answer_comes_first(job: str) -> None:
    result = run(job, "--set-b", "fleet.instances=3", "--replications", "3")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("B's step is ")
    assert "paired: the same draws on both sides" in " ".join(result.stdout.split())
    assert len(result.stdout.splitlines()) <= 10
    assert "inputs  fleet.instances 2 -> 3" in " ".join(result.stdout.splitlines())
    explained = run(job, "--set-b", "fleet.instances=3", "--replications", "3", "--explain")
    assert ["fleet.instances", "2", "3"] in [line.split() for line in explained.stdout.splitlines()]


def test_one_file_and_a_change_is_two_files(job: str, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(JOB.replace("instances: 2", "instances: 3"))
    two = document(job, str(other), "--replications", "3")
    assert bare(two) == bare(document(job, "--set-b", "fleet.instances=3", "--replications", "3"))
    assert bare(two) == bare(document(job, "--set-a", "fleet.instances=2", "--set", "fleet.instances=3",
                                      "--set-a", "fleet.instances=2", "--replications", "3"))  # fmt: skip


def test_the_same_question_has_the_same_bytes(job: str) -> None:
    arguments = (job, "--set-b", "fleet.instances=3", "--replications", "2", "--json")
    first = run(*arguments).stdout
    forget()
    assert run(*arguments).stdout == first


def test_shipped_names_are_scenarios() -> None:
    small = ("--set", "trainer.batch_samples=64", "--set", "workload.output_tokens=200", "--steps", "8")
    found = document("verl-sync", "verl-fully-async", *small, "--replications", "2")
    assert (found["a"], found["b"], found["kind"]) == ("verl-sync", "verl-fully-async", "scenarios")
    assert "admission.law" in {d["path"] for d in found["inputs"]}


def test_results_tell_what_their_scenarios_do(job: str, results: tuple[str, str]) -> None:
    simulated = document(job, "--set-b", "fleet.instances=3", "--replications", "3")
    written = document(*results)
    assert bare(written) == bare(simulated)
    assert (written["paired"], written["kind"], written["replications"]) == (True, "results", 3)
    paths = [d["path"] for d in written["inputs"]]
    assert paths == ["fleet.instances"]


def test_a_scenario_is_run_as_the_result_was(job: str, results: tuple[str, str]) -> None:
    mixed = document(results[0], job, "--set-b", "fleet.instances=3", "--set-b", "run.seed=0")
    assert (mixed["paired"], mixed["replications"]) == (True, 3)
    assert [d["path"] for d in mixed["inputs"]] == ["fleet.instances"]
    assert bare(mixed) == bare(document(*results))
    assert any("was run as" in note and "40 steps, 3 replications, seed 0" in note for note in mixed["notes"])
    assert bare(document(job, results[1])) == bare(document(*results))


def test_results_without_their_runs_are_unpaired(results: tuple[str, str], tmp_path: Path) -> None:
    old = []
    for path in results:
        known = json.loads(Path(path).read_text())
        del known["values"]
        known["fleetsim_version"] = "0.0.1"
        old.append(tmp_path / Path(path).name)
        old[-1].write_text(json.dumps(known))
    found = document(*map(str, old))
    with_runs = {c["metric"]: c for c in bare(document(*results))}
    assert not found["paired"]
    assert any("was written by fleetsim 0.0.1" in note for note in found["notes"])
    for c in bare(found):
        before = with_runs[c["metric"]]
        assert c["a"]["mean"] == before["a"]["mean"]
        assert c["a"]["ci_low"] == pytest.approx(before["a"]["ci_low"], rel=1e-4, abs=1e-6)


def test_fewer_runs_on_one_side(results: tuple[str, str], tmp_path: Path) -> None:
    known = json.loads(Path(results[1]).read_text())
    known["values"], known["seeds"], known["replications"] = known["values"][:2], known["seeds"][:2], 2
    short = tmp_path / "short.json"
    short.write_text(json.dumps(known))
    found = document(results[0], str(short))
    assert (found["paired"], found["replications"]) == (True, 2)
    assert "A has 3 runs and B 2: the 2 that both have are compared" in found["notes"]


def test_what_size_recommends(tmp_path: Path) -> None:
    files = []
    for budget in ("1", "2"):
        flags = ["--batch", "64", "--len", "200", "--replications", "3", "--max-staleness", budget, "--json"]
        result = CliRunner().invoke(app, ["size", *flags])
        assert result.exit_code == 0, result.output
        files.append(tmp_path / f"{budget}.json")
        files[-1].write_text(result.stdout)
    found = document(*map(str, files))
    assert not found["paired"]
    by_name = {c["metric"]: c for c in bare(found)}
    assert by_name["step_s"]["verdict"] != "not comparable"
    assert by_name["kv_use"]["why"] == "fleetsim size --json does not write it"
    assert "admission.max_staleness" in {d["path"] for d in found["inputs"]}


def test_windows_are_told_by_their_content(folder: Path) -> None:
    a, b = str(folder / "a.om"), str(folder / "b.om")
    found = document(a, b)
    assert (found["kind"], found["changed"] != []) == ("windows", True)
    assert [(d["path"], d["a"], d["b"]) for d in found["inputs"]] == [("fleet.instances", 2, 3)]
    parts = document(a, "--a", "..-10m", "--b", "-10m..")
    assert parts["changed"] == []
    overlapping = document(a, "--a", "-20m..", "--b", "-20m..")
    assert any("A and B share" in note for note in overlapping["notes"])


def test_gates(job: str) -> None:
    call = (
        job,
        "--set-b",
        "fleet.instances=3",
        "--replications",
        "4",
        "--metric",
        "step_s",
        "--metric",
        "cost_per_step",
    )
    assert run(*call, "--fail-if", "regression.step_s").exit_code == 0
    assert run(*call, "--fail-if", "ratio.step_s>1.05").exit_code == 0
    tripped = run(*call, "--fail-if", "regression", "--fail-if", "ratio.step_s.high<1", "--fail-if", "step_s<1e9")
    assert tripped.exit_code == 10
    assert len([line for line in tripped.stderr.splitlines() if "tripped" in line]) == 3
    assert "--fail-if regression tripped: cost per step" in tripped.stderr
    assert run(*call, "--fail-if", "regression", "--min-change", "0.9").exit_code == 0


def test_a_regression_is_of_what_one_pays_for(results: tuple[str, str], tmp_path: Path) -> None:
    """An instance more makes each idle more and the step shorter: nobody pays for the former by itself."""
    own, other = (json.loads(Path(path).read_text()) for path in results)
    for values, before in zip(other["values"], own["values"], strict=True):
        values["cost_per_step"] = before["cost_per_step"]
    (tmp_path / "as dear.json").write_text(json.dumps(other))
    results = results[0], str(tmp_path / "as dear.json")
    verdicts = {c["metric"]: c["verdict"] for c in bare(document(*results))}
    assert (verdicts["step_s"], verdicts["rollout_idle_fraction"]) == ("better", "worse")
    assert run(*results, "--fail-if", "regression").exit_code == 0
    assert run(*results, "--fail-if", "regression.rollout_idle_fraction").exit_code == 10
    named = run(*results, "--fail-if", "regression", "--metric", "step_s", "--metric", "rollout_idle_fraction")
    assert named.exit_code == 10
    assert "--fail-if regression tripped: rollout idle" in named.stderr
    dearer = json.loads(Path(results[1]).read_text())
    for values in dearer["values"]:
        values["cost_per_step"] *= 1.5
    (tmp_path / "dearer.json").write_text(json.dumps(dearer))
    paid = run(results[0], str(tmp_path / "dearer.json"), "--fail-if", "regression")
    assert paid.exit_code == 10
    assert [line for line in paid.stderr.splitlines() if "tripped: cost per step" not in line] == []


def test_what_nobody_knows_is_not_passed(folder: Path) -> None:
    a, b = str(folder / "a.om"), str(folder / "b.om")
    result = run(a, b, "--fail-if", "ratio.mfu>2", "--fail-if", "regression.mfu")
    assert result.exit_code == 10
    assert "ratio.mfu is not known from this comparison" in result.stderr
    assert "regression.mfu tripped: mfu cannot be compared (the trainer's utilization is not exported)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ((), ["error: A, B: 'fleetsim compare': nothing to compare"]),
        (("{job}",), ["nothing to compare it with"]),
        (("nonsense", "{job}"), ["A: 'nonsense'", "no shipped scenario"]),
        (("{job}", "{a.om}"), ["one is a window of history and the other is not"]),
        (("{a.json}", "{b.json}", "--set", "fleet.instances=3"), ["there is no scenario"]),
        (("{a.json}", "{job}", "--set-a", "fleet.instances=3"), ["a result stays what it is"]),
        (("{a.json}", "{b.json}", "--steps", "3"), ["a result was run already"]),
        (("{job}", "{job}", "--a", "-6h..-3h", "--step", "15s"), ["--a: ", "--step: ", "windows of history only"]),
        (("{job}", "--set-b", "run.steps=9"), ["must be the same on both sides", "--steps N"]),
        (("{job}", "--set-b", "fleet.instances=-1"), ["B: fleet.instances: -1"]),
        (("{job}", "--set", "fleet.instnces=1", "--set-b", "x=1"), ['did you mean "instances"?', "B: x:"]),
        (("{job}", "{job}", "--replications", "1", "--min-change", "-1"), ["no interval", "--min-change"]),
        (("{job}", "{job}", "--metric", "step", "--fail-if", "ratio.stp_s>1"), ['mean "step_s"?', "ratio.stp_s"]),
        (("{job}", "{job}", "--fail-if", "regression.stp"), ["unknown metric"]),
        (("{job}", "{job}", "--fail-if", "regressoin"), ['did you mean "regression"?']),
        (("{job}", "{job}", "--fail-if", "step_s>"), ['e.g. "ratio.step_s>1.05"']),
        (("{job}", "{job}", "--fail-if", "step_s.low.ratio>1"), ['did you mean "ratio.step_s.low"?']),
        (("{job}", "{job}", "--fail-if", "step_s.ratio"), ['"ratio.step_s>1.05"']),
        (("{job}", "{job}", "--fail-if", "regression.queue_depth"), ["neither more nor less of it is worse"]),
        (("{job}", "{job}", "--fail-if", "regression", "--metric", "kv_use"), ["neither more nor less of it is worse"]),
        (("{job}", "--set-b", "admission.max_staleness=0,5"), ["write 0.5: decimals follow a point"]),
        (("{a.om}", "{b.om}", "--set", "x=1", "--a", "-6h..-8h", "--b", "x"), ["ends before", "no window"]),
        (("{a.om}", "{b.om}", "--selector-a", "x"), ["A: --selector", "must be label matchers"]),
        (("{a.om}", "{b.om}", "--selector", "x="), ["A: --selector", "B: --selector"]),
        (("{a.om}",), ["does not say which two windows"]),
        (("{a.om}", "--a", "-6h..-5h", "--b", "-5h.."), ["A: window"]),
        (("--prometheus", "http://127.0.0.1:1"), ["does not say which two windows"]),
        (("--prometheus", "http://x", "{job}", "--a", "..-3h", "--b", "-3h.."), ["is given as well", "begins when?"]),
    ],
)  # fmt: skip
def test_refused_before_any_work(folder: Path, arguments: tuple[str, ...], texts: list[str]) -> None:
    def named(text: str) -> str:
        return str(folder / ("job.yaml" if text == "{job}" else text[1:-1])) if text.startswith("{") else text

    result = run(*map(named, arguments))
    assert result.exit_code == 2, result.output
    for text in texts:
        assert text in result.stderr


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('{\n  "command": "simulate",\n  "fleetsim_ver', "no valid JSON"),
        ('{"command": "alerts", "fleetsim_version": "1", "schema_version": 1}', "has no runs"),
        ('{"command": "simulate", "fleetsim_version": "1", "schema_version": 9}', "has schema_version 9"),
        ('{"command": "simulate", "fleetsim_version": "1", "schema_version": 1}', "no complete result"),
        ('{"command": "size", "fleetsim_version": "1", "schema_version": 1, "profile": []}', "no complete result"),
        ("\x00\x01binary", "is binary, not text; a scenario is YAML"),
        ("", "is empty; a scenario is YAML"),
        ("{}", "neither a scenario, a result nor a history; a scenario is YAML"),
        ('{"words": ["only"]}', "neither a scenario"),
        ("root:x:0:0:root:/root:/bin/bash\nmail:x:8:8:mail:/var/mail:/sbin/nologin\n", "neither a scenario"),
        ("import sys, json\nfor a in b, c:\n    print(a, b)\n", "neither a scenario"),
        ('{"name": "j", "flet": {"instances": 3}}', 'mean "fleet"?'),
    ],
)  # fmt: skip
def test_files_that_are_nothing(job: str, tmp_path: Path, text: str, rule: str) -> None:
    file = tmp_path / "result.json"
    file.write_text(text)
    for pair in ((job, str(file)), (str(file), str(file))):
        result = run(*pair)
        assert result.exit_code == 2, result.output
        assert rule in result.stderr
        assert "one is a window" not in result.stderr


def test_a_step_log_of_unknown_columns_is_still_one(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("iteration,seconds\n1,30.5\n2,31\n")
    result = run(str(log), str(log))
    assert "the columns are of no step log that fleetsim knows" in result.stderr
    log.write_text('{"iteration": 1, "seconds": 30.5}\n{"iteration": 2, "seconds": 31}\n')
    assert "the columns are of no step log that fleetsim knows" in run(str(log), str(log)).stderr


def test_a_scenario_needs_no_ending(job: str, tmp_path: Path) -> None:
    for name, text in (("job", JOB), ("job.json", json.dumps({"name": "j", "fleet": {"instances": 3}}))):
        file = tmp_path / name
        file.write_text(text)
        from fleetsim.compare.question import given_of

        assert given_of("A", str(file)).what == "scenario"


def test_a_saved_window_is_history(folder: Path, tmp_path: Path) -> None:
    from fleetsim.history.saved_window import save_history

    save_history(read_file(folder / "a.om"), tmp_path / "window")
    found = document(str(folder / "a.om"), str(tmp_path / "window"))
    assert (found["kind"], found["changed"]) == ("windows", [])


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result = run("--prometheus", f"http://127.0.0.1:{port}", "--a", "-6h..-3h", "--b", "-3h..now")
    assert result.exit_code == 3
    assert "cannot be reached" in result.stderr


def test_a_job_that_stops_names_its_side(job: str) -> None:
    result = run(job, "--set-b", "fleet.max_in_flight_samples=4", "--set-b", "buffer.capacity_samples=4")
    assert result.exit_code in (2, 11)
    assert "job.yaml" in result.stderr
