from __future__ import annotations

import json
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from fleetsim.cli.main import app
from fleetsim.config.load import dump_scenario
from fleetsim.sweep.cell import SweepRow, journal_path, open_journal
from tests.sweep.jobs import job

GRID = ["--grid", "fleet.instances=1:3", "--grid", "admission.max_staleness=0,1"]


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "job.yaml"
    file.write_text(dump_scenario(job()))
    return str(file)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sweep", *arguments])


def test_the_view_says_what_is_best_what_each_key_does_and_what_to_type(scenario: str) -> None:
    brief = run(scenario, *GRID).stdout.splitlines()
    assert brief[0].startswith("Lowest cost per step: ")
    assert brief.index("") <= 8
    assert len(brief) <= 24
    assert any("small: 6 cells, fleet.instances (3) x admission.max_staleness (2)" in line for line in brief)
    result = run(scenario, *GRID, "--explain")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.replace("\\\n", " ").split())
    for told in (
        "Lowest cost per step: ",
        "Lowest optimizer step: ",
        "Pareto front",
        "what fleet.instances does",
        "what admission.max_staleness does",
        "--set fleet.instances=1",
        "fleetsim size --scenario",
    ):
        assert told in text
    # The name of the file may be longer than a line; it is never cut.
    assert all(len(line) <= 80 for line in result.stdout.splitlines() if scenario not in line)


def test_the_document_the_tables_and_the_view_agree(scenario: str, tmp_path: Path) -> None:
    for ending in ("parquet", "csv"):
        assert run(scenario, *GRID, "--out", str(tmp_path / f"t.{ending}")).exit_code == 0
    document = json.loads(run(scenario, *GRID, "--json").stdout)
    table = pd.read_parquet(tmp_path / "t.parquet")
    assert [row["metrics"]["step_s"]["mean"] for row in document["rows"]] == list(table["step_s"])
    assert [row["pareto"] for row in document["rows"]] == list(table["pareto"])
    assert document["front"] == list(table["cell"][table["pareto"] == "front"])
    assert document["best"][0]["cell"] == int(table["cost_per_step"].idxmin())
    assert document["complete"] is True
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 7
    assert sorted(p.name for p in tmp_path.iterdir()) == ["job.yaml", "t.csv", "t.parquet"]


def test_a_cell_is_the_line_that_it_says_to_paste(scenario: str) -> None:
    document = json.loads(run(scenario, *GRID, "--json").stdout)
    values = document["rows"][3]["values"]
    sets = [word for path, value in values.items() for word in ("--set", f"{path}={value}")]
    alone = json.loads(CliRunner().invoke(app, ["simulate", scenario, *sets, "--json"]).stdout)
    assert document["rows"][3]["metrics"]["step_s"] == alone["metrics"]["step_s"]
    assert document["rows"][3]["metrics"]["waste.stale"] == alone["metrics"]["waste"]["stale"]


def test_bad_flags_are_told_at_once_before_any_work(scenario: str, tmp_path: Path) -> None:
    result = run(
        scenario, "--grid", "fleet.insances=1", "--grid", "fleet.instances", "--objective", "steps",
        "--set", "fleet.instances=zwei",
    )  # fmt: skip
    assert result.exit_code == 2
    for told in ('did you mean "instances"', "KEY=LO:HI", "unknown metric", "fleet.instances"):
        assert told in result.stderr
    for arguments, told in (
        (["--out", str(tmp_path / "no" / "t.csv")], "folder does not exist"),
        (["--out", str(tmp_path / "t.xlsx")], "must end in .parquet or .csv"),
        (["--out", str(tmp_path / "job.yaml")], "must end in"),
        (["--restart"], "without --out"),
        (["--workers", "0"], "between 1 and"),
        (["--workers", "2", "--ray", "auto"], "drop --workers or --ray"),
        (["--set", "fleet.instances=3"], "--grid fleet.instances gives it"),
        (["--fail-if", "speed>3"], "unknown metric"),
    ):
        result = run(scenario, *GRID, *arguments)
        assert result.exit_code == 2, arguments
        assert told in result.stderr
    assert run(*GRID).exit_code == 2
    assert run(scenario).exit_code == 2


def test_an_output_that_is_there_or_unfinished_is_not_lost(scenario: str, tmp_path: Path) -> None:
    output = tmp_path / "t.csv"
    journal = open_journal(output, "another", 6)
    journal.add(SweepRow(0, "ok", "", "sync", ((1.0,),)))
    journal.close()
    refused = run(scenario, *GRID, "--out", str(output))
    assert refused.exit_code == 2
    assert "--restart" in refused.stderr
    assert run(scenario, *GRID, "--out", str(output), "--restart").exit_code == 0
    assert not journal_path(output).exists()
    again = run(scenario, *GRID, "--out", str(output))
    assert again.exit_code == 2
    assert "exists already" in again.stderr


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file of this process grows larger: what a full disk does, to one that needs no disk of its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [20, 2500])
def test_a_disk_that_is_full_costs_no_cell_that_is_known(scenario: str, tmp_path: Path, size: int) -> None:
    output = tmp_path / "t.csv"
    assert run(scenario, *GRID, "--workers", "1").exit_code == 0  # the kernel is compiled and cached
    with files_of_at_most(size):
        result = run(scenario, *GRID, "--workers", "1", "--out", str(output))
    assert result.exit_code == 3, result.output
    assert f"'{journal_path(output)}': cannot be written: " in result.stderr
    assert "internal" not in result.stderr
    if size == 20:  # not even the first line
        assert result.stdout == ""
        return
    cells = re.search(r"small: (\d) of 6 cells", result.stdout)
    assert cells is not None, result.stdout
    assert f"{cells[1]} of 6 cells are finished" in result.stderr
    again = run(scenario, *GRID, "--workers", "1", "--out", str(output))
    assert again.exit_code == 0, again.output
    assert len(output.read_text().splitlines()) == 7


def full(*_: object) -> None:
    """What writing a table comes to on a full disk."""
    raise OSError(28, "No space left on device")


def test_a_table_that_cannot_be_written_is_shown(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetsim.sweep.table.write_table", full)
    result = run(scenario, *GRID, "--out", str(tmp_path / "t.csv"))
    assert result.exit_code == 3
    assert "No space left on device" in result.stderr
    assert "small: 6 cells" in result.stdout
    assert journal_path(tmp_path / "t.csv").exists()


def test_a_key_that_does_nothing_is_told_and_equal_cells_are_called_so(scenario: str) -> None:
    arguments = [scenario, "--set", "admission.law=unbounded", "--set", "buffer.capacity_samples=64"]
    swept = ["--grid", "fleet.instances=1,2", "--grid", "admission.max_staleness=0,1", "--workers", "1"]
    unread = "admission.max_staleness changes nothing here: only admission.law version_window or target_step reads it"
    result = run(*arguments, *swept)
    assert unread in " ".join(result.stderr.split())
    assert "fleet.instances changes nothing" not in result.stderr
    assert "; 1 other cell equal to it" in " ".join(result.stdout.split())
    document = json.loads(run(*arguments, *swept, "--json").stdout)
    assert unread in document["warnings"]
    assert len(document["best"][0]["equal"]) == 1
    headroom = run(scenario, "--grid", "targets.headroom=0.5,0.7", "--workers", "1").stderr
    assert "targets.headroom changes nothing here: cells that differ in it alone are equal" in " ".join(
        headroom.split()
    )
    assert "changes nothing" not in run(scenario, *GRID, "--workers", "1").stderr


def test_a_gate_is_on_the_best_cell(scenario: str) -> None:
    document = json.loads(run(scenario, *GRID, "--json", "--objective", "step_s").stdout)
    best = document["rows"][document["best"][0]["cell"]]["metrics"]["step_s"]["mean"]
    for limit, code in ((best * 0.99, 10), (best * 1.01, 0)):
        result = run(scenario, *GRID, "--objective", "step_s", "--fail-if", f"step_s>{limit}")
        assert result.exit_code == code


def test_cells_that_cannot_be_simulated_are_told_and_all_of_them_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(dump_scenario(job()))
    sets = ["--set", "admission.law=unbounded"]
    some = run(str(file), *sets, "--grid", "buffer.capacity_samples=16,64")
    assert some.exit_code == 0
    assert "buffer.capacity_samples=16: stuck: " in " ".join(some.stdout.split())
    none = run(str(file), *sets, "--grid", "buffer.capacity_samples=8,16")
    assert none.exit_code == 11
    assert "No cell could be simulated" in none.stdout


def test_other_keys_stay_what_they_are_set_to(scenario: str) -> None:
    document = json.loads(run(scenario, *GRID, "--set", "trainer.fixed_s=9", "--seed", "3", "--json").stdout)
    assert document["scenario"]["trainer"]["fixed_s"] == 9
    assert document["seeds"] == [{"seed": 3, "replication": r} for r in range(2)]
    assert all(row["metrics"]["step_s"]["mean"] >= 9 for row in document["rows"])


def test_what_is_wrong_is_told_under_its_full_name_and_once(scenario: str) -> None:
    told = run(scenario, "--grid", "engine.gpu=H100,B300x", "--workers", "1").stdout
    assert "invalid: engine.gpu: 'B300x': " in " ".join(told.split())
    assert "error: engine.gpu: 'B300x': " in run(scenario, "--grid", "engine.gpu=B300x").stderr
    told = run(scenario, "--grid", "buffer.batch_rule=qqq,zzz").stderr
    assert told.count("oldest_version_first") == 1
    for nothing in ((), (scenario,)):
        assert "None" not in run(*nothing).stderr
    assert "error: --grid: nothing to sweep over; " in run(scenario).stderr


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_word_of_a_heading_is_cut(scenario: str, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    told = run(scenario, *GRID, "--workers", "1", "--explain").stdout
    cells = told[told.index("cells, by") : told.index("next")]
    words = cells.split()
    for word in ("instances", "max_staleness", "$/step", "step,", "stale", "cells"):
        assert word in words, (word, cells)
    assert all(len(line) <= columns for line in cells.splitlines())


def test_a_long_step_has_its_unit(scenario: str) -> None:
    told = run(scenario, "--set", "trainer.fixed_s=70", *GRID, "--workers", "1").stdout
    assert re.search(r"Lowest optimizer step: \d+(\.\d+)? s ", " ".join(told.split()))


def test_a_sweep_that_goes_on_says_so(scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "t.csv"
    monkeypatch.setattr("fleetsim.sweep.table.write_table", full)
    assert run(scenario, *GRID, "--out", str(output)).exit_code == 3
    monkeypatch.undo()
    again = run(scenario, *GRID, "--out", str(output))
    assert again.exit_code == 0, again.output
    assert f"going on: 6 of 6 cells are in {journal_path(output)}" in again.stderr


def test_counts_are_rounded_up_to_whole_engines_and_the_answer_says_so(scenario: str) -> None:
    swept = json.loads(run(scenario, "--grid", "fleet.instances=1:3", "--set", "engine.dp=2", "--json").stdout)
    (note,) = (w for w in swept["warnings"] if "engine.dp" in w)
    assert note.startswith("fleet.instances 1 ran as 2, 3 ran as 4: ")
    first, second = swept["rows"][0]["metrics"]["step_s"], swept["rows"][1]["metrics"]["step_s"]
    assert first == second, "one instance of two ranks is two instances"
    plain = json.loads(run(scenario, "--grid", "engine.dp=1,3", "--json").stdout)
    assert [row["status"] for row in plain["rows"]] == ["ok", "ok"], "an assumed count follows the ranks"
