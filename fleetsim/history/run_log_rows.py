"""The rows of a step log: JSONL, JSON, CSV (Weights & Biases exports too) and verl's console lines."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleetsim.errors import InputError, Problem
from fleetsim.history.history import Note
from fleetsim.history.text_file import open_text
from fleetsim.json_text import from_loose_json

Row = dict[str, float]

CONSOLE = re.compile(r"\bstep:(\d+) - (\S.*)")
_CONSOLE_VALUE = re.compile(r"(?:np\.\w+\()?([^()]+)\)?$")
_RUN_PREFIX = re.compile(r"^(.+) - (.+)$")  # a run's name may have " - " in it, a metric's has not
_MOST_PROBLEMS = 5


def read_rows(path: Path) -> tuple[list[Row], list[Note]]:
    """Every row as metric -> number (nested objects joined with "/"; texts, lists and nulls left out).

    Raises InputError: no text, lines that are no JSON, rows of several runs in one table, no rows.
    """
    try:
        with open_text(path) as file:
            text = file.read()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        rule = f"cannot be read as text: {error}"
        raise InputError([Problem(str(path), path.name, rule, "give the file as it was written")]) from error
    start = text.lstrip()[:1]
    if start in ("{", "["):
        return _json(text, path)
    if any(CONSOLE.search(line) for line in text.splitlines()[:5000]):
        return [_console(found) for line in text.splitlines() if (found := CONSOLE.search(line))], []
    return _csv(text, path)


def number(value: object) -> float | None:
    """A number, or what stands for one ("12.5", "NaN", an ISO time); None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str) and value.strip():
            return float(value)
    except (ValueError, OverflowError):
        try:
            moment = datetime.fromisoformat(str(value).strip())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return None


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, float]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            # verl's file logger and others put all metrics under one key; elsewhere nesting is what "/" is.
            yield from _flat(item, prefix if key in ("data", "metrics") else f"{prefix}{key}/")
        elif (found := number(item)) is not None:
            yield f"{prefix}{key}", found


def _json(text: str, path: Path) -> tuple[list[Row], list[Note]]:
    try:
        document = from_loose_json(text)
    except ValueError:
        return _jsonl(text, path)
    if isinstance(document, dict):
        document = document.get("log_history", document.get("history", [document]))
    if not isinstance(document, list):
        rule = "a step log is a list of objects, or one object per line"
        raise InputError([Problem(str(path), type(document).__name__, rule, "give such a file")])
    return [dict(_flat(row)) for row in document if isinstance(row, dict)], []


def _jsonl(text: str, path: Path) -> tuple[list[Row], list[Note]]:
    rows: list[Row] = []
    problems: list[Problem] = []
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    for n, line in lines:
        try:
            row = from_loose_json(line)
            if not isinstance(row, dict):
                raise ValueError("no object")
            rows.append(dict(_flat(row)))
        except ValueError:
            remedy = "mend or delete the line"
            problems.append(Problem(f"{path}:{n}", line, "every line of a JSONL file is one object", remedy))
    if len(problems) == 1 and rows and problems[0].path == f"{path}:{lines[-1][0]}":
        return rows, [
            Note("truncated", "The file ends in the middle of a line: it was cut short; that row is left out.")
        ]
    if problems:
        raise InputError(problems[:_MOST_PROBLEMS])
    return rows, []


def _console(found: re.Match[str]) -> Row:
    row: Row = {"step": float(found[1])}
    for part in found[2].split(" - "):
        name, _, value = part.rpartition(":")
        inside = _CONSOLE_VALUE.match(value.strip())
        amount = number(inside[1]) if inside else None
        if name and amount is not None:
            row[name.strip()] = amount
    return row


def _csv(text: str, path: Path) -> tuple[list[Row], list[Note]]:
    try:
        table = [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as error:
        raise InputError([Problem(str(path), path.name, f"its CSV does not read ({error})", "write it anew")]) from None
    if len(table) < 2:
        rule = "a table has a header and rows"
        raise InputError([Problem(str(path), text[:60], rule, "give a step log as CSV, JSONL or JSON")])
    names = _without_run([cell.strip() for cell in table[0]], path)
    rows = []
    for cells in table[1:]:
        found = ((name, number(cell)) for name, cell in zip(names, cells, strict=False) if name)
        rows.append({name: value for name, value in found if value is not None})
    return rows, []


def _without_run(header: list[str], path: Path) -> list[str]:
    """Columns of a Weights & Biases export without the run's name; extremes of smoothed points are dropped ("")."""
    found = [_RUN_PREFIX.match(name) for name in header]
    runs = sorted({f[1] for f in found if f and not f[1].startswith("profiling")})
    if len(runs) > 1:
        rule = f"the table holds {len(runs)} runs, and one is read at a time"
        raise InputError([Problem(str(path), ", ".join(runs)[:200], rule, "export one run, or cut the other columns")])
    names = [f[2] if f and f[1] in runs else name for f, name in zip(found, header, strict=True)]
    return ["" if name.endswith(("__MIN", "__MAX")) else name for name in names]


def finite(value: float | None) -> bool:
    """Whether it is a number that one can count with."""
    return value is not None and math.isfinite(value)
