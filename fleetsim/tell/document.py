"""What a command has to say: words, tables and pictures, in the order in which they are read.

A result is told once, as a Document. `terminal` draws it in a terminal, `page` as an HTML page or as a page of
the documentation. A picture is drawn on pages alone; `Only` holds what not every face is to say.

A Document whose facts (`tell/facts.py`) stand in lines is read in about eight of them: a terminal shows the answer and
its lines, and all the rest only when it is asked to explain. Pages and Markdown show all. One without lines is shown
whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.records import replace
from fleetsim.tell.charts.chart import Chart
from fleetsim.tell.facts import Cell, Facts, NextLines, Words

Face = Literal["terminal", "page", "markdown"]
FACES: tuple[Face, ...] = ("terminal", "page", "markdown")


class Table(Struct, frozen=True):
    """Rows of cells. title: of a page's table; a terminal shows the title of the section alone.

    left, words_last: so many first and last columns are words, those between are numbers; numbered: the first one is
    numbers too, to the right in a terminal. note: what is left to say. open: whether a page shows it unasked. marked:
    indices of the rows that matter most, bold in a terminal. narrower: the same told in less room; a terminal shows the
    first that it has room for, and the last if for none. wordy: the first columns hold long words: they are wrapped,
    and stand above the others where room is short.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left: int = 1
    note: str = ""
    open: bool = True
    words_last: int = 0
    marked: frozenset[int] = frozenset()
    narrower: tuple[Block, ...] = ()
    numbered: bool = False
    wordy: bool = False

    def without(self, *headings: str, note: str | None = None) -> Table:
        """A copy without some columns. note: takes the place of the table's own note."""
        kept = [i for i, heading in enumerate(self.headings) if heading not in headings]
        return replace(
            self,
            headings=tuple(self.headings[i] for i in kept),
            rows=tuple(tuple(row[i] for i in kept) for row in self.rows),
            left=sum(i < self.left for i in kept),
            words_last=sum(i >= len(self.headings) - self.words_last for i in kept),
            note=self.note if note is None else note,
            narrower=(),
        )

    def narrowing(self, *headings: str) -> Table:
        """The same, which leaves these columns out one after the other where a terminal is too narrow; where that does
        not help either, it breaks words."""
        gone = (headings[: n + 1] for n in range(len(headings)))
        named = ((some, ", ".join(" ".join(heading.split()) for heading in some)) for some in gone)
        left_out = "Left out, the terminal is too narrow"
        fewer = (self.without(*some, note=f"{left_out}: {names}. {self.note}".strip()) for some, names in named)
        return replace(self, narrower=(*fewer, self))


class Pair(Struct, frozen=True):
    """Charts beside each other where there is room, below each other on a phone."""

    charts: tuple[Chart, ...]


class Listed(Struct, frozen=True):
    """Terms and what there is to say of each: commands, assumptions. code: the terms are to be typed as they stand.
    pasted: they are long: a terminal shows them alone, broken where a shell allows it."""

    items: tuple[tuple[str, Cell], ...]
    code: bool = False
    pasted: bool = False


class Bullets(Struct, frozen=True):
    """Sentences that stand for themselves."""

    items: tuple[Cell, ...]


class Under(Struct, frozen=True):
    """A line, and blocks that are set in below it; of a terminal alone."""

    line: Cell
    blocks: tuple[Block, ...]


class Verbatim(Struct, frozen=True):
    """Text to be copied as it stands, line by line."""

    text: str


class Judgement(Struct, frozen=True):
    """A question and what was found: the question's mark and name, the answer, its size, its grounds, what to do next.
    strong: something is to be done."""

    mark: str
    name: str
    answer: str
    size: str = ""
    grounds: tuple[str, ...] = ()
    next: str = ""
    strong: bool = False


class Judged(Struct, frozen=True):
    """Questions with their answers. marks: all that there may be, so that columns are as wide without some of them."""

    items: tuple[Judgement, ...]
    marks: tuple[str, ...]


class Only(Struct, frozen=True):
    """Blocks that not every face shows."""

    faces: tuple[Face, ...]
    blocks: tuple[Block, ...]


Block = Chart | Pair | Table | Listed | Bullets | Words | str | NextLines | Verbatim | Judged | Under | Only


class Section(Struct, frozen=True):
    """A heading and what stands under it; a str is a paragraph. on: the faces that show it. short: the heading in a
    terminal, where it is another. asked: it answers what was asked for beyond the lines, and is shown beside it.
    folded: a page shows its heading alone until somebody opens it."""

    title: str
    blocks: tuple[Block, ...]
    on: tuple[Face, ...] = FACES
    short: str = ""
    asked: bool = False
    folded: bool = False

    def shown(self, face: Face) -> tuple[Block, ...]:
        """What a face shows of it."""
        return blocks_on(face, self.blocks) if face in self.on else ()


class Document(Struct, frozen=True):
    """kind: what wrote it, above the title of a page. facts: the answer, and what is said in lines and paragraphs. An
    empty answer is one that is not known yet. warnings: what the terminal warns of."""

    kind: str
    facts: Facts
    sections: tuple[Section, ...] = ()
    warnings: tuple[str, ...] = ()

    def shown(self, face: Face, asked: bool = False) -> Iterator[tuple[str, tuple[Block, ...]]]:
        """The sections that have something to show on a face: title and blocks. asked: of those that were asked for."""
        for section, blocks in self.on(face):
            if section.asked or not asked:
                yield section.short if face == "terminal" and section.short else section.title, blocks

    def on(self, face: Face) -> Iterator[tuple[Section, tuple[Block, ...]]]:
        """The sections that have something to show on a face, with what it shows of each."""
        yield from ((section, blocks) for section in self.sections if (blocks := section.shown(face)))


def blocks_on(face: Face, blocks: Iterable[Block]) -> tuple[Block, ...]:
    """What a face shows of some blocks: those of other faces are left out, and pictures in a terminal."""

    def found(block: Block) -> Iterator[Block]:
        if isinstance(block, Only):
            if face in block.faces:
                yield from blocks_on(face, block.blocks)
        elif not isinstance(block, (Chart, Pair) if face == "terminal" else Under):
            yield block

    return tuple(one for block in blocks for one in found(block))


def terminal_only(*blocks: Block | None) -> Only:
    """Blocks that only a terminal shows."""
    return Only(("terminal",), present(*blocks))


def page_only(*blocks: Block | None) -> Only:
    """Blocks that only a page shows."""
    return Only(("page",), present(*blocks))


def present(*blocks: Block | None) -> tuple[Block, ...]:
    """Leaves out blocks that have nothing to show."""
    return tuple(block for block in blocks if block is not None and block != "")


def followed(table: Table, *lines: Cell) -> tuple[Only, Only]:
    """A table with lines that belong below it: one by one in a terminal, as sentences of its note on a page."""
    told = (str(line) for line in lines)
    note = " ".join(line if line.endswith((".", "?", "!")) else f"{line}." for line in told)
    return terminal_only(table, *lines), page_only(replace(table, note=note))


def pair(*charts: Chart | None) -> Pair | Chart | None:
    """Charts beside each other; one alone has the whole width."""
    found = tuple(chart for chart in charts if chart is not None)
    return Pair(found) if len(found) > 1 else next(iter(found), None)


def charts_of(blocks: Iterable[Block]) -> Iterator[Chart]:
    """The charts among some blocks, in order."""
    for block in blocks:
        if isinstance(block, Chart):
            yield block
        elif isinstance(block, Pair):
            yield from block.charts


def estimated(estimate: Estimate, unit: units.Unit = "share") -> Words:
    """ "38.5 % ±0.2", the half-width as its tail, none where nothing was replicated."""
    mean, half = units.mean_and_half(estimate, unit)
    return Words(mean, f" {half}" if half else "")


# --- Pictures drawn with characters: bars, and values over time in one line.

_LEVELS = "▁▂▃▄▅▆▇█"


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
