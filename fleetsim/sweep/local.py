"""Cells on this machine: one process a core, because a run spends much of its time holding the interpreter's lock."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache

from fleetsim.errors import OutsideError
from fleetsim.sweep.cell import CellChunk, Chunks, Design, run_cells

# Between two looks of a worker at whether its driver is still there.
_LOOK_S = 0.5


def cores() -> int:
    """How many processes may run at once here."""
    import joblib

    return int(joblib.cpu_count())


def in_processes(design: Design, cells: Sequence[int], workers: int, finished: Callable[[CellChunk], None]) -> None:
    """Cells on so many processes; `finished` is told each chunk, in the order in which they finish.

    Raises OutsideError when a process died: killed, or out of memory.
    """
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    chunks = Chunks(cells, workers)
    pool = joblib.Parallel(n_jobs=workers, backend="loky", batch_size=1, return_as="generator_unordered")
    with closing(pool(joblib.delayed(_run)(design, chunk, os.getpid()) for chunk in chunks)) as done:
        try:
            for chunk in done:
                chunks.learn(len(chunk.rows), chunk.seconds)
                finished(chunk)
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


def _run(design: Design, cells: Sequence[int], driver: int) -> CellChunk:
    if os.getpid() != driver:
        _end_with(driver)
        # Ctrl-C reaches every process of the terminal; it is the driver's to act on.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return run_cells(design, cells)
