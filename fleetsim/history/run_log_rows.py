"""The rows of a step log: JSONL, JSON, CSV (Weights & Biases exports too) and the consoles of frameworks."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from fleetsim.errors import InputError, Problem
from fleetsim.history.history import Note
from fleetsim.history.run_log_console import Shape, rows_of, shape_of
from fleetsim.history.run_log_table import RunLogTable
from fleetsim.history.run_log_text import number, numbers_of
from fleetsim.history.text_file import open_text
from fleetsim.json_text import from_loose_json

_RUN_PREFIX = re.compile(r"^(.+) - (.+)$")  # a run's name may have " - " in it, a metric's has not
_LISTS = ("log_history", "history")  # keys under which a document keeps its rows
_MOST_PROBLEMS = 5


def read_rows(path: Path, wanted: Callable[[str], bool] | None = None) -> tuple[RunLogTable, list[Note]]:
    """Every row as metric -> number (nested objects joined with "/"; texts, lists and nulls left out), line by line.

    wanted: which metrics are kept (None = all). Raises InputError: no text, lines that are no JSON, rows of several
    runs in one table, no rows.
    """
    try:
        with open_text(path) as file:
            start, console = _beginning(file)
        table = RunLogTable(wanted)
        with open_text(path) as file:
            if console is not None:
                table.framework = console.framework
                for row in rows_of(console, file, wanted):
                    table.add(row)
                return table, []
            if start.startswith("["):
                return table, _document(file.read(), path, table)
            if start.startswith("{"):
                return table, _json(file, path, table)
        with open_text(path, newline="") as file:
            _csv(file, path, table)
        return table, []
    except (OSError, EOFError, UnicodeDecodeError) as error:
        rule = f"cannot be read as text: {error}"
        raise InputError([Problem(str(path), path.name, rule, "give the file as it was written")]) from error


def _beginning(file: IO[str]) -> tuple[str, Shape | None]:
    """The first line that has something in it, and whose console it is, where it does not open a document."""
    first = next((line.strip() for line in file if line.strip()), "")
    return (first, None) if _opens_json(first) else (first, shape_of(itertools.chain([first], file)))


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
    wrong_at = last = 0
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
            wrong_at = at
            if len(problems) < _MOST_PROBLEMS:
                rule, remedy = "every line of a JSONL file is one object", "mend or delete the line"
                problems.append(Problem(f"{path}:{at}", line.rstrip(), rule, remedy))
    if len(problems) == 1 and len(table) and wrong_at == last:
        return [Note("truncated", "The file ends in the middle of a line: it was cut short; that row is left out.")]
    if problems:
        raise InputError(problems)
    return []


def _csv(file: IO[str], path: Path, table: RunLogTable) -> None:
    try:
        rows = (row for row in csv.reader(file) if row)
        header = next(rows, [])
        names = _without_run([cell.strip() for cell in header], path)
        for cells in rows:
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


def _without_run(header: list[str], path: Path) -> list[str]:
    """Columns of a Weights & Biases export without the run's name; extremes of smoothed points are dropped ("")."""
    found = [_RUN_PREFIX.match(name) for name in header]
    runs = sorted({f[1] for f in found if f and not f[1].startswith("profiling")})
    if len(runs) > 1:
        rule = f"the table holds {len(runs)} runs, and one is read at a time"
        raise InputError([Problem(str(path), ", ".join(runs)[:200], rule, "export one run, or cut the other columns")])
    names = [f[2] if f and f[1] in runs else name for f, name in zip(found, header, strict=True)]
    return ["" if name.endswith(("__MIN", "__MAX")) else name for name in names]
