"""Optimizer steps of a window, from what shows them: counters, gauges, a run log, or the engines' on/off pattern."""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from fleetsim.history.counters import MAX_HOLE_S, growth_between, increments
from fleetsim.history.history import Floats, History, Note, StepLog
from fleetsim.records import replace
from fleetsim.replay.observe.interruptions import Pause
from fleetsim.replay.observe.intervals import sums_of
from fleetsim.replay.observe.observed import From
from fleetsim.replay.observe.segments import Mask, holes_of

# Of a log's usual step: what takes longer, and longer than a hole may be, is a job that stood and was resumed.
PAUSED = 5.0
# Column -> the counter that it is the growth of.
TIMED = {name: f"trainer.{name}_total" for name in ("wait_s", "train_s", "sync_s")}
# Parts of train_s, and what comes beside it; only gauges of the last step say them.
PARTS = ("ref_s", "logp_s", "reward_s")
COUNTED = {
    **TIMED,
    **{name: f"trainer.{name}_total" for name in PARTS},
    "samples": "trainer.trained_samples",
    "tokens": "trainer.trained_tokens",
}
OTHERS = ("reward_s", "checkpoint_s", "other_s")  # a log's timers beside them


class Steps(Struct, frozen=True):
    """Rows in the order of time, each one step or a few that ended between two looks.

    source: of the rows. end_s: (n,) unix seconds. count: (n,) steps in a row; NaN where only their seconds are known.
    elapsed_s: (n,) wall seconds from the row before. columns: wait_s, train_s, sync_s (seconds in the row), samples,
    tokens (trained in it), each (n,) with NaN where not known; columns_from: where they come from, None = as the rows.
    total: steps that ended in the window. notes: what had to be assumed. holes: (start, end) in which nobody knows how
    many steps ended; no row reaches over one.
    """

    source: From
    end_s: Floats
    count: Floats
    elapsed_s: Floats
    columns: dict[str, Floats] = field(default_factory=dict)
    columns_from: From | None = None
    total: float | None = None
    notes: tuple[Note, ...] = ()
    holes: tuple[tuple[float, float], ...] = ()

    def part(self, start_s: float, end_s: float) -> Steps:
        """The rows that ended after start_s and not after end_s."""
        return self.where((self.end_s > start_s) & (self.end_s <= end_s))

    def where(self, kept: Mask) -> Steps:
        """The rows of a mask (n,)."""
        columns = {name: values[kept] for name, values in self.columns.items()}
        return Steps(self.source, self.end_s[kept], self.count[kept], self.elapsed_s[kept], columns)

    def step_s(self) -> float | None:
        """Mean wall seconds of a step."""
        seconds, steps = sums_of(self.elapsed_s, self.count)
        return seconds / steps if steps > 0 else None

    def per_step(self, name: str) -> float | None:
        """Mean of a column per step, over the rows that have it."""
        total, steps = sums_of(self._values(name), self.count)
        return total / steps if steps > 0 else None

    def per_second(self, name: str) -> float | None:
        """A column's sum / wall seconds, over the rows that have it."""
        total, seconds = sums_of(self._values(name), self.elapsed_s)
        return total / seconds if seconds > 0 else None

    def _values(self, name: str) -> Floats:
        return self.columns.get(name, np.full(len(self.end_s), np.nan))


NO_STEPS = Steps("inferred", np.zeros(0), np.zeros(0), np.zeros(0))


def steps_of(history: History, pauses: tuple[Pause, ...], placement: str | None) -> Steps | None:
    """The steps of a window, from the best source that it has; None if nothing shows them."""
    if history.steps is not None and len(history.steps):
        return steps_of_log(history.steps)
    if "trainer.steps" in history.fleet and (steps := _from_counter(history)) is not None:
        return steps
    if "trainer.step_s" in history.fleet and (steps := _from_gauges(history)) is not None:
        return steps
    inferred = _from_pauses(pauses, placement)
    counted = _from_totals(history, inferred)
    return counted if counted is not None else inferred


def step_growth(values: Floats, step_s: float) -> Floats:
    """(T-1,) steps between grid times. A number that falls back to a checkpoint's is a trainer that resumed: none."""
    grown = increments(values, step_s)
    fell = np.flatnonzero((grown > 0) & np.isclose(grown, values[1:]) & (values[1:] < values[:-1]))
    usual = grown[np.isfinite(grown) & (grown > 0)]
    most = 2 + 3 * (float(np.median(usual)) if usual.size else 0.0)
    grown[fell[values[1:][fell] > most]] = 0.0
    return grown


def _from_counter(history: History) -> Steps | None:
    """A row per grid interval in which the step counter moved; the first one only says where the next begins.

    What lies around a hole is no row: its time spans the hole, its steps do not."""
    made = step_growth(history.fleet["trainer.steps"], history.step_s)
    ends = np.flatnonzero(np.nan_to_num(made) > 0) + 1
    total = float(made[np.isfinite(made)].sum())
    unknown = np.append(0, np.cumsum(~np.isfinite(made)))
    whole = unknown[ends[1:]] == unknown[ends[:-1]]
    if not whole.any():
        return None
    times = history.times[ends]
    columns: dict[str, Floats] = {}
    for name, counter in COUNTED.items():
        if (values := history.fleet.get(counter)) is not None:
            columns[name] = growth_between(history.times, values, times)
        elif (values := history.fleet.get(f"trainer.{name}")) is not None:  # a gauge of the last step
            columns[name] = values[ends[1:]] * made[ends[1:] - 1]
    elapsed = np.diff(times)
    rows = Steps("exported", times[1:], made[ends[1:] - 1], elapsed, _with_rest(columns, elapsed))
    return replace(rows.where(whole), total=total, holes=holes_of(history.times, np.isfinite(made)))


def _with_rest(columns: dict[str, Floats], elapsed: Floats) -> dict[str, Floats]:
    """Where rewards are timed beside the rest, they are other timers, and no unnamed time."""
    if "reward_s" not in columns or not set(TIMED) <= set(columns):
        return columns
    named = sum((columns[name] for name in (*TIMED, "reward_s")), np.zeros(len(elapsed)))
    return {**columns, "other_s": columns["reward_s"], "rest_s": np.maximum(elapsed - named, 0.0)}


def _from_gauges(history: History) -> Steps | None:
    """Only the last step's seconds s are exported: an interval in which they stood there held step / s of a step.

    So long steps, which stand there for longer, do not count for more."""
    last = history.fleet["trainer.step_s"][:-1]
    known = np.isfinite(last) & (last > 0)
    if not known.any():
        return None
    count = history.step_s / last[known]
    columns: dict[str, Floats] = {}
    for name, counter in COUNTED.items():
        if (values := history.fleet.get(f"trainer.{name}")) is not None:  # a gauge of the last step
            columns[name] = values[:-1][known] * count
        elif (values := history.fleet.get(counter)) is not None:
            columns[name] = increments(values, history.step_s)[known]
    text = "trainer.steps is not exported: the gauges of the last step are averaged over time / the step's seconds"
    elapsed = np.full(int(known.sum()), history.step_s)
    rows = Steps("exported", history.times[1:][known], count, elapsed, _with_rest(columns, elapsed))
    holes = holes_of(history.times, known)
    return replace(rows, total=float(count.sum()), notes=(Note("other", text),), holes=holes)


def _from_totals(history: History, inferred: Steps | None) -> Steps | None:
    """Seconds are counted, steps are not: shares of time are exact, a step's length is what the engines show."""
    columns = {name: increments(history.fleet[x], history.step_s) for name, x in TIMED.items() if x in history.fleet}
    if not columns:
        return None
    size = len(history.times) - 1
    step_s = inferred.step_s() if inferred is not None else None
    count = np.full(size, np.nan if step_s is None else history.step_s / step_s)
    read: Mask = np.logical_or.reduce([np.isfinite(values) for values in columns.values()])
    total = None if step_s is None else float(count[read].sum())
    holes = holes_of(history.times, read)
    text = (
        "trainer.steps shows no two steps: seconds per step rest on the period of the engines' pauses, if they have one"
    )
    rows = Steps("inferred", history.times[1:], count, np.full(size, history.step_s), columns, "exported")
    return replace(rows, total=total, notes=(Note("missing", text),), holes=holes)


def _from_pauses(pauses: tuple[Pause, ...], placement: str | None) -> Steps | None:
    """Colocated: from one emptiness to the next; the trainer computes and syncs while engines stand empty, and waits
    while they generate. Disaggregated: from one pause to the next, which is a step if every step syncs."""
    colocated = placement == "colocated"
    marks = [p for p in pauses if p.empty == colocated]
    if len(marks) < 3:
        return None
    starts = np.array([p.start_s for p in marks])
    distances = np.diff(starts)
    count = np.maximum(np.round(distances / np.median(distances)), 1.0)
    columns = {}
    if colocated:
        off = np.array([p.seconds for p in marks[:-1]])
        columns = {"train_s": off, "wait_s": distances - off}
        text = (
            "steps are inferred from the engines' on/off pattern: train includes weight sync and whatever else empties "
            "the engines"
        )
    else:
        text = (
            "steps are inferred from the period of the pauses: a step is taken to sync once; with a sync every k steps "
            "it is k times shorter"
        )
    rows = Steps("inferred", starts[1:], count, distances, columns)
    return replace(rows, total=float(count.sum()), notes=(Note("other", text),))


def steps_of_log(log: StepLog) -> Steps:
    """One row per step of a run log. Without a wait column the trainer waited while it generated and scored."""
    columns, size = log.columns, len(log)
    notes: list[Note] = []
    time_s, elapsed = columns.get("time_s", np.full(size, np.nan)), columns.get("step_s")
    holes: tuple[tuple[float, float], ...] = ()
    if elapsed is None:
        elapsed, holes = _between_rows(time_s)
    found = {name: columns[name] for name in ("wait_s", "train_s", "sync_s", "samples", "rest_s") if name in columns}
    others = [columns[name] for name in OTHERS if name in columns and np.nansum(columns[name]) > 0]
    if others and "rest_s" in columns:
        found["other_s"] = np.nansum(np.stack(others), axis=0)
    if "wait_s" not in columns and "trainer_idle" in columns:
        found["wait_s"] = columns["trainer_idle"] * elapsed
    elif "wait_s" not in columns and "generate_s" in columns:
        found["wait_s"] = columns["generate_s"] + np.nan_to_num(columns.get("reward_s", np.zeros(size)))
        notes.append(Note("other", "the log has no wait: generating and scoring count as waiting for samples"))
    if "output_tokens" in columns:
        found["tokens"] = columns["output_tokens"]
    elif "length_mean" in columns and "samples" in columns:
        found["tokens"] = columns["length_mean"] * columns["samples"]
    if not np.isfinite(time_s).any():
        time_s = np.cumsum(np.nan_to_num(elapsed))
    rows = Steps("log", time_s, np.ones(size), elapsed, found)
    return replace(rows, total=float(size), notes=tuple(notes), holes=holes)


def _between_rows(time_s: Floats) -> tuple[Floats, tuple[tuple[float, float], ...]]:
    """Seconds from each row of a log to the next, and where it paused: a job that stood and was resumed did no step."""
    elapsed = np.append(np.nan, np.diff(time_s))
    usual = elapsed[np.isfinite(elapsed)]
    most = max(MAX_HOLE_S, PAUSED * float(np.median(usual))) if usual.size else np.inf
    paused = np.flatnonzero(np.nan_to_num(elapsed) > most)
    holes = tuple((float(time_s[k - 1]), float(time_s[k])) for k in paused)
    elapsed[paused] = np.nan
    return elapsed, holes
