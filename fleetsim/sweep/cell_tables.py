"""The cells of a sweep side by side, and what each key does, as tables of a terminal and of a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fleetsim import units
from fleetsim.quantities import quantity
from fleetsim.sweep.cell import SweepRow
from fleetsim.sweep.design import text_of
from fleetsim.sweep.grid import Axis
from fleetsim.sweep.objective import Objective
from fleetsim.sweep.run import SweepRows
from fleetsim.tell.document import Table

LEGEND = "* Pareto front, ~ not significantly beaten"
# Rows of the table of cells; the dominated ones go first where there are more.
_MOST_ROWS = 40
# Values of a key whose effect is shown.
_MOST_VALUES = 20
_MARKS = {"front": "*", "tied": "~", "dominated": ""}


def cells(result: SweepRows, most: int = _MOST_ROWS) -> Table:
    """The cells by the first objective; where there are more than `most`, those of the front.

    A narrow terminal does without what binds each.
    """
    objectives, marks = result.pareto.objectives, result.pareto.marks
    ran = sorted((row for row in result.rows if row.status == "ok"), key=lambda row: _order(row, objectives[0]))
    shown = ran
    if len(ran) > most:
        worth = [row for row in ran if marks[row.cell] != "dominated"]
        shown = [row for row in worth if marks[row.cell] == "front"] if len(worth) > most else worth
        shown = shown[:most]
    left = len(ran) - len(shown)
    note = f"{units.plural(left, 'other cell')} not shown: --out FILE and --json have all of them" if left else ""
    table = Table(
        f"cells, by {quantity(objectives[0].metric).title} ({LEGEND})",
        ("", *_keys(result.design.grid.axes), *(quantity(o.metric).heading for o in objectives), "binds"),
        tuple(_cell(result, row) for row in shown),
        left=0,
        note=note,
        marked=frozenset(i for i, row in enumerate(shown) if marks[row.cell] == "front"),
    )
    return replace(table, narrower=(table.without("binds"),))


def _cell(result: SweepRows, row: SweepRow) -> tuple[str, ...]:
    estimates, values = row.estimates(), result.design.grid.values(row.cell)
    return (
        _MARKS[result.pareto.marks[row.cell]],
        *(text_of(values[axis.path]) for axis in result.design.grid.axes),
        *(_plain(o, estimates[o.metric].mean) for o in result.pareto.objectives),
        row.binding.replace("_", " "),
    )


def effects(result: SweepRows) -> tuple[tuple[Axis, Table], ...]:
    """What each key does, where that is worth a table."""
    axes = (axis for axis in result.design.grid.axes if 1 < len(axis.values) <= _MOST_VALUES)
    return tuple((axis, _effect(result, axis)) for axis in axes)


def _effect(result: SweepRows, axis: Axis) -> Table:
    """The mean of each objective at each value of one key, over the values of the other keys that ran at all of its
    values, so that like is compared with like."""
    objectives = result.pareto.objectives
    by_others: dict[str, dict[str, SweepRow]] = {}
    for row in result.rows:
        if row.status == "ok":
            values = result.design.grid.values(row.cell)
            value = text_of(values.pop(axis.path))
            by_others.setdefault(repr(values), {})[value] = row
    balanced = [rows for rows in by_others.values() if len(rows) == len(axis.values)]
    shown = []
    for value in map(text_of, axis.values):
        rows = [rows[value] for rows in (balanced or by_others.values()) if value in rows]
        shown.append((value, *(_mean(o, rows) for o in objectives), f"{len(rows):,}"))
    headings = (*(quantity(o.metric).heading for o in objectives), "cells")
    table = Table(f"by {axis.path}", (axis.path, *headings), tuple(shown), left=0)
    return replace(table, narrower=(replace(table, headings=(_last_word(axis), *headings)),))


def _mean(objective: Objective, rows: Sequence[SweepRow]) -> str:
    means = [row.estimates()[objective.metric].mean for row in rows]
    return _plain(objective, math.fsum(means) / len(means)) if means else "-"


def _keys(axes: Sequence[Axis]) -> list[str]:
    """The last word of each key, as long as they differ."""
    last = [_last_word(axis) for axis in axes]
    return last if len(set(last)) == len(last) else [axis.path for axis in axes]


def _last_word(axis: Axis) -> str:
    return axis.path.rpartition(".")[2]


def _order(row: SweepRow, objective: Objective) -> tuple[float, int]:
    mean = row.estimates()[objective.metric].mean
    return (-mean if objective.most else mean, row.cell)


def _plain(objective: Objective, mean: float) -> str:
    how = quantity(objective.metric).unit
    return units.share(mean) if how == "share" else units.number(mean)
