"""What a report's page tells, in order: the answer in words, the figures that matter, then sections of pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetsim.tell.charts.chart import Chart


@dataclass(frozen=True, slots=True)
class Table:
    """A table. left: how many of the first columns are words, the others are numbers. note: what is left to say.

    open: whether a page shows it unasked.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    note: str = ""
    open: bool = True


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure that matters, with what it is and, in small letters, what belongs to it."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """Charts beside each other where there is room, below each other on a phone."""

    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """Terms and what there is to say of each: commands, assumptions."""

    items: tuple[tuple[str, str], ...]
    code: bool = False


@dataclass(frozen=True, slots=True)
class Bullets:
    """Sentences that stand for themselves."""

    items: tuple[str, ...]


Block = Chart | Pair | Table | Listed | Bullets | str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it; a str is a paragraph."""

    title: str
    blocks: tuple[Block, ...]

    def charts(self) -> Iterator[Chart]:
        """All charts, in order."""
        for block in self.blocks:
            if isinstance(block, Chart):
                yield block
            elif isinstance(block, Pair):
                yield from block.charts


@dataclass(frozen=True, slots=True)
class Document:
    """kind: what wrote it, above the title. lede: sentences under it. warnings: what the terminal warns of."""

    kind: str
    title: str
    lede: tuple[str, ...]
    tiles: tuple[Tile, ...]
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]


def present(*blocks: Block | None) -> tuple[Block, ...]:
    """Those blocks that have something to show."""
    return tuple(block for block in blocks if block is not None and block != "")


def pair(*charts: Chart | None) -> Pair | Chart | None:
    """Charts beside each other; one alone has the whole width."""
    found: Sequence[Chart] = [chart for chart in charts if chart is not None]
    if len(found) <= 1:
        return found[0] if found else None
    return Pair(tuple(found))
