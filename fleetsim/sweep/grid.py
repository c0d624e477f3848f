"""The grid of a sweep: some keys of a scenario, some values each, and every combination of them as a cell.

How a person says it: `axes.py` (and `values.py`, one key's values as text).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from typing import Any

from fleetsim.config.tree import overlap
from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag, text

MOST_CELLS = 100_000
MOST_VALUES = 10_000
# What every cell shares: the same draws, as many times.
_SHARED = {"run.seed": flag("seed"), "run.replications": flag("replications")}


@dataclass(frozen=True, slots=True)
class Axis:
    """One key of the scenario (dotted path) and the values that it takes."""

    path: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells are numbered from 0; the last axis varies fastest."""

    axes: tuple[Axis, ...]

    def __len__(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    def values(self, cell: int) -> dict[str, Any]:
        """Path -> value of one cell."""
        found: dict[str, Any] = {}
        for axis in reversed(self.axes):
            cell, at = divmod(cell, len(axis.values))
            found[axis.path] = axis.values[at]
        return {axis.path: found[axis.path] for axis in self.axes}


def grid_of(axes: Iterable[Axis]) -> Grid:
    """The grid of some axes. Raises InputError with all problems: none, too many cells, keys that overlap or must be
    the same in every cell, values that come twice."""
    grid = Grid(tuple(axes))
    problems = []
    if not grid.axes:
        problems.append(
            Problem(flag("grid"), None, "nothing to sweep over", "for example --grid fleet.instances=4:32:2")
        )
    for axis in grid.axes:
        if axis.path in _SHARED:
            rule = "is the same in every cell, so that cells differ by what they differ in and not by luck"
            problems.append(Problem(flag("grid"), axis.path, rule, text("give {}", _SHARED[axis.path])))
        times = Counter(map(_shown, axis.values))
        twice = (value for value, n in times.items() if n > 1)
        problems += [
            Problem(text("{} {}", flag("grid"), axis.path), v, "comes twice", "give every value once") for v in twice
        ]
    for a, b in combinations([axis.path for axis in grid.axes], 2):
        if overlap(a, b):
            rule = "is swept twice" if a == b else f"says the same thing as {a}"
            problems.append(Problem(flag("grid"), b, rule, text("give one {} a key", flag("grid"))))
    if len(grid) > MOST_CELLS:
        rule = f"{len(grid):,} cells, at most {MOST_CELLS:,}"
        problems.append(
            Problem(flag("grid"), " x ".join(str(len(a.values)) for a in grid.axes), rule, "use larger steps")
        )
    if problems:
        raise InputError(problems)
    return grid


def _shown(value: Any) -> Any:
    """A value as something that can be counted: 4 and 4.0 are one value, true and 1 are two."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else repr(value)
