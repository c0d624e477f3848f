"""Sums over the steps of a run, failures and doubt included; all that was found of it; a log's rest, from its first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag
from fleetsim.forecast.recovery import SaveInterval
from fleetsim.forecast.schedule import NOTHING, RunCourse, Schedule
from fleetsim.history.history import History, StepLog
from fleetsim.history.window import window
from fleetsim.job.input_moves import MetricRanges
from fleetsim.job.trainer_scaling import takes_turns
from fleetsim.records import replace
from fleetsim.sim.judges import beside_gpus
from fleetsim.sim.pools import pools_paid

if TYPE_CHECKING:
    from fleetsim.forecast.resizing_plan import ResizePlan
    from fleetsim.job.base_job import Job
    from fleetsim.job.engine_source import EngineSource


Floats = NDArray[np.float64]

# --- The rest of a run from its first steps: what a forecast would have said, beside what the log then showed.

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


# --- The totals of the whole run.

_HOUR_S = 3600.0


class WholeTotals(Struct, frozen=True):
    """Of the whole run. ranges: name -> from, to of hours, gpu_hours and usd, in eight of ten cases: inputs that may be
    off, seeds, and failures. step_s: of the first and of the last step. held_h: hours in which the trainer waits for
    samples, checkpoints and evaluations. lost_h: that failures add."""

    hours: float
    gpu_hours: float
    usd: float
    trained_samples: float
    trained_tokens: float
    generated_tokens: float
    ranges: Mapping[str, tuple[float, float]]
    step_s: tuple[float, float]
    held_h: Mapping[str, float]
    lost_h: float


def totals_of(course: RunCourse, ranges: MetricRanges | None, interval: SaveInterval | None) -> WholeTotals:
    """The totals of a course."""
    step_s, usd = course.metric("step_s"), course.metric("cost_per_step")
    gpus = course.per_step(lambda point: gpus_of(point.scenario))
    generated = course.metric("generated_tok_s") * step_s
    batch = course.per_step(lambda point: float(point.scenario.trainer.batch_samples))
    again = 1.0 if interval is None else interval.now.seconds / interval.calm_s
    hours, dollars = float(step_s.sum()) / _HOUR_S, float(usd.sum())
    gpu_hours = float((gpus * step_s).sum()) / _HOUR_S
    low, high = _reach(course, "step_s", ranges, interval)
    cheap, dear = _reach(course, "cost_per_step", ranges, interval)
    found = {"hours": hours * again, "gpu_hours": gpu_hours * again, "usd": dollars * again}
    factors = {"hours": (low, high), "gpu_hours": (low, high), "usd": (cheap, dear)}
    held = {"samples": "trainer_idle", "sync": "sync", "checkpoints": "checkpoint", "evaluations": "evaluation"}
    return WholeTotals(
        **found,
        trained_samples=float(batch.sum()),
        trained_tokens=float((generated / course.metric("tokens_per_trained_token")).sum()),
        generated_tokens=float(generated.sum()),
        ranges={name: (found[name] * a, found[name] * b) for name, (a, b) in factors.items()},
        step_s=(float(step_s[0]), float(step_s[-1])),
        held_h={
            name: float((course.metric(f"{column}_fraction") * step_s).sum()) / _HOUR_S for name, column in held.items()
        },
        lost_h=hours * (again - 1.0),
    )


def gpus_of(scenario: Scenario) -> float:
    """GPUs that a run is paid for, those of judges too; those that both sides share once, spot machines while held."""
    fleet, trainer = scenario.fleet, scenario.trainer.gpus
    rollout = (fleet.instances - fleet.on_spot * (1.0 - fleet.held_share(fleet.instances))) * scenario.engine.gpus
    others = beside_gpus(scenario) + pools_paid(scenario)[0]
    return (max(rollout, trainer) if takes_turns(scenario) else rollout + trainer) + others


def _reach(
    course: RunCourse, metric: str, ranges: MetricRanges | None, interval: SaveInterval | None
) -> tuple[float, float]:
    """Factors on a total: inputs at the middle of the run, or its seeds alone, and failures; they add as squares."""
    low, high = (float(course.metric(metric, end).sum()) for end in ("ci_low", "ci_high"))
    mean = float(course.metric(metric).sum())
    down, up = (math.log(max(mean / low, 1.0)), math.log(max(high / mean, 1.0))) if min(low, mean) > 0 else (0.0, 0.0)
    if ranges is not None and mean > 0:
        at = course.middle().metrics[metric].mean
        a, b = ranges.metrics[metric]
        down, up = math.log(max(1.0, at / a)) if a > 0 else down, math.log(max(1.0, b / at))
    if interval is not None and math.isfinite(interval.now.seconds):
        now = interval.now
        down, up = (
            math.hypot(down, math.log(now.seconds / now.low_s)),
            math.hypot(up, math.log(now.high_s / now.seconds)),
        )
    return math.exp(-down), math.exp(up)


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
