"""What the page of published runs shows beside its text: arms in tables and charts, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetsim import units
from fleetsim.tell.charts.axes import log_axis, ratio_axis
from fleetsim.tell.charts.chart import Chart, ChartRow, ChartSeries, MarkLook, Panel, Plot, RowMark, Rows, look
from fleetsim.tell.document import Table
from fleetsim.units import number
from fleetsim.validate.verdict import BEYOND, RATIO_MEDIAN, ArmResult, CaseResult, role

_LOOKS = {
    "predicted": ("predicted", MarkLook("accent")),
    "fitted": ("fitted on", MarkLook("quiet", symbol="circle-open")),
    "apart": ("predicted, no gate", MarkLook("third", symbol="diamond-open")),
    "missed": ("misses a gate", MarkLook("second", symbol="x")),
}
_MEASURES = {"step_s": "seconds of a step", "tok_s": "tokens per second", "ratio": "a ratio of two arms"}


def error_chart(results: Sequence[CaseResult]) -> Chart | None:
    """Every arm that has a published figure, by case: its error relative to the baseline's, as the gates take it."""
    rows: list[ChartRow] = []
    for result in results:
        shown = [(arm, error) for arm in result.arms if (error := arm.gated_error) is not None]
        if not shown:
            continue
        rows.append(ChartRow(f"{result.case.id}  {result.case.title}"))
        for arm, error in shown:
            kind = style_of(result, arm)
            said = "fitted" if kind == "fitted" else percent(error)
            rows.append(
                ChartRow(arm.arm.name, said, (RowMark(kind, 1.0 + error, said=f"{arm.arm.name}: {_both(arm)}"),))
            )
    dots = [mark.value for row in rows for mark in row.marks]
    if not dots:
        return None
    low, high = min(*dots, 1 - BEYOND), max(*dots, 1 + BEYOND)
    bands = tuple((1 - band, 1 + band) for band in (BEYOND, RATIO_MEDIAN))
    words = (
        "Predicted / published, both relative to the baseline arm of their case, on a logarithmic axis; a baseline "
        "that is predicted is absolute. The bands are what the gates allow: "
        f"{units.share(RATIO_MEDIAN, 0)} for the median of all arms, {units.share(BEYOND, 0)} for each."
    )
    axis = ratio_axis("predicted / published", low, high)
    return Chart("errors", "Error of every arm", words, Rows(axis, tuple(rows), _LOOKS, centre=1.0, bands=bands))


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
    series = []
    for i, (measure, name) in enumerate(_MEASURES.items()):
        some = [p for p in points if measure_of(p[0], p[1]) == measure]
        said = [f"{r.case.id} {arm.arm.name}: {_both(arm)}" for r, arm, _ in some]
        x, y = [published for *_, published in some], [arm.predicted for _, arm, _ in some]
        series += [ChartSeries(name, "dots", x, y, look(i), said=said)] if some else []
    values = [v for _, arm, published in points for v in (published, arm.predicted)]
    low, high = min(values), max(values)
    series.append(ChartSeries("", "line", [low, high], [low, high], MarkLook("quiet", "dash")))
    words = (
        f"{len(points)} arms; on the dashed line the prediction is what was published. Arms that a scalar was fitted "
        "on lie on it by construction."
    )
    panel = Panel(log_axis("predicted", low, high), tuple(series), height_px=340)
    return Chart("published", "Predicted and published", words, Plot(log_axis("published", low, high), (panel,)))


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


# --- The arms of a case in tables: predicted and published, side by side.

SIDES = {"trainer": "trainer", "generation": "generation", "in_flight_cap": "in-flight cap"}
_UNITS = {"step_s": "seconds of a step", "tok_s": "trained tokens per second"}


def arms(result: CaseResult) -> Table:
    """Predicted and published, side by side."""
    return Table(
        f"{result.case.id}, {_UNITS[result.case.measure]}",
        ("arm", "published", "predicted", "error", "ratio", "blind", "binds"),
        tuple(_arm(result, arm, blind) for arm, blind in _figures(result)),
        words_last=1,
        marked=frozenset(i for i, arm in enumerate(result.arms) if arm in result.misses),
    )


def _figures(result: CaseResult) -> Iterator[tuple[ArmResult, ArmResult | None]]:
    """Every arm, and as it was predicted blind."""
    for i, arm in enumerate(result.arms):
        yield arm, None if result.blind is None else result.blind.arms[i]


def _arm(result: CaseResult, arm: ArmResult, blind: ArmResult | None) -> tuple[str, ...]:
    wrong = f", published {SIDES.get(arm.arm.bottleneck or '', '')}" if arm.bottleneck is False else ""
    error = "fitted" if role(result, arm) == "fitted" else percent(arm.error)
    return (
        arm.arm.name,
        "-" if arm.arm.published is None else number(arm.arm.published),
        number(arm.predicted),
        error,
        percent(arm.ratio_error),
        percent(blind.ratio_error if blind else None),
        SIDES[arm.figures.side] + wrong,
    )
