"""Two sides compared, as a page: the answer in words, ratios beside 1, what differs in the inputs, all values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetsim import units
from fleetsim.compare.compare import EQUAL, Change, Comparison
from fleetsim.compare.told import RATIO, change_of, input_table, table
from fleetsim.estimates import Estimate
from fleetsim.quantities import quantity
from fleetsim.tell.charts.chart import Chart, axis
from fleetsim.tell.charts.forest import Dot, Heading, Style, forest, ratio_axis
from fleetsim.tell.document import Table
from fleetsim.tell.page import render
from fleetsim.tell.rich_tables import as_sheet

_STYLES = {
    "better": Style("better", "third", "circle"),
    "worse": Style("worse", "second", "x"),
    "changed": Style("changed", "accent", "square"),
    "no significant change": Style("no significant change", "quiet", "circle-open"),
}
_GROUPS = (("better", "Better"), ("worse", "Worse"), ("changed", "Changed"), ("no significant change", "No change"))
# Ratios beyond this factor would squeeze all others to a line: they are in the table.
_FURTHEST = 30.0


def compare_page(found: Comparison) -> str:
    """The page. Raises OutsideError where jinja2 or plotly is missing."""
    charts = [chart for chart in (ratios_chart(found), shares_chart(found)) if chart is not None]
    return render(
        "compare.html.j2",
        charts,
        title=found.headline,
        lede=tuple(_lede(found)),
        changed=as_sheet(f"changed ({RATIO})", table(found.significant).plain()),
        same=as_sheet(f"no significant change ({RATIO})", table(_told(found, "no significant change")).plain()),
        equal=_equal(found),
        values=Table(
            "both sides, with their own 95 % intervals", ("", "", "A", "B"), tuple(_values(found)), 2, _why(found)
        ),
        differs=_differs(found),
        notes=found.notes,
    )


def ratios_chart(found: Comparison) -> Chart | None:
    """B / A of every metric that has a ratio, shares apart, on a logarithmic axis around 1."""
    rows: list[Dot | Heading] = []
    left_out = 0
    for verdict, title in _GROUPS:
        of = []
        for change in _told(found, verdict):
            ratio = change.ratio
            if ratio is None or _is_share(change):
                continue
            if ratio.ci_low <= 1 / _FURTHEST or ratio.ci_high >= _FURTHEST:
                left_out += 1
                continue
            of.append(_dot(change, ratio, 1.0))
        rows += [Heading(f"{title}: {len(of)}"), *of] if of else []
    dots = [row for row in rows if isinstance(row, Dot)]
    if not dots:
        return None
    band = found.min_change
    low = min(min(d.low or d.value for d in dots), 1 - 2 * band)
    high = max(max(d.high or d.value for d in dots), 1 + 2 * band)
    words = "B / A with its 95 % interval, on a logarithmic axis; right of the line B has more."
    words += _band_words(band, " %")
    if left_out:
        words += f" Beyond a factor of {_FURTHEST:g}, and in the table only: {units.plural(left_out, 'metric')}."
    return forest("ratios", "Ratio of every metric, B / A", words, rows, _STYLES, ratio_axis("B / A", low, high),
                  centre=1.0, bands=((1 - band, 1 + band),))  # fmt: skip


def shares_chart(found: Comparison) -> Chart | None:
    """B - A of every share, in points."""
    rows: list[Dot | Heading] = []
    for verdict, title in _GROUPS:
        of = [_dot(c, c.difference, 100.0) for c in _told(found, verdict) if _is_share(c) and c.difference is not None]
        rows += [Heading(f"{title}: {len(of)}"), *of] if of else []
    dots = [row for row in rows if isinstance(row, Dot)]
    if not dots:
        return None
    band = 100.0 * found.min_change
    ends = [v for d in dots for v in (d.value, d.low, d.high) if v is not None]
    low, high = min(*ends, -2 * band), max(*ends, 2 * band)
    span = high - low
    x_axis = axis("B - A, points", range=[low - 0.05 * span, high + 0.05 * span], nticks=7, tickangle=0)
    unit = " point" if band == 1.0 else " points"
    words = f"B - A with its 95 % interval, in points of a share.{_band_words(found.min_change, unit)}"
    return forest("shares", "Difference of every share, B - A", words, rows, _STYLES, x_axis, centre=0.0,
                  bands=((-band, band),))  # fmt: skip


def _dot(change: Change, value: Estimate, factor: float) -> Dot:
    said, interval = change_of(change)
    metric = quantity(change.metric)
    told = f"{said} ({interval})" if interval else said
    return Dot(
        metric.title, factor * value.mean, said, change.verdict, factor * value.ci_low, factor * value.ci_high,
        f"{told}: {change.verdict}",
    )  # fmt: skip


def _is_share(change: Change) -> bool:
    return quantity(change.metric).unit == "share"


def _of(found: Comparison, verdict: str) -> Sequence[Change]:
    return tuple(c for c in found.changes if c.verdict == verdict)


def _told(found: Comparison, verdict: str) -> Sequence[Change]:
    """Those of a verdict that are not equal on both sides: of these there is nothing to draw."""
    return tuple(c for c in _of(found, verdict) if c.significant or not c.why.startswith(EQUAL))


def _equal(found: Comparison) -> str:
    names = [quantity(c.metric).title for c in found.changes if not c.significant and c.why.startswith(EQUAL)]
    return f"Equal on both sides: {'; '.join(names)}." if names else ""


def _band_words(min_change: float, unit: str) -> str:
    smallest = f"{100 * min_change:g}{unit}"
    return f" The band is the smallest change of interest, {smallest} either way." if min_change > 0 else ""


def _lede(found: Comparison) -> Iterator[str]:
    yield f"A: {found.a_label}"
    yield f"B: {found.b_label}"
    if found.kind == "windows":
        yield f"Windows of history, unpaired: {units.plural(found.replications, 'block')} of the shorter one."
    else:
        how = "paired: both sides see the same draws" if found.paired else "unpaired: each side has draws of its own"
        yield f"{units.plural(found.replications, 'replication')}, {how}."
    counts = {title.lower(): len(_of(found, verdict)) for verdict, title in _GROUPS}
    without = len(_of(found, "not comparable"))
    told = ", ".join(f"{title} {count}" for title, count in counts.items() if count)
    yield f"Of {units.plural(len(found.changes), 'metric')}: {told or 'none compared'}" + (
        f", not comparable {without}." if without else "."
    )


def _values(found: Comparison) -> Iterator[tuple[str, ...]]:
    for change in found.changes:
        metric = quantity(change.metric)
        sides = tuple("-" if e is None else units.with_ends(e, metric.unit) for e in (change.a, change.b))
        yield (metric.title, change.verdict, *sides)


def _differs(found: Comparison) -> Table:
    rows = input_table(found)
    more = len(found.inputs) - len(rows.rows)
    return as_sheet("inputs that differ", rows.plain(), note=f"and {more} more: see --json" if more else "")


def _why(found: Comparison) -> str:
    """What could not be compared, and why."""
    without: dict[str, list[str]] = {}
    for change in _of(found, "not comparable"):
        without.setdefault(change.why, []).append(quantity(change.metric).title)
    return "; ".join(f"{why}: {', '.join(titles)}" for why, titles in without.items())
