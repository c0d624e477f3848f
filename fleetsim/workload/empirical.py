"""Measured lengths and latencies from a CSV, JSON-lines or Parquet column."""

from __future__ import annotations

import csv
import difflib
import importlib
import math
import os
import stat
from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.workload import Empirical
from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.json_text import from_loose_json

MAX_BYTES = 512 * 2**20
MAX_ROWS = 100_000_000
_SHOWN = 5


def measured_values(spec: Empirical) -> NDArray[np.float64]:
    """The column's values, sorted, float64, read-only. Read once as long as the file stays as it is.

    Raises InputError for a missing, unreadable or too big file, a missing or empty column, and for values that are no
    finite numbers >= 0 (the first five of them at once).
    """
    try:
        info = os.stat(spec.file)
    except (OSError, ValueError) as error:
        raise _refuse(spec, f"cannot be read: {getattr(error, 'strerror', error)}", "check the path") from None
    if not stat.S_ISREG(info.st_mode):
        raise _refuse(spec, "is no regular file", "give a .csv, .jsonl or .parquet file")
    if info.st_size > MAX_BYTES:
        raise _refuse(spec, f"is too big: {info.st_size:,} bytes, at most {MAX_BYTES:,}", "keep a sample of the rows")
    return _read(spec.file, spec.column, info.st_mtime_ns, info.st_size)


@lru_cache(maxsize=8)
def _read(file: str, column: str, mtime_ns: int, size: int) -> NDArray[np.float64]:
    spec = Empirical(file=file, column=column)
    reader = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}[os.path.splitext(file)[1].lower()]
    try:
        values = _checked(spec, reader(spec))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refuse(spec, f"cannot be read: {reason}", "check the file and its format") from None
    values.sort()
    values.flags.writeable = False
    return values


def _refuse(spec: Empirical, rule: str, remedy: str) -> InputError:
    return InputError([Problem("file", spec.file, rule, remedy)])


def _no_column(spec: Empirical, known: Iterable[str]) -> InputError:
    names = [str(name) for name in known]
    close = difflib.get_close_matches(spec.column, names, n=1)
    remedy = f'did you mean "{close[0]}"?' if close else f"columns: {', '.join(names[:20]) or 'none'}"
    return InputError([Problem("column", spec.column, f"{spec.file} has no such column", remedy)])


def _checked(spec: Empirical, rows: Iterator[tuple[str, Any]]) -> NDArray[np.float64]:
    values, problems = array("d"), []
    for row, given in rows:
        try:
            if isinstance(given, bool) or (isinstance(given, str) and "_" in given):
                raise ValueError
            value = float(given)
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if not (math.isfinite(value) and value >= 0):
            problems.append(
                Problem(
                    f"{spec.file}:{row}", given, f"{spec.column} must be a finite number >= 0", "mend or drop the row"
                )
            )
            if len(problems) >= _SHOWN:
                break
            continue
        if len(values) >= MAX_ROWS:
            raise _refuse(spec, f"holds more than {MAX_ROWS:,} rows", "keep a sample of the rows")
        values.append(value)
    if problems:
        raise InputError(problems)
    if not values:
        raise InputError([Problem("column", spec.column, f"{spec.file} has no values in it", "give measured values")])
    return np.array(values, dtype=np.float64)


def _csv(spec: Empirical) -> Iterator[tuple[str, Any]]:
    with open(spec.file, encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream)
        if spec.column not in (reader.fieldnames or ()):
            raise _no_column(spec, reader.fieldnames or ())
        for row in reader:
            yield str(reader.line_num), row[spec.column]


def _jsonl(spec: Empirical) -> Iterator[tuple[str, Any]]:
    with open(spec.file, encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                record = from_loose_json(line)
            except ValueError:
                record = None
            if not isinstance(record, dict):
                problem = Problem(f"{spec.file}:{number}", line.strip(), "is no JSON object", "one object per line")
                raise InputError([problem])
            if spec.column not in record:
                raise _no_column(spec, record)
            yield str(number), record[spec.column]


def _parquet(spec: Empirical) -> Iterator[tuple[str, Any]]:
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
        arrow: Any = importlib.import_module("pyarrow")
    except ImportError:
        remedy = "pip install 'fleetsim[parquet]', or use .csv"
        raise OutsideError(f"{str(spec.file)!r}: Parquet needs pyarrow, which is not installed; {remedy}") from None
    try:
        file = parquet.ParquetFile(spec.file)
    except (arrow.ArrowException, ValueError) as error:
        raise _refuse(spec, f"is no Parquet file: {str(error).splitlines()[0]}", "check the file") from None
    with file:
        if spec.column not in file.schema_arrow.names:
            raise _no_column(spec, file.schema_arrow.names)
        if file.metadata.num_rows > MAX_ROWS:
            raise _refuse(spec, f"holds more than {MAX_ROWS:,} rows", "keep a sample of the rows")
        row = 0
        try:
            for batch in file.iter_batches(columns=[spec.column]):
                for value in batch.column(0).to_pylist():
                    row += 1
                    yield f"row {row}", value
        except arrow.ArrowException as error:
            raise _refuse(spec, f"cannot be read: {str(error).splitlines()[0]}", "check the file") from None
