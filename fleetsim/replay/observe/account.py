"""Where the seconds of an observed step go: every one belongs to a phase, or to what no timer explains."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fleetsim.history.counters import summed
from fleetsim.history.history import Floats, History, StepLog
from fleetsim.history.step_logs.steps import TRAINING
from fleetsim.records import replace
from fleetsim.replay.observe.intervals import sums_of
from fleetsim.replay.observe.phases import UNEXPLAINED, Account, Mode, Phase
from fleetsim.replay.observe.segments import FEWEST_TURNS, PhaseCourse, course_of, spikes_of
from fleetsim.replay.observe.steps import PARTS, TIMED, Steps

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
    "between_s": "between two steps",
}
"""Column of a log -> what its phase is called. In a synchronous step wait_s is the generation."""
GENERATION = "generation"
_SAME = 0.05  # a generation that is the trainer's whole wait, as a synchronous step has it
_INSIDE = 0.9  # of an evaluation: what is in no other timer, if it is inside the step


def account_of(history: History, steps: Steps) -> Account | None:
    """The account of a log, or of what a trainer exports; None where nothing shows how long a step takes."""
    return _of_log(history.steps) if history.steps is not None and len(history.steps) else _of_exported(steps)


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
    if not parts and mode == "one step off":  # nothing but the generation is timed: it holds the steps that follow it
        slope = _slopes(np.diff(step_s), np.diff(columns["generate_s"])[None], 0.0)
        if slope is not None and abs(slope[0][0] - 0.5) > 3.0 * slope[1][0]:
            parts = {"wait_s": columns["generate_s"]} if slope[0][0] > 0.5 else {"update_s": step_s}
    if "eval_s" not in parts and "evaluated" in columns:
        parts |= _evaluations(step_s - sum(map(np.nan_to_num, parts.values())), columns["evaluated"])
    numbers = columns.get("step", np.arange(1.0, len(log) + 1))
    if "eval_s" not in parts and "time_s" in columns:
        for name, seconds in _between(columns["time_s"], step_s, numbers):
            parts[name], step_s = seconds, step_s + seconds
    account = _account(step_s, parts, numbers, mode, log.metrics, log.framework)
    # of a rise what it has come to
    since = (len(log) * 3 // 4 if p.course.at is None else p.course.at for p in account.changed)
    now = log.where(slice(first := max(since, default=0), None))
    made = "output_tokens" if "output_tokens" in columns else "length_mean"
    present = {name: mean for name in columns if (mean := now.mean(name)) is not None}
    scatter = {  # from step to step: a trend is none, nor the change itself, which a wait shows a row before others
        name: float(np.nanstd(np.diff(now.columns[name])[first > 0 :])) / math.sqrt(2.0) / abs(present[name])
        for name in ("wait_s", "generate_s", "length_mean")
        if present.get(name) and len(now) > 2
    }
    made_s, longest = now.columns.get("generate_s", now.columns.get("wait_s")), now.columns.get("length_max")
    grows = None if made_s is None or longest is None else _slopes(made_s, longest[None], _VARIES)
    phases = []
    for p in account.phases:
        growth, stretch = (_growth(columns.get(name), p.course) for name in (made, "length_max"))
        phases.append(replace(p, growth=growth, stretch=stretch))
    return replace(
        account,
        phases=tuple(phases),
        estimated=found is not None,
        either=_either(log)
        and not _overlaps(columns)
        and ((slope := _taken_off(columns)) is None or slope[0] - 2.0 * slope[1] < -0.5),
        present=present,
        scatter=scatter,
        step_metric=log.metrics.get("step_s", "step_s"),
        token_s=None if grows is None else (float(grows[0][0]), float(grows[1][0])),
    )


def _growth(work: Floats | None, course: PhaseCourse) -> float:
    """By which share work (n,) grew where the phase did: over its change, or along a line; 0 where nothing says."""
    if work is None or course.before is None or course.over is not None:
        return 0.0
    rows = np.arange(len(work))
    known = np.isfinite(work)
    parts = [known & (rows < course.at), known & (rows >= course.at)] if course.at is not None else [known]
    if any(part.sum() < 2 for part in parts):
        return 0.0
    if course.at is not None:
        was, now = (float(work[part].mean()) for part in parts)
    else:
        was, now = map(float, np.polyval(np.polyfit(rows[known], work[known], 1), rows[[0, -1]]))
    return now / was - 1.0 if was > 0 else 0.0


AGAIN = (*TRAINING, "train_s", "sync_s", "handover_s")  # phases that a trainer may have to do again


# A token of one response takes an engine this long at least: a model of 8 billion parameters in 16 bits, read once from
# the memory of an H100 (16 GB / 3.35 TB/s).
TOKEN_S = 0.0048
CLEAR = 4.0  # standard errors by which a slope is none by chance
FRESH = 0.01  # weight versions: samples that are younger are as fresh as those of a synchronous step
_VARIES = 0.01  # of a mean: lengths that move by less explain nothing


def by_lengths(columns: Mapping[str, Floats]) -> Floats | None:
    """(n,) seconds of generation, where no timer says them: what a step grows by with its responses. A trainer whose
    passes take longer with them is taken for a part of it.

    Mean and longest count together where both are clear; else the longest where it explains more than the mean one;
    where it is always the same (the cap), each of its tokens takes TOKEN_S more. None where nothing is clear.
    """
    step_s, best = columns["step_s"], None
    for names in (("length_mean", "length_max"), ("length_mean",), ("length_max",)):
        lengths = [columns[name] for name in names if name in columns]
        found = _slopes(step_s, np.stack(lengths), _VARIES) if len(lengths) == len(names) else None
        if found is None or (found[0] < CLEAR * found[1]).any():
            continue
        seconds, sure = found[0] @ np.stack(lengths), float((found[0] / np.maximum(1e-12, found[1])).min())
        if len(names) == 2:  # the mean as the load of the engines, the longest as the tail; each takes that at least
            return np.minimum((found[0] - found[1]) @ np.stack(lengths), step_s)
        if best is None or sure > best[0]:
            best = sure, names[0], seconds
    if best is None:
        return None
    _, name, found_s = best
    longest = columns.get("length_max")
    if name == "length_mean" and longest is not None and np.nanstd(longest) < _VARIES * np.nanmean(longest):
        found_s = found_s + TOKEN_S * longest
    return np.minimum(found_s, step_s)


def _of_exported(steps: Steps) -> Account | None:
    """Rows of a window that span whole steps; their seconds per step."""
    known = np.isfinite(steps.count) & np.isfinite(steps.elapsed_s) & (steps.count > 0)
    if not known.any():
        return None
    count = steps.count[known]
    parts = {name: steps.columns[name][known] / count for name in (*TIMED, *PARTS) if name in steps.columns}
    if "train_s" in parts and (inside := [parts[name] for name in ("ref_s", "logp_s") if name in parts]):
        parts["update_s"] = np.maximum(parts.pop("train_s") - summed(inside), 0.0)
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
        tried = column in AGAIN or (column == "wait_s" and mode == "synchronous")
        course = course_of(filled, again=framework is not None and tried)
        since = None if course.at is None else int(numbers[course.at])
        over = None if course.over is None else (int(numbers[course.over[0]]), int(numbers[course.over[1]]))
        name = NAMES.get(column, column)
        if column == "wait_s" and mode == "synchronous":
            name = GENERATION
        phases.append(Phase(name, column, metrics.get(column), seconds, seconds / whole, course, since, over))
    phases.sort(key=lambda p: -p.seconds)
    return Account(whole, round(float(weights[known].sum())), mode, tuple(phases), framework)


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


def _evaluations(left: Floats, evaluated: Floats) -> Iterator[tuple[str, Floats]]:
    """Seconds of evaluations that no timer says: what is left of a step now and then, as often as one ended."""
    spikes, every = spikes_of(left, np.isfinite(left))
    apart = np.diff(np.flatnonzero(np.isfinite(evaluated)))
    if every is not None and apart.size and np.median(apart) == every:
        yield "eval_s", np.where(spikes, left - np.nanmedian(left[~spikes]), 0.0)


def _between(time_s: Floats, step_s: Floats, numbers: Floats) -> Iterator[tuple[str, Floats]]:
    """Seconds that the log's clock has between two steps now and then, beyond those that they take: an evaluation or a
    checkpoint outside the step's own timer."""
    apart = np.r_[np.nan, np.diff(time_s)] - step_s
    apart[np.r_[True, np.diff(numbers) != 1.0]] = np.nan
    known = np.isfinite(apart)
    spikes, every = spikes_of(apart, known) if known.any() else (known, None)
    beyond = np.where(spikes, apart - np.median(apart[known & ~spikes]), 0.0) if every is not None else np.zeros(1)
    # a few are restarts; and what a later step has in its own seconds the clock takes back there
    if spikes.sum() >= FEWEST_TURNS and apart[known].sum() >= _INSIDE * beyond.sum():
        yield "between_s", beyond


def mode_of(log: StepLog) -> Mode:
    """How the two sides of a job lie to each other, by what the log has."""
    columns = log.columns
    generate, wait = columns.get("generate_s"), columns.get("wait_s")
    if generate is not None and wait is not None:
        # what a wait holds besides, as an evaluation, makes up for no other step's
        whole, waited = sums_of(generate, np.minimum(generate, wait))
        return "synchronous" if waited >= (1.0 - _SAME) * whole else "one step off"
    ahead = not _AHEAD.isdisjoint(columns)
    if (age := log.mean("staleness_steps")) is not None:
        return "asynchronous" if ahead or age > FRESH else "synchronous"
    if wait is None:
        return "asynchronous" if ahead else "unknown" if generate is None else "one step off"
    return "synchronous" if _either(log) and not _overlaps(columns) else "asynchronous"


# What only a log has whose generation runs ahead of its trainer.
_AHEAD = frozenset(
    {"queue_groups", "queue_samples", "in_flight_groups", "in_flight_samples", "trainer_idle", "rollout_active_s"}
)


def _either(log: StepLog) -> bool:
    """Whether a log looks the same in both modes: these two frameworks are synchronous unless they are told
    otherwise, and time the wait for a batch alike."""
    known = {"staleness_steps", "generate_s", *_AHEAD}
    return log.framework in ("roll", "areal") and known.isdisjoint(log.columns)


FASTEST_S = 0.002  # a token of one response takes a small model on a fast GPU this long at least (launches of kernels)
_OFTEN = 0.1  # of the steps


def _overlaps(columns: Mapping[str, Floats]) -> bool:
    """Whether generation runs beside the trainer: the wait is too short to generate the longest response, or what the
    trainer takes longer is taken off the next wait."""
    wait, longest = columns["wait_s"], columns.get("length_max")
    if longest is not None and np.nanmean(wait < FASTEST_S * longest) > _OFTEN:
        return True
    slope = _taken_off(columns)
    # about -1: a slope far below, of a wait that swings by more than all else moves, is chance
    return slope is not None and -1.5 < slope[0] < -0.5 - 2.0 * slope[1]


def _taken_off(columns: Mapping[str, Floats]) -> tuple[float, float] | None:
    """(slope, its standard error) of a wait by the seconds of the step before outside its wait: -1 where generation
    runs beside the trainer and binds, 0 where it begins when the trainer is done. None of too few steps."""
    own, wait = columns["step_s"] - columns["wait_s"], columns["wait_s"]
    found = _slopes(wait[1:], own[None, :-1], 0.0)
    return None if found is None else (float(found[0][0]), float(found[1][0]))


def _slopes(y: Floats, x: Floats, least: float) -> tuple[Floats, Floats] | None:
    """(k,) slopes of y (n,) by each row of x (k, n) beside the others, and their standard errors; None of too few
    rows, or where a row scatters by no more than `least` of its mean, or two say the same."""
    known = np.isfinite(y) & np.isfinite(x).all(axis=0)
    y, x = y[known], x[:, known]
    if y.size < 4 + 4 * len(x) or (x.std(axis=1) <= least * x.mean(axis=1)).any():
        return None
    off = x - x.mean(axis=1, keepdims=True)
    spread = off @ off.T
    if np.linalg.cond(spread) > 1e12:
        return None
    slopes = np.linalg.solve(spread, off @ (y - y.mean()))
    left = y - y.mean() - slopes @ off
    return slopes, np.sqrt(np.diag(np.linalg.inv(spread)) * float(left @ left) / (y.size - 1 - len(x)))
