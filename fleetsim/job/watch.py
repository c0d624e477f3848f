"""Progress: who is told what long work is doing. The command line draws it, Python may listen, else nobody does."""

from __future__ import annotations

from collections.abc import Callable


class Watch:
    """What long work reports while it goes on; this class tells nobody. Called with a text: what is being done now.

    counts: whether steps should be counted and reported; False where nobody would see it.
    """

    counts = False

    def __call__(self, text: str) -> None:
        """What is being done now."""

    def loaded(self) -> None:
        """All that the work needs is imported; from here on Ctrl-C leaves something to show."""

    def due(self) -> bool:
        """Whether `at` would be shown now: for work that must count before it can say how far it is."""
        return False

    def at(self, done: float, of: float, best: Callable[[], str] | None = None) -> None:
        """So much of so much is done; best: what is known by now, asked for only when it is shown.

        May be told from any thread, and as often as one likes.
        """

    def remark(self, text: str) -> None:
        """A line that stays."""

    def replications(self, done: int, of: int) -> None:
        """So many replications of a scenario are simulated."""


SILENT = Watch()


class Told(Watch):
    """Hands texts on to a function, as Python's `tell`."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def __call__(self, text: str) -> None:
        """Tells it."""
        self._tell(text)

    def remark(self, text: str) -> None:
        """Tells it."""
        self._tell(text)

    def replications(self, done: int, of: int) -> None:
        """Tells it in words."""
        self._tell(f"simulating: {done} of {of} replications")


def told(tell: Callable[[str], None] | None) -> Watch:
    """The watch of a Python caller."""
    return SILENT if tell is None else Told(tell)
