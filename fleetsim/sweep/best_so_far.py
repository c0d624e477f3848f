"""What a sweep tells while it goes on: cells done, the best so far, time left."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, inf
from typing import TYPE_CHECKING

from fleetsim import units
from fleetsim.job.result import Watch
from fleetsim.quantities import quantity

if TYPE_CHECKING:
    from fleetsim.sweep.cell import SweepRow
    from fleetsim.sweep.grid import Grid
    from fleetsim.sweep.pareto import Objective


class BestSoFar:
    """Follows a sweep and shows it by one objective."""

    def __init__(self, grid: Grid, objective: Objective, watch: Watch) -> None:
        self._grid, self._objective, self._watch = grid, objective, watch
        self._best, self._cell = inf, -1

    def __call__(self, done: int, of: int, rows: Sequence[SweepRow]) -> None:
        """Hears how many cells are done, of how many, and which are new."""
        column, sign = self._objective.column, -1.0 if self._objective.most else 1.0
        for row in rows:
            if row.values:
                mean = sign * fsum(run[column] for run in row.values) / len(row.values)
                if mean < self._best:
                    self._best, self._cell = mean, row.cell
        if not self._watch.counts:
            self._watch(f"sweeping: {done} of {of} cells")
            return
        self._watch("cells")
        self._watch.at(done, of, self._words)

    def _words(self) -> str:
        if self._cell < 0:
            return ""
        from fleetsim.sweep.cell import text_of

        q = quantity(self._objective.metric)
        value = units.written(-self._best if self._objective.most else self._best, q.unit)
        where = ", ".join(f"{path}={text_of(v)}" for path, v in self._grid.values(self._cell).items())
        return f"best {q.title} {value} at {where}"
