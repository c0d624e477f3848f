"""Published runs and their predictions as charts: every arm by name with its error, and both figures side by side."""

from __future__ import annotations

from collections.abc import Sequence

from fleetsim import units
from fleetsim.tell.charts.chart import Chart, log_axis, plain_text
from fleetsim.tell.charts.forest import Dot, Heading, Style, forest, ratio_axis
from fleetsim.validate.verdict import RATIO_MEDIAN, RATIO_WORST, ArmResult, CaseResult, role

_STYLES = {
    "predicted": Style("predicted", "accent", "circle"),
    "fitted": Style("fitted on", "quiet", "circle-open"),
    "apart": Style("predicted, no gate", "third", "diamond-open"),
    "missed": Style("misses a gate", "second", "x"),
}
_MEASURES = {
    "step_s": ("seconds of a step", "accent", "circle"),
    "tok_s": ("tokens per second", "second", "square"),
    "ratio": ("a ratio of two arms", "third", "diamond"),
}


def error_chart(results: Sequence[CaseResult]) -> Chart | None:
    """Every arm that has a published figure, by case: its error relative to the baseline's, as the gates take it."""
    rows: list[Dot | Heading] = []
    for result in results:
        shown = [(arm, error) for arm in result.arms if (error := gated_error(arm)) is not None]
        if not shown:
            continue
        rows.append(Heading(f"{result.case.id}  {result.case.title}"))
        for arm, error in shown:
            kind = style_of(result, arm)
            said = "fitted" if kind == "fitted" else percent(error)
            rows.append(Dot(arm.arm.name, 1.0 + error, said, kind, told=_both(arm)))
    dots = [row for row in rows if isinstance(row, Dot)]
    if not dots:
        return None
    low, high = (f(row.value for row in dots) for f in (min, max))
    low, high = min(low, 1 - RATIO_WORST), max(high, 1 + RATIO_WORST)
    bands = tuple((1 - band, 1 + band) for band in (RATIO_WORST, RATIO_MEDIAN))
    words = (
        "Predicted / published, both relative to the baseline arm of their case, on a logarithmic axis; a baseline "
        "that is predicted is absolute. The bands are what the gates allow: "
        f"{units.share(RATIO_MEDIAN, 0)} for the median of all arms, {units.share(RATIO_WORST, 0)} for each."
    )
    axis = ratio_axis("predicted / published", low, high)
    return forest("errors", "Error of every arm", words, rows, _STYLES, axis, centre=1.0, bands=bands)


def figures_chart(results: Sequence[CaseResult]) -> Chart | None:
    """Published against predicted, both logarithmic; on the line they are the same."""
    points = [
        (result, arm, published)
        for result in results
        for arm in result.arms
        if (published := arm.arm.published) is not None and arm.predicted > 0
    ]
    if not points:
        return None
    data = []
    for measure, (name, colour, symbol) in _MEASURES.items():
        some = [p for p in points if measure_of(p[0], p[1]) == measure]
        if some:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [float(f"{published:.5g}") for _, _, published in some],
                    "y": [float(f"{arm.predicted:.5g}") for _, arm, _ in some],
                    "meta": {"colour": colour},
                    "marker": {"symbol": symbol, "size": 9, "line": {"width": 1.2}, "opacity": 0.85},
                    "text": [plain_text(f"{r.case.id} {arm.arm.name}: {_both(arm)}") for r, arm, _ in some],
                    "hoverinfo": "text",
                }
            )
    values = [v for _, arm, published in points for v in (published, arm.predicted)]
    low, high = min(values), max(values)
    layout = {
        "xaxis": log_axis("published", low, high, tickangle=0),
        "yaxis": log_axis("predicted", low, high),
        "shapes": [
            {"type": "line", "x0": low, "x1": high, "y0": low, "y1": high, "layer": "between",
             "line": {"width": 1.2, "dash": "dash", "color": "var(--quiet)"}},
        ],
    }  # fmt: skip
    words = (
        f"{len(points)} arms; on the dashed line the prediction is what was published. Arms that a scalar was fitted "
        "on lie on it by construction."
    )
    return Chart("published", "Predicted and published", words, tuple(data), layout, 440)


def gated_error(arm: ArmResult) -> float | None:
    """The error that the ratio gates look at; the absolute one of a baseline; None where nothing is published."""
    return arm.ratio_error if arm.ratio_error is not None else arm.error


def style_of(result: CaseResult, arm: ArmResult) -> str:
    """A key of the error chart's styles."""
    if role(result, arm) == "fitted":
        return "fitted"
    if arm in result.misses:
        return "missed"
    return "predicted" if arm.arm.gated else "apart"


def measure_of(result: CaseResult, arm: ArmResult) -> str:
    """What the figure of an arm is: of the case's measure, or relative to another arm."""
    return "ratio" if arm.arm.reference is not None else result.case.measure


def _both(arm: ArmResult) -> str:
    published = "" if arm.arm.published is None else f"published {units.number(arm.arm.published)}, "
    return f"{published}predicted {units.number(arm.predicted)} ({percent(arm.error)})"


def percent(error: float | None) -> str:
    """A signed error, or a dash."""
    return "-" if error is None else units.change(error)
