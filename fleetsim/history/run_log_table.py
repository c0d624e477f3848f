"""The numbers of a step log while it is read: a packed column per metric, so that gigabytes of text stay megabytes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping

import numpy as np

from fleetsim.history.history import Floats

# Rows that are put into their columns at once.
_MANY = 1024


class RunLogTable:
    """Rows of metrics; NaN where a row does not say.

    wanted: whether a metric is kept, asked once for each name. framework: whose the rows are, where their form tells
    it.
    """

    def __init__(self, wanted: Callable[[str], bool] | None = None) -> None:
        self._names: set[str] = set()
        self.framework: str | None = None
        self._wanted = wanted
        self._columns: dict[str, array[float]] = {}
        # Of the last rows, by their metrics: which rows they are, and their numbers one after the other.
        self._held: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}
        self._rows = 0

    @classmethod
    def of(cls, columns: Mapping[str, Floats], names: Collection[str]) -> RunLogTable:
        """A table of whole columns, of equal length. names: every metric that was seen."""
        table = cls()
        table._names = set(names)
        table._columns = {name: array("d", column.tobytes()) for name, column in columns.items()}
        table._rows = max(map(len, columns.values()), default=0)
        return table

    def __len__(self) -> int:
        return self._rows

    @property
    def names(self) -> Collection[str]:
        """Every metric that was seen, also those that are not kept."""
        self._settle()
        return self._names

    def add(self, row: Mapping[str, float]) -> None:
        """One more row."""
        kind = tuple(row)
        held = self._held.get(kind)
        if held is None:
            held = self._held[kind] = ([], [])
        at, values = held
        at.append(self._rows)
        values.extend(row.values())
        self._rows += 1
        if self._rows % _MANY == 0:
            self._settle()

    def column(self, name: str) -> Floats:
        """(rows,) of one metric; no row can be added from here on."""
        self._settle()
        return self._filled(self._columns.setdefault(name, array("d")))

    def _settle(self) -> None:
        """Puts the rows that are held into their columns. Rows of the same metrics, as most are, go there together."""
        for kind, (at, values) in self._held.items():
            rows = np.array(at)
            numbers = np.frombuffer(array("d", values)).reshape(len(rows), len(kind))
            for place, name in enumerate(kind):
                if self._keeps(name):
                    self._filled(self._columns[name])[rows] = numbers[:, place]
        self._held.clear()

    def _filled(self, column: array[float]) -> Floats:
        """A column, made as long as there are rows."""
        column.frombytes(np.full(self._rows - len(column), np.nan).tobytes())
        return np.frombuffer(column)

    def _keeps(self, name: str) -> bool:
        """Whether a metric has a column, which it gets when it is first seen."""
        if name not in self._names:
            self._names.add(name)
            if self._wanted is None or self._wanted(name):
                self._columns[name] = array("d")
        return name in self._columns
