from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from fleetsim.cli.main import app
from fleetsim.config.load import dump_scenario
from fleetsim.sweep.journal import journal_path, open_journal
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
    result = run(scenario, *GRID)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("small: 6 cells, fleet.instances (3) x admission.max_staleness (2)")
    text = " ".join(result.stdout.replace("\\\n", " ").split())
    for told in (
        "Lowest US dollars per step: ",
        "Lowest optimizer step: ",
        "Pareto front",
        "what fleet.instances does",
        "what admission.max_staleness does",
        "--set fleet.instances=1",
        "fleetsim size --scenario",
    ):
        assert told in text
    assert all(len(line) <= 80 for line in result.stdout.splitlines() if "--scenario" not in line)


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
    open_journal(output, "another", 6).close()
    refused = run(scenario, *GRID, "--out", str(output))
    assert refused.exit_code == 2
    assert "--restart" in refused.stderr
    assert run(scenario, *GRID, "--out", str(output), "--restart").exit_code == 0
    assert not journal_path(output).exists()
    again = run(scenario, *GRID, "--out", str(output))
    assert again.exit_code == 2
    assert "exists already" in again.stderr


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
