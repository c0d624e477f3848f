"""A sweep whose workers write down what they begin and end: `python -m tests.sweep.logged LOG fleetsim arguments`.

Workers are other processes, on a cluster too: they find the log in the environment that they inherit, and these
functions by their name.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fleetsim.sweep.cell import Chunk, run_cells
from fleetsim.sweep.design import Design
from fleetsim.sweep.local import _run as run_local

LOG = "FLEETSIM_TEST_SWEEP_LOG"
PAUSE = "FLEETSIM_TEST_SWEEP_PAUSE_S"


def _note(what: str, cells: Sequence[int]) -> None:
    with open(os.environ[LOG], "a", encoding="utf-8") as log:
        log.write(f"{what} {os.getpid()} {','.join(map(str, cells))}\n")


def logged_local(design: Design, cells: Sequence[int], driver: int) -> Chunk:
    _note("begin", cells)
    time.sleep(float(os.environ.get(PAUSE, "0")))
    chunk = run_local(design, cells, driver)
    _note("end", cells)
    return chunk


def logged_cells(design: Design, cells: Sequence[int]) -> Chunk:
    _note("begin", cells)
    time.sleep(float(os.environ.get(PAUSE, "0")))
    chunk = run_cells(design, cells)
    _note("end", cells)
    return chunk


def noted(log: Path, what: str) -> list[tuple[int, tuple[int, ...]]]:
    """(pid, cells) of every chunk that was begun or ended, in the order of the log."""
    lines = log.read_text().splitlines() if log.exists() else []
    rows = [line.split() for line in lines]
    return [(int(pid), tuple(map(int, cells.split(",")))) for kind, pid, cells in rows if kind == what]


def main() -> None:
    from fleetsim.cli.main import main as fleetsim
    from fleetsim.sweep import cluster, local
    from tests.sweep import logged  # not __main__: workers look the functions up by this name

    local._run = logged.logged_local
    cluster.run_cells = logged.logged_cells
    sys.argv = ["fleetsim", *sys.argv[1:]]
    fleetsim()


if __name__ == "__main__":
    main()
