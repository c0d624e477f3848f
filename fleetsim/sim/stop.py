"""Ending a run early: after the step at hand, with the records so far.

Ctrl-C reaches only the main thread. Runs on other threads look here after each step (`sim/threads.py` sets it).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from threading import Event

# Told after each step how many steps are done and the simulated seconds; the run ends there when it says True.
Watch = Callable[[int, float], bool]

# Set for this thread's runs when they shall end; None where nobody would ask.
STOP: ContextVar[Event | None] = ContextVar("STOP", default=None)


def stopping() -> bool:
    """Whether this thread's runs were asked to end: what they return is cut short."""
    stop = STOP.get()
    return stop is not None and stop.is_set()


def watch_of(on_step: Callable[[int, float], None] | None) -> Watch | None:
    """A watch that tells `on_step` and heeds STOP; None where there is neither, so that a step costs nothing."""
    stop = STOP.get()
    if on_step is None and stop is None:
        return None

    def watch(steps: int, now_s: float) -> bool:
        if on_step is not None:
            on_step(steps, now_s)
        return stop is not None and stop.is_set()

    return watch
