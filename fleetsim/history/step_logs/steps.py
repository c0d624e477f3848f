"""The steps of a log: one value per metric and step, columns that follow from others, and the first steps, left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.history.counters import summed
from fleetsim.history.history import Floats, Note
from fleetsim.history.step_logs.frameworks import CLOCKS, RUNNING, FrameworkLog
from fleetsim.history.step_logs.packed import RunLogTable, last_kept


class TableSteps(Struct, frozen=True):
    """numbers: (n,) of the steps, rising. values: metric -> (n,), NaN where not logged. again: rows that brought a step
    which was already there after a later one. resumed: (n,) steps with which the run went on from an earlier one.
    given_up: rows of steps that the run went back behind, and has not done again."""

    numbers: Floats
    values: Mapping[str, Floats]
    again: int
    resumed: NDArray[np.bool_]
    given_up: int = 0


def steps_of_table(table: RunLogTable, known: FrameworkLog, names: Mapping[str, str]) -> TableSteps:
    """The steps of a table. names: metric -> its name in the table.

    Rows without a step number belong to the next row that has one, and so do rows that say nothing but what the
    framework logs in rows of its own (`FrameworkLog.added`): that is added up, of the rest the last counts. Rows that
    say nothing about a step (a table of samples) are passed over. Without any step number every row is a step.
    """
    columns = {metric: table.column(name) for metric, name in names.items()}
    told = {m: c for m, c in columns.items() if m not in {*CLOCKS, *RUNNING, *known.step}}
    says, own_step = (np.zeros(len(table), dtype=bool) for _ in range(2))
    for metric, column in told.items():
        says |= np.isfinite(column)
        if metric not in known.added:
            own_step |= np.isfinite(column)
    counters = (columns[s] for s in known.step if s in columns)
    counter = next((c for c in counters if np.isfinite(c).any()), None)
    at = np.cumsum(own_step, dtype=float) if counter is None else counter
    at = np.where(own_step & np.isfinite(at), at, np.nan)
    every = np.flatnonzero(np.isfinite(at) & says)
    rows = every[at[every] <= last_kept(at[every])]
    numbers, first, place = np.unique(at[rows], return_index=True, return_inverse=True)
    loose = np.flatnonzero(~np.isfinite(at) & says).astype(np.int64)
    follower = np.searchsorted(rows, loose)
    loose, follower = loose[follower < len(rows)], follower[follower < len(rows)].astype(np.int64)
    values = {}
    for metric, column in columns.items():
        out = np.full(len(numbers), np.nan)
        some = np.isfinite(column[loose])
        row, said = follower[some], column[loose[some]]
        if metric not in known.added:
            out[place[row]] = said
        elif len(row):
            sums, each = np.bincount(row, weights=said), np.unique(row)
            out[place[each]] = sums[each]
        own = np.isfinite(column[rows])
        out[place[own]] = column[rows][own]
        if np.isfinite(out).any():
            values[metric] = out
    highest = np.maximum.accumulate(at[rows]) if len(rows) else at[rows]
    again = (at[rows] < highest) & (first[place] < np.arange(len(rows)))
    resumed = np.isin(numbers, at[rows][again & (np.diff(at[rows], prepend=-np.inf) < 0)])
    return TableSteps(numbers, values, int(again.sum()), resumed, len(every) - len(rows))


# What a step is made of, where its parts come one after the other.
PARTS = ("wait_s", "train_s", "sync_s", "handover_s", "reward_s", "checkpoint_s", "other_s")
# What train_s is made of.
TRAINING = ("update_s", "logp_s", "ref_s", "logps_s", "experience_s", "values_s", "advantage_s")
# Of a group's size: how far from a whole number the quotient of samples and groups may be.
_WHOLE = 0.05
# Counted in groups by some frameworks, in samples by others and by fleetsim.
_COUNTED = ("queue", "dropped", "in_flight", "in_flight_cap", "generated")


def derive(
    columns: dict[str, Floats],
    values: Mapping[str, Floats],
    resumed: NDArray[np.bool_],
    serial: bool,
    rest: str | None = None,
) -> list[Note]:
    """Adds the columns that follow from others, and returns a note on each. resumed: as of `TableSteps`. serial:
    whether a step's parts come one after the other, beside a total of its own. rest: the part that is what the others
    leave of a step."""
    clocked = _step_seconds(columns, values, resumed)
    if "tool_s_mean" not in columns and {"tool_calls_mean", "tool_call_s_mean"} <= set(columns):
        columns["tool_s_mean"] = columns["tool_calls_mean"] * columns["tool_call_s_mean"]
    _training(columns)
    if rest is not None and rest not in columns and {"step_s", "wait_s"} - {rest} <= set(columns):
        named = _named(columns, [part for part in PARTS if part != rest])
        columns[rest] = np.maximum(columns["step_s"] - named, 0.0)
        if rest == "wait_s":  # of a synchronous step, whose generation no timer has
            columns["generate_s"] = columns["wait_s"]
        _training(columns)
    notes = [*clocked, *_summed(columns), *_samples(columns), *_groups(columns), *_tokens(columns)]
    wait = columns.get("wait_s")  # of a generation that no timer has
    if wait is not None and "generate_s" not in columns and columns["step"][0] in (0, 1) and np.isfinite(wait[0]):
        lengths = columns.get("length_mean", np.ones(len(columns["step"])))
        # the first to be there are the shortest: the length of then is that of the batches after it
        then = np.nanmedian(lengths[1 : 1 + EARLY]) if len(lengths) > EARLY else lengths[0]
        columns["first_batch_s"] = wait[0] * lengths / (then if then > 0 else np.nan)
    if serial and {"step_s", "wait_s", "train_s"} <= set(
        columns
    ):  # in no named timer, where wait and compute are known
        left = np.maximum(columns["step_s"] - _named(columns, PARTS), 0.0)
        columns["rest_s"] = np.where(np.isfinite(columns["wait_s"] + columns["train_s"]), left, np.nan)
    return notes


def _training(columns: dict[str, Floats]) -> None:
    """The trainer's seconds from their parts; or, where it is timed whole, what the others leave for the update."""
    parts = [part for part in TRAINING if part in columns]
    if "train_s" not in columns and parts:
        columns["train_s"] = summed([columns[part] for part in parts])
    elif "train_s" in columns and parts and "update_s" not in parts:
        columns["update_s"] = np.maximum(columns["train_s"] - _named(columns, parts), 0.0)


def _named(columns: Mapping[str, Floats], parts: Sequence[str]) -> Floats:
    """(n,) seconds of these parts together; what a row does not say counts nothing."""
    return sum((np.nan_to_num(columns[part]) for part in parts if part in columns), np.zeros(len(columns["step"])))


def _step_seconds(columns: dict[str, Floats], values: Mapping[str, Floats], resumed: NDArray[np.bool_]) -> list[Note]:
    clock = columns.get("time_s", next((values[r] for r in RUNNING if r in values), None))
    if "step_s" in columns or clock is None or len(clock) < 2:
        return []
    apart = np.diff(clock) / np.maximum(np.diff(columns["step"]), 1)
    # from the row before a restart to the first one after it the run stood still
    columns["step_s"] = np.r_[np.nan, np.where((apart > 0) & ~resumed[1:], apart, np.nan)]
    return [Note("other", "The log has no step time: it is taken from the times between rows.")]


def _summed(columns: dict[str, Floats]) -> list[Note]:
    """A step without time and clock."""
    if "step_s" in columns or not {"wait_s", "train_s"} <= set(columns):
        return []
    parts = [columns[part] for part in (*PARTS, "eval_s") if part in columns]
    columns["step_s"] = np.nansum(np.stack(parts), axis=0)
    return [Note("other", "The log has neither a step time nor a clock: a step is the sum of its named parts.")]


def _samples(columns: dict[str, Floats]) -> list[Note]:
    if "samples" in columns:
        return []
    if {"total_tokens", "length_mean", "prompt_mean"} <= set(columns):
        length = columns["length_mean"] + columns["prompt_mean"]
        columns["samples"] = np.round(columns["total_tokens"] / np.where(length > 0, length, np.nan))
        return [Note("other", "Samples per step: all tokens / (mean prompt + mean output length).")]
    if {"groups", "group_size"} <= set(columns):
        columns["samples"] = columns["groups"] * columns["group_size"]
    return []


def _groups(columns: dict[str, Floats]) -> list[Note]:
    """Groups per step, the size of a group, and in samples what the framework counts in groups."""
    if "groups" not in columns and "pull_groups" in columns:
        pulls = columns.get("pulls", np.ones(len(columns["step"])))
        usual = float(np.nanmedian(pulls)) if np.isfinite(pulls).any() else 1.0
        columns["groups"] = columns["pull_groups"] * np.where(np.isfinite(pulls), pulls, usual)
    size = _group_size(columns)
    if size is None:
        counted = [c for c in _COUNTED if f"{c}_groups" in columns and f"{c}_samples" not in columns]
        if not counted:
            return []
        text = f"counted in groups, and the log does not say of how many samples: {', '.join(counted)}"
        return [Note("missing", text)]
    columns.setdefault("group_size", np.full(len(columns["step"]), size))
    for name in _COUNTED:
        if f"{name}_groups" in columns and f"{name}_samples" not in columns:
            columns[f"{name}_samples"] = columns[f"{name}_groups"] * size
    if "groups" in columns:
        return [Note("other", f"A group has {size:g} samples: samples per step / groups per step.")]
    return []


def _group_size(columns: Mapping[str, Floats]) -> float | None:
    """Of the log, or samples / groups where that is a whole number in most steps."""
    if "group_size" in columns:
        found = columns["group_size"]
        return float(np.nanmedian(found)) if np.isfinite(found).any() else None
    if not {"samples", "groups"} <= set(columns):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        each = columns["samples"] / columns["groups"]
    each = each[np.isfinite(each)]
    size = float(np.median(each)) if each.size else 0.0
    return float(round(size)) if size >= 1 - _WHOLE and abs(size - round(size)) <= _WHOLE * size else None


def _tokens(columns: dict[str, Floats]) -> list[Note]:
    if {"output_tokens", "samples"} <= set(columns) and "length_mean" not in columns:
        samples = np.where(columns["samples"] > 0, columns["samples"], np.nan)
        columns["length_mean"] = columns["output_tokens"] / samples
        return [Note("other", "Mean output length: output tokens / samples.")]
    if "output_tokens" in columns or not {"samples", "length_mean"} <= set(columns):
        return []
    columns["output_tokens"] = columns["samples"] * columns["length_mean"]
    return [Note("other", "Output tokens per step: samples x mean output length.")]


EARLY = 5  # batches by which the responses of a run's beginning are judged
# Steps of a log below which its first ones are not told from the others, and the share of it that they are at most.
FEWEST, MOST = 12, 0.25
# A first step stands out where it is off the later ones' median by half of it, and by so many of their robust
# standard deviations. A trend does neither: its own scatter is as wide as it is long.
OFF, DEVIATIONS = 0.5, 6.0
# The very first step begins with an empty pipeline: it stands out where it is off by less.
FIRST_OFF, FIRST_DEVIATIONS = 0.4, 3.5
# What shows it: seconds are longer, responses may be either.
_LONGER, _EITHER = ("step_s", "train_s"), ("length_mean",)


def warm_up(columns: Mapping[str, Floats]) -> tuple[int, Note | None]:
    """How many of a step log's first rows are no steady step of the job, and a note that says so.

    columns: of a `StepLog`. A beginning that does not end within a quarter of the log is no warm-up: what the run is
    like then has changed within it, and is for the reader to see.
    """
    size = len(next(iter(columns.values()), ()))
    most = int(MOST * size)
    if size < FEWEST:
        return 0, None
    lasts = {n: _leading(columns[n], most, n in _EITHER) for n in (*_LONGER, *_EITHER) if n in columns}
    count = max(lasts.values(), default=0)
    if count == 0:
        return 0, None
    name = max(lasts, key=lambda n: (lasts[n], n in _LONGER))
    shown = units.tokens if name in _EITHER else units.seconds
    what = {"step_s": "a step took", "train_s": "the trainer computed", "length_mean": "responses had"}[name]
    values = columns[name]
    first, later = float(values[np.isfinite(values)][0]), _later(values, most)[0]
    tokens = " tokens" if name in _EITHER else ""
    many = "step is" if count == 1 else f"{count} steps are"
    text = (
        f"The first {many} left out: warming up (compiling, filling caches), {what} {shown(first)}{tokens} at first, "
        f"{shown(later)} later."
    )
    return count, Note("other", text, count / size)


def _later(values: Floats, most: int) -> tuple[float, float]:
    """Median and robust standard deviation of what comes after any warm-up."""
    rest = values[most:][np.isfinite(values[most:])]
    if not rest.size:
        return np.nan, np.nan
    middle = float(np.median(rest))
    return middle, 1.4826 * float(np.median(np.abs(rest - middle)))


def _leading(values: Floats, most: int, either: bool) -> int:
    """Rows at the beginning that stand out, among them those that say nothing; 0 where they do not end within `most`,
    or all say nothing."""
    middle, scatter = _later(values, most)
    away = values[: most + 1] - middle
    off = (np.abs(away) if either else away) > max(OFF * middle, DEVIATIONS * scatter)
    known = np.flatnonzero(np.isfinite(away))
    if not either and known.size:
        off[known[0]] |= away[known[0]] > max(FIRST_OFF * middle, FIRST_DEVIATIONS * scatter)
    inside = np.flatnonzero(~off & np.isfinite(away))
    last = int(inside[0]) if inside.size else 0
    return last if off[:last].any() else 0
