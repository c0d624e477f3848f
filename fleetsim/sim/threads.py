"""Independent runs side by side: the kernel works without the interpreter lock, so threads are enough.

The process has one pool of threads, and nothing that is handed out owns it: `side_by_side` returns when all of its runs
have ended, whatever happens to whoever asked for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from functools import cache
from threading import Event
from typing import TypeVar

from fleetsim.sim import processes
from fleetsim.sim.stop import STOP

Item = TypeVar("Item")
Result = TypeVar("Result")

# Seconds for which one thread works alone. Two that take turns at Python cost more than they save in short runs.
_ALONE_S = 0.03
# Whether this thread is one of the pool's: a run that asks for runs of its own makes them itself, one after the other.
_IN_POOL: ContextVar[bool] = ContextVar("_IN_POOL", default=False)


@cache
def _pool() -> ThreadPoolExecutor:
    """The pool of this process, made when it is first needed."""
    return ThreadPoolExecutor(os.cpu_count() or 1, "fleetsim", initializer=_IN_POOL.set, initargs=(True,))


# A child has no threads but the one that forked it: it makes a pool of its own.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def beside() -> bool:
    """Whether this is one of several runs side by side."""
    return _IN_POOL.get()


def side_by_side(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    stop: Event | None = None,
    each: Callable[[int, Result], object] | None = None,
) -> list[Result]:
    """function(item) for each item, in their order, on as many threads as there are cores, or on one if that is quick.

    each: told on the caller's thread, in the order of the items, an item's number and what came of it. Results do not
    depend on the threads: a run shares nothing with another. Raises what the first failing one raises, or `each`; the
    runs that are under way have ended then, and no others begin. Ctrl-C ends those after their step at hand; whoever
    wants what they return then passes `stop`, which is set.
    """
    if _IN_POOL.get() or (len(items) < 2 and stop is None):
        return _in_turn(function, items, each)
    heard, over, waiting = stop or STOP.get() or Event(), Event(), iter(range(len(items)))
    found: list[Future[Result]] = [Future() for _ in items]

    def work(alone: bool) -> None:
        before = STOP.set(heard)
        if not alone:
            over.wait(0.0 if processes.some_ready() else _ALONE_S)
        while not over.is_set() and (i := next(waiting, None)) is not None:
            try:
                found[i].set_result(function(items[i]))
            except BaseException as error:  # noqa: BLE001 - it is raised where the runs were asked for
                found[i].set_exception(error)
        STOP.reset(before)

    threads: list[Future[None]] = []
    try:
        threads.extend(_pool().submit(work, i == 0) for i in range(min(len(items), os.cpu_count() or 1)))
        return _in_turn(Future.result, found, each)
    except KeyboardInterrupt:
        heard.set()
        processes.end()
        raise
    finally:
        over.set()
        wait(threads)


def _in_turn(
    function: Callable[[Item], Result], items: Sequence[Item], each: Callable[[int, Result], object] | None
) -> list[Result]:
    results = []
    for i, item in enumerate(items):
        results.append(function(item))
        if each is not None:
            each(i, results[-1])
    return results
