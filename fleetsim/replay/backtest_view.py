"""The terminal view of a back-test: predicted beside observed, overall and for each slice of the window."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleetsim import units
from fleetsim.history.window import has_clock
from fleetsim.replay.backtest import Backtest, Slice
from fleetsim.replay.compared import QUANTITIES, Compared, Row, catalogued
from fleetsim.replay.words import clock
from fleetsim.tell.terminal import grid

_MOST_SLICES = 24


def backtest_view(back: Backtest) -> Group:
    """What holds, in one line; the table of the whole window; the slices; where to look if it is off."""
    lines: list[RenderableType] = [Text(verdict_words(back), style="bold" if back.verdict == "wrong" else "")]
    if back.overall:
        lines.append(overall(back.overall))
    if len(back.hours) > 1:
        lines += [Text("error by part of the window", style="dim"), by_slice(back.hours)]
    if back.where:
        lines.append(Text("The model is wrong somewhere. Where to look:"))
        lines += [Text(f"- {place}") for place in back.where]
    return Group(*lines)


def verdict_words(back: Backtest) -> str:
    """The outcome in one sentence."""
    runs = f"{back.steps:,} steps, {back.replications} replications"
    if back.worst is None:
        return "Nothing of what was observed could be compared."
    beyond = sum(not row.within for row in back.overall)
    if beyond:
        which = "one quantity is" if beyond == 1 else f"{beyond} of {len(back.overall)} quantities are"
        return f"Simulated ({runs}): {which} off by more than {units.share(back.limit)}."
    return f"Simulated ({runs}): every quantity within {units.share(back.limit)}{_worst(back.worst)}."


def _worst(row: Row) -> str:
    """Which quantity is off most, and by how much; nothing where that rounds to nothing."""
    said = error_words(row)
    return "" if not any(c in "123456789" for c in said) else f", worst: {catalogued(row.quantity).title} {said}"


def overall(rows: Sequence[Row]) -> Table:
    """Observed and predicted, with the error in its own measure."""
    table = grid("", "observed", "predicted", "error", "", align=("left", "right", "right", "right", "left"))
    for row in rows:
        predicted = Text(_value(row.quantity, row.predicted))
        half = (row.interval.ci_high - row.interval.ci_low) / 2
        if half > 0:
            predicted.append(f" ±{units.percent(half) if row.measure == 'points' else units.number(half)}", style="dim")
        table.add_row(
            catalogued(row.quantity).title,
            _value(row.quantity, row.observed),
            predicted,
            error_words(row),
            "" if row.within else "OFF",
            style="" if row.within else "bold",
        )
    return table


def by_slice(slices: Sequence[Slice]) -> Table:
    """The errors of every slice; which of them the engine's speed was fitted on."""
    there = [q for q in QUANTITIES if any(row.quantity == q for s in slices for row in s.rows)]
    began = "from (UTC)" if has_clock(slices[0].start_s) else "from"
    table = grid(began, *(_heading(q) for q in there), "", align=("left", *("right",) * len(there), "left"))
    for s in slices[:_MOST_SLICES]:
        errors = {row.quantity: row for row in s.rows}
        cells = [error_words(errors[q], short=True) if q in errors else "-" for q in there]
        fitted = "" if s.held_out is None else "held out" if s.held_out else "fitted"
        table.add_row(clock(s.start_s), *cells, Text(fitted, style="dim"))
    if len(slices) > _MOST_SLICES:
        table.add_row(f"and {len(slices) - _MOST_SLICES} more", *("",) * (len(there) + 1))
    return table


def _heading(name: Compared) -> str:
    """Without the unit: below it stand errors."""
    return catalogued(name).heading.partition(",")[0]


def error_words(row: Row, short: bool = False) -> str:
    """ "+3.1 %", "+1.2 points" or "-0.10 batches"; short: in fewer letters, for a table whose heading says the rest."""
    if row.measure == "ratio":
        return units.change(row.error)
    if row.measure == "points":
        return units.points(row.error, short=True) if short else units.points(row.error)
    return f"{row.error:+.2f} b" if short else f"{row.error:+.2f} batches"


def _value(name: Compared, x: float) -> str:
    return units.written(x, catalogued(name).unit)
