"""The numbers of a step log while it is read: a packed column per metric, so that gigabytes of text stay megabytes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from fleetsim.history.history import Floats

Row = Mapping[str, float]
# Consoles of two processes tell of different metrics in turn: one row without a metric is the usual gap.
_NOTHING = array("d", [np.nan])


class Table:
    """Rows of metrics; NaN where a row does not say.

    names: every metric that was seen, also those that are not kept. wanted: whether a metric is kept, asked once for
    each name. framework: whose the rows are, where their form tells it.
    """

    def __init__(self, wanted: Callable[[str], bool] | None = None) -> None:
        self.names: set[str] = set()
        self.framework: str | None = None
        self._wanted = wanted
        self._columns: dict[str, array[float]] = {}
        self._rows = 0

    @classmethod
    def of(cls, columns: Mapping[str, Floats], names: Collection[str]) -> Table:
        """A table of whole columns, of equal length. names: every metric that was seen."""
        table = cls()
        table.names = set(names)
        table._columns = {name: array("d", column.tobytes()) for name, column in columns.items()}
        table._rows = max(map(len, columns.values()), default=0)
        return table

    def __len__(self) -> int:
        return self._rows

    def add(self, row: Iterable[tuple[str, float]]) -> None:
        """One more row, as its (metric, number) pairs; of a metric that comes twice in it the last one counts."""
        columns, at = self._columns, self._rows
        for name, value in row:
            column = columns.get(name)
            if column is None:
                if name in self.names or not self._keep(name):
                    continue
                columns[name] = column = array("d")
            there = len(column)
            if there > at:
                column[at] = value
                continue
            if there < at:
                column.extend(_NOTHING if there == at - 1 else _NOTHING * (at - there))
            column.append(value)
        self._rows += 1

    def column(self, name: str) -> Floats:
        """(rows,) of one metric."""
        column = self._columns.get(name, array("d"))
        found = np.full(self._rows, np.nan)
        found[: len(column)] = np.frombuffer(column, dtype=float) if len(column) else 0.0
        return found

    def kept(self) -> Collection[str]:
        """The metrics that have a column."""
        return self._columns.keys()

    def _keep(self, name: str) -> bool:
        self.names.add(name)
        return self._wanted is None or self._wanted(name)
