"""Progress on stderr: a spinner on a terminal, silence anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

COMPILING = "compiling the simulation kernel (first run on this machine, a few seconds)"

Tell = Callable[[str], None]


@contextmanager
def spinner(first: str) -> Iterator[Tell]:
    """Shows `first`, then whatever it is told, until the block ends; leaves nothing behind.

    While the kernel is not compiled yet, says so and adds what it is told.
    """
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    from fleetsim.engine.compiled import is_compiled

    compiling = not is_compiled()
    console = Console(stderr=True, highlight=False)
    with console.status(COMPILING if compiling else first, spinner="dots") as status:
        told = 0

        def tell(text: str) -> None:
            nonlocal told
            told += 1
            # The first run is the one that compiles.
            status.update(COMPILING if compiling and told == 1 else text)

        yield tell
