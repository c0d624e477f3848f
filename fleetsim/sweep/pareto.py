"""Which cells are worth a look: those that no other cell beats, luck apart.

Cells share their draws (replication r of all of them saw the same groups and latencies), so two of them are compared
run by run: the interval of the differences is far narrower than the two intervals beside each other. A cell is better
than another in a metric where that interval leaves 0 out and the difference matters (`estimates.py` has both
limits); otherwise the two are tied there. It *beats* the other when it is better in one objective and worse in none.

front: not beaten, and no cell has better or equal means throughout. tied: has such a cell above it, but is not beaten:
the difference may be luck. dominated: beaten by a cell that no other tops by its means. Beating is asked of those
only: whom they do not beat, the cells below them do not beat by more than luck.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, inf
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.config.tree import did_you_mean
from fleetsim.errors import Problem, Problems
from fleetsim.estimates import NEGLIGIBLE, WITHOUT_INTERVAL, t_quantile
from fleetsim.faces import Text
from fleetsim.job.result import Watch
from fleetsim.quantities import BY_NAME, METRICS, quantity
from fleetsim.sweep.cell import SweepRow
from fleetsim.sweep.grid import Grid

# --- What a sweep looks for: metrics of the catalogue, each with the way that is better.

_FLAG = Text("--objective", "objectives")
# Money, time, and how far off policy. Of staleness the mean: its 99th percentile is a whole number of steps, so that
# cells which train on quite different data would be equal.
DEFAULT = ("cost_per_step", "step_s", "staleness_steps.mean")


class Objective(Struct, frozen=True):
    """A metric to make small, or with `most` large."""

    metric: str
    most: bool = False

    @property
    def column(self) -> int:
        """The metric's place in `METRICS`."""
        return METRICS.index(self.metric)

    @property
    def text(self) -> str:
        """The text that `--objective` takes: "step_s", "max:queue_depth"."""
        better = BY_NAME[self.metric].better
        plain = better is not None and self.most == (better == "more")
        return self.metric if plain else f"{'max' if self.most else 'min'}:{self.metric}"


def objectives_of(texts: Sequence[str] = ()) -> tuple[Objective, ...]:
    """ "step_s", "max:goodput" ...; `DEFAULT` if there are none.

    Raises InputError with all problems: unknown metrics, one twice, one of which neither way is better as such.
    """
    objectives: list[Objective] = []
    problems = Problems()
    for text in texts or DEFAULT:
        way, colon, name = text.strip().rpartition(":")
        if name not in BY_NAME:
            problems.append(Problem(_FLAG, name, "unknown metric", did_you_mean(name, METRICS)))
            continue
        better = BY_NAME[name].better
        if colon and way not in ("min", "max"):
            problems.append(Problem(_FLAG, text, "must read METRIC, min:METRIC or max:METRIC", f"min:{name}"))
        elif not colon and better is None:
            rule = "neither way is better as such"
            problems.append(Problem(_FLAG, name, rule, f"say which: min:{name} or max:{name}"))
        elif any(o.metric == name for o in objectives):
            problems.append(Problem(_FLAG, name, "comes twice", "give it once"))
        else:
            objectives.append(Objective(name, way == "max" if colon else better == "more"))
    problems.stop()
    return tuple(objectives)


Mark = Literal["front", "tied", "dominated"]
Floats = NDArray[np.float64]


class BestCells(Struct, frozen=True):
    """The cell with the best mean of one objective, and the cells that are not worse by more than luck; equal: those of
    them that are the same to the last digit, run by run."""

    objective: Objective
    cell: int
    tied: tuple[int, ...]
    equal: tuple[int, ...]


class Pareto(Struct, frozen=True):
    """marks: by cell, of the cells that ran. best: one an objective, none where no cell ran."""

    objectives: tuple[Objective, ...]
    marks: dict[int, Mark]
    best: tuple[BestCells, ...]

    @property
    def front(self) -> tuple[int, ...]:
        """The cells of the front, ascending."""
        return tuple(cell for cell, mark in self.marks.items() if mark == "front")


def pareto_of(rows: Sequence[SweepRow], objectives: tuple[Objective, ...]) -> Pareto:
    """The front of the rows that have values, in the order of the rows."""
    ran = [row for row in rows if row.status == "ok"]
    if not ran:
        return Pareto(objectives, {}, ())
    # (cells, objectives, replications), smaller is better.
    signs = np.array([-1.0 if o.most else 1.0 for o in objectives])
    columns = [o.column for o in objectives]
    # A cell without stations has no metrics of theirs: there is nothing of it to compare.
    found = [[[run[i] if i < len(run) else None for i in columns] for run in row.values] for row in ran]
    values = np.array(found, dtype=float).transpose(0, 2, 1) * signs[:, None]
    means = values.mean(axis=2)
    top = _undominated(means)
    beaten = np.zeros(len(ran), dtype=bool)
    for i in np.flatnonzero(top):
        better, worse = _compare(values[i], values)
        beaten |= better.any(axis=1) & ~worse.any(axis=1)
    if beaten.all():  # ties need not be transitive: where they run in a circle, the means decide
        beaten = ~top
    marks: dict[int, Mark] = {
        row.cell: "dominated" if b else "front" if t else "tied" for row, b, t in zip(ran, beaten, top, strict=True)
    }
    return Pareto(objectives, marks, tuple(_best(ran, values, means, k, o) for k, o in enumerate(objectives)))


def _best(ran: Sequence[SweepRow], values: Floats, means: Floats, k: int, objective: Objective) -> BestCells:
    # Of equals the one that the other objectives, in their order, speak for.
    order = np.lexsort((*means.T[::-1], means[:, k]))
    i = int(order[0])
    better, _ = _compare(values[i, k : k + 1], values[:, k : k + 1])
    tied = tuple(row.cell for j, row in enumerate(ran) if j != i and not better[j, 0])
    same = (values[:, k] == values[i, k]).all(axis=1)
    equal = tuple(row.cell for j, row in enumerate(ran) if j != i and same[j])
    return BestCells(objective, ran[i].cell, tied, equal)


def _compare(one: Floats, others: Floats) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where one cell (objectives, replications) is better and where worse than each other: (cells, objectives)."""
    difference = one - others
    n = difference.shape[2]
    change = difference.mean(axis=2)
    scale = np.maximum(np.abs(one.mean(axis=1)), np.abs(others.mean(axis=2)))
    if n < 2:
        real: Any = np.abs(change) > WITHOUT_INTERVAL * scale
    else:
        half = t_quantile(n - 1) * difference.std(axis=2, ddof=1) / np.sqrt(n)
        real = (np.abs(change) > NEGLIGIBLE * scale) & (np.abs(change) > half)
    return real & (change < 0), real & (change > 0)


def _undominated(means: Floats) -> NDArray[np.bool_]:
    """Cells that no other tops: none is at least as good throughout and better somewhere."""
    top = np.zeros(len(means), dtype=bool)
    left = np.lexsort(means.T[::-1])  # whoever tops a cell stands before it
    while len(left):
        first, left = left[0], left[1:]
        top[first] = True
        one = means[first]
        topped = (one <= means[left]).all(axis=1) & (one < means[left]).any(axis=1)
        left = left[~topped]
    return top


# --- What a sweep tells while it goes on: cells done, the best so far, time left.


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
                mean = sign * fsum(run[column] or 0.0 for run in row.values) / len(row.values)
                if mean < self._best:
                    self._best, self._cell = mean, row.cell
        if not self._watch.counts:
            self._watch(f"sweeping: {done} of {units.plural(of, 'cell')}")
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
