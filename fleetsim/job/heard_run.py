"""The run that a job heard of by `--run`: where it is, and what was read there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleetsim.dataclass import dataclass

if TYPE_CHECKING:
    from fleetsim.history.history import History
    from fleetsim.job.job import Start


@dataclass(frozen=True, slots=True)
class Heard:
    """The run whose history is in a job. start: of the job without it. run: where it is, as somebody wrote it.

    changed: whether more was said of the job since, so that the run was read as that of another job.
    """

    start: Start
    run: str
    history: History
    changed: bool = False


# What a run showed in a job's start, notes, and the history: of a start, `key.path=value` texts, options, where the run
# is, and its history if it was read before.
Reader = Callable[..., tuple[Mapping[str, Any], tuple[str, ...], "History"]]
_READERS: list[Reader] = []


def reads_runs(reader: Reader) -> None:
    """Says who reads a run. `replay` does, which stands above a job: so the command line and Python's `Job` say it."""
    _READERS[:] = [reader]


def heard_of(
    start: Start, sets: Sequence[str], options: Mapping[str, Any], run: str, history: History | None
) -> tuple[Start, tuple[str, ...], Heard]:
    """The start with what a run showed in it, notes, and the run. Raises as the reader does."""
    found, notes, read = _READERS[0](start, sets, options, run, history)
    return found, notes, Heard(start, run, read)
