"""What was found of a whole run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.forecast.backtest import LogBacktest
    from fleetsim.forecast.course import RunCourse
    from fleetsim.forecast.recovery import SaveInterval
    from fleetsim.forecast.resizing_plan import ResizePlan
    from fleetsim.forecast.schedule import Schedule
    from fleetsim.forecast.totals import WholeTotals
    from fleetsim.job.base_job import Job
    from fleetsim.job.engine_source import EngineSource
    from fleetsim.job.input_moves import MetricRanges


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WholeRun:
    """A whole run. course: a few long runs and what lies between. totals: of all its steps, failures among them.

    ranges: how far inputs may be off, at the middle of the run. interval: what failures of the trainer do; None where
    it never fails. resizes: which counts from which step on, and backtest, where they were asked for.
    """

    job: Job
    scenario: Scenario
    schedule: Schedule
    course: RunCourse
    totals: WholeTotals
    ranges: MetricRanges | None
    profile: EngineSource
    warnings: tuple[str, ...]
    interval: SaveInterval | None = None
    resizes: ResizePlan | None = None
    backtest: LogBacktest | None = None
