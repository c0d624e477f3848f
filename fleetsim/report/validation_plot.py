"""docs/validation.svg: the error of every arm as a dot beside the bands of the gates."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fleetsim.report.validation_words import percent, role
from fleetsim.validate.verdict import RATIO_MEDIAN, RATIO_WORST, CaseResult

_ROW, _LEFT, _WIDTH, _RIGHT, _TOP = 18, 250, 520, 90, 46
_REACH = 0.5  # the axis ends at +-50 %; what lies beyond sits at the end and says so
_INK, _DIM, _GRID = "#24292f", "#6e7781", "#d0d7de"
_OK, _FAR, _FITTED = "#1a7f37", "#cf222e", "#8c959f"


def validation_plot(results: Sequence[CaseResult]) -> str:
    """The SVG: one row per arm that has a figure, its ratio error, or the absolute one on the baseline."""
    rows: list[str] = []
    y = _TOP
    for result in results:
        shown = [a for a in result.arms if a.error is not None]
        if not shown:
            continue
        y += 6
        for i, arm in enumerate(shown):
            error = arm.ratio_error if arm.ratio_error is not None else arm.error
            assert error is not None
            fitted = role(result, arm) == "fitted"
            colour = _FITTED if fitted else _OK if abs(error) <= RATIO_WORST else _FAR
            if i == 0:
                rows.append(_text(8, y + 4, result.case.id, _INK, "start", bold=True))
            rows.append(_text(_LEFT - 10, y + 4, arm.arm.name, _INK if arm.arm.gated else _DIM, "end"))
            x = _x(max(-_REACH, min(_REACH, error)))
            rows.append(f'<line x1="{_x(0):.1f}" y1="{y}" x2="{x:.1f}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
            fill = "white" if fitted else colour
            rows.append(f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>')
            label = "fitted" if fitted else percent(error)
            rows.append(_text(_LEFT + _WIDTH + 10, y + 4, label, _DIM if fitted else colour, "start"))
            y += _ROW
    height = y + 24
    return "\n".join([_head(height), *_axis(y), *rows, "</svg>", ""])


def _x(error: float) -> float:
    return _LEFT + _WIDTH * (error + _REACH) / (2 * _REACH)


def _text(x: float, y: float, text: str, colour: str, anchor: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _head(height: float) -> str:
    width = _LEFT + _WIDTH + _RIGHT
    title = "Predicted against published, relative to each case's baseline"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="ui-sans-serif, system-ui, sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n{_text(8, 20, title, _INK, "start", bold=True)}'
    )


def _axis(bottom: float) -> list[str]:
    parts = []
    for band, colour in ((RATIO_WORST, "#f6f8fa"), (RATIO_MEDIAN, "#eaeef2")):
        x, width = _x(-band), _x(band) - _x(-band)
        parts.append(
            f'<rect x="{x:.1f}" y="{_TOP - 8}" width="{width:.1f}" height="{bottom - _TOP + 8:.1f}" fill="{colour}"/>'
        )
    for tick in (-0.5, -0.25, -0.1, 0.0, 0.1, 0.25, 0.5):
        x = _x(tick)
        parts.append(
            f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{bottom:.1f}" stroke="{_GRID}" stroke-width="1"/>'
        )
        parts.append(_text(x, bottom + 16, f"{100 * tick:+.0f} %" if tick else "0", _DIM, "middle"))
    return parts
