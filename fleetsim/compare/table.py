"""The tables of a comparison in a terminal of any width: a line a metric, two, or three; no word is cut in two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fleetsim.tell.terminal import grid

_GAP, _INDENT = 2, 2
_MOST_LINES = 3  # of a name, or of a reason, before a line of its own reads better
_UNBOUNDED = 10_000


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A metric in words: cells are those below A, B, change and 95 % interval. style: of the verdict."""

    name: str
    verdict: str
    cells: tuple[str, str, str, str]
    style: str


@dataclass(frozen=True, slots=True)
class ChangeTable:
    """A line a metric where names and verdicts have room; else a line of words above its values, which stand in
    columns as long as they fit, and beside their names where they do not."""

    rows: Sequence[ChangeRow]

    def plain(self) -> Table:
        """A line a metric, in whatever room that takes."""
        align = ("left", "left", "right", "right", "right", "right")
        table = grid("", "", *_HEADINGS, align=align)
        for column in table.columns[2:]:
            column.no_wrap = True
        for row in self.rows:
            table.add_row(row.name, Text(row.verdict, style=row.style), *row.cells)
        return table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [
            max(len(text) for text in column) for column in zip(_HEADINGS, *(r.cells for r in self.rows), strict=True)
        ]
        numbers = sum(widths) + _GAP * (len(widths) - 1)
        words = self._words(options.max_width - numbers - 2 * _GAP)
        if words is not None:
            table = self.plain()
            for column, width in zip(table.columns, (*words, *widths), strict=True):
                column.width = width
            yield table
        elif numbers + _INDENT <= options.max_width:
            yield from self._above(widths)
        else:
            yield from self._beside()

    def _words(self, room: int) -> tuple[int, int] | None:
        """Widths of names and of verdicts in so much room; None where one would be broken, or take many lines."""
        names, verdicts = [r.name for r in self.rows], [r.verdict for r in self.rows]
        for name in range(_longest(names), room - _longest(verdicts) + 1):
            verdict = min(room - name, max(map(len, verdicts), default=0))
            if all(_lines(t, w) <= _MOST_LINES for ts, w in ((names, name), (verdicts, verdict)) for t in ts):
                widest = max(map(len, names))
                return min(widest, max(name, room - verdict)), verdict
        return None

    def _above(self, widths: Sequence[int]) -> Iterator[Text | Padding]:
        def line(cells: Sequence[str], style: str = "") -> Padding:
            text = (" " * _GAP).join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
            return Padding(Text(text, style=style, no_wrap=True), (0, 0, 0, _INDENT))

        yield line(_HEADINGS, "dim")
        for row in self.rows:
            yield _title(row)
            yield line(row.cells)

    def _beside(self) -> Iterator[Text | Padding]:
        for row in self.rows:
            a, b, change, interval = row.cells
            yield _title(row)
            yield Padding(Text(f"A {a or '-'}, B {b or '-'}"), (0, 0, 0, _INDENT))
            if change:
                yield Padding(Text(f"{change} ({interval})" if interval else change), (0, 0, 0, _INDENT))


_HEADINGS = ("A", "B", "change", "95 % interval")


@dataclass(frozen=True, slots=True)
class InputTable:
    """Path, value of A, value of B: in three columns where they fit, else below one another."""

    rows: Sequence[tuple[str, Text, Text]]

    def plain(self) -> Table:
        """Three columns, in whatever room they take."""
        table = grid("", "A", "B", align=("left", "left", "left"))
        for row in self.rows:
            table.add_row(*row)
        return table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self.plain()
        if Measurement.get(console, options.update(max_width=_UNBOUNDED), table).maximum <= options.max_width:
            yield table
            return
        for path, a, b in self.rows:
            yield Text(path)
            for side, value in zip("AB", (a, b), strict=True):
                yield Padding(Text.assemble(f"{side} ", value), (0, 0, 0, _INDENT))


def _title(row: ChangeRow) -> Text:
    return Text.assemble(row.name, ": " if row.verdict else "", (row.verdict, row.style))


def _longest(texts: Sequence[str]) -> int:
    """Length of the longest word."""
    return max((len(word) for text in texts for word in text.split()), default=0)


def _lines(text: str, width: int) -> int:
    """Lines that a text takes in so many columns, unbroken words provided."""
    lines, used = 1, 0
    for word in text.split():
        if used and used + 1 + len(word) > width:
            lines, used = lines + 1, 0
        used += len(word) + (1 if used else 0)
    return lines
