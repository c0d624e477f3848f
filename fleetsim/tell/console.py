"""The one console that views are drawn on, and views outside a terminal: as plain text, and as HTML for a notebook."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Span, Text

from fleetsim.visible import CONTROL, visible

# Scrolls where a page is narrow: a table that is broken into the next line cannot be read.
_FRAME = '<pre style="white-space:pre;overflow-x:auto;line-height:1.35;margin:0">{code}</pre>'
NOTEBOOK_WIDTH = 110


class _Literal(Console):
    """A console that draws text as it is: "[red]" is five letters, ":x:" three, an escape sequence is written out."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        return super().render(_literal(renderable) if isinstance(renderable, Text) else renderable, options)

    def render_str(self, text: str, **how: Any) -> Text:
        how |= {"markup": False, "emoji": False}
        return _literal(super().render_str(text, **how))


def console(file: IO[str] | None = None, *, stderr: bool = False, width: int | None = None, **more: Any) -> Console:
    """A console for text that may come from outside. file: None = stdout, or stderr. width: None = as wide as it is.

    More: what rich's `Console` takes. Nothing else makes a console (tests/report/test_outside_text.py).
    """
    return _Literal(file=file, stderr=stderr, width=width, markup=False, emoji=False, highlight=False, **more)


def as_text(view: RenderableType, width: int | None = None) -> str:
    """What a pipe gets: no colour, no blanks at the ends of lines. width: in characters; None = COLUMNS, or 80."""
    plain = console(io.StringIO(), force_jupyter=False, width=width)
    with plain.capture() as captured:
        plain.print(view, crop=False)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def as_html(view: RenderableType, width: int = NOTEBOOK_WIDTH) -> str:
    """A renderable as one `pre` element of HTML; bold and dim are kept, the text is escaped."""
    recorded = console(io.StringIO(), force_jupyter=False, width=width, record=True)
    recorded.print(view, crop=False)
    return recorded.export_html(inline_styles=True, code_format=_FRAME)


def _literal(text: Text) -> Text:
    """The text with its control characters written out, each style over the same words as before."""
    plain = text.plain
    if not CONTROL.search(plain):
        return text
    at = [0]
    for character in plain:
        at.append(at[-1] + len(visible(character)))
    clean = text.blank_copy(visible(plain))
    clean.spans = [Span(at[start], at[min(end, len(plain))], style) for start, end, style in text.spans]
    return clean
