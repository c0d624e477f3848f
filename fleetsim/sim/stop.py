"""Ending a run early: after the step at hand, with the records so far.

Ctrl-C reaches only the main thread. Runs on other threads look here after each step (`sim/threads.py` sets it).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, current_thread, main_thread

# Told after each step how many steps are done and the simulated seconds; the run ends there when it says True.
Watch = Callable[[int, float], bool]

# Set for this thread's runs when they shall end; None where nobody would ask.
STOP: ContextVar[Event | None] = ContextVar("STOP", default=None)


def stopping() -> bool:
    """Whether this thread's runs were asked to end: what they return is cut short."""
    stop = STOP.get()
    return stop is not None and stop.is_set()


def watch_of(on_step: Callable[[int, float], None] | None, enough: Watch | None = None) -> Watch | None:
    """A watch that tells `on_step` and heeds STOP and `enough`; None where there is none of them, so that a step costs
    nothing."""
    stop = STOP.get()
    if on_step is None and stop is None and enough is None:
        return None

    def watch(steps: int, now_s: float) -> bool:
        if on_step is not None:
            on_step(steps, now_s)
        return (enough is not None and enough(steps, now_s)) or (stop is not None and stop.is_set())

    return watch


@contextmanager
def uninterrupted() -> Generator[None]:
    """A Ctrl-C that arrives inside is raised at the end, so that what belongs together happens together or not at all.

    Only where Ctrl-C would be a KeyboardInterrupt: in the main thread, with nobody else's handler in place.
    """
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came = Event()
    signal.signal(signal.SIGINT, lambda number, frame: came.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came.is_set():
        raise KeyboardInterrupt
