"""Scalars that come one by one, each with its step: what TensorBoard and MLflow keep."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np

from fleetsim.history.run_log_table import RunLogTable


class Scalars:
    """Metric -> its steps and values, packed. wanted: which metrics are kept (None = all)."""

    def __init__(self, wanted: Callable[[str], bool] | None = None) -> None:
        self.names: set[str] = set()
        self._wanted = wanted
        self._kept: dict[str, tuple[array[int], array[float], array[float]]] = {}

    def of(self, name: str) -> tuple[array[int], array[float], array[float]] | None:
        """Where a metric's steps, values and unix seconds go; None where it is not wanted."""
        self.names.add(name)
        if self._wanted is not None and not self._wanted(name):
            return None
        return self._kept.setdefault(name, (array("q"), array("d"), array("d")))

    def table(self) -> RunLogTable:
        """One row a step, with `step` and `_timestamp`; of a step that comes again the last value counts."""
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
        return RunLogTable.of(columns, {*self.names, "step", "_timestamp"})
