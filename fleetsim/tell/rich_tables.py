"""What a terminal view shows in a table, as a table of a page: the same words in both."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from fleetsim.tell.document import Table


def as_sheet(title: str, *parts: RenderableType, note: str = "") -> Table:
    """The rows of all tables in it, under the headings of the first; texts below it become its note; those
    above it, which name it, are left to the title. Raises TypeError for a part that is neither: it would be lost."""
    headings: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = []
    left, notes = 1, []
    for part in _flat(parts):
        if isinstance(part, Grid):
            if not rows:
                headings = tuple(" ".join(_words(c.header).split()) for c in part.columns) if part.show_header else ()
                left = next((k for k, c in enumerate(part.columns) if c.justify != "left"), len(part.columns))
            rows += list(zip(*([_words(cell) for cell in c.cells] for c in part.columns), strict=True))
        elif not isinstance(part, Text | str):
            raise TypeError(f"{type(part).__name__} is neither a table nor a text")
        elif rows:
            notes.append(_words(part))
    told = (text if text.endswith((".", "?", "!")) else f"{text}." for text in (*notes, note) if text)
    return Table(title, headings, tuple(rows), left, " ".join(told))


def _flat(parts: tuple[RenderableType, ...]) -> Iterator[RenderableType]:
    for part in parts:
        if isinstance(part, Group):
            yield from _flat(tuple(part.renderables))
        else:
            yield part


def _words(part: RenderableType) -> str:
    if isinstance(part, Group):
        return " ".join(_words(p) for p in part.renderables)
    return part.plain if isinstance(part, Text) else str(part)
