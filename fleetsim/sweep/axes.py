"""The axes of a grid, as a person says them: a text a key on the command line, a mapping in Python.

Apart from `grid.py`, which a command loads for its options: reading values loads the scenario's schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetsim.config.load import parse_override
from fleetsim.errors import InputError, Problem, Problems
from fleetsim.job.options import change_texts
from fleetsim.sweep.grid import MOST_VALUES, Axis
from fleetsim.sweep.values import parse_sweep


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
