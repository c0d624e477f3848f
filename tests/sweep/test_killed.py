"""A sweep that is killed outright, as the kernel kills what takes too much memory: nothing but the cells in flight are
run again, and the table is the same to the byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from fleetsim.config.load import dump_scenario
from fleetsim.sweep.cell import journal_path
from fleetsim.sweep.run import sweep
from fleetsim.sweep.table import write_table
from tests.sweep.jobs import grid, job
from tests.sweep.logged import PATIENCE_S, ROOT, environment, noted, wait_until

CELLS = 24
GRID = grid(("fleet.instances", list(range(1, 13))), ("admission.max_staleness", [0, 1]))
FLAGS = ["--grid", "fleet.instances=1:12", "--grid", "admission.max_staleness=0,1"]


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "job.yaml"
    file.write_text(dump_scenario(job()))
    return str(file)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.sweep.logged", "sweep", *arguments]


def wanted_bytes(folder: Path) -> bytes:
    place = folder / "wanted.parquet"
    write_table(sweep(job(), GRID, workers=1), place)
    return place.read_bytes()


def journalled(output: Path) -> set[int]:
    journal = journal_path(output)
    lines = journal.read_bytes().split(b"\n")[1:-1] if journal.exists() else []
    return {int(line[1:].split(b",")[0]) for line in lines}


def cells_of(noted: list[tuple[int, int]]) -> set[int]:
    return {cell for _, cell in noted}


def test_a_killed_sweep_runs_at_most_the_cells_in_flight_again(scenario: str, tmp_path: Path) -> None:
    output, log = tmp_path / "t.parquet", tmp_path / "log"
    call = command(scenario, *FLAGS, "--workers", "2", "--out", str(output))
    with subprocess.Popen(call, env=environment(log, 7), cwd=ROOT, start_new_session=True) as killed:
        wait_until(lambda: len(noted(log, "begin")) > 8 and cells_of(noted(log, "end")) <= journalled(output), killed)
        os.killpg(killed.pid, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    assert not output.exists()
    kept = journalled(output)
    begun = noted(log, "begin")
    assert 0 < len(kept) < CELLS
    # In flight: what the two workers had computed and not handed over.
    assert len(begun) == 9
    assert cells_of(begun) - kept == cells_of(begun) - cells_of(noted(log, "end"))
    done = subprocess.run(call, env=environment(log, None), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    again = noted(log, "begin")[len(begun) :]
    assert Counter(cell for _, cell in again) == Counter(set(range(CELLS)) - kept)
    assert output.read_bytes() == wanted_bytes(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["job.yaml", "log", "t.parquet", "wanted.parquet"]


def test_a_worker_that_is_killed_ends_the_sweep_with_what_to_do(scenario: str, tmp_path: Path) -> None:
    output, log = tmp_path / "t.parquet", tmp_path / "log"
    call = command(scenario, *FLAGS, "--workers", "2", "--out", str(output))
    with subprocess.Popen(call, env=environment(log, 3), cwd=ROOT, stderr=subprocess.PIPE, text=True) as sweeping:
        wait_until(lambda: len(noted(log, "begin")) > 3 and bool(journalled(output)), sweeping)
        os.kill(noted(log, "begin")[-1][0], signal.SIGKILL)
        _, told = sweeping.communicate()
    assert sweeping.returncode == 3, told
    assert "a worker process died" in told
    assert "run the same command again" in told
    assert journalled(output)


def test_workers_do_not_outlive_a_driver_that_is_killed(scenario: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    call = command(scenario, *FLAGS, "--workers", "2")
    with subprocess.Popen(call, env=environment(log, 3), cwd=ROOT, stderr=subprocess.DEVNULL) as killed:

        def workers() -> set[int]:
            return {pid for pid, _ in noted(log, "begin")} - {killed.pid}

        wait_until(lambda: len(workers()) == 2 and len(noted(log, "begin")) > 4, killed)
        os.kill(killed.pid, signal.SIGKILL)
    until = time.monotonic() + PATIENCE_S / 3
    while any(map(_runs, workers())) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(_runs, workers()))


def _runs(pid: int) -> bool:
    """Whether a process is there, and not only as what nobody has waited for."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
