"""Work that ends before its time, by Ctrl-C or by a failure: what is known by then goes to stdout, what is missing to
stderr, and the exit code is that of what ended it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fleetsim.errors import Interrupted, UnfinishedError


@contextmanager
def if_interrupted(show: Callable[[Any, str], None]) -> Iterator[None]:
    """Around long work: shows what an Interrupted or an UnfinishedError knows, show(known, missing), and lets it go on
    to the exit code.

    To stand outside of the progress that the work tells, so that its line is gone by then.
    """
    try:
        yield
    except (Interrupted, UnfinishedError) as cut:
        if cut.known is not None:
            show(cut.known, cut.missing if isinstance(cut, Interrupted) else str(cut))
        raise
