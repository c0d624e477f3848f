"""File names that no file system takes: an error that says so, before any work is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleetsim.cli.main import app

LONG = "a" * 300
JOB = ("simulate", "async-one-step", "--steps", "4")


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "--from", LONG),
        ("replay", "--from", f"{LONG}/{LONG}"),
        (*JOB, "--html", LONG),
        (*JOB, "--openmetrics", LONG),
        (*JOB, "--perfetto", f"{LONG}.pftrace"),
        ("scenario", "init", "-o", LONG),
        ("validate", "--check", LONG),
        ("validate", "--write", LONG),
    ],
    ids=lambda arguments: " ".join(word[:14] for word in arguments),
)
def test_it_is_bad_input(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2, result.output
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert "simulating" not in result.stderr


def test_where_a_history_is_to_be_saved(tmp_path: Path) -> None:
    window = tmp_path / "w.om"
    window.write_text("")
    result = CliRunner().invoke(app, ["replay", "--from", str(window), "--save", f"{LONG}.csv", "--no-backtest"])
    assert result.exit_code == 2
    assert "is no usable path: File name too long" in result.stderr


def test_what_is_too_long_only_beside_its_place_is_said_at_the_end(tmp_path: Path) -> None:
    """The file is written under a longer name first."""
    result = CliRunner().invoke(app, [*JOB, "--openmetrics", str(tmp_path / ("a" * 252))])
    assert result.exit_code == 3
    assert "cannot be written: File name too long" in result.stderr
    assert not list(tmp_path.iterdir())
