"""A Document in a terminal: sections under dim titles, tables without lines, warnings.

It fits 80 columns, reads well without colour, and uses colour for weight only: bold is the answer, dim is context.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from fleetsim import units
from fleetsim.quantities import quantity
from fleetsim.tell.document import Block, Bullets, Cell, Document, Listed, Table, Under, Words, blocks_on, estimated
from fleetsim.tell.next_lines import NextLines

if TYPE_CHECKING:
    from fleetsim.estimates import Estimate

# What a console draws.
View = RenderableType

# Wide enough for any table, so that it is measured as it is.
_UNBOUNDED = 10_000


def draw(document: Document) -> Group:
    """Everything that a command prints on stdout."""
    lines = (drawn(block) for block in blocks_on("terminal", document.lede))
    sections = (section(title, *map(drawn, blocks)) for title, blocks in document.shown("terminal"))
    headline = document.headline or document.title
    return Group(*([Text(headline, style="bold")] if headline else []), *lines, *sections)


def text_of(cell: Cell) -> Text:
    """Words with their weights."""
    if isinstance(cell, str):
        return Text(cell)
    return Text.assemble((cell.text, "bold" if cell.strong else ""), (cell.tail, "dim"))


def drawn(block: Block) -> RenderableType:
    """One block of a document. Raises TypeError for one that belongs on pages alone."""
    if isinstance(block, Table):
        return _Fitted(block) if block.narrower else _table(block)
    if isinstance(block, Listed):
        return _listed(block)
    if isinstance(block, Bullets):
        return Group(*(Text("- ") + text_of(item) for item in block.items))
    if isinstance(block, str | Words):
        return text_of(block)
    if isinstance(block, Under):
        return _under(block.line, *map(drawn, block.blocks))
    raise TypeError(f"a terminal cannot draw {type(block).__name__}")


def _listed(listed: Listed) -> RenderableType:
    """Commands with what they are for below them, long ones alone; other terms beside what there is to say of each."""
    if listed.pasted:
        return Group(*(NextLines("", term) for term, _ in listed.items))
    if listed.code:
        return Group(*(_under(Words(term, strong=True), text_of(words)) for term, words in listed.items))
    table = grid("", "", align=("left", "left"))
    for term, words in listed.items:
        table.add_row(Text(term, style="dim"), text_of(words))
    return table


def _under(line: Cell, *body: RenderableType) -> Group:
    return Group(text_of(line), Padding(Group(*body), (0, 0, 0, 2)))


def _table(table: Table) -> RenderableType:
    return Group(_grid(table), Text(table.note, style="dim")) if table.note else _grid(table)


def _grid(table: Table) -> Grid:
    columns = len(table.headings)
    words = (*range(int(table.numbered), table.left), *range(columns - table.words_last, columns))
    made = grid(*table.headings, align=tuple("left" if i in words else "right" for i in range(columns)))
    for i, row in enumerate(table.rows):
        made.add_row(*map(text_of, row), style="bold" if i in table.marked else "")
    return made


class _Fitted:
    """The first way to tell a table that fits as it is; else one with a word of a heading a line; else the last."""

    def __init__(self, table: Table) -> None:
        self._ways: tuple[Block, ...] = (table, *table.narrower)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        stacked = (replace(way, headings=_a_word_a_line(way)) for way in self._ways if isinstance(way, Table))
        for way in (*self._ways, *stacked):
            shown = _grid(way) if isinstance(way, Table) else drawn(way)
            if Measurement.get(console, options.update(max_width=_UNBOUNDED), shown).maximum <= options.max_width:
                break
        yield shown
        if isinstance(way, Table) and way.note:
            yield Text(way.note, style="dim")


def _a_word_a_line(table: Table) -> tuple[str, ...]:
    return tuple(heading.replace(" ", "\n") for heading in table.headings)


def section(title: str, *body: RenderableType) -> RenderableType:
    """A dim title over an indented body, with a blank line above."""
    return Padding(Group(Text(title, style="dim"), Padding(Group(*body), (0, 0, 0, 2))), (1, 0, 0, 0))


def grid(*headings: str, align: tuple[str, ...] | None = None) -> Grid:
    """A table without lines; numbers to the right unless `align` says otherwise. No heading, no heading line."""
    table = Grid(
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


def word_a_line(name: str) -> str:
    """The heading of a quantity's column with a word a line: eight columns fit 80 characters then."""
    heading = quantity(name).heading
    return heading if "," in heading else heading.replace(" ", "\n")


def with_interval(estimate: Estimate, unit: units.Unit = "share") -> Text:
    """The mean with its half-width, which is dim."""
    return text_of(estimated(estimate, unit))


def warning_lines(warnings: Iterable[str]) -> Group:
    """Warnings, as stderr shows them."""
    return Group(*(Text.assemble(("warning: ", "yellow"), w) for w in warnings))
