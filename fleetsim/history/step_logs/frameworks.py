"""The step logs of RL frameworks: what they can say (columns), and whose a log is, in which mode it was written.

The tables are in `frameworks.txt`; here they are read, and what a name in a log means is looked up in them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec import Struct, field

from fleetsim.history.history import Floats
from fleetsim.records import tables_of

SYNC, ASYNC = "synchronous", "asynchronous"
_ALL_WAIT = (
    "A synchronous step: the whole generation counts as the trainer's wait (on shared GPUs they generate meanwhile)."
)
Values = Mapping[str, Floats]
"""Metric -> its numbers, a step each."""

CLOCKS = ("_timestamp", "timestamp", "time", "time_s", "Wall Time", "wall_time")
RUNNING = ("_runtime", "elapsed_time", "Relative Time (Process)", "Relative Time (Wall)")

How = Literal["first", "sum", "growth", "rest", "next", "percent"]
FORMS: Mapping[How, str] = {
    "growth": "growth of {}",
    "rest": "1 - {}",
    "percent": "{} / 100",
    "next": "{} of the next row",
}
"""How a column is made of one metric, in words."""


class Entry(Struct, frozen=True):
    """One column and the metrics that it comes from.

    how: first = the first of the metrics that the log has; sum = all that it has; growth = increase of a running total
    from the step before; rest = one minus the metric; percent = a hundredth of it; next = the metric of the following
    row (it tells of the step before). minus: metrics taken off (counted 0 where absent, the result at least 0).
    modes: only in these; () = all. unit: what one of the metric is in the column's unit.
    """

    column: str
    metrics: tuple[str, ...]
    how: How = "first"
    minus: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    unit: float = 1.0

    def __str__(self) -> str:
        text = (" + " if self.how == "sum" else ", else ").join(f"`{m}`" for m in self.metrics)
        text = FORMS.get(self.how, "{}").replace("{}", text)
        return text + "".join(f" - `{m}`" for m in self.minus)


class FrameworkLog(Struct, frozen=True):
    """A framework's step log.

    source: where the names are written. marks: a log that has one of them is this framework's. step: metrics with the
    step's number, best first. added: metrics logged in rows of their own, which add up until the step's row. modes:
    mode -> patterns of metrics that tell it, of the last one none. notes: per mode, what its columns mean. overlaps:
    modes in which parts run side by side, or in which the step is no more than their sum. rests: mode -> the part of a
    step that no metric says alone: what wait and compute leave of it. older: how names begin -> how they began in
    earlier releases. tools_in_length: its output lengths count what tools answered as well. cures: cause -> settings
    that mend it. printed: what its console says -> the metric that it is. logs: words in the names of the logs that one
    run writes, the one whose numbers count first. each: metrics that stand once for each domain, and add up.
    """

    name: str
    source: str
    marks: tuple[str, ...]
    step: tuple[str, ...]
    entries: tuple[Entry, ...]
    added: tuple[str, ...] = ()
    modes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    overlaps: tuple[str, ...] = ()
    rests: Mapping[str, str] = field(default_factory=dict)
    older: Mapping[str, str] = field(default_factory=dict)
    tools_in_length: bool = False
    cures: Mapping[str, str] = field(default_factory=dict)
    printed: Mapping[str, str] = field(default_factory=dict)
    logs: tuple[str, ...] = ()
    each: tuple[str, ...] = ()

    def mode(self, names: Collection[str], values: Values) -> str:
        """The mode that the log was written in. names: every metric of it; values: of those that are read."""
        if self.name in _JUDGED:
            return _JUDGED[self.name](values)
        for mode, marks in self.modes.items():
            if not marks or any(fnmatchcase(name, mark) for name in names for mark in marks):
                return mode
        return ""

    def serial(self, mode: str) -> bool:
        """Whether the parts of a step come one after the other, beside a total that a clock took: then what is missing
        between them is time in no named timer."""
        return mode not in self.overlaps

    def metrics(self) -> frozenset[str]:
        """Every name that the table speaks of, and their older ones."""
        now = {m for e in self.entries for m in (*e.metrics, *e.minus)} | {*self.step, *self.marks}
        return frozenset(now | set(map(self.before, now)))

    def before(self, metric: str) -> str:
        """What a metric was called in earlier releases; itself where it was no other."""
        found = next((begin for begin in self.older if metric.startswith(begin)), None)
        return metric if found is None else self.older[found] + metric.removeprefix(found)


_LITTLE = 0.02  # of a step
_HELD = 0.2  # of the steps: in so many the trainer waits for the lock
_OPENRLHF_PARTS = ("timing/make_experience", "timing/ppo_train", "timing/broadcast", "timing/generation")


def _openrlhf_mode(values: Values) -> str:
    """Synchronous: step_total is written as the sum of its parts. Asynchronous: it is a clock's, and parts overlap."""
    parts = [values[n] for n in _OPENRLHF_PARTS if n in values]
    total = values.get("timing/step_total")
    if total is None or not parts:
        return SYNC
    off = np.abs(total - np.nansum(np.stack(parts), axis=0))
    off = off[~np.isnan(off)]
    if not off.size or np.median(off) <= 1e-6 * np.nanmedian(total):
        return SYNC
    if not set(_OPENRLHF_PARTS) <= set(values):
        return ASYNC
    # Without partial rollouts a broadcast waits for the lock that the generation holds: then no time is left to wait
    # for the queue, and a generation takes longer than the training beside it, perhaps since some step.
    trained = values["timing/make_experience"] + values["timing/ppo_train"]
    left, small = np.nanmedian(total - trained - values["timing/broadcast"]), _LITTLE * np.nanmedian(total)
    return "locked" if left <= small and _waits_for_lock(values, trained, small) else ASYNC


def _waits_for_lock(values: Values, trained: Floats, least: float) -> bool:
    """Whether the broadcasts take as much longer as the next generation does, from step to step, where that takes
    longer than the training beside it: where both took a step at once, as of a slower sync beside engines that are
    always busy, they are two."""
    held, broadcast = values["timing/generation"][1:] - trained[:-1], values["timing/broadcast"][:-1]
    longer = (held > least) & np.isfinite(broadcast)
    moved, apart = (np.abs(np.diff(x))[longer[1:] & longer[:-1]] for x in (held, broadcast - held))
    return longer.mean() >= _HELD and bool(np.median(apart) <= 0.5 * np.median(moved))


_WHOLE = 0.05  # of a generation: what a wait may be shorter and still be all of it


def _slime_mode(values: Values) -> str:
    """Synchronous: the trainer waits for as long as the whole generation takes."""
    if not {"perf/train_wait_time", "perf/rollout_time"} <= set(values):
        return ASYNC
    others = (values[n] for n in ("perf/update_weights_time", "perf/save_model_time") if n in values)
    wait = np.nanmedian(values["perf/train_wait_time"] - sum(map(np.nan_to_num, others)))
    return SYNC if wait >= (1 - _WHOLE) * np.nanmedian(values["perf/rollout_time"]) else ASYNC


_RLINF_PARTS = (
    *("time/rollout", "time/reward", "time/sync_weights", "time/actor/inference", "time/inference"),
    *("time/actor/training", "time/training"),
)


def _rlinf_mode(values: Values) -> str:
    """Overlapping: the parts of a step are longer than the step, as where a pipeline works on parts of a batch."""
    parts = [values[n] for n in _RLINF_PARTS if n in values]
    if "time/construct_rollout_batch" in values:
        return ASYNC
    if "time/step" not in values or not parts:
        return "serial"
    together = np.nanmedian(np.nansum(np.stack(parts), axis=0))
    return "overlapping" if together > (1 + _LITTLE) * np.nanmedian(values["time/step"]) else "serial"


_JUDGED: Mapping[str, Callable[[Values], str]] = {
    "openrlhf": _openrlhf_mode,
    "slime": _slime_mode,
    "rlinf": _rlinf_mode,
}
"""Of frameworks whose mode no name tells, only numbers."""

# What a tracker's or a trainer's wrapper puts before every name, also before one without a "/".
_WRAPPED = ("train/",)
# Measured on other samples than the step's.
_OTHERS = ("eval", "val", "test", "valid", "validation")


def resolved(names: Iterable[str], known: Collection[str]) -> Mapping[str, str]:
    """Known metric -> the name that the log has for it.

    A name matches itself; behind `train/`; or, if it has a "/" in it, behind any other prefix but an evaluation's
    (`rank0/timing_s/step` is `timing_s/step`). A prefix that was found so stands before names without a "/" as well
    (`rank0/step_time`). Of several the shortest prefix counts.
    """
    found: dict[str, str] = {}
    bare: list[tuple[str, str]] = []
    for name in names:
        metric = known_as(name, known)
        if metric is None:
            prefix, _, last = name.rpartition("/")
            bare += [(prefix, last)] if last in known else []
        elif metric not in found or len(name) < len(found[metric]):
            found[metric] = name
    prefixes = {name.removesuffix(metric)[:-1] for metric, name in found.items() if name != metric}
    for prefix, last in bare:
        if prefix in prefixes:
            found.setdefault(last, f"{prefix}/{last}")
    return found


def known_as(name: str, known: Collection[str]) -> str | None:
    """The known metric that a name of a log stands for; None where it is none."""
    if name in known:
        return name
    for prefix in _WRAPPED:
        if name.removeprefix(prefix) in known:
            return name.removeprefix(prefix)
    first, slash, rest = name.partition("/")
    while slash and first.lower() not in _OTHERS:
        if "/" in rest and rest in known:
            return rest
        first, slash, rest = rest.partition("/")
    return None


_LISTS = ("added", "logs", "each")
_TOLD = ("source", "marks", "step", "older", "mode", "overlaps", "tools in length", *_LISTS)
_OF = ("note", "rest", "do", "printed")


def _framework(name: str, rows: Iterable[Sequence[str]]) -> FrameworkLog:
    told: dict[str, str] = {}
    entries: list[Entry] = []
    for key, text, *modes in rows:
        if key in COLUMNS and key != "step":
            entries.append(_entry(key, text, *modes))
        elif key in _TOLD or key.partition(" ")[0] in _OF:
            told[key] = text
        else:
            raise ValueError(f"frameworks.txt, [{name}]: {key} is no column")
    notes, rests, cures, printed = (_told_of(rows, word) for word in _OF)
    now, _, before = told.get("older", "").partition(" was ")
    lists = {key: tuple(told[key].split(", ")) if key in told else () for key in ("marks", "step", *_LISTS)}
    # `A if m or n, else B`
    modes = (one.removeprefix("else ").partition(" if ") for one in told.get("mode", "").split(", "))
    return FrameworkLog(
        name,
        told["source"],
        lists.pop("marks"),
        lists.pop("step"),
        tuple(entries) or tuple(Entry(column, (column,)) for column in list(COLUMNS)[2:]),
        modes={mode: tuple(marks.split(" or ")) if marks else () for mode, _, marks in modes if mode},
        notes={mode: text.replace("{all wait}", _ALL_WAIT) for mode, text in notes.items()},
        overlaps=tuple(told["overlaps"].replace("all", "").split(", ")) if "overlaps" in told else (),
        rests=rests,
        older={now: before} if now else {},
        tools_in_length="tools in length" in told,
        cures=cures,
        printed=printed,
        **lists,
    )


def _told_of(rows: Iterable[Sequence[str]], word: str) -> dict[str, str]:
    """Of the rows that begin with a word, what stands behind it (each of several) -> the text."""
    told = [(key[len(word) + 1 :], text) for key, text, *_ in rows if key.partition(" ")[0] == word]
    return {one: text for names, text in told for one in names.split(", ")}


def _entry(column: str, formula: str, modes: str = "") -> Entry:
    only = tuple(modes.split(", ")) if modes else ()
    for how, form in FORMS.items():
        before, after = form.split("{}")
        if (found := re.fullmatch(rf"{re.escape(before)}(\S+){re.escape(after)}((?: - \S+)*)", formula)) is not None:
            return Entry(column, (found[1],), how, tuple(found[2].split(" - ")[1:]), only)
    metrics, *minus = formula.split(" - ")
    if " + " in metrics:
        return Entry(column, tuple(metrics.split(" + ")), "sum", tuple(minus), only)
    return Entry(column, tuple(metrics.split(", else ")), "first", tuple(minus), only)


_TABLES = tables_of(Path(__file__).with_name("frameworks.txt"))
COLUMNS: Mapping[str, str] = {name: meaning for name, meaning in _TABLES.pop("columns")}  # noqa: C416 - typed
"""The columns of a `StepLog`, and what they mean."""
ANY_CURES = _told_of(_TABLES.pop("any"), "do")
"""Cause -> what to do where the framework has no row of its own."""
FRAMEWORKS = tuple(_framework(name, rows) for name, rows in _TABLES.items())
BY_NAME = {framework.name: framework for framework in FRAMEWORKS}
