"""Tables of a terminal whose rows begin with words that may be long: no word is cut in two, at any width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

_GAP, _INDENT = 2, 2
_MOST_LINES = 3  # of words, before a line of their own reads better


class Wordy:
    """A line a row where words have room; else a line of words above the values, which stand in columns as long as they
    fit, and one after the other where they do not.

    grid: all rows in whatever room they take. headings, rows: the same in parts; the first `left` columns are words.
    """

    def __init__(self, grid: Grid, headings: Sequence[str], rows: Sequence[Sequence[Text]], left: int) -> None:
        self._grid, self._headings, self._rows, self._left = grid, headings[left:], rows, left

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = [[row[i].plain for row in self._rows] for i in range(len(self._grid.columns))]
        values = zip(self._headings, columns[self._left :], strict=True)
        widths = [max(map(len, (heading, *cells))) for heading, cells in values]
        taken = sum(widths) + _GAP * (len(widths) - 1)
        words = _widths(columns[: self._left], options.max_width - taken - _GAP * self._left)
        if words is not None:
            for column, width in zip(self._grid.columns, (*words, *widths), strict=True):
                column.width = width
            yield self._grid
        elif taken + _INDENT <= options.max_width:
            yield from self._above(widths)
        else:
            yield from self._after_one_another()

    def _above(self, widths: Sequence[int]) -> Iterator[RenderableType]:
        justify = [column.justify for column in self._grid.columns[self._left :]]

        def line(cells: Sequence[Text], style: str = "") -> Padding:
            text = Text(style=style, no_wrap=True)
            for k, (cell, width, side) in enumerate(zip(cells, widths, justify, strict=True)):
                blank = " " * (width - len(cell))
                text.append(" " * _GAP if k else "")
                text += cell + blank if side == "left" else Text(blank) + cell
            return Padding(text, (0, 0, 0, _INDENT))

        yield line([Text(heading) for heading in self._headings], "dim")
        for row in self._rows:
            yield self._words(row)
            yield line(row[self._left :])

    def _after_one_another(self) -> Iterator[RenderableType]:
        for row in self._rows:
            yield self._words(row)
            values = zip(self._headings, row[self._left :], strict=True)
            told = (Text(f"{heading} ") + value for heading, value in values if value)
            yield Padding(Text(", ").join(told), (0, 0, 0, _INDENT))

    def _words(self, row: Sequence[Text]) -> Text:
        return Text(": ").join(cell for cell in row[: self._left] if cell)


def _widths(columns: Sequence[Sequence[str]], room: int) -> tuple[int, ...] | None:
    """Widths of one or two columns of words; None where a word would be broken, or a cell take many lines."""
    first, second = (*columns, ())[:2]
    for width in range(_longest_word(first), room - _longest_word(second) + 1):
        rest = min(room - width, max(map(len, second), default=0))
        if all(_lines(t, w) <= _MOST_LINES for ts, w in ((first, width), (second, rest)) for t in ts):
            return (min(max(map(len, first)), max(width, room - rest)), rest)[: len(columns)]
    return None


def _longest_word(texts: Sequence[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=0)


def _lines(text: str, width: int) -> int:
    """Lines that a text takes in so many columns, unbroken words provided."""
    lines, used = 1, 0
    for word in text.split():
        if used and used + 1 + len(word) > width:
            lines, used = lines + 1, 0
        used += len(word) + (1 if used else 0)
    return lines
