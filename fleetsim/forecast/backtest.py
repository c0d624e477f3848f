"""The rest of a run from its first steps: what a forecast would have said, beside what the log then showed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag
from fleetsim.forecast.schedule import NOTHING, Schedule
from fleetsim.history.history import History, StepLog
from fleetsim.history.window import window
from fleetsim.records import replace

if TYPE_CHECKING:
    from fleetsim.forecast.course import RunCourse
    from fleetsim.job.base_job import Job

Floats = NDArray[np.float64]
# Steps that a trend needs, and by how many of its standard errors it must stand out to be one.
FEWEST, _ERRORS = 8, 3.0
# Correlation of neighbours at the most, beyond which nothing would be a trend.
_ALIKE = 0.99
# A trend goes on until a value is so many times what was last seen.
_GROWS_TO = 3.0


class LogBacktest(Struct, frozen=True):
    """seen: steps of the log that the forecast knew, of `steps`. observed_s: of the rest, as the log has it;
    forecast_s: as forecast; held_s: as the mean of the seen steps has it, the plain guess. trend: what was taken to go
    on."""

    seen: int
    steps: int
    observed_s: float
    forecast_s: float
    held_s: float
    trend: str

    @property
    def error(self) -> float:
        """Of the forecast, as a share of what was observed."""
        return self.forecast_s / self.observed_s - 1.0

    @property
    def held_error(self) -> float:
        """Of the plain guess."""
        return self.held_s / self.observed_s - 1.0


def log_of(job: Job) -> History:
    """The history of the run that the job comes from. Raises InputError where it has none, or too few steps."""
    heard = job._heard
    if heard is None:
        rule, remedy = "needs the log of a run", f"give {flag('run')} LOG"
        raise InputError([Problem(flag("backtest"), None, rule, remedy)])
    log = heard.history.steps
    if log is None or len(log) < 2 * FEWEST or "step_s" not in log.columns:
        n = 0 if log is None else len(log)
        rule = f"has {n} optimizer steps whose seconds it says"
        raise InputError([Problem(flag("run"), heard.run, rule, f"a trend needs {2 * FEWEST} at least")])
    return heard.history


def trend_of(log: StepLog, steps: int) -> Schedule:
    """The lengths that the steps of a log tend to, in a straight line; nothing where they scatter more than they move.

    steps: of the run, so far the line goes on, at most to three times the last value that it had in the log. Where
    neighbours scatter alike, with a correlation of r, they say as much as (1 - r) / (1 + r) as many; r about a line is
    found too small by (2 + 4 r) / n (Shaman and Stine, JASA 83, 1988).
    """
    means = log.columns.get("length_mean", np.zeros(0))
    at = np.arange(len(means), dtype=np.float64)
    known = np.isfinite(means)
    n = int(known.sum())
    if n < FEWEST:
        return NOTHING
    x, y = at[known], means[known]
    off = x - x.mean()
    slope = float((off * y).sum() / (off * off).sum())
    rest = y - y.mean() - slope * off
    square = float((rest * rest).sum())
    alike = float((rest[1:] * rest[:-1]).sum()) / square if square else 0.0
    alike = float(np.clip(alike + (2.0 + 4.0 * alike) / n, 0.0, _ALIKE))
    error = float(np.sqrt(square / max(1, n - 2) / (off * off).sum() * (1.0 + alike) / (1.0 - alike)))
    if abs(slope) <= _ERRORS * error:
        return NOTHING

    def line(step: float) -> float:
        return float(y.mean() + slope * (step - x.mean()))

    last = line(len(means) - 1)
    end = float(np.clip(line(steps - 1), last / _GROWS_TO, last * _GROWS_TO))
    until = round(len(means) - 1 + (end - last) / slope)
    points = ((0, max(1.0, line(0))), (max(1, min(steps - 1, until)), max(1.0, end)))
    return Schedule({"len": points}, {"len": f"the trend of {n} steps of the log"})


def first_steps(history: History, seen: int) -> History:
    """The history as it was after so many steps of its log."""
    log = history.steps
    assert log is not None
    columns = {name: values[:seen] for name, values in log.columns.items()}
    times = columns.get("time_s")
    found = (
        history if times is None or not np.isfinite(times[-1]) else window(history, history.start_s, float(times[-1]))
    )
    return replace(found, steps=StepLog(log.framework, columns, log.metrics))


def backtest_of(job: Job, share: float, course: Callable[[Job, Schedule, int], RunCourse]) -> LogBacktest:
    """A forecast of the rest of the job's run from the first `share` of its steps. course: of a job, with a schedule
    and so many steps. Raises as `log_of` and the simulation do."""
    from fleetsim.job.base_job import made

    history = log_of(job)
    log, heard = history.steps, job._heard
    assert log is not None
    assert heard is not None
    steps = len(log)
    seen = min(steps - 1, max(FEWEST, round(share * steps)))
    known = first_steps(history, seen)
    then = made(heard.start, list(job._changes.values()), {**job._options, "run": heard.run}, known)
    assert known.steps is not None
    trend = trend_of(known.steps, steps)
    step_s = log.columns["step_s"]
    rest = np.isfinite(step_s[seen:])
    forecast = course(then, trend, steps).metric("step_s")[seen:]
    held = float(np.nanmean(step_s[:seen]))
    return LogBacktest(
        seen,
        steps,
        float(step_s[seen:][rest].sum()),
        float(forecast[rest].sum()),
        held * int(rest.sum()),
        trend.words(steps),
    )
