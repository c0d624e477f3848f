"""What a Prometheus has of a window: which metrics, how often scraped; when nothing fits, what there is instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.access import PrometheusError
from fleetsim.history.catalogue import SignalMetrics, unreplicated
from fleetsim.history.grid import offset_of
from fleetsim.history.history import Floats, Note
from fleetsim.history.option_names import MAP, SELECTOR, START
from fleetsim.history.prometheus import Prometheus
from fleetsim.history.selection import METRIC
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


def scrapes_of(prometheus: Prometheus, name: str, selector: str, at_s: float) -> Scrapes | None:
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


Spans = dict[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Present:
    """spans: name of a metric -> when it was first and last seen; selectors: name -> matchers to read it with. scrapes,
    trainer_scrapes: their rhythm, None where it cannot be seen. first: an engine's metric, or else one of the trainer.
    """

    spans: Mapping[str, tuple[float, float]]
    selectors: Mapping[str, str]
    first: str | None
    scrapes: Scrapes | None
    trainer_scrapes: Scrapes | None
    notes: tuple[Note, ...]


def present(
    prometheus: Prometheus,
    asked: Sequence[SignalMetrics],
    mapping: Mapping[str, str],
    selector: str,
    start_s: float,
    end_s: float,
) -> Present:
    """Looks the catalogue's metrics up. Raises PrometheusError, and InputError if neither one of them is there nor any
    signal is mapped."""
    known = [one for one in asked if one.signal.name not in mapping]
    names = _names(one for one in known if one.signal.scope == "instance")
    engines = found(prometheus, names, selector, start_s, end_s)
    trainer_names = _names(one for one in known if one.signal.scope == "fleet")
    trainer, trainer_selector = found(prometheus, trainer_names, selector, start_s, end_s), selector
    notes: list[Note] = []
    if not engines and not trainer and not mapping:
        raise InputError([nothing(prometheus, names, selector, start_s, end_s)])
    if not engines and not any(one.signal.scope == "instance" for one in asked if one.signal.name in mapping):
        notes.append(Note("missing", f"No engine metric in this window{f' for {{{selector}}}' if selector else ''}."))
    if not trainer and selector:
        trainer, told = _only_trainer(prometheus, trainer_names, start_s, end_s)
        notes += told
        trainer_selector = ""
    scrapes = _rhythm(prometheus, engines, selector, end_s)
    trainer_scrapes = _rhythm(prometheus, trainer, trainer_selector, end_s)
    for expr in mapping.values():
        if scrapes is None and trainer_scrapes is None and METRIC.fullmatch(expr):
            scrapes = scrapes_of(prometheus, expr, "", end_s)
    return Present(
        spans={**engines, **trainer},
        selectors={**dict.fromkeys(engines, selector), **dict.fromkeys(trainer, trainer_selector)},
        first=next(iter([*engines, *trainer]), None),
        scrapes=scrapes or trainer_scrapes,
        trainer_scrapes=trainer_scrapes or scrapes,
        notes=tuple(notes),
    )


def _names(asked: Iterable[SignalMetrics]) -> list[str]:
    """Names by which the metrics of these signals are looked up: of a histogram its buckets."""
    every = (name for one in asked for name in one.sample_names() if not name.endswith("_sum"))
    return list(dict.fromkeys(every))


def _rhythm(prometheus: Prometheus, spans: Spans, selector: str, end_s: float) -> Scrapes | None:
    if not spans:
        return None
    name, (_, last_s) = next(iter(spans.items()))
    return scrapes_of(prometheus, name, selector, min(last_s + LOOKBACK_S, end_s))


def _only_trainer(
    prometheus: Prometheus, names: Sequence[str], start_s: float, end_s: float
) -> tuple[Spans, list[Note]]:
    """The trainer's metrics without the selector, which is mostly meant for the engines: if there is only one."""
    spans = found(prometheus, names, "", start_s, end_s)
    if not spans:
        return {}, []
    name = next(iter(spans))
    series = prometheus.query_range(name, start_s, end_s, max((end_s - start_s) / LOOKS, 1.0))
    jobs = sorted({one.labels.get("job", "") for one in series})
    who = {unreplicated(one.labels) for one in series}
    if len(who) == 1:
        text = f'The selector matches no trainer metric; the only trainer there is (job="{jobs[0]}") was read.'
        return spans, [Note("other", text)]
    text = (
        f"The selector matches no trainer metric, and without it there are {len(who)} ({name}, jobs: "
        f"{', '.join(jobs[:5])}); none was read. Choose one with a selector that matches engines and trainer, or --map."
    )
    return {}, [Note("missing", text)]
