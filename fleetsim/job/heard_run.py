"""The run that a job heard of by `--run`: where it is, and what was read there."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
