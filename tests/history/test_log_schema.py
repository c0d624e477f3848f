"""`fleetsim scenario schema --log`: everything that the mappings of a step log hold is printed."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from fleetsim.cli.main import app
from fleetsim.history.step_logs.frameworks import COLUMNS, FRAMEWORKS, FrameworkLog


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_every_metric_is_printed(framework: FrameworkLog) -> None:
    answer = CliRunner().invoke(app, ["scenario", "schema", "--log", framework.name])
    assert answer.exit_code == 0, answer.output
    lines = answer.stdout.splitlines()
    for entry in framework.entries:
        assert any(line.startswith(f"{entry.column}: ") and all(m in line for m in entry.metrics) for line in lines)
    if framework.name == "plain":
        assert set(COLUMNS) <= {line.partition(":")[0] for line in lines}


def test_an_unknown_framework_is_refused_with_the_nearest_name() -> None:
    answer = CliRunner().invoke(app, ["scenario", "schema", "--log", "verll"])
    assert answer.exit_code == 2
    assert 'did you mean "verl"?' in answer.output
