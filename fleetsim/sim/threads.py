"""Independent runs side by side: the kernel works without the interpreter lock, so threads are enough."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Event
from typing import TypeVar

from fleetsim.sim.stop import STOP

Item = TypeVar("Item")
Result = TypeVar("Result")

# Seconds for which one thread works alone. Two that take turns at Python cost more than they save in short runs.
_ALONE_S = 0.03


def side_by_side(
    function: Callable[[Item], Result], items: Sequence[Item], stop: Event | None = None
) -> Iterator[Result]:
    """function(item) for each item, in their order, on as many threads as there are cores, or on one if that is quick.

    Results do not depend on the threads: a run shares nothing with another. Raises what the first failing one raises.
    Ctrl-C ends the runs that are under way after their step at hand and begins no others; whoever wants what they
    return then passes `stop`, which is set.
    """
    workers = min(len(items), os.cpu_count() or 1)
    if workers < 2 and stop is None:
        yield from map(function, items)
        return
    heard = stop or STOP.get() or Event()
    done, threads = Event(), count()

    def begin() -> None:
        STOP.set(heard)
        if next(threads):
            done.wait(_ALONE_S)

    pool = ThreadPoolExecutor(max(1, workers), initializer=begin)
    try:
        yield from pool.map(function, items)
    except KeyboardInterrupt:
        heard.set()
        raise
    finally:
        done.set()
        pool.shutdown(cancel_futures=True)
