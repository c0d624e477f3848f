"""Pages: one self-contained HTML file each, that opens offline and asks nobody for anything.

A page is words, tables and charts. `templates/page.html.j2` is the frame; `templates/report.html.j2` draws a Document.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fleetsim
from fleetsim.errors import OutsideError
from fleetsim.faces import Text, text
from fleetsim.tell.charts.chart import LEGEND, Chart
from fleetsim.tell.document import (
    Bullets,
    Cell,
    Document,
    Judged,
    Listed,
    NextLines,
    Pair,
    Table,
    Verbatim,
    Words,
    charts_of,
)
from fleetsim.tell.next_lines import broken, is_command
from fleetsim.visible import visible

_TEMPLATES = Path(__file__).parent / "templates"

# Blanks that no line is broken at: before a unit, and in "5 + 11" and "H100 x 1".
_UNITS = r"(?<=\d) (?=(?:%|(?:s|ms|us|min|h|k|M|G|GB|GiB|steps?|tok/s|GPUs?|instances?|samples)\b))"
_UNIT = re.compile(_UNITS + r"|(?<=\d) (?=\+ \d)|(?<=\d \+) (?=\d)|(?<= x) (?=\d)|(?<=seed) (?=\d)")

_KINDS: Mapping[type, str] = {
    Chart: "chart",
    Pair: "pair",
    Table: "table",
    Listed: "listed",
    Bullets: "bullets",
    Words: "words",
    str: "words",
    NextLines: "next",
    Verbatim: "verbatim",
    Judged: "judged",
}
_COMMAND_CH = 88  # of a command's line


def document_page(document: Document) -> str:
    """The text of the page. Raises OutsideError where jinja2 or plotly is missing."""
    sections = tuple(document.shown("page"))
    charts = [chart for _, blocks in sections for chart in charts_of(blocks)]
    facts = document.facts
    return render(
        "report.html.j2",
        charts,
        title=facts.answer,
        kind=document.kind,
        tiles=facts.tiles,
        lines=facts.lines,
        explained=facts.explained,
        warnings=document.warnings,
        sections=[(title, [(_KINDS[type(block)], block) for block in blocks]) for title, blocks in sections],
    )


def render(template: str, charts: Sequence[Chart], **content: Any) -> str:
    """The text of a page. Raises OutsideError where jinja2 or plotly is missing, before any work is done."""
    jinja2, offline = _installed("jinja2"), _installed("plotly.offline")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = unbroken
    environment.filters["lines"] = lines_of
    environment.tests["commands"] = lambda said: isinstance(said, NextLines)
    environment.tests["words"] = lambda cell: isinstance(cell, Words)
    figures: dict[str, Any] = {c.id: {"data": c.data, "layout": {**_house(), **c.layout}} for c in charts}
    text: str = environment.get_template(template).render(
        charts={c.id: c for c in charts},
        figures=figures,
        plotly_js=offline.get_plotlyjs() if charts else "",
        version=fleetsim.__version__,
        **content,
    )
    return visible(text)


def check_installed() -> None:
    """Raises OutsideError where what pages need is missing, with all that is."""
    missing = [name for name in ("jinja2", "plotly") if not _there(name)]
    if missing:
        raise _missing(missing)


def _there(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def _installed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise _missing([module.partition(".")[0]]) from None


def _missing(names: Sequence[str]) -> OutsideError:
    what = "it" if len(names) == 1 else "them"
    needs = f"needs {' and '.join(names)}; install {what}: pip install 'fleetsim[report]'"
    return OutsideError(text("{} {}", Text("--html", "to_html"), needs))


def unbroken(text: Cell) -> str:
    """Keeps every figure and its unit on one line: "33.6 s", "5.0 %", "4 + 4"."""
    return _UNIT.sub("\u00a0", str(text))


def lines_of(text: str) -> list[tuple[bool, str]]:
    """What to do next, line by line: whether it is a command, and the line, which a shell puts together again."""
    each = ((is_command(line), line) for line in text.splitlines())
    return [(command, "\n".join(broken(line, _COMMAND_CH)) if command else line) for command, line in each]


def _house() -> Mapping[str, Any]:
    return {
        "autosize": True,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8, "pad": 2},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "dragmode": False,
        "showlegend": True,
        "legend": LEGEND,
    }
