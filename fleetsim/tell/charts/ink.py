"""What all shapes are drawn with: axes, legends, symbols, patterns, numbers and texts of SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from fleetsim import units
from fleetsim.tell.charts.axes import MOST_TICKS, ChartAxis
from fleetsim.tell.charts.chart import MarkLook
from fleetsim.visible import visible

DOT_PX = 9.0
_PATTERNS = {
    "/": "M-2 2L2-2M0 8L8 0M6 10L10 6",
    "\\": "M-2 6L2 10M0 0L8 8M6-2L10 2",
    "x": "M0 8L8 0M0 0L8 8",
    ".": "M1 2H3M5 6H7",
    "-": "M0 2H8M0 6H8",
}
# Symbols around 0, as wide as 2; of the last two only strokes are seen.
_SYMBOLS: Mapping[str, tuple[tuple[float, float], ...]] = {
    "square": ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    "diamond": ((0, -1.15), (1.15, 0), (0, 1.15), (-1.15, 0)),
    "triangle": ((0, -1.1), (1.05, 0.8), (-1.05, 0.8)),
    "star": tuple(
        (r * math.sin(k * math.pi / 5), -r * math.cos(k * math.pi / 5)) for k in range(10) for r in ((1.2, 0.5)[k % 2],)
    ),
}
_STROKES = {"x": "M{0} {0}L{1} {1}M{0} {1}L{1} {0}", "cross": "M0 {0}V{1}M{0} 0H{1}"}


def axis_line(x: ChartAxis, side: str = "") -> Iterator[str]:
    """The axis below a plot. side: how wide the plot is, as a class of the style sheet."""
    yield f'<svg class="plot axis {side}" height="22">'
    near, ticks = 0.07 if side == "rows" else 0.02, ""
    for at, text in _fitting(x, 190 if side == "named" else 270):
        anchor = "start" if side == "rows" and at < near else "end" if at > 1 - near else "middle"
        ticks += f'<line x1="{pct(at)}" x2="{pct(at)}" y2="5"/>{at_x(at, 18, text, anchor)}'
    yield f'<line x2="100%"/>{ticks}</svg>'
    yield f'<p class="x">{text_of(x.title)}</p>' if x.title else ""


def _fitting(x: ChartAxis, phone_px: float) -> list[tuple[float, str]]:
    """As many ticks as a phone has room for their words."""
    most, found = MOST_TICKS, x.marks()
    while len(found) > 2 and sum(7 * len(text) + 8 for _, text in found) > phone_px:
        most -= 1
        found = x.marks(most) if most > 1 and not x.ticks else found[::2]
    return found


def at_x(share: float, y: float, text: str, anchor: str) -> str:
    """A text at a share of the width."""
    return f'<text x="{pct(share)}" y="{px(y)}" text-anchor="{anchor}">{text_of(text)}</text>'


def legend(entries: Sequence[tuple[str, int, str, MarkLook]], id: str) -> str:  # noqa: A002
    """name, key, form and look of each entry; nothing where one thing alone is drawn."""
    if not entries:
        return ""
    made = []
    for name, k, form, look in entries:
        drawn = f'<g class="c-{look.colour}">{_swatch(id, k, form, look)}</g>'
        made.append(
            f'<li><button type="button" data-k="{k}" aria-pressed="true"><svg width="24" height="14">{drawn}</svg>'
            f"{text_of(name)}</button></li>"
        )
    return f'<ul class="legend">{"".join(made)}</ul>'


def _swatch(id: str, k: int, form: str, look: MarkLook) -> str:  # noqa: A002
    """A small picture of how a thing is drawn."""
    if form == "dots":
        return symbol(look, "12", 7)
    if form == "bars":
        return f'<rect class="bar" x="2" y="2" width="20" height="10" fill="{fill_of(id, k, look)}"/>'
    if form == "band":
        return '<rect class="area" x="2" y="2" width="20" height="10"/>'
    if form == "spans":
        return "".join(
            f'<rect class="span" x="2" width="20" y="{px(1 + 12 * low)}" height="{px(12 * (high - low))}"/>'
            for low, high in look.lanes
        )
    return f'<path class="line {look.dash}" d="M1 7H23"/>'


def symbol(look: MarkLook, x: str, y: float, size: float = DOT_PX, said: str = "") -> str:
    """A dot at a place; x: as SVG has it, so that it may be a share."""
    shape, _, open_ = look.symbol.partition("-")
    r = size / 2
    if shape in _STROKES:
        d = _STROKES[shape].format(px(-0.8 * r), px(0.8 * r))
    elif shape in _SYMBOLS:
        d = "M" + "L".join(f"{px(r * a)} {px(r * b)}" for a, b in _SYMBOLS[shape]) + "Z"
    else:
        d = f"M{px(-r)} 0a{px(r)} {px(r)} 0 1 0 {px(2 * r)} 0a{px(r)} {px(r)} 0 1 0 {px(-2 * r)} 0Z"
    return f'<svg x="{x}" y="{px(y)}">{path_of("symbol open" if open_ else "symbol", d, "", said)}</svg>'


def pattern_defs(id: str, looks: Iterable[tuple[int, MarkLook]]) -> str:  # noqa: A002
    """The patterns of some looks, by their number in the chart."""
    made = [
        f'<pattern id="{escape(id)}-{k}" class="c-{look.colour}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<path d="{_PATTERNS[look.pattern]}"/></pattern>'
        for k, look in dict(looks).items()
        if look.pattern
    ]
    return f"<defs>{''.join(made)}</defs>" if made else ""


def fill_of(id: str, k: int, look: MarkLook) -> str:  # noqa: A002
    """What a bar is filled with."""
    return f"url(#{escape(id)}-{k})" if look.pattern else "var(--c)"


def path_of(kind: str, d: str, data: str = "", said: str = "") -> str:
    """A path of a class; nothing where there is nothing to draw. said: what hovering says."""
    end = f"><title>{text_of(said)}</title></path>" if said else "/>"
    return f'<path class="{kind}" d="{d}"{data}{end}' if d else ""


def said_number(value: float | None, suffix: str, low: float | None = None) -> str:
    """A value as hovering says it; nothing where nothing is known. low: the other end of a range."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{'' if low is None else f'{units.number(low)} to '}{units.number(value)}{suffix}"


def text_of(text: str) -> str:
    """Text from anywhere as text of a page."""
    return escape(visible(text))


def px(value: float) -> str:
    """A place in pixels, to a tenth."""
    return f"{round(value, 1) + 0.0:.12g}"


def pct(share: float) -> str:
    """A share of the width as SVG has it."""
    return format(round(100 * share, 2) + 0.0, "g") + "%"
