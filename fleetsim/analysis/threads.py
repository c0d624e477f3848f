"""Independent runs side by side: the kernel works without the interpreter lock, so threads are enough."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """function(item) for each item, in their order, on as many threads as there are cores.

    Results do not depend on the threads: a run shares nothing with another. Raises what the first failing one raises.
    """
    workers = min(len(items), os.cpu_count() or 1)
    if workers < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(function, items)
