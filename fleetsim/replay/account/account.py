"""Where the seconds of an observed step go: every one belongs to a phase, or to what no timer explains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from fleetsim import units
from fleetsim.dataclass import dataclass
from fleetsim.history.history import Floats, History, StepLog
from fleetsim.history.step_logs.steps import TRAINING
from fleetsim.replay.account.courses import Course, course_of
from fleetsim.replay.observe.steps import Steps, steps_of

Mode = Literal["synchronous", "one step off", "asynchronous", "unknown"]

UNEXPLAINED = "unexplained"
NAMES: Mapping[str, str] = {
    "wait_s": "waiting for samples",
    "update_s": "update",
    "logp_s": "log-probs",
    "ref_s": "reference log-probs",
    "logps_s": "log-probs of policy and reference",
    "experience_s": "experience (log-probs, values, rewards)",
    "values_s": "critic",
    "advantage_s": "advantages",
    "train_s": "training",
    "reward_s": "reward",
    "sync_s": "weights",
    "handover_s": "hand-over",
    "eval_s": "evaluation",
    "checkpoint_s": "checkpoint",
    "other_s": "other timers",
}
"""Column of a log -> what its phase is called. In a synchronous step wait_s is the generation."""
GENERATION = "generation"
LITTLE, MOST = 0.02, 6  # of a step: phases below it are not told in the first line, nor more than so many
_SAME = 0.05  # a generation that is the trainer's whole wait, as a synchronous step has it
_INSIDE = 0.9  # of an evaluation: what is in no other timer, if it is inside the step


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a step.

    column: of the log; metric: what the framework calls it. seconds: mean of all steps; share: of a step. course: over
    the run's steps. since_step: the step from which it is another than before.
    """

    name: str
    column: str
    metric: str | None
    seconds: float
    share: float
    course: Course
    since_step: int | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """The seconds of a step, by phase, the longest first. step_s: mean seconds; steps: how many were seen. numbers:
    (n,) of the steps. mode: how generation and training lie to each other. estimated: no timer parts the step, and what
    its seconds have to do with its responses' lengths says what generation takes at least."""

    step_s: float
    steps: int
    mode: Mode
    phases: tuple[Phase, ...]
    numbers: Floats
    framework: str | None = None
    estimated: bool = False

    def phase(self, column: str) -> Phase | None:
        """The phase of a column; None where the log has none."""
        return next((p for p in self.phases if p.column == column), None)

    def now(self, column: str) -> float:
        """Seconds that a phase takes now, without its spikes; 0 where the log has none."""
        found = self.phase(column)
        return 0.0 if found is None else found.course.usual

    @property
    def now_s(self) -> float:
        """Seconds of a step now, without spikes."""
        return sum(p.course.usual for p in self.phases)

    @property
    def words(self) -> str:
        """The first line of every answer."""
        told = [p for p in self.phases if p.share >= LITTLE][:MOST]
        parts = [f"{units.seconds(p.seconds)} {p.name}{_mark(p, first=n == 0)}" for n, p in enumerate(told)]
        return f"{units.seconds(self.step_s)} a step: {', '.join(parts) if parts else 'in no named timer'}"


def _mark(phase: Phase, *, first: bool) -> str:
    marks = [units.share(phase.share, 0)] if first else []
    if phase.since_step is not None and phase.course.before is not None:
        marks.append(f"{units.seconds(phase.course.before)} until step {phase.since_step}")
    elif phase.course.kind == "rising":
        marks.append("rising")
    elif phase.course.every is not None:
        marks.append(f"every {phase.course.every} steps")
    return f" ({', '.join(marks)})" if marks else ""


def account_of(history: History, steps: Steps | None = None) -> Account | None:
    """The account of a log, or of what a trainer exports; None where nothing shows how long a step takes."""
    if history.steps is not None and len(history.steps):
        return _of_log(history.steps)
    steps = steps_of(history, (), None) if steps is None else steps
    return None if steps is None else _of_exported(steps)


def _of_log(log: StepLog) -> Account | None:
    columns = log.columns
    if "step_s" not in columns or not np.isfinite(columns["step_s"]).any():
        return None
    mode = mode_of(log)
    parts = dict(_leaves(columns))
    step_s = columns["step_s"]
    found = None if parts or mode != "unknown" else by_lengths(columns)
    if found is not None:
        parts, mode = {"wait_s": found, "update_s": step_s - found}, "synchronous"
    account = _account(step_s, parts, columns["step"], mode, log.metrics, log.framework)
    return account if found is None else replace(account, estimated=True)


# A token of one response takes an engine this long at least: a model of 8 billion parameters in 16 bits, read once from
# the memory of an H100 (16 GB / 3.35 TB/s).
TOKEN_S = 0.0048
CLEAR = 4.0  # standard errors by which a slope is none by chance
_VARIES = 0.01  # of a mean: lengths that move by less explain nothing


def by_lengths(columns: Mapping[str, Floats]) -> Floats | None:
    """(n,) seconds of generation at least, where no timer says them: what the step's seconds grow by with its responses.

    The longest response counts where it explains more than the mean one; where it is always the same (the cap), each of
    its tokens takes TOKEN_S more. None where nothing is clear.
    """
    step_s, best = columns["step_s"], None
    for name in ("length_mean", "length_max"):
        lengths = columns.get(name)
        if lengths is None:
            continue
        known = np.isfinite(lengths) & np.isfinite(step_s)
        x, y = lengths[known], step_s[known]
        if len(x) < 8 or x.std() < _VARIES * x.mean():
            continue
        slope = float(np.cov(x, y)[0, 1] / x.var(ddof=1))
        rest = y - y.mean() - slope * (x - x.mean())
        sure = slope / max(1e-12, float(np.sqrt((rest**2).sum() / (len(x) - 2) / ((x - x.mean()) ** 2).sum())))
        if sure >= CLEAR and (best is None or sure > best[0]):
            best = sure, name, slope
    if best is None:
        return None
    _, name, slope = best
    found = slope * columns[name]
    longest = columns.get("length_max")
    if name == "length_mean" and longest is not None and np.nanstd(longest) < _VARIES * np.nanmean(longest):
        found = found + TOKEN_S * longest
    return np.minimum(found, step_s)


def _of_exported(steps: Steps) -> Account | None:
    """Rows of a window that span whole steps; their seconds per step."""
    known = np.isfinite(steps.count) & np.isfinite(steps.elapsed_s) & (steps.count > 0)
    if not known.any():
        return None
    count = steps.count[known]
    parts = {
        name: steps.columns[name][0][known] / count for name in ("wait_s", "train_s", "sync_s") if name in steps.columns
    }
    return _account(steps.elapsed_s[known] / count, parts, np.cumsum(count), "unknown", {}, None, count)


def _account(
    step_s: Floats,
    parts: Mapping[str, Floats],
    numbers: Floats,
    mode: Mode,
    metrics: Mapping[str, str],
    framework: str | None,
    weights: Floats | None = None,
) -> Account:
    """weights: how many steps a row stands for; None = one each."""
    known = np.isfinite(step_s)
    weights = np.ones(len(step_s)) if weights is None else weights
    beside = parts.get("eval_s")
    named = sum((np.nan_to_num(v) for k, v in parts.items() if k != "eval_s"), np.zeros(len(step_s)))
    left = step_s - named
    if beside is not None:
        some = known & (np.nan_to_num(beside) > 0)
        inside = some.any() and float(left[some].sum()) >= _INSIDE * float(beside[some].sum())
        if inside:
            left = left - np.nan_to_num(beside)
        else:
            step_s = step_s + np.nan_to_num(beside)
    whole = float(np.average(step_s[known], weights=weights[known]))
    values = {**parts, UNEXPLAINED: np.where(known, np.maximum(left, 0.0), np.nan)}
    phases = []
    for column, found in values.items():
        filled = np.where(known, np.nan_to_num(found), np.nan)
        seconds = float(np.average(filled[known], weights=weights[known]))
        if seconds <= 0:
            continue
        course = course_of(filled)
        since = None if course.at is None else int(numbers[course.at])
        name = NAMES.get(column, column)
        if column == "wait_s" and mode == "synchronous":
            name = GENERATION
        phases.append(Phase(name, column, metrics.get(column), seconds, seconds / whole, course, since))
    phases.sort(key=lambda p: -p.seconds)
    return Account(whole, round(float(weights[known].sum())), mode, tuple(phases), numbers, framework)


def _leaves(columns: Mapping[str, Floats]) -> Iterator[tuple[str, Floats]]:
    """The timers of a step that do not lie in one another."""
    parts: Sequence[str] = [part for part in TRAINING if part in columns]
    if not parts and "train_s" in columns:
        parts = ["train_s"]
    for name in ("wait_s", *parts, "reward_s", "sync_s", "handover_s", "checkpoint_s", "other_s", "eval_s"):
        if name in columns:
            yield name, columns[name]
    if "wait_s" not in columns and "trainer_idle" in columns:
        yield "wait_s", columns["trainer_idle"] * columns["step_s"]


def mode_of(log: StepLog) -> Mode:
    """How the two sides of a job lie to each other, by what the log has."""
    columns = log.columns
    generate, wait = columns.get("generate_s"), columns.get("wait_s")
    if generate is not None and wait is not None:
        known = np.isfinite(generate) & np.isfinite(wait)
        whole = float(generate[known].sum())
        return "synchronous" if float(wait[known].sum()) >= (1.0 - _SAME) * whole else "one step off"
    age = columns.get("staleness_steps")
    if age is not None and np.isfinite(age).any():
        return "asynchronous" if float(np.nanmean(age)) > 0.01 else "synchronous"
    asynchronous = {"queue_groups", "queue_samples", "in_flight_groups", "in_flight_samples", "trainer_idle", "stale_share"}
    if wait is None:
        return "unknown" if asynchronous.isdisjoint(columns) else "asynchronous"
    return "synchronous" if log.framework == "roll" and asynchronous.isdisjoint(columns) else "asynchronous"
