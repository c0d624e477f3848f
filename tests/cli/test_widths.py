"""Help, doctor and lists at several widths: no word is broken or cut, and nothing stands beyond the terminal's edge."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fleetsim.cli.doctor import lines
from fleetsim.cli.installation import Check
from fleetsim.cli.main import app
from fleetsim.cli.terminal import beside, wrapped

WIDTHS = (60, 80, 120)
FRAME = re.compile(r"[╭╮╰╯│─]")


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


def words(text: str) -> list[str]:
    """Without frames, commas between the names of an option, and what says that a line goes on."""
    return [word.rstrip(",") for word in FRAME.sub(" ", text).split() if word != "\\"]


def shown(path: tuple[str, ...], width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    from typer import rich_utils

    monkeypatch.setattr(rich_utils, "MAX_WIDTH", width)
    monkeypatch.setenv("COLUMNS", str(width))
    return CliRunner().invoke(app, [*path, "--help"]).stdout


@pytest.mark.parametrize("path", [p for p in commands(typer.main.get_command(app)) if p], ids=" ".join)
def test_help_breaks_no_word_at_any_width(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = set(words(shown(path, 1000, monkeypatch)))
    assert whole
    for width in WIDTHS:
        text = shown(path, width, monkeypatch)
        assert [word for word in words(text) if word not in whole] == [], width
        assert "…" not in text
        assert [line for line in text.splitlines() if len(line) > width] == [], width


@pytest.mark.parametrize("arguments", [["scenario", "ls"], ["--help"]], ids=" ".join)
def test_real_commands_keep_to_the_width_that_they_are_given(arguments: list[str]) -> None:
    """typer ends what it says of a command with three dots where it is long, behind a whole word."""

    def run(width: int) -> str:
        call = [sys.executable, "-m", "fleetsim", *arguments]
        environment = {**os.environ, "COLUMNS": str(width)}
        return subprocess.run(call, capture_output=True, text=True, check=True, env=environment).stdout

    whole = {word.removesuffix("...").rstrip(",") for word in words(run(2000))}
    for width in (60, 80):
        text = run(width)
        assert {word.removesuffix("...").rstrip(",") for word in words(text)} <= whole
        assert [line for line in text.splitlines() if len(line) > width] == []


TEXTS = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]) | st.just(" "), max_size=120)


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.tuples(st.from_regex(r"[a-z-]{1,30}", fullmatch=True), TEXTS), max_size=6),
    width=st.integers(20, 140),
)
def test_any_rows_keep_all_their_words(rows: list[tuple[str, str]], width: int) -> None:
    found = beside(rows, width, "  ")
    assert " ".join(found).split() == " ".join(part for row in rows for part in row).split()
    checks = [Check(name, "warning", text or "-", "do this") for name, text in rows] or [Check("a", "ok", "b")]
    doctored = lines(checks, width)
    for line in (*found, *doctored[:-2], *wrapped(" ".join(t for _, t in rows), width)):
        assert len(line) <= width or len(line.split()) <= 4, line
    for check in checks:
        assert set(check.text.split()) <= set(" ".join(doctored).split())
