"""A framework's step log as a `History`: its `StepLog`, and notes of what the log does not say."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from fleetsim import units
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag, text
from fleetsim.history.history import Floats, History, Note, StepLog
from fleetsim.history.named import FRAMEWORK, mapped
from fleetsim.history.run_log_maps import BY_NAME, COLUMNS, FRAMEWORKS, Entry, Framework
from fleetsim.history.run_log_rows import Row, finite, read_rows
from fleetsim.history.warm_up import warm_up

CLOCKS = ("_timestamp", "timestamp", "time", "time_s", "Wall Time", "wall_time")
RUNNING = ("_runtime", "Relative Time (Process)", "Relative Time (Wall)")
_PROMPT_MEAN = "prompt_length/mean"
_MAIN = ("step_s", "wait_s", "train_s", "sync_s", "samples", "length_mean")

_COLUMN = mapped("step_s", "COLUMN")


def read_run_log(path: Path | str, framework: str | None = None, mapping: Mapping[str, str] | None = None) -> History:
    """The log as a History without instances.

    framework: a name of docs/run_logs.md; None = told by the columns. mapping: column (or `trainer.step_s` and the
    like) -> metric, which then counts alone for it. Rows of one step are one; where a step number comes again (a
    resumed run, a row twice), the last value of each metric counts. First steps that warm up are left out
    (`history/warm_up.py`), and said to be. Raises InputError.
    """
    path = Path(path)
    rows, notes = read_rows(path)
    names = _names(rows)
    given = _mapped(mapping or {}, names, path)
    known = _framework(framework, names, given, path)
    entries = (*given, *(e for e in known.entries if e.column not in {g.column for g in given}))
    known = replace(known, entries=entries)
    steps, again = _steps(rows, known, names, path)
    values = {n: np.array([s.get(n, np.nan) for s in steps.values()]) for n in _wanted_names(known)}
    values = {n: v for n, v in values.items() if not np.isnan(v).all()}
    mode = known.mode(names, values)
    columns = {"step": np.array(list(steps), dtype=float)}
    clock = next((t for c in CLOCKS if c in values and (t := _clock(values[c])) is not None), None)
    if clock is not None:
        columns["time_s"] = clock
    for entry in known.entries:
        if entry.column not in columns and (not entry.modes or mode in entry.modes):
            found = _value(entry, values)
            if found is not None:
                columns[entry.column] = found
    notes += _derive(columns, values)
    if (known.notes or {}).get(mode):
        notes.append(Note("other", (known.notes or {})[mode]))
    notes += _again_notes(again, columns)
    notes += _missing_notes(columns)
    if not set(columns) - {"step", "time_s"}:
        rule = f"none of the columns that fleetsim knows of {known.name} is in it"
        raise InputError([Problem(str(path), _shown(names), rule, text("map them: {} (docs/run_logs.md)", _COLUMN))])
    first, warming = warm_up(columns)
    if warming is not None:
        columns = {name: values[first:] for name, values in columns.items()}
        notes.append(warming)
    times, step_s = _window(columns)
    log = StepLog(known.name, columns)
    return History(times, step_s, (), {}, {}, {}, (), log, tuple(notes), f"{path.name} ({known.name})")


def _clock(stamps: Floats) -> Floats | None:
    """Unix seconds (of milliseconds too); None where the column counts something else, or from the run's start."""
    seconds = np.where(stamps > 1e11, stamps / 1000, stamps)
    seconds[~((seconds > 1e8) & (seconds < 1e11))] = np.nan
    return None if np.isnan(seconds).all() else seconds


def _names(rows: Sequence[Row]) -> set[str]:
    """Metric names, also without the `train/` that trackers put in front."""
    names = {name for row in rows for name in row}
    return names | {n.removeprefix("train/") for n in names}


def _get(row: Row, name: str) -> float | None:
    return row[name] if name in row else row.get(f"train/{name}")


def _mapped(mapping: Mapping[str, str], names: Collection[str], path: Path) -> tuple[Entry, ...]:
    problems, entries = [], []
    for key, metric in mapping.items():
        column = key.removeprefix("trainer.")
        if column not in COLUMNS or column in ("step", "time_s"):
            near = get_close_matches(column, COLUMNS, n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]}?" if near else f"one of: {', '.join(list(COLUMNS)[2:])}"
            problems.append(Problem("map", key, "a step log has no such column", remedy))
        elif metric not in names:
            near = get_close_matches(metric, names, n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]}?" if near else f"its columns: {_shown(names)}"
            problems.append(Problem(f"map.{key}", metric, f"{path.name} has no such column", remedy))
        else:
            entries.append(Entry(column, (metric,)))
    if problems:
        raise InputError(problems)
    return tuple(entries)


def _framework(name: str | None, names: Collection[str], given: Sequence[Entry], path: Path) -> Framework:
    """The framework that was named, or whose marks the columns bear."""
    if name is not None:
        if name not in BY_NAME:
            near = get_close_matches(name.lower(), BY_NAME, n=1, cutoff=0.4)
            remedy = f"did you mean {near[0]}?" if near else f"one of: {', '.join(BY_NAME)}"
            raise InputError([Problem("framework", name, "no framework of this name is known", remedy)])
        if not given and not any(m in names for e in BY_NAME[name].entries for m in e.metrics):
            rule = f"none of the columns that fleetsim knows of {name} is in it"
            raise InputError([Problem(str(path), _shown(names), rule, text("leave {} out, or {}", FRAMEWORK, _COLUMN))])
        return BY_NAME[name]
    found = {f.name: sum(m in names for m in f.marks) for f in FRAMEWORKS}
    best = [n for n, marks in found.items() if marks and marks == max(found.values())]
    if len(best) == 1:
        return BY_NAME[best[0]]
    if best:
        rule = f"the columns could be {' or '.join(best)}"
        raise InputError([Problem(str(path), _shown(names), rule, text("say which: {}", flag("framework", best[0])))])
    if given:
        return BY_NAME["plain"]
    rule = "the columns are of no step log that fleetsim knows"
    remedy = text("{} ({}), or name columns: {} (docs/run_logs.md)", FRAMEWORK, ", ".join(BY_NAME), _COLUMN)
    raise InputError([Problem(str(path), _shown(names), rule, remedy)])


def _shown(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:6]) or "no columns"


def _wanted_names(known: Framework) -> frozenset[str]:
    entries = {m for e in known.entries for m in (*e.metrics, *e.minus)}
    return known.metrics() | entries | {*CLOCKS, *RUNNING, _PROMPT_MEAN}


def _steps(rows: Sequence[Row], known: Framework, names: Collection[str], path: Path) -> tuple[dict[float, Row], int]:
    """Step number -> its metrics, in order of the numbers; and how many rows brought a step that was already there
    after a later one. Without any step number every row is a step."""
    counter = next((s for s in known.step if s in names and any(finite(_get(r, s)) for r in rows)), None)
    wanted = _wanted_names(known)
    steps: dict[float, Row] = {}
    loose: Row = {}
    again, highest = 0, -np.inf
    for k, row in enumerate(rows):
        mine = {n: v for n in wanted if (v := _get(row, n)) is not None and np.isfinite(v)}
        at = float(k + 1) if counter is None else _get(row, counter)
        if at is None or not np.isfinite(at):
            for n, v in mine.items():
                loose[n] = loose.get(n, 0.0) + v if n in known.added else v
            continue
        if set(mine) <= {*CLOCKS, *RUNNING, *known.step}:
            continue  # an evaluation or a table: nothing about the step
        again += at < highest and at in steps
        highest = max(highest, at)
        steps.setdefault(at, {}).update({**loose, **mine})
        loose = {}
    if not steps:
        rule = "no row says anything about a step"
        raise InputError([Problem(str(path), _shown(names), rule, "give the training log, not the evaluation's")])
    return dict(sorted(steps.items())), again


def _value(entry: Entry, values: Mapping[str, Floats]) -> Floats | None:
    there = [values[m] for m in entry.metrics if m in values]
    if not there:
        return None
    out: Floats = np.array(there[0])
    if entry.how == "sum":
        out = np.nansum(np.stack(there), axis=0)
        out[np.isnan(np.stack(there)).all(axis=0)] = np.nan
    else:
        for other in there[1:]:
            out = np.where(np.isnan(out), other, out)
    if entry.how == "growth":
        out = np.r_[np.nan, np.diff(out)]
        out[out <= 0] = np.nan  # the total began anew
    elif entry.how == "rest":
        out = 1 - out
    elif entry.how == "next":
        out = np.r_[out[1:], np.nan]
    for metric in entry.minus:
        if metric in values:
            out = np.maximum(out - np.nan_to_num(values[metric]), 0)
    return None if np.isnan(out).all() else out


def _derive(columns: dict[str, Floats], values: Mapping[str, Floats]) -> list[Note]:
    """Columns that follow from others, each with a note."""
    notes = []
    clock = columns.get("time_s", next((values[r] for r in RUNNING if r in values), None))
    if "step_s" not in columns and clock is not None and len(clock) > 1:
        apart = np.diff(clock) / np.maximum(np.diff(columns["step"]), 1)
        columns["step_s"] = np.r_[np.nan, np.where(apart > 0, apart, np.nan)]
        notes.append(Note("other", "The log has no step time: it is taken from the times between rows."))
    if "samples" not in columns and {"total_tokens", "length_mean"} <= set(columns) and _PROMPT_MEAN in values:
        length = columns["length_mean"] + values[_PROMPT_MEAN]
        columns["samples"] = np.round(columns["total_tokens"] / np.where(length > 0, length, np.nan))
        notes.append(Note("other", "Samples per step: all tokens / (mean prompt + mean output length)."))
    if "output_tokens" not in columns and {"samples", "length_mean"} <= set(columns):
        columns["output_tokens"] = columns["samples"] * columns["length_mean"]
        notes.append(Note("other", "Output tokens per step: samples x mean output length."))
    return notes


def _again_notes(again: int, columns: Mapping[str, Floats]) -> list[Note]:
    notes = []
    if again:
        text = f"{again} rows bring a step that was there before a later one (a resumed run): the last of each counts."
        notes.append(Note("duplicate", text, again / len(columns["step"])))
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
    known = step_s[np.isfinite(step_s)]
    first = float(step_s[0]) if np.isfinite(step_s[0]) else float(np.median(known)) if known.size else 0.0
    if "time_s" in columns:
        start, end = float(np.nanmin(columns["time_s"])) - first, float(np.nanmax(columns["time_s"]))
    else:
        start, end = 0.0, float(np.nansum(step_s))
    end = end if end > start else start + 1.0
    return np.array([start, end]), end - start
