"""Pictures of a comparison: the ratio of every metric beside 1, the difference of every share beside 0."""

from __future__ import annotations

from collections.abc import Callable

from fleetsim import units
from fleetsim.compare.compare import Comparison, MetricChange
from fleetsim.compare.words import band_of, change_of
from fleetsim.estimates import Estimate
from fleetsim.quantities import quantity
from fleetsim.tell.charts.chart import Chart, axis
from fleetsim.tell.charts.forest import Dot, Heading, Style, forest, ratio_axis

_STYLES = {
    "better": Style("better", "third", "circle"),
    "worse": Style("worse", "second", "x"),
    "changed": Style("changed", "accent", "square"),
    "no significant change": Style("no significant change", "quiet", "circle-open"),
}
GROUPS = (("better", "Better"), ("worse", "Worse"), ("changed", "Changed"), ("no significant change", "No change"))
# Ratios beyond this factor would squeeze all others to a line: they are in the table.
_FURTHEST = 30.0


def ratios_chart(found: Comparison) -> Chart | None:
    """B / A of every metric that has a ratio, shares apart, on a logarithmic axis around 1."""
    beyond = [c for c in found.changes if (r := _ratio(c)) is not None and not _is_near(r)]
    near = _rows(found, lambda c: r if (r := _ratio(c)) is not None and _is_near(r) else None, 1.0)
    dots = [row for row in near if isinstance(row, Dot)]
    if not dots:
        return None
    band = found.min_change
    low = min(min(d.low or d.value for d in dots), 1 / (1 + 2 * band))
    high = max(max(d.high or d.value for d in dots), 1 + 2 * band)
    words = "B / A with its 95 % interval, on a logarithmic axis; right of the line B has more."
    words += _band_words(band, of_shares=False)
    if left_out := [c for c in beyond if not c.equal]:
        words += f" Beyond a factor of {_FURTHEST:g}, and in the table only: {units.plural(len(left_out), 'metric')}."
    return forest("ratios", "Ratio of every metric, B / A", words, near, _STYLES, ratio_axis("B / A", low, high),
                  centre=1.0, bands=((1 / (1 + band), 1 + band),))  # fmt: skip


def shares_chart(found: Comparison) -> Chart | None:
    """B - A of every share, in points."""
    rows = _rows(found, lambda c: c.difference if _is_share(c) else None, 100.0)
    dots = [row for row in rows if isinstance(row, Dot)]
    if not dots:
        return None
    band = 100.0 * found.min_change
    ends = [v for d in dots for v in (d.value, d.low, d.high) if v is not None]
    low, high = min(*ends, -2 * band), max(*ends, 2 * band)
    span = high - low
    x_axis = axis("B - A, points", range=[low - 0.05 * span, high + 0.05 * span], nticks=7, tickangle=0)
    words = f"B - A with its 95 % interval, in points of a share.{_band_words(found.min_change, of_shares=True)}"
    return forest("shares", "Difference of every share, B - A", words, rows, _STYLES, x_axis, centre=0.0,
                  bands=((-band, band),))  # fmt: skip


def _rows(found: Comparison, value: Callable[[MetricChange], Estimate | None], factor: float) -> list[Dot | Heading]:
    """The changes that have a value, by verdict; of those that are equal on both sides there is nothing to draw."""
    rows: list[Dot | Heading] = []
    for verdict, title in GROUPS:
        of = [(c, e) for c in found.changes if c.verdict == verdict and not c.equal and (e := value(c)) is not None]
        rows += [Heading(f"{title}: {len(of)}"), *(_dot(c, e, factor) for c, e in of)] if of else []
    return rows


def _dot(change: MetricChange, value: Estimate, factor: float) -> Dot:
    said, interval = change_of(change)
    told = f"{said} ({interval})" if interval else said
    return Dot(
        quantity(change.metric).title, factor * value.mean, said, change.verdict, factor * value.ci_low,
        factor * value.ci_high, f"{told}: {change.verdict}",
    )  # fmt: skip


def _is_share(change: MetricChange) -> bool:
    return quantity(change.metric).unit == "share"


def _ratio(change: MetricChange) -> Estimate | None:
    return None if _is_share(change) else change.ratio


def _is_near(ratio: Estimate) -> bool:
    return ratio.ci_low > 1 / _FURTHEST and ratio.ci_high < _FURTHEST


def _band_words(min_change: float, of_shares: bool) -> str:
    smallest = band_of(min_change, of_shares)
    return f" The band is the smallest change of interest, {smallest} either way." if min_change > 0 else ""
