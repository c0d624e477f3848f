"""Windows of history compared from Python: what the command says of the same windows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fleetsim as fs
from fleetsim.cli.main import app


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = fs.load("async-one-step", replications=1).simulate(hours=1, scrape_interval_s=15)
    return run.to_openmetrics(tmp_path_factory.mktemp("history") / "h.om", end_s=1_700_000_000)


def command(*words: str) -> dict[str, object]:
    done = CliRunner().invoke(app, ["compare", *words, "--json"])
    assert done.exit_code == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_one_history_and_two_windows_are_the_commands(history: Path) -> None:
    found = fs.compare(history, windows=("-50m..-20m", "-30m..now"))
    assert found.to_dict() == command(str(history), "--a=-50m..-20m", "--b=-30m..now")
    assert any("share 10 min" in note for note in found.comparison.notes)
    metrics = fs.replay(history, start="-50m", end="-20m", backtest=False).metrics
    assert found["step_s"].a == metrics["step_s"]
    with pytest.raises(KeyError, match="no such metric"):
        metrics["mfu"]


def test_two_files_are_the_commands_and_what_was_read_is_taken_too(history: Path, tmp_path: Path) -> None:
    other = fs.load("async-one-step", {"admission.batches_ahead": 2}, replications=1)
    after = other.simulate(hours=1, scrape_interval_s=15).to_openmetrics(tmp_path / "after.om", end_s=1_700_086_400)
    found = fs.compare(history, after, metrics=["step_s", "queue_depth"])
    assert found.to_dict() == command(str(history), str(after), "--metric", "step_s", "--metric", "queue_depth")
    assert found["step_s"].verdict == "better"
    read = fs.replay(after, backtest=False)
    again = fs.compare(history, read, metrics=["step_s"], labels=("before", "after"))
    assert again["step_s"].b == found["step_s"].b
    assert again["step_s"].b == fs.compare(history, read.history, metrics=["step_s"])["step_s"].b


@pytest.mark.slow
def test_result_files_are_taken_as_the_command_takes_them(tmp_path: Path) -> None:
    job = fs.load("async-one-step", steps=6, replications=2)
    a, b = job.simulate(), job.simulate(sync_pause_s=4)
    for name, result in (("a", a), ("b", b)):
        (tmp_path / f"{name}.json").write_text(result.to_json())
    found = fs.compare(tmp_path / "a.json", tmp_path / "b.json")
    assert found["step_s"] == fs.compare(a, b)["step_s"]


def test_histories_are_refused_with_both_problems(history: Path) -> None:
    with pytest.raises(fs.InputError) as caught:
        fs.compare(history, "async-one-step", replications=3)
    assert [p.path for p in caught.value.problems] == ["A, B", "replications"]
    with pytest.raises(fs.InputError) as caught:
        fs.compare(history, windows=("-1h", ".."))
    assert [p.path for p in caught.value.problems] == ["windows A", "windows B"]
    with pytest.raises(fs.InputError, match="say which"):
        fs.compare(history, windows=("-30m..now", None))
    with pytest.raises(fs.InputError, match="unknown metric"):
        fs.compare(history, windows=("-1h..-30m", "-30m..now"), metrics=["goodput"])
    with pytest.raises(fs.InputError) as caught:
        fs.compare(history, windows=("-9h..-8h", "-7h..-6h"))
    assert [p.path[:2] for p in caught.value.problems] == ["A:", "B:"]
