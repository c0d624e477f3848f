"""JSON and CSV of others, read without trusting them: every problem at once, never a 0 for what is not there."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from typing import Any

from fleetsim.config.files import read_text
from fleetsim.errors import InputError, Problem
from fleetsim.json_text import from_loose_json

MAX_BYTES = 512 * 2**20
MAX_ROWS = 100_000
MAX_PROBLEMS = 20
KNOWN = (
    "raw measurements, JSON of vllm bench serve, sweep, throughput or latency, a guidellm report, "
    "or a CSV of batch, context and tokens/s"
)
Document = Mapping[str, Any]


def unknown(path: str, found: str) -> InputError:
    """The error for a file that is none of those that can be read."""
    return InputError([Problem("--from", path, f"{found}; looked for {KNOWN}", "give the file as its tool wrote it")])


def text_of(path: str) -> str:
    """The text of a file. Raises InputError as `read_text` does."""
    return read_text(path, "--from", MAX_BYTES)


def json_documents(text: str, path: str) -> list[Document]:
    """The objects in a JSON text: one, a list of them, or one per line. Raises InputError where it is none of these."""
    try:
        documents = [from_loose_json(text)]
    except ValueError as error:
        try:
            documents = [from_loose_json(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            raise unknown(path, f"is no valid JSON ({error})") from None
    flat = [d for part in documents for d in (part if isinstance(part, list) else [part])]
    if not flat or not all(isinstance(d, dict) for d in flat):
        raise unknown(path, "holds no JSON object")
    return flat


def csv_rows(text: str, path: str) -> list[dict[str, str]]:
    """The rows of a CSV by its header; commas, semicolons or tabs. Raises InputError where there is none."""
    first = text.lstrip().splitlines()[0]
    delimiter = max(",;\t", key=first.count)
    try:
        reader = csv.DictReader(io.StringIO(text.lstrip()), delimiter=delimiter, strict=True)
        rows: list[dict[str, str]] = []
        for row in reader:
            if len(rows) >= MAX_ROWS:
                raise unknown(path, f"has more than {MAX_ROWS:,} rows")
            rows.append({k: v.strip() if isinstance(v, str) else "" for k, v in row.items() if k is not None})
    except csv.Error as error:
        raise unknown(path, f"is no valid CSV ({error})") from None
    if not rows:
        raise unknown(path, "has a header but no row, or neither")
    return rows


class DocumentFields:
    """Numbers of one document, with every problem met so far."""

    def __init__(self, document: Document, where: str) -> None:
        self.document, self.where = document, where
        self.problems: list[Problem] = []

    def number(self, *keys: str, least: float = 0.0, needed: bool = False, above: bool = False) -> float | None:
        """The first of `keys` that is given, as a finite number >= least (> least with `above`); None where none is."""
        for key in keys:
            value = self.document.get(key)
            if value is None or value == "":
                continue
            number = as_number(value)
            if number is not None and (number > least if above else number >= least):
                return number
            rule = f"must be a finite number {'>' if above else '>='} {least:g}"
            self.problems.append(Problem(f"{self.where}: {key}", value, rule, "give the file as its tool wrote it"))
            return None
        if needed:
            rule = f"needed, but {' or '.join(keys)} is not there"
            self.problems.append(Problem(f"{self.where}: {keys[0]}", None, rule, "give the file as its tool wrote it"))
        return None

    def count(self, *keys: str) -> int | None:
        """The first of `keys` as an integer >= 1, None where it is none."""
        number = as_number(next((self.document[k] for k in keys if self.document.get(k) not in (None, "")), None))
        return int(number) if number is not None and number >= 1 and number == int(number) else None

    def text(self, *keys: str) -> str | None:
        """The first of `keys` that is a text."""
        found = (self.document.get(k) for k in keys)
        return next((v for v in found if isinstance(v, str) and v), None)


def as_number(value: Any) -> float | None:
    """A finite number, or a text of one; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def refuse(problems: Iterable[Problem]) -> None:
    """Raises InputError if there are problems: the first twenty."""
    found = list(problems)
    if found:
        raise InputError(found[:MAX_PROBLEMS])
