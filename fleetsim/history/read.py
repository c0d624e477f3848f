"""A window of a Prometheus as a `History`: what is there is looked up, then read signal by signal on one grid."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history import faults
from fleetsim.history.catalogue import Catalogue, SignalMetrics, wanted
from fleetsim.history.discovery import Present, Scrapes, present, select
from fleetsim.history.faults import bounded, one_job
from fleetsim.history.history import Floats, History, Note, SeriesData
from fleetsim.history.merge import merge
from fleetsim.history.option_names import END, START, STEP
from fleetsim.history.prometheus import Prometheus
from fleetsim.history.selection import MAPPED, METRIC, bare, unknown_signals, wrong, wrong_answer
from fleetsim.history.signals import BY_NAME
from fleetsim.history.window import shown
from fleetsim.units import seconds

MAX_GRID = 20_000  # times; 24 h at 15 s are 5,760
FALLBACK_STEP_S = 15.0
FALLBACK_LOOKBACK_S = 300.0
BUCKET_STEP_S = 300.0


@dataclass(frozen=True, slots=True)
class Sampling:
    """times: (T,) the grid; coarse: (H,) the histograms'. notes: what there is to say about the choice."""

    times: Floats
    coarse: Floats
    notes: tuple[Note, ...]

    @property
    def step_s(self) -> float:
        """Between two times of the grid."""
        return float(self.times[1] - self.times[0])

    def lookback_s(self, scrapes: Scrapes | None) -> float:
        """How far back a sample may lie to count: a scrape interval, less one millisecond, so that a scrape that is
        missing shows, and the one before it does not stand in its place."""
        return max(self.step_s, scrapes.slowest_s if scrapes else FALLBACK_LOOKBACK_S) - 0.001


def sampling(start_s: float, end_s: float, step_s: float | None, scrapes: Scrapes | None) -> Sampling:
    """The grid of a window: of the scrape interval unless step_s says otherwise, coarser where that were too many
    times. Raises InputError for a step that is too fine and a window that is too short."""
    notes = []
    if scrapes is None:
        interval_s, offset_s = step_s or FALLBACK_STEP_S, 0.0
        text = f"The scrape interval cannot be seen in the data; a step of {seconds(interval_s)} is assumed."
        notes.append(Note("other", text))
    else:
        interval_s, offset_s = scrapes.interval_s, scrapes.offset_s
    step = step_s or interval_s
    fits = (end_s - start_s) / MAX_GRID
    if step < fits:
        coarser = float(interval_s * np.ceil(fits / interval_s))
        if step_s is not None:
            rule = f"gives more than {MAX_GRID:,} times in this window"
            raise InputError([Problem(STEP, step_s, rule, f"give at least {coarser:g}, or a shorter window")])
        text = f"Read every {seconds(coarser)} though scraped every {seconds(interval_s)}: the window is long."
        notes.append(Note("truncated", text))
        step = coarser
    first = start_s + np.mod(offset_s - start_s, interval_s)
    count = int(np.floor((end_s - first) / step + 1e-6)) + 1
    if count < 2:
        rule = f"is shorter than two steps of {seconds(step)}"
        asked = f"{shown(start_s)} to {shown(end_s)}"
        raise InputError([Problem(START, asked, rule, "give a longer window")])
    times = np.round(first + step * np.arange(count), 3)
    return Sampling(times, _coarse(times, step), tuple(notes))


def _coarse(times: Floats, step_s: float) -> Floats:
    """Every 5 minutes of the grid, at least five times where it has as many, ending where it ends."""
    every = max(int(min(BUCKET_STEP_S / step_s, (len(times) - 1) / 4)), 1)
    return times[(len(times) - 1) % every :: every]


Progress = Callable[[int, int, str], None]
"""progress(done, of, what): before each query, and at the end."""

_Sample = tuple[str, Mapping[str, str], Floats]


@dataclass(frozen=True, slots=True)
class _Query:
    """name: of the samples, as the catalogue knows it. coarse: on the histograms' grid. mapped: signal that it maps."""

    name: str
    expr: str
    coarse: bool
    mapped: str | None = None


def read_prometheus(
    prometheus: Prometheus,
    start_s: float,
    end_s: float,
    step_s: float | None = None,
    selector: str = "",
    mapping: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    now_s: float | None = None,
) -> History:
    """Reads what a Prometheus knows of start_s to end_s (unix seconds).

    step_s: of the grid, None = the targets' scrape interval. selector: matchers (`job="rollout"`) for the engines, and
    for the trainer where they match its metrics. mapping: signal name -> PromQL, which then counts alone for it.

    Raises PrometheusError when it cannot be read, InputError for a window without anything that fleetsim knows, or with
    the engines or trainers of several jobs.
    """
    now_s = time.time() if now_s is None else now_s
    selector, mapping = bare(selector), dict(mapping or {})
    if problems := [*_problems(start_s, end_s, step_s), *wrong(selector), *unknown_signals(mapping)]:
        raise InputError(problems)
    asked = wanted({name: MAPPED + name for name in mapping})
    there = present(prometheus, asked, mapping, selector, start_s, end_s)
    when = sampling(start_s, end_s, step_s, there.scrapes)
    values, buckets = _samples(prometheus, list(_queries(asked, mapping, there, when)), mapping, when, progress)
    source = f"Prometheus at {prometheus.url}" + (f", {{{selector}}}" if selector else "")
    found = merge(
        Catalogue(asked), values, buckets, times=when.times, step_s=when.step_s, coarse=when.coarse, source=source
    )
    notes = [
        *there.notes,
        *when.notes,
        *_renames(asked, there.spans),
        *found.notes,
        *faults.clock(prometheus.clock_ahead_s, when.step_s),
        *_newest(prometheus, there, (end_s, now_s, when.step_s)),
        *(_warning(text) for text in prometheus.warnings),
    ]
    return one_job(bounded(replace(found, notes=tuple(dict.fromkeys(notes)))), selector)


def _problems(start_s: float, end_s: float, step_s: float | None) -> list[Problem]:
    problems = []
    if not end_s - start_s >= 2:
        asked = f"{shown(start_s)} to {shown(end_s)}"
        problems.append(Problem(START, asked, "is no window", text("let {} come after {}", END, START)))
    if step_s is not None and not 1 <= step_s < max(end_s - start_s, 2):
        rule = "must be at least 1 s and shorter than the window"
        problems.append(Problem(STEP, step_s, rule, "leave it out for the scrape interval"))
    return problems


def _queries(
    asked: tuple[SignalMetrics, ...], mapping: Mapping[str, str], there: Present, when: Sampling
) -> Iterator[_Query]:
    """One query per metric that is there; a metric that serves two signals is read once."""
    done = set()
    for one in asked:
        signal = one.signal
        scrapes = there.scrapes if signal.scope == "instance" else there.trainer_scrapes
        window = f"[{round(when.lookback_s(scrapes) * 1000)}ms]"
        if signal.name in mapping:
            yield from _mapped(signal.name, mapping[signal.name], window)
            continue
        for name in one.sample_names():
            found = name if not name.endswith("_sum") else name.removesuffix("_sum") + "_bucket"
            if name in done or found not in there.spans:
                continue
            done.add(name)
            expr = select(name, there.selectors[found])
            coarse = signal.kind in ("histogram", "info")
            yield _Query(name, expr if coarse else f"last_over_time({expr}{window})", coarse)


def _mapped(signal: str, expr: str, window: str) -> Iterator[_Query]:
    """A mapped signal's queries. An expression is taken as it stands; of a metric alone, missing scrapes are seen."""
    name, alone = MAPPED + signal, METRIC.fullmatch(expr) is not None
    if BY_NAME[signal].kind != "histogram":
        yield _Query(name, f"last_over_time({expr}{window})" if alone else expr, False, signal)
        return
    base, brace, matchers = expr.partition("{")
    for suffix in ("_bucket", "_sum") if alone else ("_bucket",):
        yield _Query(name + suffix, base + suffix + brace + matchers if alone else expr, True, signal)


def _samples(
    prometheus: Prometheus,
    queries: list[_Query],
    mapping: Mapping[str, str],
    when: Sampling,
    progress: Progress | None,
) -> tuple[list[_Sample], list[_Sample]]:
    """Asks the queries, one after the other: (samples on the grid, histograms' samples). Raises InputError for mapped
    expressions that do not give what they should, all at once."""
    values: list[_Sample] = []
    buckets: list[_Sample] = []
    problems: list[Problem] = []
    for done, query in enumerate(queries):
        if progress is not None:
            progress(done, len(queries), query.mapped or query.name)
        times = when.coarse if query.coarse else when.times
        series = prometheus.query_range(query.expr, float(times[0]), float(times[-1]), float(times[1] - times[0]))
        if query.mapped is not None:
            problems += wrong_answer(query.mapped, mapping[query.mapped], series)
        into = buckets if query.coarse and not query.name.endswith("_info") else values
        into.extend(_sample(query, one) for one in series)
    if problems:
        raise InputError(problems)
    if progress is not None:
        progress(len(queries), len(queries), "done")
    return values, buckets


def _sample(query: _Query, series: SeriesData) -> _Sample:
    """As the catalogue takes it. A mapped value of the whole job has no labels that could tell against it."""
    whole = query.mapped is not None and BY_NAME[query.mapped].scope == "fleet"
    labels = {} if whole else {k: v for k, v in series.labels.items() if k != "__name__"}
    return query.name, labels, np.where(np.isfinite(series.values), series.values, np.nan)


def _renames(asked: tuple[SignalMetrics, ...], spans: Mapping[str, tuple[float, float]]) -> list[Note]:
    notes = []
    for one in asked:
        there = [name for name in one.sample_names() if name in spans]
        engines = {name.removeprefix("ray_").replace("vllm_", "vllm:").partition(":")[0] for name in there}
        if len(there) > 1 and len(engines) == 1 and "sglang" not in engines:
            notes.append(faults.renamed(one.signal.name, [(name, *spans[name]) for name in there]))
    return notes


def _newest(prometheus: Prometheus, there: Present, window: tuple[float, float, float]) -> list[Note]:
    """For a window (end_s, now_s, step_s) that reaches up to now: how old the newest sample is; one of the future?"""
    end_s, now_s, step_s = window
    if there.first is None or end_s < now_s - 2 * step_s - 60.0:
        return []
    selector = there.selectors[there.first]
    expr = f"max(max_over_time(timestamp({select(there.first, selector)})[2h:1m]))"
    raw = prometheus.query(expr, now_s + 3600.0)
    up = prometheus.query(f"max({select('up', selector)})", now_s)
    last_s = float(raw[0].values[-1]) if raw and raw[0].values.size else there.spans[there.first][1]
    return faults.newest(last_s, end_s, now_s, step_s, bool(up and up[0].values.size and up[0].values[-1] > 0))


def _warning(text: str) -> Note:
    """Infos of PromQL are about an expression's style; warnings are about data that did not come."""
    return Note("other" if text.startswith("PromQL info") else "partial", f"Prometheus says: {text}")
