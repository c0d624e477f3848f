"""One thing as several tables: the first that the terminal has room for is shown."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table

# Wide enough for any table, so that it is measured as it is.
_UNBOUNDED = 10_000


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
