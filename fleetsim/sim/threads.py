"""Independent runs side by side: the kernel works without the interpreter lock, so threads are enough."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

from fleetsim.sim.stop import STOP

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(
    function: Callable[[Item], Result], items: Sequence[Item], stop: Event | None = None
) -> Iterator[Result]:
    """function(item) for each item, in their order, on as many threads as there are cores.

    Results do not depend on the threads: a run shares nothing with another. Raises what the first failing one raises.
    Ctrl-C ends the runs that are under way after their step at hand and begins no others; whoever wants what they
    return then passes `stop`, which is set.
    """
    workers = min(len(items), os.cpu_count() or 1)
    if workers < 2 and stop is None:
        yield from map(function, items)
        return
    stop = stop or STOP.get() or Event()
    pool = ThreadPoolExecutor(max(1, workers), initializer=STOP.set, initargs=(stop,))
    try:
        yield from pool.map(function, items)
    except KeyboardInterrupt:
        stop.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
