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

    Where the kernel has not been compiled yet, says so first: that takes seconds.
    """
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    from fleetsim.engine.compiled import is_compiled

    compiled = is_compiled()
    with Console(stderr=True, highlight=False).status(first if compiled else COMPILING, spinner="dots") as status:

        def tell(text: str) -> None:
            nonlocal compiled
            # The first simulation compiles the kernel; only what is told after it is worth showing.
            compiled = compiled or is_compiled()
            status.update(text if compiled else COMPILING)

        yield tell


@contextmanager
def narration() -> Iterator[Tell]:
    """For work of minutes: a spinner on a terminal, elsewhere a line on stderr whenever something new is told."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True, highlight=False).status("starting", spinner="dots") as status:
            yield status.update
        return
    last = ""

    def tell(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            print(text, file=sys.stderr, flush=True)

    yield tell
