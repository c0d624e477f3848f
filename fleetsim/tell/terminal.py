"""A Document in a terminal: sections under dim titles, tables without lines, warnings.

It fits 80 columns and reads well without colour: bold is the answer, dim is context. The answer of facts is green,
yellow or red as well (`Tone`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.records import replace
from fleetsim.tell.document import (
    Block,
    Bullets,
    Document,
    Judged,
    Judgement,
    Listed,
    Table,
    Under,
    Verbatim,
    estimated,
    present,
)
from fleetsim.tell.facts import Cell, NextLines, Tone, Words
from fleetsim.tell.next_lines import broken, is_command, parted

# What a console draws.
View = RenderableType

_TONES: Mapping[Tone, str] = {"good": "bold green", "unsure": "bold yellow", "bad": "bold red"}
_REST = "--explain shows the rest, --html FILE draws it, --json has all of it"
# Wide enough for any table, so that it is measured as it is.
_UNBOUNDED = 10_000


def draw(document: Document, explain: bool = False) -> Group:
    """Everything that a command prints on stdout: of facts the answer and its lines, the rest to explain it."""
    facts, lines = document.facts, document.facts.lines
    style = _TONES[facts.tone] if lines else "bold"
    shown: list[RenderableType] = [Text(facts.answer, style=style)] if facts.answer else []
    in_brief = bool(lines) and not explain
    sections = [section(title, *map(drawn, blocks)) for title, blocks in document.shown("terminal", asked=in_brief)]
    if lines:
        shown += _lines(lines)
    if in_brief:
        rest = Text(f"\n{_REST}" if sections else _REST, style="dim")
        return Group(*shown, *sections, *([rest] if facts.rest else []))
    paragraphs = [text_of(one) for one in facts.explained]
    return Group(*shown, *([Text("")] if lines and paragraphs else []), *paragraphs, *sections)


def _lines(lines: Sequence[tuple[str, Cell | NextLines]]) -> list[RenderableType]:
    """Its lines beside their words; a command stands below the words that lead to it, outside the table, which would
    cut it."""
    width = max((len(label) for label, _ in lines), default=0)
    shown: list[RenderableType] = []
    table: Grid | None = None
    for label, said in lines:
        if table is None:
            table = grid("", "", align=("left", "left"))
            table.columns[0].width = width
            shown.append(table)
        if isinstance(said, NextLines):
            lead, command = parted(said.text)
            table.add_row(Text(label, style="dim"), Text(lead))
            if command:
                shown.append(_Command(command, style="bold" if said.strong else ""))
                table = None
        else:
            table.add_row(Text(label, style="dim"), text_of(said))
    return shown


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
        return Group(text_of(block.line), _Indented(Group(*map(drawn, block.blocks))))
    if isinstance(block, NextLines):
        return _NextLines(block.lead, block.text, style="bold" if block.strong else "")
    if isinstance(block, Verbatim):
        return _Indented(Text(block.text, no_wrap=True, overflow="ignore"))
    if isinstance(block, Judged):
        return _judged(block)
    raise TypeError(f"a terminal cannot draw {type(block).__name__}")


def _listed(listed: Listed) -> RenderableType:
    """Commands with what they are for below them, long ones alone; other terms beside what there is to say of each."""
    if listed.pasted:
        return Group(*(_NextLines("", term) for term, _ in listed.items))
    if listed.code:
        terms = ((_Command(term, "bold", indent=0), text_of(words)) for term, words in listed.items)
        return Group(*(part for command, words in terms for part in (command, _Indented(words))))
    table = grid("", "", align=("left", "left"))
    for term, words in listed.items:
        table.add_row(Text(term, style="dim"), text_of(words))
    return table


def _judged(judged: Judged) -> RenderableType:
    """A row a question; what to do next stands below it, outside the table, which would cut commands."""
    mark_ch = max(map(len, judged.marks))
    name_ch = max(len(one.name) for one in judged.items)
    lines: list[RenderableType] = []
    for one in judged.items:
        style = "bold" if one.strong else ""
        table = grid("", "", "", align=("left", "left", "left"))
        table.columns[0].width, table.columns[1].width = mark_ch, name_ch
        table.add_row(Text(one.mark, style=style), Text(one.name, style=style), _answer(one, style))
        lines.append(table)
        if one.next:
            lines.append(_Indented(_NextLines("next: ", one.next, style=style), mark_ch + 2))
    return Group(*lines)


def _answer(one: Judgement, style: str) -> RenderableType:
    """Grounds of what is to be done are read one by one; others are there for those who doubt."""
    grounds = tuple(f"- {ground}" for ground in one.grounds) if one.strong else present("; ".join(one.grounds))
    size = (Text(one.size),) if one.size else ()
    return Group(Text(one.answer, style=style), *size, *(Text(str(ground), style="dim") for ground in grounds))


def _table(table: Table) -> RenderableType:
    shown: RenderableType = _grid(table)
    if table.wordy:
        rows = [[text_of(cell) for cell in row] for row in table.rows]
        shown = _Wordy(_grid(table), table.headings, rows, table.left)
    return Group(shown, Text(table.note, style="dim")) if table.note else shown


def _grid(table: Table) -> Grid:
    columns = len(table.headings)
    words = (*range(int(table.numbered), table.left), *range(columns - table.words_last, columns))
    made = grid(*table.headings, align=tuple("left" if i in words else "right" for i in range(columns)))
    for i, row in enumerate(table.rows):
        made.add_row(*map(text_of, row), style="bold" if i in table.marked else "")
    return made


class _Fitted:
    """The first way to tell a table that fits, as it is or with a word of a heading a line; else the last."""

    def __init__(self, table: Table) -> None:
        self._ways: list[Block] = []
        for way in (table, *table.narrower):
            self._ways.append(way)
            if isinstance(way, Table):
                headings = (heading if "," in heading else heading.replace(" ", "\n") for heading in way.headings)
                self._ways.append(replace(way, headings=tuple(headings)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for way in self._ways:
            shown = _grid(way) if isinstance(way, Table) else drawn(way)
            if Measurement.get(console, options.update(max_width=_UNBOUNDED), shown).maximum <= options.max_width:
                break
        yield shown
        if isinstance(way, Table) and way.note:
            yield Text(way.note, style="dim")


# --- Tables whose rows begin with words that may be long: no word is cut in two, at any width.

_GAP, _INDENT = 2, 2
_MOST_LINES = 3  # of words, before a line of their own reads better


class _Wordy:
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
    least, beside = (
        max((len(word) for text in texts for word in text.split()), default=0) for texts in (first, second)
    )
    for width in range(least, room - beside + 1):
        rest = min(room - width, max(map(len, second), default=0))
        if all(_taken(t, w) <= _MOST_LINES for ts, w in ((first, width), (second, rest)) for t in ts):
            return (min(max(map(len, first)), max(width, room - rest)), rest)[: len(columns)]
    return None


def _taken(text: str, width: int) -> int:
    """Lines that a text takes in so many columns, unbroken words provided."""
    lines, used = 1, 0
    for word in text.split():
        if used and used + 1 + len(word) > width:
            lines, used = lines + 1, 0
        used += len(word) + (1 if used else 0)
    return lines


class _NextLines:
    """A command that is wider than the view is broken where the shell allows it; a single word that is too wide is left
    whole, for a cut one could not be pasted. Not to be put into a table or a padding, which cut."""

    def __init__(self, lead: str, text: str, style: str = "") -> None:
        self._lead, self._text, self._style = lead, text, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lead = self._lead
        if is_command(self._text):
            yield Text(lead.rstrip())
            lead = ""
        for line in self._text.splitlines():
            if is_command(line):
                yield _Command(line, self._style)
            else:
                yield from Text.assemble(lead, (line, self._style)).wrap(console, max(20, options.max_width))
                lead = ""


class _Command:
    """One command, broken where the shell allows it."""

    def __init__(self, text: str, style: str = "", indent: int = 2) -> None:
        self._text, self._style, self._indent = text, style, indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in broken(self._text, max(20, options.max_width - self._indent)):
            yield Text(" " * self._indent + part, style=self._style, no_wrap=True, overflow="ignore")


class _Indented:
    """A renderable, moved to the right. Unlike rich's Padding it cuts nothing: commands are to be pasted."""

    def __init__(self, body: RenderableType, by: int = 2) -> None:
        self._body, self._by = body, by

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.update(max_width=max(1, options.max_width - self._by))
        for line in Segment.split_lines(console.render(self._body, room)):
            yield from (Segment(" " * self._by), *line, Segment.line())


def section(title: str, *body: RenderableType) -> RenderableType:
    """A dim title over an indented body, with a blank line above."""
    return Group(Text(f"\n{title}", style="dim"), _Indented(Group(*body)))


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


def with_interval(estimate: Estimate, unit: units.Unit = "share") -> Text:
    """The mean with its half-width, which is dim."""
    return text_of(estimated(estimate, unit))


def warning_lines(warnings: Iterable[str]) -> Group:
    """Warnings, as stderr shows them."""
    return Group(*(Text.assemble(("warning: ", "yellow"), w) for w in warnings))
