"""What a report's page tells, in order: the answer in words, the figures that matter, then sections of pictures.

`templates/report.html.j2` writes it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetsim.report.page import Chart, render
from fleetsim.report.profile_sheets import Sheet


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


Block = Chart | Pair | Sheet | Listed | Bullets | str


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
class Story:
    """kind: what wrote it, above the title. lede: sentences under it. warnings: what the terminal warns of."""

    kind: str
    title: str
    lede: tuple[str, ...]
    tiles: tuple[Tile, ...]
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]


def story_page(story: Story) -> str:
    """The text of the page. Raises OutsideError where jinja2 or plotly is missing."""
    charts = [chart for section in story.sections for chart in section.charts()]
    return render(
        "report.html.j2",
        charts,
        title=story.title,
        kind=story.kind,
        lede=story.lede,
        tiles=story.tiles,
        warnings=story.warnings,
        sections=[(s.title, [(_KINDS[type(block)], block) for block in s.blocks]) for s in story.sections],
    )


def present(*blocks: Block | None) -> tuple[Block, ...]:
    """Those blocks that have something to show."""
    return tuple(block for block in blocks if block is not None and block != "")


def pair(*charts: Chart | None) -> Pair | Chart | None:
    """Charts beside each other; one alone has the whole width."""
    found: Sequence[Chart] = [chart for chart in charts if chart is not None]
    if len(found) <= 1:
        return found[0] if found else None
    return Pair(tuple(found))


_KINDS = {Chart: "chart", Pair: "pair", Sheet: "sheet", Listed: "listed", Bullets: "bullets", str: "words"}
