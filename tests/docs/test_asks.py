"""What people ask (docs/asks.csv): each command runs as it stands, in an empty folder."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

with (Path(__file__).parents[2] / "docs" / "asks.csv").open(newline="") as file:
    ROWS = list(csv.DictReader(file))


@pytest.mark.parts
@pytest.mark.parametrize("row", [row for row in ROWS if row["command"]], ids=lambda row: row["no"])
def test_the_command_answers(row: dict[str, str], tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", row["command"]],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{row['command']}\n{done.stdout[-500:]}{done.stderr[-1000:]}"
    assert len(done.stdout) > 100


def test_what_is_said_of_an_ask_is_what_stands_there() -> None:
    assert [int(row["no"]) for row in ROWS] == list(range(1, 81))
    for row in ROWS:
        said = row["answer"].split(":")[0].split(",")[0]
        assert said in ("yes", "partly", "no"), row
        assert bool(row["command"]) == (said != "no"), row
    assert sum(row["answer"].startswith("yes") for row in ROWS) >= 72
