"""Runs on the other cores: processes that measure what they are sent.

More than half of a short run is Python, which a process does on one core at a time. So a search has a process beside it
for each further core. They are begun where a search will follow, and are ready once they have imported what a run
needs; until then, and wherever one cannot be had, runs are made here. Results do not depend on where a run is made.
loky, which sweeps use, gives its first answer after 1.7 s, when many a search is over; these do after 0.5 s.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from fleetsim.errors import StuckError

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario

# How many processes there are in all, this one included; 1 is none beside it.
VARIABLE = "FLEETSIM_PROCESSES"
# More than a search has runs at once.
_MOST = 8
# Seconds without work after which a process ends.
_IDLE_S = 60.0
# The first that a process says: it can be sent runs.
_READY = b"\n"
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_PROGRAM = (
    "import gc, sys; gc.set_threshold{gc}; sys.path[:] = {path!r}; from fleetsim.sim.processes import serve; serve()"
)


def measured(scenario: Scenario, replication: int) -> Mapping[str, Any]:
    """The metrics of one run, made here; what binds in it is found out when somebody reads it (see `BindingVerdict`).

    Raises what `simulate` raises.
    """
    from fleetsim.sim.binding import BindingVerdict
    from fleetsim.sim.metrics import numbers_of
    from fleetsim.sim.run import simulate
    from fleetsim.sim.window import window_of

    records = simulate(scenario, replication=replication)
    window = window_of(records)
    return {**numbers_of(records, window), "binding": BindingVerdict(records, window)}


# --- Here.


class _Process:
    """One process. Not in the group of this one: Ctrl-C is minded here."""

    def __init__(self) -> None:
        program = _PROGRAM.format(gc=gc.get_threshold(), path=sys.path)
        group: Any = {"start_new_session": True} if os.name == "posix" else {"creationflags": 0x200}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._child = subprocess.Popen([sys.executable, "-c", program], **pipes, **group)
        self._to: Any = self._child.stdin
        self._back: Any = self._child.stdout

    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._child.poll() is None

    def ready(self) -> bool:
        """Waits until it is, or has ended."""
        with contextlib.suppress(OSError, ValueError):  # it was ended meanwhile
            return bool(self._back.read(1) == _READY)
        return False

    def answer(self, job: object) -> tuple[bool, Any] | None:
        """What it says to a job, or None where it has ended."""
        try:
            pickle.dump(job, self._to, pickle.HIGHEST_PROTOCOL)
            self._to.flush()
            answer: tuple[bool, Any] = pickle.load(self._back)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            self.end()
            return None
        return answer

    def end(self) -> None:
        """Ends it, whatever it does."""
        self._child.kill()
        for pipe in (self._to, self._back):
            with contextlib.suppress(OSError):  # what is still in it reaches nobody
                pipe.close()
        self._child.wait()


_LOCK = Lock()
_processes: list[_Process] = []
_free: SimpleQueue[_Process] = SimpleQueue()


def _forgotten() -> None:
    """A child of this process has none of its own: the pipes are its parent's."""
    global _LOCK, _free
    _LOCK, _free = Lock(), SimpleQueue()
    _processes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forgotten)


def _cores() -> int:
    """Cores that this process may use: of a container, what it is given."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # other systems, or no limit
        microseconds, period = _QUOTA.read_text().split()
        cores = min(cores, int(microseconds) // int(period))
    return max(1, cores)


def _wanted() -> int:
    """Processes beside this one."""
    asked = os.environ.get(VARIABLE, "")
    in_all = int(asked) if asked.isdecimal() else _cores()
    python = sys.executable and not getattr(sys, "frozen", False)  # else it is a program that would start itself
    return min(in_all, _MOST) - 1 if python else 0


def begin() -> None:
    """Begins a process for each further core, where there are none yet; does not wait for them."""
    from fleetsim.engine.compiled import is_compiled

    wanted = _wanted()
    if wanted > 0 and is_compiled():  # one that had to compile the kernel first would come too late
        Thread(target=_begun, args=(wanted,), daemon=True).start()


def _begun(wanted: int) -> None:
    with _LOCK:
        _processes[:] = [process for process in _processes if process.alive()]
        try:
            new = [_Process() for _ in range(wanted - len(_processes))]
        except OSError:  # no room for another: runs are made here
            return
        _processes.extend(new)
    for process in new:
        if process.ready():
            _free.put(process)


@atexit.register
def end() -> None:
    """Ends all; what they were sent is made here, by whoever asked for it."""
    with _LOCK:
        ended = list(_processes)
        _processes.clear()
    for process in ended:
        process.end()


def some_free() -> bool:
    """Whether a process waits for a run."""
    return not _free.empty()


def elsewhere(scenario: Scenario, replication: int) -> Mapping[str, Any] | None:
    """The metrics of one run, made by a process that is free; None where there is none, or where the run failed there:
    it is made here then, and fails here.

    Raises StuckError where the scenario gets stuck.
    """
    job = os.getcwd(), scenario, replication  # a scenario names files from where this process is
    while True:
        try:
            process = _free.get_nowait()
        except Empty:
            return None
        answer = process.answer(job)
        if answer is not None:
            break
    _free.put(process)
    made, what = answer
    if not made and what is not None:
        raise what
    return what


# --- There.


def serve(idle_s: float = _IDLE_S) -> None:
    """Measures what it is sent, until the other end is closed or nothing comes for so many seconds."""
    back, jobs = os.fdopen(os.dup(1), "wb"), SimpleQueue[Any]()
    os.dup2(2, 1)  # what anything prints is no answer
    Thread(target=_heard, args=(jobs,), daemon=True).start()
    from fleetsim.sim import binding, metrics, run  # noqa: F401 - so that they are there

    back.write(_READY)
    back.flush()
    with contextlib.suppress(Empty, OSError):
        while True:
            back.write(_said(*jobs.get(timeout=idle_s)))
            back.flush()
    os._exit(0)


def _heard(jobs: SimpleQueue[Any]) -> None:
    """Hears jobs while one is under way. Whoever asked may end at any time: then so does this process."""
    try:
        while True:
            jobs.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(0)


def _said(folder: str, scenario: Scenario, replication: int) -> bytes:
    """Whether the run was made, with its metrics, or why it gets stuck; None for anything else that went wrong."""
    answer: tuple[bool, Any]
    try:
        os.chdir(folder)
        answer = True, measured(scenario, replication)
    except StuckError as error:
        answer = False, error
    except Exception:  # noqa: BLE001 - the run is made once more where it was asked for, and raises it there
        answer = False, None
    return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
