"""The packed columns that the rows of a step log, or the scalars of a tracker's run, go to."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping

import numpy as np

from fleetsim.history.counters import summed
from fleetsim.history.history import Floats


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

    def join(self, other: RunLogTable, step: str) -> None:
        """Takes over what this table does not say, at the rows of the same step; of several the last counts."""
        at, there = self.column(step).tolist(), other.column(step).tolist()
        for name in [name for name in other.names if name not in self.names]:
            said = {
                step: value for step, value in zip(there, other.column(name).tolist(), strict=True) if value == value
            }
            rows = [row for row, step in enumerate(at) if step in said]
            self.names[name] = None
            self._kept[name] = array("q", rows), array("d", [said[at[row]] for row in rows])

    def add_up(self, name: str, parts: Collection[str]) -> None:
        """One more metric: at each row the sum of what it says of several."""
        total = summed([self.column(part) for part in parts])
        rows = np.flatnonzero(np.isfinite(total))
        self.names[name] = None
        self._kept[name] = array("q", rows.tolist()), array("d", total[rows].tolist())

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
