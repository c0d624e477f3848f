"""A window of a Prometheus as a `History`: what is there is looked up, then read signal by signal on one grid."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from msgspec import Struct

from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history import faults
from fleetsim.history.catalogue import Catalogue, Sample, SignalMetrics, unknown_signals, unreplicated, wanted
from fleetsim.history.faults import bounded, one_job
from fleetsim.history.grid import Sampling, Scrapes, offset_of, sampling
from fleetsim.history.history import History, Note, SeriesData
from fleetsim.history.merge import merge
from fleetsim.history.option_names import END, START, STEP
from fleetsim.history.prometheus import LOOKBACK_S, LOOKS, Prometheus, any_of, nothing, select
from fleetsim.history.selection import MAPPED, METRIC, bare, wrong, wrong_answer
from fleetsim.history.signals import BY_NAME
from fleetsim.history.window import shown
from fleetsim.records import replace

Progress = Callable[[int, int, str], None]
"""progress(done, of, what): before each query, and at the end."""


class _Query(Struct, frozen=True):
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
        # infos of PromQL are about an expression's style; warnings are about data that did not come
        *(
            Note("other" if text.startswith("PromQL info") else "partial", f"Prometheus says: {text}")
            for text in prometheus.warnings
        ),
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
    prometheus: Prometheus, queries: list[_Query], mapping: Mapping[str, str], when: Sampling, progress: Progress | None
) -> tuple[list[Sample], list[Sample]]:
    """Asks the queries: (samples on the grid, histograms' samples). Raises InputError for mapped expressions that do
    not give what they should, all at once."""
    values: list[Sample] = []
    buckets: list[Sample] = []
    problems: list[Problem] = []

    def ask(query: _Query) -> list[SeriesData]:
        times = when.coarse if query.coarse else when.times
        return prometheus.query_range(query.expr, float(times[0]), float(times[-1]), float(times[1] - times[0]))

    def asking(done: int) -> None:
        if progress is not None:
            progress(done, len(queries), queries[done].mapped or queries[done].name)

    answers = prometheus.several([partial(ask, query) for query in queries], asking)
    for query, series in zip(queries, answers, strict=True):
        if query.mapped is not None:
            problems += wrong_answer(query.mapped, mapping[query.mapped], series)
        into = buckets if query.name.endswith(("_bucket", "_sum")) and query.coarse else values
        # a mapped value of the whole job has no labels that could tell against it
        whole = query.mapped is not None and BY_NAME[query.mapped].scope == "fleet"
        for one in series:
            labels = {} if whole else {k: v for k, v in one.labels.items() if k != "__name__"}
            into.append((query.name, labels, np.where(np.isfinite(one.values), one.values, np.nan)))
    if problems:
        raise InputError(problems)
    if progress is not None:
        progress(len(queries), len(queries), "done")
    return values, buckets


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


# ------------------------------------------------------------------------------------------ what is there


def found(
    prometheus: Prometheus, names: Sequence[str], selector: str, start_s: float, end_s: float
) -> dict[str, tuple[float, float]]:
    """Which metrics the window has: name -> (first, last) time at which it was seen, best first as in `names`.

    Cheap: series are counted at LOOKS times, their samples stay where they are. Raises PrometheusError.
    """
    if not names:
        return {}
    step_s = max((end_s - start_s) / LOOKS, 1.0)
    seen = prometheus.query_range(f"count by (__name__) ({any_of(names, selector)})", start_s, end_s, step_s)
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


Spans = dict[str, tuple[float, float]]


class Present(Struct, frozen=True):
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
