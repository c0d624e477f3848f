"""Pages: one self-contained HTML file each, that opens offline and asks nobody for anything.

A page is words, tables and charts. Charts are plotly figures as plain data, so that plotly's Python side, which is
slow to import, is only asked for its script; their colours are names that the page's style sheet resolves, for light
and for dark. `templates/page.html.j2` is the frame; what a report shows extends it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

import fleetsim
from fleetsim.errors import OutsideError
from fleetsim.faces import Text, text
from fleetsim.visible import visible

_TEMPLATES = Path(__file__).parent / "templates"

# Shades of one hue, from the palest to the strongest, for what has an order; --shade-1 .. of the style sheet.
SHADES = 6


# Blanks that no line is broken at: before a unit, and in "5 + 11" and "H100 x 1".
_UNITS = r"(?<=\d) (?=(?:%|(?:s|ms|us|min|h|k|M|G|GB|GiB|steps?|tok/s|GPUs?|instances?|samples)\b))"
_UNIT = re.compile(_UNITS + r"|(?<=\d) (?=\+ \d)|(?<=\d \+) (?=\d)|(?<= x) (?=\d)|(?<=seed) (?=\d)")

# Above the plot, in a row that breaks where the page is narrow.
LEGEND: Mapping[str, Any] = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture. words: what it shows, for those who cannot see it too. data, layout: as plotly has them.

    A trace names its colour in `meta.colour` (a custom property of the style sheet, as "shade-3" or "accent"); text
    that comes from outside goes through `plain_text`.
    """

    id: str
    title: str
    words: str
    data: tuple[dict[str, Any], ...]
    layout: dict[str, Any]
    height_px: int = 380


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


def unbroken(text: str) -> str:
    """The same with every figure and its unit on one line: "33.6 s", "5.0 %", "4 + 4"."""
    return _UNIT.sub("\u00a0", text)


def shade(i: int, of: int) -> str:
    """The colour of the i-th of so many things that have an order."""
    return f"shade-{SHADES if of == 1 else 1 + round(i * (SHADES - 1) / (of - 1))}"


def plain_text(text: str) -> str:
    """Text for a chart, where plotly would read tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis in the house's style; colours come from the style sheet when it is drawn."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 12}},
        "separatethousands": True,
        "exponentformat": "none",
        "automargin": True,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "fixedrange": True,
        **more,
    }


def log_axis(title: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    """A logarithmic axis over low..high (> 0) with ticks at 1, 2 and 5; more below a decade, fewer above four."""
    first, last, decades = floor(log10(low)), ceil(log10(high)), log10(high / low)
    steps = (1, 2, 3, 4, 5, 6, 8) if decades < 1 else (1, 2, 5) if decades <= 4 else (1,)
    ticks = [m * 10**e for e in range(first, last + 1) for m in steps]
    shown = [t for t in ticks if low / 1.5 <= t <= high * 1.5]
    span = max(log10(high) - log10(low), 0.1)
    return axis(
        title,
        type="log",
        tickvals=shown,
        ticktext=[f"{t:,.0f}" if t >= 1 else f"{t:g}" for t in shown],
        range=[log10(low) - 0.06 * span, log10(high) + 0.06 * span],
        **more,
    )


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
