"""A question becomes a command: its fields are the options, in the order and with the words that they ask for."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from fleetsim.cli.flags import command
from fleetsim.job.settings import Argument, Lends, Option


@dataclass(frozen=True, kw_only=True)
class Lent:
    name: Annotated[str | None, Argument("Whose.", "NAME")] = None
    last: Annotated[int, Option("After all.", "One", after="note")] = 3
    set_: Annotated[list[str] | None, Option("Repeatable.", "One", flag="--also", metavar="K=V")] = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    count: Annotated[int, Option("How many.", "Two")]
    job: Annotated[object, Lends(Lent)]
    only_python: float = 1.5
    note: Annotated[str | None, Option("A note.", "One", after="set_")] = None


heard: list[Asked] = []


def ask(asked: Asked) -> None:
    """The help."""
    heard.append(asked)


app = typer.Typer()
app.command("ask")(command(ask))


def test_fields_are_options_and_fill_the_question() -> None:
    result = CliRunner().invoke(app, ["someone", "--count", "2", "--also", "a=1", "--also", "b=2", "--note", "x"])
    assert result.exit_code == 0, result.output
    asked = heard.pop()
    assert asked == Asked(count=2, job=Lent(name="someone", set_=["a=1", "b=2"]), note="x")
    assert asked.only_python == 1.5


def test_after_says_where_an_option_stands() -> None:
    assert list(inspect.signature(command(ask)).parameters) == ["count", "name", "set_", "note", "last"]


def test_a_field_without_a_default_is_required() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 2
    assert "--count" in result.output


@pytest.mark.parametrize(
    "feature", ["alerts", "calibrate", "compare", "plan", "replay", "simulate", "size", "split", "sweep", "watch"]
)
def test_a_question_imports_nothing_heavy(feature: str) -> None:
    heavy = {"numpy", "pandas", "rich", "typer", "pydantic", "scipy", "numba"}
    code = f"import sys, fleetsim.{feature}.ask; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
