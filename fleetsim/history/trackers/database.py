"""SQLite files of trackers: read, never written, and one run of them at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from fleetsim.errors import InputError, Problem

MAGIC = b"SQLite format 3\x00"
# Names of runs that a refusal tells.
_SHOWN = 6


def columns_of(path: Path) -> set[str]:
    """The columns of its table `metrics`; none where there is no such table."""
    return {str(row[1]) for row in rows_of(path, "PRAGMA table_info(metrics)", ())}


def rows_of(path: Path, query: str, values: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, as they come. Raises InputError."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
            base.text_factory = lambda text: text.decode("utf-8", "replace")
            yield from base.execute(query, tuple(values))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        rule = f"the database does not read ({error})"
        raise InputError([Problem("history", str(path), rule, "give a copy that nobody writes to")]) from None


def run_of(path: Path, query: str, run: str) -> str:
    """The run that is asked for, or the only one. query: gives (id, name) of each. Raises InputError."""
    runs = {str(name): str(key) for key, name in rows_of(path, query, ())}
    if run in runs:
        return runs[run]
    if run:
        problem = Problem("history", f"{path}#{run}", "has no such run", f"its runs: {_shown(runs)}")
        raise InputError([problem])
    return runs[the_only(path, runs, f"say which: {path.name}#RUN, of")]


def the_only(path: Path, runs: Collection[str], remedy: str) -> str:
    """The one run of a place. remedy: what to do where there is another number of them; their names stand behind it.

    Raises InputError.
    """
    if len(runs) != 1:
        rule = f"holds {len(runs)} runs, and one is read at a time" if runs else "holds no run"
        raise InputError([Problem("history", str(path), rule, f"{remedy} {_shown(runs)}")])
    return next(iter(runs))


def _shown(runs: Collection[str]) -> str:
    return ", ".join(sorted(runs)[:_SHOWN]) or "none"
