"""Pages: one self-contained HTML file each, that opens offline and asks nobody for anything.

A page is words, tables and charts: `templates/page.html.j2` draws a Document, `charts/draw.py` its charts.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import fleetsim
from fleetsim.errors import OutsideError
from fleetsim.faces import Text, text
from fleetsim.tell.charts.draw import chart_html
from fleetsim.tell.document import Block, Cell, Document, NextLines, Words, charts_of
from fleetsim.tell.next_lines import broken, is_command
from fleetsim.visible import visible

_TEMPLATES = Path(__file__).parent / "templates"

# Blanks that no line is broken at: before a unit, and in "5 + 11" and "H100 x 1".
_UNITS = r"(?<=\d) (?=(?:%|(?:s|ms|us|min|h|k|M|G|GB|GiB|steps?|tok/s|GPUs?|instances?|samples)\b))"
_UNIT = re.compile(_UNITS + r"|(?<=\d) (?=\+ \d)|(?<=\d \+) (?=\d)|(?<= x) (?=\d)|(?<=seed) (?=\d)")

_COMMAND_CH = 88  # of a command's line


def document_page(document: Document) -> str:
    """The text of the page. Raises OutsideError where jinja2 is missing."""
    jinja2, sections, facts = _jinja2(), tuple(document.on("page")), document.facts
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = unbroken
    environment.filters["lines"] = lines_of
    environment.filters["drawn"] = chart_html
    environment.tests["commands"] = lambda said: isinstance(said, NextLines)
    environment.tests["words"] = lambda cell: isinstance(cell, Words)
    made: str = environment.get_template("page.html.j2").render(
        title=facts.answer,
        kind=document.kind,
        tiles=facts.tiles,
        lines=facts.lines,
        explained=facts.explained,
        warnings=document.warnings,
        sections=[(s.title, s.folded, [(_kind(block), block) for block in blocks]) for s, blocks in sections],
        drawn=any(True for _, blocks in sections for _ in charts_of(blocks)),
        version=fleetsim.__version__,
    )
    return visible(made)


def _kind(block: Block) -> str:
    """What the template calls a block: the name of its class."""
    return "words" if isinstance(block, str) else type(block).__name__.lower()


def check_installed() -> None:
    """Raises OutsideError where what pages need is missing."""
    _jinja2()


def _jinja2() -> Any:
    try:
        return importlib.import_module("jinja2")
    except ImportError:
        needs = "needs jinja2; install it: pip install 'fleetsim[report]'"
        raise OutsideError(text("{} {}", Text("--html", "to_html"), needs)) from None


def unbroken(text: Cell) -> str:
    """Keeps every figure and its unit on one line: "33.6 s", "5.0 %", "4 + 4"."""
    return _UNIT.sub("\u00a0", str(text))


def lines_of(text: str) -> list[tuple[bool, str]]:
    """What to do next, line by line: whether it is a command, and the line, which a shell puts together again."""
    each = ((is_command(line), line) for line in text.splitlines())
    return [(command, "\n".join(broken(line, _COMMAND_CH)) if command else line) for command, line in each]
