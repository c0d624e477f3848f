"""A written file as text: whole where it is short and plain, else what tells it from another one."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from tests.golden.pages import page_text
from tests.golden.shortened import json_text

_HEAD, _MOST = 60, 400


def file_text(place: Path) -> str:
    """What the golden shows of this file."""
    name = place.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        return _parquet(place)
    raw = place.read_bytes()
    text = (gzip.decompress(raw) if place.name.endswith(".gz") else raw).decode()
    if name.endswith(".html"):
        return page_text(text)
    if name.endswith(".om"):
        return _openmetrics(text)
    if name.endswith(".jsonl"):
        return _records(text)
    if name.endswith(".csv"):
        return _table(text)
    if name.endswith(".svg"):
        return f"{len(text.splitlines())} lines, crc {zlib.crc32(text.encode()):08x}"
    if name.endswith(".json"):
        document = json.loads(text)
        return _trace(document) if isinstance(document, dict) and "traceEvents" in document else json_text(text)
    lines = text.splitlines()
    if len(lines) <= _MOST:
        return text
    rest = "\n".join(lines[_MOST:])
    return "\n".join([*lines[:_MOST], f"... {len(lines) - _MOST} more lines, crc {zlib.crc32(rest.encode()):08x}"])


def _openmetrics(text: str) -> str:
    """The first samples, then for each metric how many there are and their sum."""
    lines = text.splitlines()
    counts: Counter[str] = Counter()
    values: dict[str, list[float]] = {}
    for line in lines:
        if line and not line.startswith("#"):
            name = line.partition("{")[0].partition(" ")[0]
            value = float(line.rpartition("}")[2].split()[0]) if "}" in line else float(line.split()[1])
            counts[name] += 1
            values.setdefault(name, []).append(value)
    sums = [f"{name}: {counts[name]} samples, sum {_sum(values[name])}" for name in sorted(counts)]
    return "\n".join([*lines[:_HEAD], f"... {len(lines)} lines in all", *sums])


def _records(text: str) -> str:
    """How many records of each kind, and the keys of each."""
    kinds: Counter[str] = Counter()
    for line in text.splitlines():
        record = json.loads(line)
        kinds[f"{record.get('t', '?')}: {', '.join(record)}"] += 1
    return "\n".join(f"{count} x {kind}" for kind, count in kinds.items())


def _table(text: str) -> str:
    rows = list(csv.reader(io.StringIO(text)))
    return (
        _columns(rows[0], [list(column) for column in zip(*rows[1:], strict=True)])
        + "\n"
        + "\n".join(text.splitlines()[:_HEAD])
    )


def _parquet(place: Path) -> str:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(place)
    heads = [f"{field.name}: {field.type}" for field in table.schema]
    known = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    known.pop("pandas", None)
    told = [f"metadata {key}: {_document(value)}" for key, value in sorted(known.items())]
    return "\n".join([*told, _columns(heads, [column.to_pylist() for column in table.columns])])


def _document(text: str) -> str:
    try:
        return json_text(text)
    except json.JSONDecodeError:
        return text


def _columns(heads: list[str], columns: list[list[Any]]) -> str:
    """A line a column: its name, how many values, the first, the last and their sum."""
    lines = [f"{len(columns[0]) if columns else 0} rows"]
    for head, values in zip(heads, columns, strict=True):
        if not values:
            lines.append(head)
            continue
        numbers = [number for value in values if (number := _number(value)) is not None]
        text = f", sum {_sum(numbers)} of {len(numbers)}" if numbers else ""
        lines.append(f"{head}: first {values[0]!r}, last {values[-1]!r}{text}")
    return "\n".join(lines)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _sum(values: list[float]) -> str:
    return repr(math.fsum(v for v in values if math.isfinite(v)))


def _trace(document: dict[str, Any]) -> str:
    """A timeline: events of each kind and name, and the seconds that they take."""
    counts: Counter[str] = Counter()
    spans: dict[str, list[float]] = {}
    for event in document["traceEvents"]:
        kind = f"{event.get('ph')} {event.get('cat', '')} {event.get('name', '').split(' ')[0]}"
        counts[kind] += 1
        spans.setdefault(kind, []).append(float(event.get("dur", 0.0)))
    rest = {key: value for key, value in document.items() if key != "traceEvents"}
    lines = [f"{counts[kind]} x {kind}: {_sum(spans[kind])} us" for kind in sorted(counts)]
    return "\n".join([*lines, json_text(json.dumps(rest, indent=1, ensure_ascii=False))])
