"""Several checks of one command line, all their problems at once: a wrong flag must not hide the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fleetsim.errors import InputError, Problem


@contextmanager
def together() -> Iterator[Together]:
    """Yields what takes the problems of each check; at the end of the block they are raised, as one InputError.

    A check that was wrong has no result: nothing in the block may need one of another check.
    """
    checks = Together()
    yield checks
    if checks.problems:
        raise InputError(checks.problems)


class Together:
    """The problems so far."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    @contextmanager
    def check(self) -> Iterator[None]:
        """One check, or some that hang together; any other error than bad input is raised at once."""
        try:
            yield
        except InputError as error:
            self.problems += error.problems
