"""What the kinds of charts share: looks that differ by more than colour, labels, lines across a plot."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetsim.estimates import Estimate
from fleetsim.tell.charts.chart import plain_text

# Words stay readable where a line passes behind them.
BEHIND = {"bgcolor": "var(--paper)", "borderpad": 1}
# Letters of a label that a phone has room for.
NARROW = 40


@dataclass(frozen=True, slots=True)
class PartLook:
    """How one of several things is drawn: the name of a colour in the style sheet, and what tells it apart without.

    dash, symbol: of lines. pattern: of bars, "" for a full one.
    """

    colour: str
    dash: str = "solid"
    symbol: str = "circle"
    pattern: str = ""


LOOKS: tuple[PartLook, ...] = (
    PartLook("accent", "solid", "circle", ""),
    PartLook("second", "dash", "square", "/"),
    PartLook("third", "dot", "diamond", "x"),
    PartLook("quiet", "dashdot", "triangle-up", "."),
    PartLook("bad", "longdash", "cross", "\\"),
    PartLook("shade-6", "longdashdot", "star", "-"),
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A line across the plot with words at its end: a target, a cap, where warm-up ends."""

    at: float
    text: str


def look(i: int) -> PartLook:
    """The look of the i-th of several things; they repeat after len(LOOKS)."""
    return LOOKS[i % len(LOOKS)]


def wrapped(text: str, width: int = NARROW, lines: int = 2) -> str:
    """Plain text in so many lines at most; what is left out ends in dots."""
    found = textwrap.wrap(text, width) or [text]
    kept = found if len(found) <= lines else [*found[: lines - 1], f"{found[lines - 1][: width - 4]} ..."]
    return "<br>".join(map(plain_text, kept))


def whiskers(estimates: Sequence[Estimate], scale: float = 1.0, **more: Any) -> dict[str, Any]:
    """The 95 % intervals as error bars; asymmetric, for they are what was estimated."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [scale * (e.ci_high - e.mean) for e in estimates],
        "arrayminus": [scale * (e.mean - e.ci_low) for e in estimates],
        "visible": any(e.ci_low < e.ci_high for e in estimates),
        "thickness": 1.5,
        "width": 4,
        "color": "var(--ink)",
        **more,
    }


def across(marks: Sequence[Mark]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Horizontal lines: shapes, and the annotations that name them, at the right and the left end in turn."""
    shapes = [_line(mark, "y") for mark in marks]
    notes = [
        {"xref": "paper", "x": 1 - i % 2, "xanchor": ("right", "left")[i % 2], "y": mark.at, "yanchor": "bottom",
         **_note(mark)}
        for i, mark in enumerate(marks)
    ]  # fmt: skip
    return shapes, notes


def upright(marks: Sequence[Mark], left: bool = False) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Vertical lines, named at their upper end, on their left where asked: at the right edge there is no room."""
    shapes = [_line(mark, "x") for mark in marks]
    notes = [
        {"yref": "paper", "y": 1, "yanchor": "top", "x": mark.at, "xanchor": "right" if left else "left",
         "xshift": -3 if left else 3, **_note(mark)}
        for mark in marks
    ]  # fmt: skip
    return shapes, notes


def _note(mark: Mark) -> dict[str, Any]:
    """Words beside a line, readable where a curve passes behind them."""
    return {
        "text": plain_text(mark.text),
        "showarrow": False,
        "font": {"size": 12, "color": "var(--quiet)"},
        **BEHIND,
    }


def _line(mark: Mark, axis: str) -> dict[str, Any]:
    other = "x" if axis == "y" else "y"
    return {
        "type": "line",
        f"{axis}0": mark.at,
        f"{axis}1": mark.at,
        f"{other}ref": "paper",
        f"{other}0": 0,
        f"{other}1": 1,
        "line": {"color": "var(--quiet)", "width": 1.5, "dash": "dash"},
    }
