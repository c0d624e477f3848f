"""A trace of spot machines: how many can be had when, as a file says, and how long they are paid for."""

from __future__ import annotations

import csv
import io
import json
import math
from functools import lru_cache
from itertools import pairwise

from fleetsim.config.data_files import changed_ns, read_text
from fleetsim.errors import InputError, Problem

_MAX_BYTES = 16 << 20
_WHERE = "fleet.spot.trace"
Trace = tuple[tuple[float, int], ...]
"""(seconds, machines that can be had from then on), ascending; the last row says when it begins anew."""


def paid_share(path: str, count: int, notice_s: float) -> float:
    """The part of the time in which one of so many machines is paid for: while it can be had, and its notice.

    Raises InputError as `trace_of` does.
    """
    paid, below = 0.0, 0
    for machines, share in _levels(path, changed_ns(path), notice_s):
        paid, below = paid + max(0, min(machines, count) - below) * share, machines
    return paid / count


def absences(path: str, count: int) -> tuple[float, float]:
    """Mean seconds for which one of so many machines is missing, and between the times that one goes; infinite where
    none ever goes. Raises InputError as `trace_of` does."""
    rows = trace_of(path, changed_ns(path))
    have = [min(n, count) for _, n in rows[:-1]]
    lasts = (until - since for (since, _), (until, _) in pairwise(rows))
    missing_s = sum((max(have) - n) * s for n, s in zip(have, lasts, strict=True))
    gone = sum(max(0, a - b) for a, b in pairwise((*have, have[0])))
    return (missing_s / gone, rows[-1][0] / gone) if gone else (0.0, math.inf)


def most_machines(path: str) -> int:
    """The most machines that can be had at any time. Raises InputError as `trace_of` does."""
    return max(have for _, have in trace_of(path, changed_ns(path)))


@lru_cache(maxsize=8)
def _levels(path: str, written_ns: int, notice_s: float) -> tuple[tuple[int, float], ...]:
    """Each number of machines of a trace, ascending, and the part of the time in which so many are paid for."""
    rows = [(until - since, have) for (since, have), (until, _) in pairwise(trace_of(path, written_ns))]
    span_s = sum(lasts for lasts, _ in rows)
    found = []
    for machines in sorted({have for _, have in rows if have}):
        first = next(k for k, (_, have) in enumerate(rows) if have >= machines)
        paid_s = gone_s = 0.0
        for lasts, have in (*rows[first:], *rows[:first], (0.0, machines)):
            if have >= machines:
                paid_s, gone_s = paid_s + lasts + min(gone_s, notice_s), 0.0
            else:
                gone_s += lasts
        found.append((machines, paid_s / span_s))
    return tuple(found)


@lru_cache(maxsize=8)
def trace_of(path: str, written_ns: int) -> Trace:
    """A trace's rows, the first at 0 s. written_ns: when the file was written, so that an edited one is read again.

    Raises InputError for a file that is neither a CSV of time_s and instances nor SkyPilot's JSON of them.
    """
    text = read_text(path, _WHERE, _MAX_BYTES)
    try:
        rows = _from_json(text) if text.lstrip().startswith("{") else _from_csv(text)
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        rule = f"is no trace of machines ({str(error)[:100] or type(error).__name__})"
        remedy = "a CSV with the columns time_s and instances, or JSON with metadata.gap_seconds and data"
        raise InputError([Problem(_WHERE, path, rule, remedy)]) from None
    times = [t for t, _ in rows]
    if len(rows) < 2 or times[0] != 0.0 or any(b <= a for a, b in pairwise(times)):
        rule = "must hold two rows at least, the first at 0 s, each later than the one before"
        raise InputError([Problem(_WHERE, path, rule, "sort it by time_s, and count from its first row")])
    if times[-1] < len(rows) - 1:
        rule = f"has {len(rows):,} rows in {times[-1]:g} s: at most one a second, or a run would do little else"
        raise InputError([Problem(_WHERE, path, rule, "write its times in seconds, and only what changes")])
    if not any(n for _, n in rows):
        raise InputError(
            [Problem(_WHERE, path, "has no machine at any time", "a trace with some, or fleet.spot.share: 0")]
        )
    return tuple(rows)


def _from_csv(text: str) -> list[tuple[float, int]]:
    return [(_number(row["time_s"]), int(_number(row["instances"]))) for row in csv.DictReader(io.StringIO(text))]


def _from_json(text: str) -> list[tuple[float, int]]:
    given = json.loads(text)
    gap, data = _number(given["metadata"]["gap_seconds"]), given["data"]
    return [(k * gap, int(_number(n))) for k, n in enumerate([*data, data[-1]])]


def _number(value: object) -> float:
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number) or not 0 <= number <= 1e9:
        raise ValueError(f"{value!r} is out of bounds")
    return number
