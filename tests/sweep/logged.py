"""A sweep whose workers write down what they begin and end, and wait in the middle until they are told to go on:
`python -m tests.sweep.logged LOG fleetsim arguments`.

Workers are other processes, on a cluster too: they find the log in the environment that they inherit, and these
functions by their name. A test that kills one of them does so while they wait, however busy the machine is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleetsim.sweep.cell import Design, SweepRow, run_cell, sources_digest
from fleetsim.sweep.run import _run as run_local

ROOT = Path(__file__).parents[2]
LOG = "FLEETSIM_TEST_SWEEP_LOG"
HOLD = "FLEETSIM_TEST_SWEEP_HOLD"
PATIENCE_S = 300.0


def environment(log: Path, hold: int | None) -> dict[str, str]:
    """Of a sweep that writes to the log. hold: cells that are handed over; later ones wait with their results. None:
    no cell waits."""
    return {**os.environ, "PYTHONPATH": str(ROOT), LOG: str(log), HOLD: "" if hold is None else str(hold)}


def go_on(log: Path) -> None:
    """Ends the waiting of all workers."""
    _gate(log).touch()


def begin_anew(log: Path) -> None:
    """An empty log; cells wait again."""
    _gate(log).unlink(missing_ok=True)
    log.write_text("")


def wait_until(what: Callable[[], bool], sweeping: subprocess.Popen[Any]) -> None:
    """Until it is so; fails where the sweep ends before."""
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert sweeping.poll() is None, "the sweep has ended"
        assert time.monotonic() < until
        time.sleep(0.02)


def _gate(log: Path) -> Path:
    return log.with_name(f"{log.name}.go")


def _hold(cell: int) -> None:
    """Waits where this cell was not among the first so many: whoever began before it goes on, however late it ends."""
    log, hold = Path(os.environ[LOG]), os.environ.get(HOLD)
    if not hold or (os.getpid(), cell) in noted(log, "begin")[: int(hold)]:
        return
    until = time.monotonic() + PATIENCE_S
    while not _gate(log).exists() and time.monotonic() < until:
        time.sleep(0.02)


def _note(what: str, cell: int) -> None:
    with open(os.environ[LOG], "a", encoding="utf-8") as log:
        log.write(f"{what} {os.getpid()} {cell}\n")


def logged_local(design: Design, cell: int, driver: int) -> SweepRow:
    _note("begin", cell)
    row = run_local(design, cell, driver)
    _hold(cell)
    _note("end", cell)
    return row


def logged_there(design: Design, cell: int) -> tuple[SweepRow, str]:
    _note("begin", cell)
    row = run_cell(design, cell)
    _hold(cell)
    _note("end", cell)
    return row, sources_digest()


def noted(log: Path, what: str) -> list[tuple[int, int]]:
    """(pid, cell) of every cell that was begun or ended, in the order of the log."""
    lines = log.read_text().splitlines() if log.exists() else []
    rows = [line.split() for line in lines]
    return [(int(pid), int(cell)) for kind, pid, cell in rows if kind == what]


def main() -> None:
    from fleetsim.cli.main import main as fleetsim
    from fleetsim.sweep import cluster, run
    from tests.sweep import logged  # not __main__: workers look the functions up by this name

    run._run = logged.logged_local
    cluster._there = logged.logged_there
    sys.argv = ["fleetsim", *sys.argv[1:]]
    fleetsim()


if __name__ == "__main__":
    main()
