"""Some mutated inputs of every kind on every run; `python -m tests.fuzz.run --count 20000` tries them by the night."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.fuzz.run import inputs, tried
from tests.fuzz.seeds import Input, Maker, makers

KINDS = ("configurations", "expressions", "flags", "histories", "plans", "profiles", "raw", "results", "scenario")
EACH = 6


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Maker]:
    return makers(tmp_path_factory.mktemp("seeds"))


def test_every_kind_ends_in_an_answer_or_in_an_error_of_ours(made: dict[str, Maker]) -> None:
    assert tuple(sorted(made)) == KINDS
    faults = []
    for kind in KINDS:
        for number, given in inputs(made[kind], kind, 0, EACH):
            what, printed = tried(given)
            if what:
                faults.append(f"{kind} {number}: {what}\n{given.arguments}\n{printed[-500:]}")
    assert not faults, "\n\n".join(faults)


def crashes() -> None:
    raise ZeroDivisionError("a fault of ours")


def allocates() -> None:
    print(len(bytearray(3 * 2**30)))


def dies() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def commands_the_terminal() -> None:
    print("\x1b]0;owned\x07")


@pytest.mark.parametrize(
    ("faulty", "seen"),
    [(crashes, "ZeroDivisionError"), (allocates, "MemoryError"), (dies, "SIGSEGV"), (commands_the_terminal, "control")],
)
def test_the_harness_sees_what_it_is_there_for(
    monkeypatch: pytest.MonkeyPatch, faulty: Callable[[], None], seen: str
) -> None:
    monkeypatch.setattr("fleetsim.cli.main.app", lambda *_, **__: faulty())
    assert seen in tried(Input("flags", (), {}))[0]


def test_the_harness_lets_errors_of_ours_pass() -> None:
    what, printed = tried(Input("flags", ("simulate", "there-is-none.yaml"), {}))
    assert what == ""
    assert "error: " in printed


@pytest.mark.parametrize("printed", ["Exit codes: 0 ok, 1 internal error, 2 bad input", "a plan"])
def test_a_word_of_the_help_is_no_crash(monkeypatch: pytest.MonkeyPatch, printed: str) -> None:
    monkeypatch.setattr("fleetsim.cli.main.app", lambda *_, **__: print(printed))
    assert tried(Input("flags", (), {}))[0] == ""


def test_no_input_is_tried_twice() -> None:
    met = [given for _, given in inputs(lambda rng: Input("flags", (str(rng.randrange(20)),), {}), "flags", 0, 20)]
    assert len({given.arguments for given in met}) == 20
