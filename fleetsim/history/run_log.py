"""A framework's step log as a `History`: its `StepLog`, and notes of what the log does not say.

What is read of a framework's step log, line by line: `fleetsim scenario schema --log FRAMEWORK`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from fleetsim import units
from fleetsim.config.tree import did_you_mean
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag, text
from fleetsim.history.column_map import alike, entries_of, in_unit, shown
from fleetsim.history.counters import summed
from fleetsim.history.faults import representable
from fleetsim.history.history import Floats, History, Note, StepLog
from fleetsim.history.option_names import FRAMEWORK, mapped
from fleetsim.history.step_logs.frameworks import (
    BY_NAME,
    CLOCKS,
    COLUMNS,
    FRAMEWORKS,
    RUNNING,
    Entry,
    FrameworkLog,
    known_as,
    resolved,
)
from fleetsim.history.step_logs.packed import RunLogTable
from fleetsim.history.step_logs.rows import read_rows
from fleetsim.history.step_logs.steps import TRAINING, TableSteps, derive, steps_of_table, warm_up
from fleetsim.records import replace

_MAIN = ("step_s", "wait_s", "train_s", "sync_s", "samples", "length_mean")

_FEW = 6  # names shown of many

_ONE_ANSWER = 2.05  # turns of a sample without tools, and a little
_COLUMN = mapped("step_s", "COLUMN")
KNOWN = frozenset().union(*(f.metrics() for f in FRAMEWORKS)) | {*CLOCKS, *RUNNING}


def read_run_log(path: Path | str, framework: str | None = None, mapping: Mapping[str, str] | None = None) -> History:
    """The log as a History without instances.

    framework: a name of docs/run_logs.md; None = told by the columns. mapping: column (or `trainer.step_s` and the
    like) -> metric, which then counts alone for it. Rows of one step are one; where a step number comes again (a
    resumed run, a row twice), the last value of each metric counts. First steps that warm up are left out
    (`history/step_logs/steps.py`), and said to be. Raises InputError.
    """
    path, mapping = Path(path), mapping or {}
    table, notes = read_rows(path, wanted(mapping))
    return run_log(table, path, framework, mapping, notes)


def wanted(mapping: Mapping[str, str]) -> Callable[[str], bool]:
    """Whether a metric of a log is one that any framework's table, or the user, speaks of."""
    mapped = {metric for name in mapping.values() for metric in (name, in_unit(name)[0])}

    def any_of(name: str) -> bool:
        bare = name.rpartition("/")[2]
        return (
            name in mapped
            or known_as(name, KNOWN) is not None
            or bare in KNOWN
            or name.removeprefix("train/") in mapped
        )

    return any_of


def run_log(
    table: RunLogTable, path: Path, framework: str | None, mapping: Mapping[str, str], notes: Sequence[Note] = ()
) -> History:
    """The same of rows that are already read, from wherever: path names them."""
    notes = list(notes)
    given = entries_of(mapping, _names(table.names), path)
    known = _framework(framework, table.framework, _names(table.names), given, path)
    entries = (*given, *(e for e in known.entries if e.column not in {g.column for g in given}))
    known = replace(known, entries=entries)
    for metric in known.each:
        if len(parts := [name for name in table.names if known_as(name, {metric}) is not None]) > 1:
            table.add_up(metric, parts)
    names = {**_found(table.names, known), **{m: m for entry in given for m in entry.metrics if m in table.names}}
    steps = steps_of_table(table, known, names)
    if not len(steps.numbers):
        rule = "no row says anything about a step"
        raise InputError([Problem(str(path), shown(table.names), rule, "give the training log, not the evaluation's")])
    values = {metric: representable(metric, value, notes) for metric, value in steps.values.items()}
    mode = known.mode({*table.names, *names}, values)
    columns = {"step": steps.numbers}
    metrics: dict[str, str] = {}
    clock = next((t for c in CLOCKS if c in values and (t := _clock(values[c])) is not None), None)
    if clock is not None:
        columns["time_s"] = clock
    for entry in known.entries:
        if entry.column not in columns and (not entry.modes or mode in entry.modes):
            found = _value(entry, values)
            if found is not None:
                columns[entry.column] = found
                metrics[entry.column] = _made_of(entry, values)
    notes += derive(columns, values, steps.resumed, known.serial(mode), known.rests.get(mode))
    parts = sorted((-float(np.nansum(columns[part])), metrics[part]) for part in TRAINING if part in metrics)
    if parts and "train_s" in columns:
        large = [metric for seconds, metric in parts if seconds <= 0.01 * parts[0][0]]
        metrics.setdefault("train_s", units.few(large, 3, " + "))
    notes += _renamed_notes(names)
    if known.notes.get(mode):
        notes.append(Note("other", known.notes[mode]))
    notes += _again_notes(steps, columns)
    turns = columns.get("turns_mean")
    # a turn is a message: one of the user and one of the model where there is no tool
    if known.tools_in_length and turns is not None and np.nanmedian(turns) > _ONE_ANSWER:
        said = "Several turns: the output lengths have the tools' answers in them, which no engine generated."
        notes.append(Note("other", said))
    notes += _missing_notes(columns)
    if not set(columns) - {"step", "time_s"}:
        rule = f"none of the columns that fleetsim knows of {known.name} is in it"
        raise InputError(
            [Problem(str(path), shown(table.names), rule, text("map them: {} (docs/run_logs.md)", _COLUMN))]
        )
    first, warming = warm_up(columns)
    notes += [] if warming is None else [warming]
    log = StepLog(known.name, columns, metrics).where(slice(first, None))
    times, step_s = _window(log.columns)
    return History(times, step_s, (), {}, {}, {}, (), log, tuple(notes), f"{path.name} ({known.name})")


def _clock(stamps: Floats) -> Floats | None:
    """Unix seconds (of milliseconds too); None where the column counts something else, or from the run's start."""
    seconds = np.where(stamps > 1e11, stamps / 1000, stamps)
    seconds[~((seconds > 1e8) & (seconds < 1e11))] = np.nan
    return None if np.isnan(seconds).all() else seconds


def _names(names: Collection[str]) -> set[str]:
    """Metric names, also as the tables know them: without what trackers put in front."""
    return {*names, *(n.removeprefix("train/") for n in names), *resolved(names, KNOWN)}


def _renamed_notes(names: Mapping[str, str]) -> list[Note]:
    """Which metrics were found under another name than the framework's own."""
    other = [f"{metric} as {name}" for metric, name in sorted(names.items()) if name != metric]
    if not other or all(name in (m, f"train/{m}") for m, name in names.items()):
        return []
    return [Note("rename", f"Found by pattern: {units.few(other, _FEW)}.")]


def framework_of(name: str) -> FrameworkLog:
    """The framework of a name. Raises InputError, with the nearest name."""
    if name not in BY_NAME:
        rule = "no framework of this name is known"
        raise InputError([Problem(FRAMEWORK, name, rule, did_you_mean(name.lower(), BY_NAME))])
    return BY_NAME[name]


def _framework(
    name: str | None, console: str | None, names: Collection[str], given: Sequence[Entry], path: Path
) -> FrameworkLog:
    """The framework that was named, or whose marks the columns bear, or of whose form the console is."""
    if name is not None:
        named = framework_of(name)
        if not given and not any(m in names for e in named.entries for m in e.metrics):
            rule = f"none of the columns that fleetsim knows of {name} is in it"
            raise InputError([Problem(str(path), shown(names), rule, text("leave {} out, or {}", FRAMEWORK, _COLUMN))])
        return named
    found = {f.name: sum(m in names for m in f.marks) for f in FRAMEWORKS}
    best = [n for n, marks in found.items() if marks and marks == max(found.values())]
    if console is not None and (console in best or not best):
        return BY_NAME[console]
    if len(best) == 1:
        return BY_NAME[best[0]]
    if best:
        rule = f"the columns could be {' or '.join(best)}"
        raise InputError([Problem(str(path), shown(names), rule, text("say which: {}", flag("framework", best[0])))])
    if given:
        return BY_NAME["plain"]
    rule = "the columns are of no step log that fleetsim knows"
    maps = [mapped(column, shlex.quote(name)) for column, name in alike(names).items()] or [_COLUMN]
    maps = text(" ".join(["{}"] * len(maps)), *maps)
    remedy = text("{} ({}), or name columns: {} (docs/run_logs.md)", FRAMEWORK, ", ".join(BY_NAME), maps)
    raise InputError([Problem(str(path), shown(names), rule, remedy)])


def _found(names: Collection[str], known: FrameworkLog) -> dict[str, str]:
    """Metric of the table -> its name in the log, where need be an older one."""
    found = dict(resolved(names, known.metrics() | {*CLOCKS, *RUNNING}))
    for metric in sorted(known.metrics()):
        if metric not in found and (older := known.before(metric)) in found:
            found[metric] = found[older]
    return found


def _value(entry: Entry, values: Mapping[str, Floats]) -> Floats | None:
    there = [values[m] for m in entry.metrics if m in values]
    if not there:
        return None
    out = summed(there) if entry.how == "sum" else there[0].copy()
    if entry.how != "sum":
        for other in there[1:]:
            out = np.where(np.isnan(out), other, out)
    if entry.how == "growth":
        out = np.r_[np.nan, np.diff(out)]
        out[out <= 0] = np.nan  # the total began anew
    elif entry.how == "rest":
        out = 1 - out
    elif entry.how == "percent":
        out = out / 100.0
    elif entry.how == "next":
        out = np.r_[out[1:], np.nan]
    if entry.unit != 1.0:
        out = out * entry.unit
    for metric in entry.minus:
        if metric in values:
            out = np.maximum(out - np.nan_to_num(values[metric]), 0)
    return None if np.isnan(out).all() else out


def _made_of(entry: Entry, values: Mapping[str, Floats]) -> str:
    """The metrics behind a column, as the framework calls them: all that are summed, else the first."""
    there = [metric for metric in entry.metrics if metric in values]
    if entry.how != "sum":
        return there[0]
    most = max(float(np.nansum(values[metric])) for metric in there)
    large = [m for m in there if float(np.nansum(values[m])) > 0.01 * most] or there[:1]
    return units.few(large, 3, " + ")


def _again_notes(steps: TableSteps, columns: Mapping[str, Floats]) -> list[Note]:
    notes = []
    if again := steps.again:
        text = f"{again} rows bring a step that was there before a later one (a resumed run): the last of each counts."
        notes.append(Note("duplicate", text, again / len(columns["step"])))
    if steps.given_up:
        text = f"The run went back to an earlier step: {steps.given_up} rows of steps beyond its last one are left out."
        notes.append(Note("duplicate", text))
    gaps = np.diff(columns["step"])
    if gaps.size and np.median(gaps) > 1:
        text = f"One row stands for {np.median(gaps):g} steps (logging interval); its numbers are taken as one step's."
        notes.append(Note("other", text))
    elif (gaps > 1).any():
        lost = int((gaps - 1)[gaps > 1].sum())
        text = f"{lost} step numbers are missing between the first and the last."
        notes.append(Note("gap", text, lost / (lost + len(gaps) + 1)))
    return notes


def _missing_notes(columns: Mapping[str, Floats]) -> list[Note]:
    notes = [Note("missing", f"The log does not say {c}: {COLUMNS[c]}.") for c in _MAIN if c not in columns]
    for c in _MAIN:
        holes = float(np.isnan(columns[c]).mean()) if c in columns else 0.0
        if holes > 0 and len(columns[c]) * holes > 1.5:
            notes.append(Note("partial", f"{c} is missing in {units.share(holes, 0)} of the steps.", holes))
    if "time_s" not in columns:
        text = "The log has no clock: its window begins at 0 and is as long as its steps."
        notes.append(Note("missing", text))
    return notes


def _window(columns: Mapping[str, Floats]) -> tuple[Floats, float]:
    """The window's two ends as a grid: from the first step's begin to the last one's end."""
    step_s = columns.get("step_s", np.array([0.0]))
    step_s = np.where((step_s >= 0) & (step_s <= 1e9), step_s, np.nan)  # what cannot be (`faults.py`)
    known = step_s[np.isfinite(step_s)]
    first = float(step_s[0]) if np.isfinite(step_s[0]) else float(np.median(known)) if known.size else 0.0
    if "time_s" in columns:
        start, end = float(np.nanmin(columns["time_s"])) - first, float(np.nanmax(columns["time_s"]))
    else:
        start, end = 0.0, float(np.nansum(step_s))
    end = end if end > start else start + 1.0
    return np.array([start, end]), end - start


def log_schema(name: str) -> Iterator[str]:
    """The columns with their metrics, and notes on modes. Raises InputError for an unknown name."""
    known = framework_of(name)
    yield f"{known.name}: {known.source}"
    yield from ("", f"step: {', else '.join(known.step)}")
    if known.name == "plain":
        yield from (f"{column}: {meaning}" for column, meaning in COLUMNS.items() if column != "step")
    for entry in known.entries:
        modes = f" ({', '.join(entry.modes)})" if entry.modes else ""
        yield f"{entry.column}: {str(entry).replace('`', '')}{modes}; {COLUMNS[entry.column]}"
    yield from ("", *known.notes.values())
