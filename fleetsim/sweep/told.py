"""The terminal view of a sweep: the best, the cells worth a look, what each key does, what to type next."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.quantities import quantity
from fleetsim.sweep.cell import Row
from fleetsim.sweep.design import text_of
from fleetsim.sweep.engines import engine_sources
from fleetsim.sweep.grid import Axis
from fleetsim.sweep.objective import Objective
from fleetsim.sweep.pareto import Best
from fleetsim.sweep.run import Sweep
from fleetsim.tell.next_lines import NextLines
from fleetsim.tell.terminal import Fitting, grid, section, with_interval

# Rows of the table of cells; the dominated ones go first where there are more.
_MOST_ROWS = 40
# Values of a key whose effect is shown.
_MOST_VALUES = 20
_MARKS = {"front": "*", "tied": "~", "dominated": ""}


def sweep_report(result: Sweep, call: Sequence[str]) -> Group:
    """Everything that `fleetsim sweep` prints on stdout. call: the words of a command line that name the scenario."""
    blocks: list[RenderableType] = [opening(result)]
    if result.pareto.best:
        legend = "* Pareto front, ~ beaten by luck at most"
        blocks.append(section(f"cells, by {_title(result.pareto.objectives[0])} ({legend})", *cells(result)))
        blocks += [
            section(f"what {axis.path} does (means over the other keys)", effect(result, axis))
            for axis in result.design.grid.axes
            if has_effect(axis)
        ]
    if failed := [row for row in result.rows if row.status != "ok"]:
        blocks.append(section("cells that could not be simulated", *(Text(line) for line in failures(result, failed))))
    if sources := engine_sources(result):
        blocks.append(section("rests on", *(Text(source.accuracy) for source in sources[:_MOST_ROWS])))
    if result.pareto.best:
        blocks.append(section("next", *(NextLines("", text) for text in commands(result, call))))
    return Group(*blocks)


def opening(result: Sweep) -> Group:
    """What was swept, and the best cell of each objective."""
    axes = result.design.grid.axes
    shape = " x ".join(f"{axis.path} ({len(axis.values):,})" for axis in axes)
    done = len(result.rows)
    count = (
        units.plural(done, "cell")
        if result.complete
        else f"{done:,} of {units.plural(len(result.design.grid), 'cell')}"
    )
    lines = [
        Text(f"{result.scenario.name}: {count}, {shape}", style="bold"),
        Text(f"{units.plural(result.design.replications, 'replication')} each, the same draws in every cell"),
    ]
    lines += [Text(best_words(result, best)) for best in result.pareto.best]
    if not result.pareto.best:
        lines.append(Text("No cell could be simulated." if result.complete else "No cell is finished."))
    return Group(*lines)


def best_words(result: Sweep, best: Best) -> str:
    """ "Lowest optimizer step: 41.2 s at fleet.instances=8; 1 other cell equal to it, 3 others within luck of it"."""
    row = result.row(best.cell)
    value = _value(best.objective, row.estimates()[best.objective.metric]).plain
    way = "Highest" if best.objective.most else "Lowest"
    lucky = len(best.tied) - len(best.equal)
    ties = [f"{units.plural(len(best.equal), 'other cell')} equal to it"] if best.equal else []
    ties += [f"{units.plural(lucky, 'other' if ties else 'other cell')} within luck of it"] if lucky else []
    told = "; " + ", ".join(ties) if ties else ""
    return f"{way} {_title(best.objective)}: {value} at {cell_words(result, best.cell)}{told}"


def cells(result: Sweep) -> list[RenderableType]:
    """The cells by the first objective; where there are too many, those of the front first."""
    objectives, marks = result.pareto.objectives, result.pareto.marks
    ran = sorted((row for row in result.rows if row.status == "ok"), key=lambda row: _order(row, objectives[0]))
    shown = ran
    if len(ran) > _MOST_ROWS:
        worth = [row for row in ran if marks[row.cell] != "dominated"]
        shown = [row for row in worth if marks[row.cell] == "front"] if len(worth) > _MOST_ROWS else worth
        shown = shown[:_MOST_ROWS]
    tables = [_cells_table(result, shown, binds) for binds in (True, False)]
    left = len(ran) - len(shown)
    note = f"{units.plural(left, 'other cell')} not shown: --out FILE and --json have all of them"
    return [Fitting(*tables), *([Text(note, style="dim")] if left else [])]


def _cells_table(result: Sweep, shown: Sequence[Row], binds: bool) -> Table:
    objectives, marks, axes = result.pareto.objectives, result.pareto.marks, result.design.grid.axes
    last = ("binds",) if binds else ()
    table = grid(" ", *_headings(axes), *(quantity(o.metric).heading for o in objectives), *last)
    for row in shown:
        estimates, values = row.estimates(), result.design.grid.values(row.cell)
        table.add_row(
            _MARKS[marks[row.cell]],
            *(text_of(values[axis.path]) for axis in axes),
            *(_plain(o, estimates[o.metric].mean) for o in objectives),
            *([row.binding.replace("_", " ")] if binds else []),
            style="bold" if marks[row.cell] == "front" else "",
        )
    return table


def effect(result: Sweep, axis: Axis) -> RenderableType:
    """The mean of each objective at each value of one key, over the values of the other keys that ran at all of its
    values, so that like is compared with like."""
    objectives = result.pareto.objectives
    by_others: dict[str, dict[str, Row]] = {}
    for row in result.rows:
        if row.status == "ok":
            values = result.design.grid.values(row.cell)
            value = text_of(values.pop(axis.path))
            by_others.setdefault(repr(values), {})[value] = row
    balanced = [rows for rows in by_others.values() if len(rows) == len(axis.values)]
    rows_of = {}
    for value in map(text_of, axis.values):
        rows = [rows[value] for rows in (balanced or by_others.values()) if value in rows]
        means = [[row.estimates()[o.metric].mean for row in rows] for o in objectives]
        shown = [_plain(o, math.fsum(m) / len(m)) if m else "-" for o, m in zip(objectives, means, strict=True)]
        rows_of[value] = (*shown, f"{len(rows):,}")
    tables = []
    for heading in (axis.path, axis.path.rpartition(".")[2]):
        table = grid(heading, *(quantity(o.metric).heading for o in objectives), "cells")
        for value, cells_of_row in rows_of.items():
            table.add_row(value, *cells_of_row)
        tables.append(table)
    return Fitting(*tables)


def has_effect(axis: Axis) -> bool:
    """Whether `effect` of this key is worth a table."""
    return 1 < len(axis.values) <= _MOST_VALUES


def commands(result: Sweep, call: Sequence[str]) -> tuple[str, str]:
    """The best cell of the first objective, simulated as a run of its own; and one that sizes from there."""
    sets = _sets(result, result.pareto.best[0].cell)
    words = [word for text in sets for word in ("--set", text)]
    sized = [word for text in sets if not text.startswith("fleet.instances=") for word in ("--set", text)]
    source = ("--scenario", *call) if call and not call[0].startswith("-") else call
    return shlex.join(["fleetsim", "simulate", *call, *words]), shlex.join(["fleetsim", "size", *source, *sized])


def failures(result: Sweep, failed: Sequence[Row]) -> list[str]:
    """Each reason once, with its cells."""
    reasons: dict[tuple[str, str], list[int]] = {}
    for row in failed:
        reasons.setdefault((row.status, row.reason), []).append(row.cell)
    lines: list[str] = []
    for (status, reason), found in list(reasons.items())[:_MOST_ROWS]:
        where = cell_words(result, found[0]) + (
            f" and {units.plural(len(found) - 1, 'other')}" if len(found) > 1 else ""
        )
        lines.append(f"{where}: {status}: {reason}")
    left = len(reasons) - _MOST_ROWS
    return [*lines, *([f"{units.plural(left, 'other reason')} not shown"] if left > 0 else [])]


def _sets(result: Sweep, cell: int) -> list[str]:
    return [f"{path}={text_of(value)}" for path, value in result.design.grid.values(cell).items()]


def cell_words(result: Sweep, cell: int) -> str:
    """ "fleet.instances=8, admission.max_staleness=1"."""
    return ", ".join(_sets(result, cell))


def _headings(axes: Sequence[Axis]) -> list[str]:
    """The last word of each key, as long as they differ."""
    last = [axis.path.rpartition(".")[2] for axis in axes]
    return last if len(set(last)) == len(last) else [axis.path for axis in axes]


def _order(row: Row, objective: Objective) -> tuple[float, int]:
    mean = row.estimates()[objective.metric].mean
    return (-mean if objective.most else mean, row.cell)


def _title(objective: Objective) -> str:
    return quantity(objective.metric).title


def _value(objective: Objective, value: Estimate) -> Text:
    how = quantity(objective.metric).unit
    if how != "seconds" or value.mean < 60:
        return with_interval(value, how)
    text = with_interval(value, "number")  # a column of minutes does not compare
    plain = units.number(value.mean)
    return Text.assemble(plain, " s", text[len(plain) :])


def _plain(objective: Objective, mean: float) -> str:
    how = quantity(objective.metric).unit
    return units.share(mean) if how == "share" else units.number(mean)
