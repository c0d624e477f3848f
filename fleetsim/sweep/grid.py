"""The grid of a sweep: some keys of a scenario, some values each, and every combination of them as a cell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from msgspec import Struct

from fleetsim.config.tree import overlap
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError, Problem, Problems
from fleetsim.faces import flag, text

# --- One key of a scenario, several values: `KEY=LO:HI[:STEP]` or `KEY=A,B,C` on the command line, a mapping in Python.
# For `replay --sweep` and `sweep --grid`.

MOST_OF_A_KEY = 200
_FORM = "must read KEY=LO:HI, KEY=LO:HI:STEP or KEY=A,B,C"


def parse_sweep(text: str, flag: str = "--sweep", most: int = MOST_OF_A_KEY) -> tuple[str, tuple[Any, ...]]:
    """ "fleet.instances=8:12:2" -> ("fleet.instances", (8, 10, 12)); the upper end belongs to the range.

    Whole numbers from LO to HI in steps of 1, unless STEP says otherwise; anything else in a list of YAML values.
    Raises InputError for an unknown key, an empty or endless range, more than `most` values, under the flag's name.
    """

    from fleetsim.config.load import parse_override

    def refuse(rule: str, remedy: str) -> InputError:
        return InputError([Problem(flag, text, rule, remedy)])

    key, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise refuse(_FORM, "for example fleet.instances=8:14")
    path, _ = parse_override(f"{key}=null")
    parts = values.split(":")
    if len(parts) == 1 or any(c in values for c in "[{,'\""):
        listed = from_yaml(f"[{values}]", f"{flag} {path}")
        if not listed or len(listed) > most:
            raise refuse(f"1 to {most:,} values", "list the values that matter")
        return path, tuple(listed)
    if len(parts) > 3:
        raise refuse(_FORM, "for example fleet.instances=8:14")
    try:
        low, high = float(parts[0]), float(parts[1])
        step = float(parts[2]) if len(parts) == 3 else 1.0
    except ValueError:
        raise refuse(
            "a range has numbers at its ends", "for example fleet.instances=8:14, or list the values"
        ) from None
    if not all(map(math.isfinite, (low, high, step))) or step <= 0 or high < low:
        raise refuse("a range goes up, by a step above 0", "for example fleet.instances=8:14:2")
    steps = (high - low) / step  # infinite where the ends are far apart and the step is tiny
    if steps >= most:
        found = f"{math.floor(steps) + 1:,}" if steps < 1e15 else "over 10^15"
        raise refuse(f"{found} values, at most {most:,}", "give a larger STEP")
    count = math.floor(steps + 1e-9) + 1
    whole = all(x == int(x) for x in (low, step))
    numbers = (low + k * step for k in range(count))
    # Twelve digits: 0.1 + 2 * 0.1 is meant to be 0.3.
    return path, tuple(round(x) if whole else float(f"{x:.12g}") for x in numbers)


MOST_CELLS = 100_000
MOST_VALUES = 10_000
# What every cell shares: the same draws, as many times.
_SHARED = {"run.seed": flag("seed"), "run.replications": flag("replications")}


class Axis(Struct, frozen=True):
    """One key of the scenario (dotted path) and the values that it takes."""

    path: str
    values: tuple[Any, ...]


class Grid(Struct, frozen=True):
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
    problems = Problems()
    if not grid.axes:
        problems.append(
            Problem(flag("grid"), None, "nothing to sweep over", "for example --grid fleet.instances=4:32:2")
        )
    for axis in grid.axes:
        if axis.path in _SHARED:
            rule = "is the same in every cell, so that cells differ by what they differ in and not by luck"
            problems.append(Problem(flag("grid"), axis.path, rule, text("give {}", _SHARED[axis.path])))
        # 4 and 4.0 are one value, true and 1 are two
        numbers = (isinstance(v, (int, float)) and not isinstance(v, bool) for v in axis.values)
        times = Counter(v if number else repr(v) for v, number in zip(axis.values, numbers, strict=True))
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
    problems.stop()
    return grid


# --- The axes of a grid, as a person says them: a text a key on the command line, a mapping in Python.
# Apart from `grid.py`, which a command loads for its options: reading values loads the scenario's schema.


def axes_written(texts: Sequence[str]) -> list[Axis]:
    """The axes of `KEY=VALUES` texts. Raises InputError with all problems."""
    axes, wrong = list[Axis](), Problems()
    for one in texts:
        with wrong.check():
            axes.append(Axis(*parse_sweep(one, "--grid", MOST_VALUES)))
    wrong.stop()
    return axes


def axes_of(grid: Mapping[str, Sequence[Any]]) -> tuple[Axis, ...]:
    """The axes of a mapping, dotted path -> values, which are kept as a file would hold them.

    Raises InputError with all problems.
    """
    from fleetsim.config.load import parse_override
    from fleetsim.job.options import change_texts

    if not isinstance(grid, Mapping) or not grid:
        example = '{"fleet.instances": [4, 8, 12]}'
        raise InputError([Problem("grid", grid, "must say what to sweep over", f"for example {example}")])
    axes, wrong = list[Axis](), Problems()
    for path, values in grid.items():
        with wrong.check():
            if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__") or not len(values):
                raise InputError([Problem(f"grid {path}", values, "must be a list of values", "[4, 8, 12]")])
            texts = [change_texts({path: value})[path] for value in values]
            axes.append(Axis(path, tuple(parse_override(text)[1] for text in texts)))
    wrong.stop()
    return tuple(axes)
