"""What was found of jobs that share GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetsim.job.base_job import Job
    from fleetsim.pack.ways import Way


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Packing:
    """How several jobs share GPUs.

    jobs: with their names. ways: all that run, the best first. best: the first that keeps what is protected; None where
    none does. alone_s: of each job, seconds of a step with all GPUs to itself. fair: whether the worst slow-down was
    made least, else the mean one. protected: number of a job -> the largest slow-down that it may have. switch_s: of
    each job, seconds until GPUs that another one had serve it.
    """

    jobs: tuple[Job, ...]
    gpus: int
    ways: tuple[Way, ...]
    best: Way | None
    alone_s: tuple[float, ...]
    fair: bool
    protected: Mapping[int, float]
    switch_s: tuple[float, ...]
    warnings: tuple[str, ...]
