from __future__ import annotations

import io
import sys

import pytest

from fleetsim.cli.progress import COMPILING, spinner
from fleetsim.engine import compiled


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def last_shown(monkeypatch: pytest.MonkeyPatch, states: list[bool], *messages: str) -> str:
    """What a terminal saw last of some messages, while `is_compiled` answered `states` one after the other."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(compiled, "is_compiled", lambda: states.pop(0))
    with spinner("starting") as tell:
        for message in messages:
            tell(message)
    return terminal.getvalue()


def test_a_first_run_says_why_it_takes_seconds_until_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert COMPILING in last_shown(monkeypatch, [False])
    assert COMPILING in last_shown(monkeypatch, [False, False], "one")
    assert "two" in last_shown(monkeypatch, [False, False, True], "one", "two")


def test_later_runs_say_what_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "starting" in last_shown(monkeypatch, [True])
    assert "one" in last_shown(monkeypatch, [True], "one")


def test_off_a_terminal_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with spinner("starting") as tell:
        tell("one")
    assert capsys.readouterr().err == ""
