"""What all terminal views are built of: sections, tables without lines, bars, sparklines, warnings.

They fit 80 columns, read well without colour, and use colour for weight only: bold is the answer, dim is context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fleetsim import units

if TYPE_CHECKING:
    from fleetsim.analysis.intervals import Estimate

_LEVELS = "▁▂▃▄▅▆▇█"
# Wide enough for any table, so that it is measured as it is.
_UNBOUNDED = 10_000


def section(title: str, *body: RenderableType) -> RenderableType:
    """A dim title over an indented body, with a blank line above."""
    return Padding(Group(Text(title, style="dim"), Padding(Group(*body), (0, 0, 0, 2))), (1, 0, 0, 0))


def grid(*headings: str, align: tuple[str, ...] | None = None) -> Table:
    """A table without lines; numbers to the right unless `align` says otherwise. No heading, no heading line."""
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        header_style="dim",
        pad_edge=False,
        show_header=any(headings),
        collapse_padding=True,
    )
    for i, heading in enumerate(headings):
        left = align is not None and align[i] == "left"
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    return table


def half_width(estimate: Estimate) -> float:
    """Of its interval, to the farther end: one that holds a doubt about the model need not be even."""
    return max(estimate.ci_high - estimate.mean, estimate.mean - estimate.ci_low)


def with_interval(estimate: Estimate, of: str = "share") -> Text:
    """ "38.5 % ±0.2", the half-width dim; without one where nothing was replicated. of: share, seconds or number."""
    half = half_width(estimate)
    if of == "share":
        text, half_text = Text(units.share(estimate.mean)), f"{100 * half:.1f}"
    elif of == "seconds":
        text, half_text = Text(units.seconds(estimate.mean)), number(half)
    else:
        text, half_text = Text(number(estimate.mean)), number(half)
    if half > 0:
        text.append(f" ±{half_text}", style="dim")
    return text


def number(x: float) -> str:
    """A plain number for a table: whole above 1,000, else three significant figures without an exponent."""
    if abs(x) >= 999.5:
        return f"{x:,.0f}"
    return f"{x:.3g}" if abs(x) >= 0.01 or x == 0 else f"{x:.4f}"


def bar(shares: Sequence[tuple[float, str]], width: int) -> str:
    """A bar of `width` cells, split by shares of it, each drawn with its own character; the cells always sum up."""
    total = sum(share for share, _ in shares)
    if total <= 0:
        return " " * width
    drawn, reached = "", 0.0
    for share, character in shares:
        reached += share / total * width
        drawn += character * (round(reached) - len(drawn))
    return drawn


def sparkline(values: Sequence[float], width: int) -> str:
    """Values over time as one line of blocks from 0 to their maximum; more than `width` are averaged in runs."""
    if len(values) > width:
        edges = [i * len(values) // width for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    top = max(values, default=0.0)
    if top <= 0:
        return _LEVELS[0] * len(values)
    return "".join(_LEVELS[min(len(_LEVELS) - 1, int(v / top * len(_LEVELS)))] for v in values)


def warning_lines(warnings: Iterable[str]) -> Group:
    """Warnings, as stderr shows them."""
    return Group(*(Text.assemble(("warning: ", "yellow"), w) for w in warnings))


class Fitting:
    """The first of some tables that fits as it is; else one of them with a word of a heading a line; else the last."""

    def __init__(self, *tables: Table) -> None:
        self._tables = tables

    def as_table(self) -> Table:
        """The first, whatever its width: a page has room."""
        return self._tables[0]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in (*self._tables, *map(_stacked, self._tables)):
            if Measurement.get(console, options.update(max_width=_UNBOUNDED), table).maximum <= options.max_width:
                break
        yield table


def _stacked(table: Table) -> Table:
    """The table with a word of its headings a line."""
    stacked = copy(table)
    stacked.columns = [replace(column, header=str(column.header).replace(" ", "\n")) for column in table.columns]
    return stacked
