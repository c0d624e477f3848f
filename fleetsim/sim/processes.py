"""Runs on the other cores: processes that measure what they are sent.

More than half of a short run is Python, which a process does on one core at a time. So a search has a process beside it
for each further core, begun where a search will follow. On Linux, as long as this process has one thread, it is forked
and has all that this one has imported: it answers at once. Elsewhere an interpreter is started, which must import it
first, 0.4 s of a core; a fork beside other threads may find a lock of theirs held for ever. Until one is ready, and
wherever none can be had, runs are made here. Results do not depend on where a run is made.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, BinaryIO

from fleetsim.errors import StuckError

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario

# How many processes there are in all, this one included; 1 is none beside it.
VARIABLE = "FLEETSIM_PROCESSES"
# More than a search has runs at once.
_MOST = 8
# Numbers of open files from 3 to here are closed in a fork.
_MOST_OPEN = 65_536
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


def _started() -> subprocess.Popen[bytes]:
    """Another interpreter."""
    program = _PROGRAM.format(gc=gc.get_threshold(), path=sys.path)
    group: Any = {"start_new_session": True} if os.name == "posix" else {"creationflags": 0x200}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-c", program], **pipes, **group)


class _Forked:
    """This process once more, from here on: with the part of Popen's interface that is needed of it."""

    def __init__(self) -> None:
        from fleetsim.sim import binding, metrics, run  # noqa: F401 - so that it has them

        (there, to), (back, here) = os.pipe(), os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it must not hear one of this group's
        try:
            self._pid = os.fork()
            if self._pid == 0:
                os.close(to)  # else it would not hear the end of its parent
                os.close(back)
                _become(there, here, before)
        except OSError:
            for number in (to, back):
                os.close(number)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(there)
            os.close(here)
        self.stdin, self.stdout = os.fdopen(to, "wb"), os.fdopen(back, "rb")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, None before there is one."""
        return self._waited(os.WNOHANG)

    def wait(self) -> int | None:
        """The same, once there is one."""
        return self._waited(0)

    def kill(self) -> None:
        """Ends it, whatever it does."""
        if self.poll() is None:
            os.kill(self._pid, signal.SIGKILL)

    def _waited(self, how: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self._pid, how)
            except ChildProcessError:  # somebody else has waited for it
                pid, status = self._pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _become(jobs: int, answers: int, signals: Iterable[int]) -> None:
    """What a fork does all its life: it serves, with nothing open that is its parent's, in a group of its own."""
    from fcntl import F_DUPFD_CLOEXEC, fcntl

    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        # first out of the way: where a parent has no streams, these are numbers 0 to 2
        mine = [fcntl(number, F_DUPFD_CLOEXEC, 3) for number in (jobs, answers, os.open(os.devnull, os.O_RDWR))]
        for number, stream in enumerate(mine):
            os.dup2(stream, number)
            os.close(stream)
        os.closerange(
            3, min(os.sysconf("SC_OPEN_MAX"), _MOST_OPEN)
        )  # whoever is at their other ends hears of their end
        serve()
    finally:
        os._exit(1)


def forks() -> bool:
    """Whether `begin` would fork: on Linux, while this process has one thread, those of libraries counted."""
    try:
        return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1
    except OSError:  # no /proc is mounted
        return False


class _Process:
    """One process. Not in the group of this one: Ctrl-C is minded here."""

    def __init__(self, child: subprocess.Popen[bytes] | _Forked) -> None:
        self._child = child
        self._to: Any = child.stdin
        self._back: Any = child.stdout

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
_ready: list[_Process] = []
_free: SimpleQueue[_Process] = SimpleQueue()


def _forgotten() -> None:
    """A child of this process has none of its own: the pipes are its parent's."""
    global _LOCK, _free
    _LOCK, _free = Lock(), SimpleQueue()
    _processes.clear()
    _ready.clear()


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
    if wanted <= 0 or not is_compiled():  # one that had to compile the kernel first would come too late
        return
    with _LOCK:
        _processes[:] = [process for process in _processes if process.alive()]
        there = len(_processes)
        child: Callable[[], subprocess.Popen[bytes] | _Forked] = _Forked if forks() else _started
        with contextlib.suppress(OSError):  # no room for another: runs are made here
            while len(_processes) < wanted:
                _processes.append(_Process(child()))
        new = _processes[there:]
    if new:
        Thread(target=_awaited, args=(new,), daemon=True).start()


def _awaited(new: Sequence[_Process]) -> None:
    for process in new:
        if process.ready():
            _ready.append(process)
            _free.put(process)


@atexit.register
def end() -> None:
    """Ends all; what they were sent is made here, by whoever asked for it."""
    with _LOCK:
        ended = list(_processes)
        _processes.clear()
        _ready.clear()
    for process in ended:
        process.end()


def some_ready() -> bool:
    """Whether runs are made elsewhere, be it that all processes are at work."""
    return bool(_ready)


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


def begun(scenario: Scenario, replication: int) -> Future[Mapping[str, Any] | None]:
    """The same without waiting for it: what `elsewhere` returns or raises."""
    found: Future[Mapping[str, Any] | None] = Future()

    def make() -> None:
        try:
            found.set_result(elsewhere(scenario, replication))
        except BaseException as error:  # noqa: BLE001 - it is raised where the run is asked for
            found.set_exception(error)

    Thread(target=make, daemon=True).start()  # not one of a pool: nobody who ends waits for it
    return found


# --- There.


def serve(idle_s: float = _IDLE_S) -> None:
    """Measures what it is sent, until the other end is closed or nothing comes for so many seconds."""
    back, jobs = os.fdopen(os.dup(1), "wb"), SimpleQueue[Any]()
    os.dup2(2, 1)  # what anything prints is no answer
    Thread(target=_heard, args=(jobs, os.fdopen(os.dup(0), "rb")), daemon=True).start()
    from fleetsim.sim import binding, metrics, run  # noqa: F401 - so that they are there

    back.write(_READY)
    back.flush()
    with contextlib.suppress(Empty, OSError):
        while True:
            back.write(_said(*jobs.get(timeout=idle_s)))
            back.flush()
    os._exit(0)


def _heard(jobs: SimpleQueue[Any], asked: BinaryIO) -> None:
    """Hears jobs while one is under way. Whoever asked may end at any time: then so does this process."""
    try:
        while True:
            jobs.put(pickle.load(asked))
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
