from __future__ import annotations

import io
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.cli import progress as module
from fleetsim.cli.progress import COMPILING, TimeLeft, progress
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
    with progress("starting") as tell:
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


def test_work_without_the_kernel_does_not_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(compiled, "is_compiled", lambda: pytest.fail("asked"))
    with progress("measuring", simulates=False) as tell:
        tell("load 1")
    assert "load 1" in terminal.getvalue()


def test_off_a_terminal_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("starting") as tell:
        tell("one")
        tell.at(1, 2, lambda: pytest.fail("asked for what nobody sees"))
    assert capsys.readouterr().err == ""


def test_work_of_minutes_says_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    with progress("starting", aloud=True) as tell:
        for text in ("one", "one", "two"):
            tell(text)
        for done in range(1, 11):
            tell.at(done, 10, lambda: "best 3")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["one", "two"]
    # Ten seconds each: every third one, and the end.
    assert lines[2:] == [
        "3 of 10, best 3",
        "6 of 10, best 3",
        "9 of 10, best 3, 10.0 s left",
        "10 of 10, best 3, 0 s left",
    ]


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.integers(0, 40), st.integers(60, 300))
def test_time_left_follows_the_later_half(slow: float, fast: float, change: int, of: int) -> None:
    """Whatever the pace was at first: from twice as far on, the new pace is what counts."""
    left, now = TimeLeft(), 0.0
    for done in range(of + 1):
        told = left(now, done, of)
        if done >= 2 * change + 4:
            assert told == pytest.approx((of - done) * fast, rel=1e-6, abs=1e-6)
        now += slow if done < change else fast


def test_what_was_done_before_has_no_pace() -> None:
    left = TimeLeft()
    assert left(5.0, 900, 1000) is None
    assert left(6.0, 900, 1000) is None
    assert left(66.0, 901, 1000) is None  # and that one started the processes
    assert left(68.0, 902, 1000) == pytest.approx(2 * 98)


def test_it_may_be_told_from_any_thread_as_often_as_one_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    asked: list[int] = []
    with progress("starting") as tell:
        threads = [
            threading.Thread(target=lambda: [tell.at(k, 4000, lambda: f"best {asked.append(1)}") for k in range(1000)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tell.at(4000, 4000, lambda: "best 7")
    assert "4,000 of 4,000" in terminal.getvalue()
    assert "best 7" in terminal.getvalue()
    assert len(asked) < 1000  # drawn now and then, not each time
