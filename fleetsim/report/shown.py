"""A terminal view outside a terminal: as plain text, and as HTML for a notebook."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

# Scrolls where a page is narrow: a table that is broken into the next line cannot be read.
_FRAME = '<pre style="white-space:pre;overflow-x:auto;line-height:1.35;margin:0">{code}</pre>'
NOTEBOOK_WIDTH = 110


def as_text(view: RenderableType, width: int | None = None) -> str:
    """What a pipe gets: no colour, no blanks at the ends of lines. width: in characters; None = COLUMNS, or 80."""
    console = Console(file=io.StringIO(), highlight=False, force_jupyter=False, width=width)
    with console.capture() as captured:
        console.print(view, crop=False)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def as_html(view: RenderableType, width: int = NOTEBOOK_WIDTH) -> str:
    """The same as one `pre` element, bold and dim kept; its text is escaped."""
    console = Console(file=io.StringIO(), highlight=False, force_jupyter=False, width=width, record=True)
    console.print(view, crop=False)
    return console.export_html(inline_styles=True, code_format=_FRAME)
