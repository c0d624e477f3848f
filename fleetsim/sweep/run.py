"""A sweep: every cell of a grid simulated, on this machine or on a cluster, with what is finished kept in a journal.

The result depends on the design alone: not on the order in which cells finish, on where they ran, or on whether the
sweep was killed in between.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from functools import cache

from msgspec import Struct

from fleetsim.config.scenario import Scenario
from fleetsim.engine.transport import sync_times
from fleetsim.errors import InputError, Interrupted, OutsideError, Problem, UnfinishedError
from fleetsim.sim.engines import engine_of, in_engine
from fleetsim.sim.stop import uninterrupted
from fleetsim.sweep.cell import Design, Journal, SweepRow, design_of, run_cell
from fleetsim.sweep.grid import Grid
from fleetsim.sweep.pareto import Objective, Pareto, objectives_of, pareto_of

# --- Cells on this machine: one process a core, because a run spends much of its time holding the interpreter's lock.

# Between two looks of a worker at whether its driver is still there.
_LOOK_S = 0.5


def cores() -> int:
    """How many processes may run at once here."""
    import joblib

    return int(joblib.cpu_count())


def in_processes(design: Design, cells: Sequence[int], workers: int, finished: Callable[[SweepRow], None]) -> None:
    """Cells on so many processes; `finished` is told each, in the order in which they finish.

    Raises OutsideError when a process died: killed, or out of memory.
    """
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    pool = joblib.Parallel(n_jobs=workers, backend="loky", batch_size=1, return_as="generator_unordered")
    with closing(pool(joblib.delayed(_run)(design, cell, os.getpid()) for cell in cells)) as done:
        try:
            for row in done:
                finished(row)
        except TerminatedWorkerError:
            raise OutsideError(
                "a worker process died: killed, or out of memory; finished cells are kept where there is an --out: "
                "run the same command again, with fewer --workers if memory is short"
            ) from None


@cache
def _end_with(driver: int) -> None:
    """Ends this worker soon after its driver: one that is killed outright cannot end its workers, which would stay for
    minutes. By looking, for the signal that Linux would send is bound to the thread that started the worker."""

    def look() -> None:
        while os.getppid() == driver:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=look, daemon=True, name="end with the driver").start()


def _run(design: Design, cell: int, driver: int) -> SweepRow:
    if os.getpid() != driver:
        _end_with(driver)
        # Ctrl-C reaches every process of the terminal; it is the driver's to act on.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return run_cell(design, cell)


# With so many seconds of work left or less, starting processes costs more than they save.
_ALONE_S = 2.0

# Called with (cells done, of, the rows that are new).
Progress = Callable[[int, int, Sequence[SweepRow]], None]


class SweepRows(Struct, frozen=True):
    """Rows of the cells that were run, ascending: of all of them unless the sweep was interrupted."""

    scenario: Scenario
    design: Design
    rows: tuple[SweepRow, ...]
    pareto: Pareto

    @property
    def complete(self) -> bool:
        """Whether every cell was run."""
        return len(self.rows) == len(self.design.grid)

    def row(self, cell: int) -> SweepRow:
        """The row of one cell that was run."""
        return next(row for row in self.rows if row.cell == cell)


def sweep(
    scenario: Scenario,
    grid: Grid,
    *,
    objectives: Sequence[Objective] = (),
    replications: int | None = None,
    given: Collection[str] = (),
    workers: int | None = None,
    ray: str | None = None,
    journal: Callable[[Design], Journal] | None = None,
    progress: Progress | None = None,
) -> SweepRows:
    """Simulates every cell of the grid. objectives: `objectives_of()` if empty. given: paths that somebody wrote.

    workers: processes on this machine; if None as many as there are cores, or none where the work is too little for
    them. ray: the address of a cluster instead. journal: opens the journal that finished
    cells go to, which the caller closes.

    Raises InputError when no cell of the grid is valid, UnfinishedError with the rows so far when a worker, a cluster
    or the journal fails, Interrupted with the same on Ctrl-C.
    """
    design = design_of(scenario, grid, replications, given)
    objectives = tuple(objectives) or objectives_of()
    check_some_valid(design)
    kept = None if journal is None else journal(design)
    rows = {} if kept is None else dict(kept.rows)
    if progress is not None:
        progress(len(rows), len(grid), tuple(rows.values()))
    missing = [cell for cell in range(len(grid)) if cell not in rows]

    def finished(row: SweepRow) -> None:
        # What is told as finished is what the journal holds.
        with uninterrupted():
            if kept is not None:
                kept.add(row)
            rows[row.cell] = row
        if progress is not None:
            progress(len(rows), len(grid), (row,))

    def known() -> SweepRows:
        ordered = tuple(rows[cell] for cell in sorted(rows))
        return SweepRows(scenario, design, ordered, pareto_of(ordered, objectives))

    try:
        _simulate(design, missing, workers, ray, finished)
    except KeyboardInterrupt:
        raise Interrupted(known()) from None
    except OutsideError as error:
        raise UnfinishedError(error.args[0], known()) from None
    return known()


def check_some_valid(design: Design) -> None:
    """Raises InputError, with what is wrong in each, when no cell of a design can be simulated at all."""
    found: dict[tuple[str, str], Problem] = {}
    for cell in range(len(design.grid)):
        scenario = None
        try:
            scenario = design.scenario(cell)
            engine_of(scenario)
            sync_times(scenario)
        except InputError as error:
            for problem in error.problems if scenario is None else in_engine(scenario, error):
                found.setdefault((problem.path, problem.rule), problem)
        else:
            return
    raise InputError(list(found.values()))


def _simulate(
    design: Design, cells: Sequence[int], workers: int | None, ray: str | None, finished: Callable[[SweepRow], None]
) -> None:
    """All cells, wherever they run; `finished` is told each when it is."""
    if ray is not None:
        from fleetsim.sweep.cluster import on_cluster

        on_cluster(design, cells, ray, finished)
        return
    if workers is None:
        workers = cores()
        seconds, done = 0.0, 0
        # The first cell loads the simulator and says nothing.
        while workers > 1 and done < len(cells) and (done < 2 or seconds * (len(cells) - done) <= _ALONE_S):
            began = time.perf_counter()
            row = run_cell(design, cells[done])
            seconds, done = time.perf_counter() - began, done + 1
            finished(row)
        cells = cells[done:]
    if workers > 1 and len(cells) > 1:
        in_processes(design, cells, min(workers, len(cells)), finished)
        return
    for cell in cells:
        finished(run_cell(design, cell))
