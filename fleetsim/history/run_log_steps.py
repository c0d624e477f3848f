"""Rows of a step log brought together: one value per metric and step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fleetsim.dataclass import dataclass
from fleetsim.history.history import Floats
from fleetsim.history.run_log_columns import CLOCKS, RUNNING, FrameworkLog
from fleetsim.history.run_log_table import RunLogTable


@dataclass(frozen=True, slots=True)
class TableSteps:
    """numbers: (n,) of the steps, rising. values: metric -> (n,), NaN where not logged. again: rows that brought a step
    which was already there after a later one."""

    numbers: Floats
    values: Mapping[str, Floats]
    again: int


def steps_of_table(table: RunLogTable, known: FrameworkLog, names: Mapping[str, str]) -> TableSteps:
    """The steps of a table. names: metric -> its name in the table.

    Rows without a step number belong to the next row that has one: what the framework logs in rows of its own
    (`FrameworkLog.added`) is added up, of the rest the last counts. Rows that say nothing about a step (an evaluation,
    a table) are passed over. Without any step number every row is a step.
    """
    columns = {metric: table.column(name) for metric, name in names.items()}
    told = {m: c for m, c in columns.items() if m not in {*CLOCKS, *RUNNING, *known.step}}
    says = np.zeros(len(table), dtype=bool)
    for column in told.values():
        says |= np.isfinite(column)
    counters = (columns[s] for s in known.step if s in columns)
    counter = next((c for c in counters if np.isfinite(c).any()), None)
    at = np.arange(1.0, len(table) + 1) if counter is None else np.where(np.isfinite(counter), counter, np.nan)
    rows = np.flatnonzero(np.isfinite(at) & says)
    numbers, place, first = _numbered(at[rows])
    loose = np.flatnonzero(~np.isfinite(at) & says).astype(np.int64)
    follower = np.searchsorted(rows, loose)
    loose, follower = loose[follower < len(rows)], follower[follower < len(rows)].astype(np.int64)
    values = {}
    for metric, column in columns.items():
        out = np.full(len(numbers), np.nan)
        _put_loose(out, column, loose, follower, place, metric in known.added)
        own = np.isfinite(column[rows])
        out[place[own]] = column[rows][own]
        if np.isfinite(out).any():
            values[metric] = out
    highest = np.maximum.accumulate(at[rows]) if len(rows) else at[rows]
    again = int(((at[rows] < highest) & (first[place] < np.arange(len(rows)))).sum())
    return TableSteps(numbers, values, again)


def _numbered(at: Floats) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Step numbers, rising; each row's place among them; and the first row of each."""
    numbers, first, place = np.unique(at, return_index=True, return_inverse=True)
    return numbers, place.astype(np.int64), first.astype(np.int64)


def _put_loose(
    out: Floats,
    column: Floats,
    loose: NDArray[np.int64],
    follower: NDArray[np.int64],
    place: NDArray[np.int64],
    added: bool,
) -> None:
    """Values of rows without a step number, at the place of the row that follows: its last row counts for a step."""
    some = np.isfinite(column[loose])
    loose, follower = loose[some], follower[some]
    if not added:
        out[place[follower]] = column[loose]
    elif len(loose):
        sums = np.bincount(follower, weights=column[loose])
        some_rows = np.unique(follower)
        out[place[some_rows]] = sums[some_rows]
