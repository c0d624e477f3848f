"""A wrong flag does not hide the next: everything that is wrong with a command line is told at once."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from fleetsim.cli.main import app
from fleetsim.errors import InputError, OutsideError, Problem, Problems


@pytest.mark.parametrize(
    "arguments",
    [
        ("size", "--save", "no-such-folder/job.yaml"),
        ("split", "--gpus", "16", "--save", "no-such-folder/job.yaml"),
        ("simulate", "async-one-step", "--perfetto-steps", "5"),
        ("sweep", "async-one-step", "--grid", "fleet.instances=4"),
    ],
)
def test_all_that_is_wrong_is_told(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*arguments, "--fail-if", "no_metric>1", "--set", "fleet.x=3"])
    assert result.exit_code == 2
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert any("--fail-if" in line for line in lines)
    assert any("fleet.x" in line for line in lines)
    assert len(lines) == (2 if arguments[0] == "sweep" else 3)
    assert result.stdout == ""


def test_another_error_is_raised_at_once() -> None:
    wrong = Problems()
    with wrong.check():
        raise InputError([Problem("a", 1, "b", "c")])
    with pytest.raises(OutsideError, match="server"), wrong.check():
        raise OutsideError("server down")
    with pytest.raises(InputError, match="a: 1: b; c"):
        wrong.stop()
    Problems().stop()


def test_a_scenario_file_where_none_goes_is_told_its_flag() -> None:
    assert "behind --scenario" in CliRunner().invoke(app, ["size", "job.yaml"]).stderr
    assert "--scenario" not in CliRunner().invoke(app, ["simulate", "a.yaml", "b.yaml"]).stderr
