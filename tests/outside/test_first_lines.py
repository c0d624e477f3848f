"""The first lines of `fleetsim replay` on the histories of the outside world: the worst fault within one screen."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.outside.cases import CASES
from tests.outside.exposition import write
from tests.outside.judge import ask

BY_NAME = {case.name: case for case in CASES}
COLUMNS, ROWS, LINES = 80, 24, 8
# A healthy one, one cause and two, users, and a job beside others; `python -m tests.outside.test_first_lines` has all.
FEW = (
    "healthy",
    "undersized",
    "straggler and a long sync",
    "small KV cache and a long sync",
    "undersized, another job beside it",
    "serving, a straggler",
)
LABELS = ("doubt", "evidence", "price", "next", "look at", "also", "fine", "open", "differs", "--explain")


@cache
def said(name: str) -> tuple[str, ...]:
    """What replay prints of the first half-hour of a case, without any flag but the selector."""
    case = BY_NAME[name].first(hours=0.5)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "history.om")
        write(path, case.job, *case.beside)
        code, out, err = ask(["replay", "--from", str(path), *(["--selector", case.selector] if case.selector else [])])
    assert code == 0, err
    return tuple(out.replace(str(path), "history.om").rstrip().splitlines())


def shown(name: str) -> list[str]:
    """The labels, in order."""
    return [label for line in said(name) for label in LABELS if line.startswith(label)]


@pytest.mark.parts
@pytest.mark.parametrize("name", FEW)
def test_the_first_lines(name: str) -> None:
    fits_one_screen(name)


def fits_one_screen(name: str) -> None:
    """Eight lines beside further faults, each of which is one; in the order in which they are needed."""
    lines, labels = said(name), shown(name)
    assert max(map(len, lines)) <= COLUMNS or any("--selector" in line for line in lines)
    assert len(lines) <= ROWS
    assert len([label for label in labels if label not in ("also", "--explain")]) + 1 <= LINES
    assert labels == sorted(labels, key=LABELS.index)
    assert labels.count("fine") <= 1
    assert labels.count("open") <= 1
    if "evidence" in labels:
        assert "next" in labels


if __name__ == "__main__":
    for each in BY_NAME:
        fits_one_screen(each)
        print(f"{each}: {len(said(each))} rows", flush=True)
