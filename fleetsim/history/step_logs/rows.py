"""The rows of a step log (JSONL, JSON, CSV, Weights & Biases' exports, consoles), and the packed columns they go to."""

from __future__ import annotations

import csv
import itertools
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from fleetsim.errors import InputError, Problem
from fleetsim.history.history import Floats, Note
from fleetsim.history.long_table import is_parquet, read_parquet
from fleetsim.history.step_logs.console import Shape, rows_of, shape_of
from fleetsim.history.text import number, numbers_of, reading
from fleetsim.history.wrapped import CUT_ROW, cut_notes, open_text
from fleetsim.json_text import from_loose_json
from fleetsim.records import replace


class RunLogTable:
    """Rows of metrics, packed: of each metric the rows that say it, and its numbers.

    wanted: whether a metric is kept, asked once for each name. names: every metric that was seen, also those that are
    not kept, in the order in which they came. framework: whose the rows are, where their form tells it.
    """

    def __init__(self, wanted: Callable[[str], bool] | None = None) -> None:
        self.names: dict[str, None] = {}
        self.framework: str | None = None
        self._wanted = wanted
        self._kept: dict[str, tuple[array[int], array[float]] | None] = {}
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def add(self, row: Mapping[str, float]) -> None:
        """One more row."""
        for name, value in row.items():
            try:
                kept = self._kept[name]
            except KeyError:
                self.names[name] = None
                keeps = self._wanted is None or self._wanted(name)
                kept = self._kept[name] = (array("q"), array("d")) if keeps else None
            if kept is not None:
                kept[0].append(self._rows)
                kept[1].append(value)
        self._rows += 1

    def fill(self, columns: Mapping[str, Floats], names: Collection[str]) -> RunLogTable:
        """The table, which has no rows yet, with whole columns of equal length. names: every metric that was seen."""
        self.names |= dict.fromkeys(names)
        self._rows = max(map(len, columns.values()), default=0)
        every = array("q", range(self._rows))
        self._kept |= {name: (every, array("d", column.tobytes())) for name, column in columns.items()}
        return self

    def column(self, name: str) -> Floats:
        """(rows,) of one metric, NaN where a row does not say it."""
        found = np.full(self._rows, np.nan)
        if (kept := self._kept.get(name)) is not None and len(kept[0]):
            found[np.frombuffer(kept[0], dtype=np.int64)] = np.frombuffer(kept[1])
        return found


def last_kept(at: Floats) -> float:
    """The last step that counts, of steps (n,) in the order in which they were written; inf = all do.

    The newest row says where the run is. If it repeats a step that came before the highest one, the run went back to a
    checkpoint or began anew, and the steps beyond are of an attempt that was given up."""
    if not len(at):
        return np.inf
    newest, highest = at[-1], int(np.argmax(at))
    return float(newest) if (at[:highest] == newest).any() else np.inf


class Scalars:
    """Metric -> its steps and values, packed. wanted: which metrics are kept (None = all)."""

    def __init__(self, wanted: Callable[[str], bool] | None = None) -> None:
        self.names: dict[str, None] = {}
        self._wanted = wanted
        self._kept: dict[str, tuple[array[int], array[float], array[float]]] = {}

    def of(self, name: str) -> tuple[array[int], array[float], array[float]] | None:
        """Where a metric's steps, values and unix seconds go; None where it is not wanted."""
        self.names[name] = None
        if self._wanted is not None and not self._wanted(name):
            return None
        return self._kept.setdefault(name, (array("q"), array("d"), array("d")))

    def table(self) -> RunLogTable:
        """One row a step, with `step` and `_timestamp`; of a step that comes again the last value counts, and no step
        of an attempt that was given up."""
        known = [np.frombuffer(steps, dtype=np.int64) for steps, _, _ in self._kept.values() if len(steps)]
        steps = np.unique(np.concatenate(known)) if known else np.array([], dtype=np.int64)
        columns = {"step": steps.astype(float)}
        time_s = np.full(len(steps), np.nan)
        for name, (at, values, seconds) in self._kept.items():
            place = np.searchsorted(steps, np.frombuffer(at, dtype=np.int64))
            column = np.full(len(steps), np.nan)
            column[place] = np.frombuffer(values, dtype=float)
            np.fmax.at(time_s, place, np.frombuffer(seconds, dtype=float))
            columns[name] = column
        if np.isfinite(time_s).any():
            columns["_timestamp"] = time_s
        kept = steps <= last_kept(max(known, key=len).astype(float)) if known else slice(None)
        columns = {name: column[kept] for name, column in columns.items()}
        return RunLogTable().fill(columns, [*self.names, "step", "_timestamp"])


_RUN_PREFIX = re.compile(r"^(.+) - (.+)$")  # a run's name may have " - " in it, a metric's has not
_LISTS = ("log_history", "history")  # keys under which a document keeps its rows
_MOST_PROBLEMS = 5


def read_rows(path: Path, wanted: Callable[[str], bool] | None = None) -> tuple[RunLogTable, list[Note]]:
    """Every row as metric -> number (nested objects joined with "/"; texts, lists and nulls left out), line by line.

    wanted: which metrics are kept (None = all). Raises InputError: no text, lines that are no JSON, rows of several
    runs in one table, no rows.
    """
    table = RunLogTable(wanted)
    notes: list[Note] = []
    if not path.is_dir() and is_parquet(path):
        columns = {name: column for name, column in read_parquet(path).items() if isinstance(column, np.ndarray)}
        kept = {name: column for name, column in columns.items() if wanted is None or wanted(name)}
        return table.fill(kept, columns), notes
    with reading(path):
        with open_text(path) as file:
            start, console = _beginning(file)
        json = start[:1] in ("{", "[")
        with open_text(path, newline=None if json or console is not None else "") as file:
            if console is not None:
                table.framework = console.framework
                for row in rows_of(console, file, wanted):
                    table.add(row)
            elif json:
                notes = _document(file.read(), path, table) if start[0] == "[" else _json(file, path, table)
            else:
                notes = _csv(file, path, table)
            return table, [*notes, *cut_notes(file, path)]


def _beginning(file: IO[str]) -> tuple[str, Shape | None]:
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


def _json(file: IO[str], path: Path, table: RunLogTable) -> list[Note]:
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
    if isinstance(first, dict) and any(isinstance(first.get(key), list) for key in _LISTS):
        return _document(text, path, table)
    return _jsonl(itertools.chain([text], file), path, table)


def _document(text: str, path: Path, table: RunLogTable) -> list[Note]:
    try:
        document = from_loose_json(text)
    except ValueError:
        return _jsonl(text.splitlines(), path, table)
    if isinstance(document, dict):
        document = next((document[key] for key in _LISTS if key in document), [document])
    if not isinstance(document, list):
        rule = "a step log is a list of objects, or one object per line"
        raise InputError([Problem(str(path), type(document).__name__, rule, "give such a file")])
    for row in document:
        if isinstance(row, dict):
            table.add(dict(flat(row)))
    return []


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


def _csv(file: IO[str], path: Path, table: RunLogTable) -> list[Note]:
    """A last row with fewer cells was cut off, perhaps in a number: it is left out."""
    notes: list[Note] = []
    try:
        rows = (row for row in csv.reader(file) if row)
        header = next(rows, [])
        names = _without_run([cell.strip() for cell in header], path)
        if {"key", "value", "step"} <= set(names):
            rows = _of_metrics(rows, names, path, table)
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
    """Puts the lines `run_id,key,value,step,timestamp` of MLflow's export into the table, those of one step in a row;
    nothing is left to be read."""
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
    """Columns of a Weights & Biases export without the run's name; extremes of smoothed points are dropped ("")."""
    found = [_RUN_PREFIX.match(name) for name in header]
    runs = sorted({f[1] for f in found if f and not f[1].startswith("profiling")})
    if len(runs) > 1:
        rule = f"the table holds {len(runs)} runs, and one is read at a time"
        raise InputError([Problem(str(path), ", ".join(runs)[:200], rule, "export one run, or cut the other columns")])
    names = [f[2] if f and f[1] in runs else name for f, name in zip(found, header, strict=True)]
    return ["" if name.endswith(("__MIN", "__MAX")) else name for name in names]
