"""Columns of a step log that the user names with `--map`, their units, and which ones to name of an unknown log."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from fleetsim.config.tree import did_you_mean
from fleetsim.errors import InputError, Problem
from fleetsim.history.step_logs.frameworks import COLUMNS, Entry

# Words of metrics that nobody has looked at, the likeliest first; and what a metric of seconds has in its name, or not.
_WORDS: Mapping[str, Sequence[str]] = {
    "step_s": ("step_time", "time_per_step", "iteration", "total", "step"),
    "wait_s": ("wait", "generat", "rollout", "sampl"),
    "train_s": ("train", "update", "backward", "learn"),
    "sync_s": ("sync", "broadcast", "weights"),
}
_SECONDS = re.compile(r"time|seconds|duration|_s$|\(s\)", re.IGNORECASE)
_SHARE = re.compile(r"%|pct|(?<![a-z])ratio|frac|timestamp|_per_s|/s\b", re.IGNORECASE)

UNITS_S: Mapping[str, float] = {
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "usec", "micros", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanoseconds"), 1e-9),
    **dict.fromkeys(("s", "sec", "seconds"), 1.0),
    "minutes": 60.0,
    "hours": 3600.0,
}
"""Units of time by how names end, in seconds."""
_UNIT_LAST = re.compile(rf"(?:^|[_/.(\[ -])({'|'.join(UNITS_S)})[)\]]?$", re.IGNORECASE)


def in_unit(metric: str) -> tuple[str, float | None]:
    """A metric without the unit that was given behind it (`loop:ms`), and that in seconds; None = none was given."""
    name, _, unit = metric.rpartition(":")
    return (name, UNITS_S[unit]) if name and unit in UNITS_S else (metric, None)


def entries_of(mapping: Mapping[str, str], names: Collection[str], path: Path) -> tuple[Entry, ...]:
    """What the user names in place of the table. mapping: column -> metric. Raises InputError: one is not there."""
    problems, entries = [], []
    for key, metric in mapping.items():
        column = key.removeprefix("trainer.")
        if column not in COLUMNS or column in ("step", "time_s"):
            remedy = did_you_mean(column, list(COLUMNS)[2:])
            problems.append(Problem("map", key, "a step log has no such column", remedy))
            continue
        unit = None
        if metric not in names:
            metric, unit = in_unit(metric)
        if metric not in names:
            near = get_close_matches(metric, names, n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]}?" if near else f"its columns: {shown(names)}"
            problems.append(Problem(f"map.{key}", metric, f"{path.name} has no such column", remedy))
            continue
        if unit is None and re.search(r"_s(_|$)", column) and (named := _UNIT_LAST.search(metric)) is not None:
            unit = UNITS_S[named[1].lower()]
        entries.append(Entry(column, (metric,), unit=1.0 if unit is None else unit))
    if problems:
        raise InputError(problems)
    return tuple(entries)


def alike(names: Collection[str]) -> dict[str, str]:
    """Column -> the metric whose name is likest to it, of a log that nobody has read before: for the user to judge."""
    timed = [n for n in sorted(names, key=len) if _SECONDS.search(n) and not _SHARE.search(n)]
    found: dict[str, str] = {}
    for column, words in _WORDS.items():
        fits = (name for word in words for name in timed if word in name.rpartition("/")[2].lower())
        first = next((name for name in fits if name not in found.values()), None)
        if first is not None:
            found[column] = first
    return found if "step_s" in found or len(found) > 1 else {}


def shown(names: Collection[str]) -> str:
    """A few of a log's metrics."""
    return ", ".join(sorted(names)[:6]) or "no columns"
