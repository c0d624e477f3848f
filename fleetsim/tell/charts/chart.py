"""A picture of a page as plain data, and what all kinds of pictures are built of: axes, shades, text that is no tag.

Charts are plotly figures as plain data, so that plotly's Python side, which is slow to import, is only asked for its
script; their colours are names that the page's style sheet resolves, for light and for dark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

# Shades of one hue, from the palest to the strongest, for what has an order; --shade-1 .. of the style sheet.
SHADES = 6

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
