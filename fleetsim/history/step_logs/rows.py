"""The rows of a step log: JSONL, JSON, CSV, Parquet, exports of trackers, consoles."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetsim.errors import InputError, Problem
from fleetsim.history.history import Note
from fleetsim.history.long_table import is_parquet, read_parquet
from fleetsim.history.step_logs.console import Shape, rows_of, shape_of
from fleetsim.history.step_logs.frameworks import FRAMEWORKS, FrameworkLog
from fleetsim.history.step_logs.packed import RunLogTable
from fleetsim.history.text import delimiter_of, number, numbers_of, reading
from fleetsim.history.wrapped import CUT_ROW, TextLines, logs_of, open_text
from fleetsim.json_text import from_loose_json
from fleetsim.records import replace

_RUN_PREFIX = re.compile(r"^(.+) - (.+)$")  # a run's name may have " - " in it, a metric's has not
_LISTS = ("log_history", "history")  # keys under which a document keeps its rows
_KEYS = ("key", "metric", "name", "tag")  # headers of a column that says which metric a line has
_MOST_PROBLEMS = 5


def read_rows(path: Path, wanted: Callable[[str], bool] | None = None) -> tuple[RunLogTable, list[Note]]:
    """Every row as metric -> number (nested objects joined with "/"; texts, lists and nulls left out), line by line.

    wanted: which metrics are kept (None = all). Raises InputError: no text, lines that are no JSON, rows of several
    runs in one table, no rows.
    """
    if path.is_dir() and (several := _of_one_run(path)) is not None:
        known, logs = several
        tables, notes = zip(*(_read(log, wanted, parts) for log, parts in logs.items()), strict=True)
        for other in tables[1:]:
            tables[0].join(other, next((step for step in known.step if step in other.names), known.step[0]))
        return tables[0], [*itertools.chain(*notes)]
    return _read(path, wanted)


def _of_one_run(folder: Path) -> tuple[FrameworkLog, dict[Path, list[Path]]] | None:
    """The logs of a run that are to be joined, and the framework that writes several; None where one says all."""
    logs = logs_of(folder)
    for known in FRAMEWORKS:
        each = [next((log for log in logs if word in str(log.relative_to(folder))), None) for word in known.logs]
        found = {log: logs[log] for log in each if log is not None}
        if len(found) > 1:
            return known, found
    return None


def _read(
    path: Path, wanted: Callable[[str], bool] | None, parts: Sequence[Path] = ()
) -> tuple[RunLogTable, list[Note]]:
    """parts: of the log, None where it is one file, or the only log of a folder."""
    table = RunLogTable(wanted)
    notes: list[Note] = []
    if path.is_file() and is_parquet(path):
        columns = {name: column for name, column in read_parquet(path).items() if isinstance(column, np.ndarray)}
        kept = {name: column for name, column in columns.items() if wanted is None or wanted(name)}
        return table.fill(kept, columns), notes
    with reading(path):
        with open_text(path, None, parts) as file:
            start, console = _beginning(file)
        json = start[:1] in ("{", "[")
        with open_text(path, None if json or console is not None else "", parts) as file:
            if console is not None:
                table.framework = console.framework
                for row in rows_of(console, file, wanted):
                    table.add(row)
            elif json:
                notes = _document(file.read(), path, table) if start[0] == "[" else _json(file, path, table)
            else:
                notes = _csv(file, path, table)
            return table, [*notes, *file.notes]


def _beginning(file: TextLines) -> tuple[str, Shape | None]:
    """The first line that has something in it, and whose console it is, where it does not open a document. Of a JSONL
    file whose beginning was cut off it is the second."""
    filled = (line.strip() for line in file if line.strip())
    first, second = next(filled, ""), next(filled, "")
    if is_cut_jsonl(first, second):
        return second, None
    return (first, None) if _opens_json(first) else (first, shape_of(itertools.chain([first, second], file)))


def is_cut_jsonl(first: str, second: str) -> bool:
    """Whether a file whose first lines are these is JSONL without its beginning."""
    return not _opens_json(first) and first.endswith("}") and second.startswith('{"')


def _opens_json(line: str) -> bool:
    """Whether a first line is JSON or begins a document of many lines; a console's may begin with "[" as well."""
    if line[:1] not in ("{", "["):
        return False
    if line in ("{", "[") or re.match(r"[\[{]\s*[\[{\"]", line):
        return True
    try:
        from_loose_json(line)
    except ValueError:
        return False
    return True


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """(metric, number) of an object, nested ones joined with "/"."""
    for key, item in value.items():
        if type(item) is float or type(item) is int:
            yield f"{prefix}{key}" if prefix else key, item
        elif isinstance(item, Mapping):
            # verl's file logger and others put all metrics under one key; elsewhere nesting is what "/" is.
            yield from flat(item, prefix if key in ("data", "metrics") else f"{prefix}{key}/")
        elif (found := number(item)) is not None:
            yield f"{prefix}{key}", found


def _json(file: TextLines, path: Path, table: RunLogTable) -> list[Note]:
    """Lines of objects; or one document over several lines, or in one line that keeps its rows in a list."""
    text = next(line for line in file if line.strip())
    try:
        first = from_loose_json(text)
    except ValueError:
        rest = file.read()
        try:
            from_loose_json(text + rest)
        except ValueError:
            return _jsonl([text, *rest.splitlines()], path, table)
        return _document(text + rest, path, table)
    if isinstance(first, dict) and (any(isinstance(first.get(key), list) for key in _LISTS) or by_column(first)):
        return _document(text, path, table)
    return _jsonl(itertools.chain([text], file), path, table)


def _document(text: str, path: Path, table: RunLogTable) -> list[Note]:
    try:
        document = from_loose_json(text)
    except ValueError:
        return _jsonl(text.splitlines(), path, table)
    if isinstance(document, dict):
        document = next((document[key] for key in _LISTS if key in document), by_column(document) or [document])
    if not isinstance(document, list):
        rule = "a step log is a list of objects, or one object per line"
        raise InputError([Problem(str(path), type(document).__name__, rule, "give such a file")])
    for row in document:
        if isinstance(row, dict):
            table.add(dict(flat(row)))
    return []


def by_column(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a document that keeps columns: lists as long as each other, or as pandas prints them, by the number
    of the row. Empty of any other."""
    numbered = (isinstance(c, Mapping) and all(map(str.isdigit, c)) for c in document.values())
    columns = [list(c.values()) if n else c for c, n in zip(document.values(), numbered, strict=True)]
    sizes = {len(c) if isinstance(c, list) else 0 for c in columns}
    if len(columns) < 2 or len(sizes) != 1 or 0 in sizes:
        return []
    return [dict(zip(document, row, strict=True)) for row in zip(*columns, strict=True)]


def _jsonl(lines: Iterable[str], path: Path, table: RunLogTable) -> list[Note]:
    problems: list[Problem] = []
    wrong: set[int] = set()
    last = 0
    for at, line in enumerate(lines, 1):
        if not line.strip():
            continue
        last = at
        try:
            row = numbers_of(line)
            if row is None:
                value = from_loose_json(line)
                if not isinstance(value, dict):
                    raise ValueError("no object")
                row = dict(flat(value))
            table.add(row)
        except ValueError:
            if len(wrong) < _MOST_PROBLEMS:
                wrong.add(at)
                rule, remedy = "every line of a JSONL file is one object", "mend or delete the line"
                problems.append(Problem(f"{path}:{at}", line.rstrip(), rule, remedy))
    if problems and (not len(table) or wrong - {1, last}):
        raise InputError(problems)
    begins = replace(CUT_ROW, text=CUT_ROW.text.replace("ends", "begins"))
    return [begins if at == 1 else CUT_ROW for at in sorted(wrong)]


def _csv(file: TextLines, path: Path, table: RunLogTable) -> list[Note]:
    """A last row with fewer cells was cut off, perhaps in a number: it is left out."""
    notes: list[Note] = []
    try:
        first = next((line for line in file if line.strip()), "")
        rows = (row for row in csv.reader(itertools.chain([first], file), delimiter=delimiter_of(first)) if row)
        header = next(rows, [])
        names = _without_run([cell.strip() for cell in header], path)
        told = ["key" if name.lower() in _KEYS else name.lower() for name in names]
        if {"key", "value", "step"} <= set(told):
            rows = _of_metrics(rows, told, path, table)
        for cells, after in itertools.pairwise(itertools.chain(rows, [[]])):
            if not after and len(table) and len(cells) < len(names):
                notes.append(CUT_ROW)
                break
            try:
                row = dict(zip(names, map(float, cells), strict=False))
            except ValueError:
                found = ((name, number(cell)) for name, cell in zip(names, cells, strict=False))
                row = {name: value for name, value in found if value is not None}
            row.pop("", None)
            table.add(row)
    except csv.Error as error:
        raise InputError([Problem(str(path), path.name, f"its CSV does not read ({error})", "write it anew")]) from None
    if not len(table):
        rule = "a table has a header and rows"
        raise InputError([Problem(str(path), ",".join(header)[:60], rule, "give a step log as CSV, JSONL or JSON")])
    return notes


def _of_metrics(rows: Iterable[list[str]], names: list[str], path: Path, table: RunLogTable) -> Iterator[list[str]]:
    """Puts lines of a metric each (`run_id,key,value,step,timestamp` of MLflow's export) into the table, those of one
    step in a row; nothing is left to be read."""
    told: dict[str, dict[str, float]] = {}
    runs: set[str] = set()
    for cells in rows:
        line = dict(zip(names, cells, strict=False))
        runs.add(line.get("run_id", ""))
        found = {"step": line.get("step"), "_timestamp": line.get("timestamp"), line.get("key", ""): line.get("value")}
        known = {name: amount for name, text in found.items() if (amount := number(text)) is not None}
        told.setdefault(line.get("step", ""), {}).update(known)
    if len(runs) > 1:
        rule = f"the table holds {len(runs)} runs, and one is read at a time"
        raise InputError([Problem(str(path), ", ".join(sorted(runs))[:200], rule, "export one run")])
    for row in told.values():
        table.add(row)
    return iter(())


def _without_run(header: list[str], path: Path) -> list[str]:
    """Columns of an export of Weights & Biases (`RUN - METRIC`) or SwanLab (`RUN-METRIC`) without the run's name;
    extremes of smoothed points and metrics' own clocks are dropped ("")."""
    found = [_RUN_PREFIX.match(name) for name in header]
    runs = sorted({f[1] for f in found if f and not f[1].startswith("profiling")})
    if len(runs) > 1:
        rule = f"the table holds {len(runs)} runs, and one is read at a time"
        raise InputError([Problem(str(path), ", ".join(runs)[:200], rule, "export one run, or cut the other columns")])
    names = [f[2] if f and f[1] in runs else name for f, name in zip(found, header, strict=True)]
    others = [name for name in names if name.lower() != "step"]
    ends = zip(min(others, default=""), max(others, default=""), strict=False)
    same = "".join(left for left, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], ends))
    names = [name.removeprefix(same[: same.rfind("-") + 1]) for name in names]
    return ["" if name.endswith(("__MIN", "__MAX", "_timestamp")) and name[0] != "_" else name for name in names]
