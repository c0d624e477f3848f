"""What a Prometheus has of a window: which metrics, how often scraped; when nothing fits, what there is instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fleetsim.dataclass import dataclass
from fleetsim.errors import Problem
from fleetsim.faces import text
from fleetsim.history.grid import offset_of
from fleetsim.history.history import Floats
from fleetsim.history.option_names import MAP, SELECTOR, START
from fleetsim.history.prometheus import Prometheus
from fleetsim.history.refusals import PrometheusError
from fleetsim.history.window import shown

LOOKS = 60  # times at which a window is looked at; up to 5 h that leaves no time unseen, as Prometheus looks back 5 min
LOOKBACK_S = 300.0
SEARCH_S = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Scrapes:
    """How targets are scraped: interval_s between scrapes (the median over targets), slowest_s (the 90th percentile),
    offset_s: where on a grid of interval_s the targets' samples end, so that a grid there meets each scrape once."""

    interval_s: float
    slowest_s: float
    offset_s: float


def select(name: str, selector: str) -> str:
    """PromQL: the series of one metric that a selector matches."""
    return f"{name}{{{selector}}}" if selector else name


def _any_of(names: Iterable[str], selector: str) -> str:
    matchers = [f'__name__=~"{"|".join(names)}"', *([selector] if selector else [])]
    return f"{{{','.join(matchers)}}}"


def found(
    prometheus: Prometheus, names: Sequence[str], selector: str, start_s: float, end_s: float
) -> dict[str, tuple[float, float]]:
    """Which metrics the window has: name -> (first, last) time at which it was seen, best first as in `names`.

    Cheap: series are counted at LOOKS times, their samples stay where they are. Raises PrometheusError.
    """
    if not names:
        return {}
    step_s = max((end_s - start_s) / LOOKS, 1.0)
    seen = prometheus.query_range(f"count by (__name__) ({_any_of(names, selector)})", start_s, end_s, step_s)
    spans: dict[str, tuple[float, float]] = {}
    for one in seen:
        there = one.times[np.isfinite(one.values) & (one.values > 0)]
        if there.size:
            spans[one.labels.get("__name__", "")] = (float(there[0]), float(there[-1]))
    return {name: spans[name] for name in names if name in spans}


def scrapes(prometheus: Prometheus, name: str, selector: str, at_s: float) -> Scrapes | None:
    """How often the targets of one metric were scraped in the last minutes before at_s; None if that cannot be seen.

    Raises PrometheusError.
    """
    for span in ("10m", "2h"):
        series = prometheus.query(f"{select(name, selector)}[{span}]", at_s)
        gaps = [float(np.median(np.diff(np.unique(one.times)))) for one in series if len(np.unique(one.times)) >= 3]
        if gaps:
            interval_s = max(_round(float(np.median(gaps))), 1.0)
            slowest_s = max(_round(float(np.percentile(gaps, 90))), interval_s)
            return Scrapes(interval_s, slowest_s, offset_of([one.times for one in series], interval_s))
    return None


def _round(gap_s: float) -> float:
    """Scrape intervals are configured in whole seconds; what is within 2 % of one is that one."""
    whole = max(round(gap_s), 1)
    return float(whole) if abs(gap_s - whole) <= 0.02 * whole else gap_s


def nothing(prometheus: Prometheus, names: Sequence[str], selector: str, start_s: float, end_s: float) -> Problem:
    """Why a window is empty, as far as Prometheus tells: what was asked, what is there instead, what to do."""
    asked = f"{shown(start_s)} to {shown(end_s)}" + (f", {{{selector}}}" if selector else "")
    path = SELECTOR if selector else START
    if selector:
        try:
            jobs = sorted(
                f'job="{one.labels.get("job", "")}" ({_greatest(one.values):.0f} series)'
                for one in prometheus.query_range(
                    f"count by (job) ({_any_of(names, '')})", start_s, end_s, max((end_s - start_s) / LOOKS, 1.0)
                )
            )
        except PrometheusError:
            jobs = []
        if jobs:
            rule = f"matches no metric that fleetsim knows; without it the window has {', '.join(jobs[:8])}"
            return Problem(path, asked, rule, text("narrow to one of these, or leave {} out", SELECTOR))
    seen = _seen(prometheus, [n for n in names if not n.endswith("_bucket")], selector, end_s)
    if seen is not None:
        rule = f"holds no metric that fleetsim knows; the last 30 days have them from {seen[0]} to {seen[1]}"
        return Problem(START, asked, rule, "give a window inside that")
    return Problem(path, asked, f"holds no metric that fleetsim knows{_targets(prometheus, selector, end_s)}", _OTHERS)


_OTHERS = text(
    "do the engines expose metrics, and does this Prometheus scrape them? docs/metrics.md lists the names; {}", MAP
)


def _greatest(values: Floats) -> float:
    return float(np.max(np.nan_to_num(values), initial=0.0))


def _seen(prometheus: Prometheus, names: Sequence[str], selector: str, end_s: float) -> tuple[str, str] | None:
    """When the last 30 days had data first and last, to 5 minutes."""
    span_s, wanted = 6 * 3600.0, _any_of(names[:2], selector)

    def when(expr: str, first_s: float, last_s: float, step_s: float) -> Floats:
        series = prometheus.query_range(expr, first_s, last_s, step_s)
        return np.concatenate([np.empty(0), *(one.times[np.isfinite(one.values)] for one in series)])

    try:
        rough = when(f"count(last_over_time({wanted}[6h]))", end_s - SEARCH_S, end_s + span_s, span_s)
        if not rough.size:
            return None
        first = when(f"count({wanted})", rough.min() - span_s, rough.min(), LOOKBACK_S)
        last = when(f"count({wanted})", rough.max() - span_s, rough.max(), LOOKBACK_S)
    except PrometheusError:
        return None
    return shown(float(min(first, default=rough.min()))), shown(float(max(last, default=rough.max())))


def _targets(prometheus: Prometheus, selector: str, end_s: float) -> str:
    try:
        series = prometheus.query(f"count({select('up', selector)})", end_s)
    except PrometheusError:
        return ""
    if not series or not series[0].values.size:
        return "; no scrape target matches either"
    return f"; {series[0].values[-1]:.0f} scrape targets were there at its end"
