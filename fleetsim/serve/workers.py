"""Processes that answer: one for each kind of question, so that a slider need not wait for a whole answer.

An answer that takes too long ends its process, and a new one takes its place. Memory is bounded where the system can.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

# Bytes of address space that a process of ours may have.
_MEMORY = 6 << 30
_TOO_LARGE = "the answer needs more memory than a page may have"


def refusal(why: str) -> dict[str, Any]:
    """What a page is told where it gets no answer, and no value of its is to blame."""
    return {"problems": [{"path": "", "text": why}]}


class TooLongError(Exception):
    """No answer within the seconds that there were."""


class Worker:
    """One process, one question at a time. limit_s: of an answer."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._lock = threading.Lock()
        self._process: Any = None
        self._pipe: Connection | None = None

    def start(self) -> None:
        """Starts the process; what it needs is imported there before the first question."""
        with self._lock:
            self._ready()

    def ask(self, what: str, *arguments: Any) -> dict[str, Any]:
        """The answer of a function in `answers.py`, or {"problems": [...]} for what is wrong with the question.

        Raises TooLongError. To be called from a thread: it waits.
        """
        with self._lock:
            pipe = self._ready()
            try:
                pipe.send((what, arguments))
                if not pipe.poll(self.limit_s):
                    self._end()
                    raise TooLongError(f"no answer within {self.limit_s:g} s; the command line has no such limit")
                answer: dict[str, Any] = pipe.recv()
            except (EOFError, OSError):
                self._end()
                return refusal(_TOO_LARGE)
        return answer

    def stop(self) -> None:
        """Ends the process, whatever it does."""
        self._end()

    def _ready(self) -> Connection:
        if self._pipe is None or not self._process.is_alive():
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_answer, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        return self._pipe

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join(5)
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


def _answer(pipe: Connection) -> None:
    """What a process does: answers until nobody asks any longer."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends it
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(EOFError, OSError):
        os.chdir(folder)  # a name that a page sends is no file there
        from fleetsim.serve import answers
        from fleetsim.sim.processes import VARIABLE

        os.environ[VARIABLE] = "1"  # the memory of others would not be bounded
        known: Mapping[str, Callable[..., dict[str, Any]]] = {
            "count": answers.count,
            "whole": answers.whole,
            "read": answers.read,
        }
        while True:
            what, arguments = pipe.recv()
            pipe.send(_told(known[what], arguments))


def _told(function: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> dict[str, Any]:
    from fleetsim.errors import FleetsimError, InputError
    from fleetsim.serve.answers import problems_of

    try:
        return function(*arguments)
    except InputError as error:
        return {"problems": problems_of(error)}
    except FleetsimError as error:
        return refusal(str(error))
    except MemoryError:
        return refusal(_TOO_LARGE)
