"""A window of a Prometheus as a `History`: what is there is looked up first, then read signal by signal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fleetsim.errors import InputError, Problem
from fleetsim.history import discover, faults, mapped
from fleetsim.history.catalogue import REPLICA_LABELS, Catalogue, Wanted, wanted
from fleetsim.history.history import Floats, History, Note
from fleetsim.history.merge import merge
from fleetsim.history.prometheus import Prometheus, SeriesData
from fleetsim.history.ranks import one_per_target
from fleetsim.history.signals import BY_NAME, SCALES
from fleetsim.history.window import shown
from fleetsim.units import seconds

Progress = Callable[[int, int, str], None]
"""progress(done, of, what): after each query."""

MAX_GRID = 20_000  # times; 24 h at 15 s are 5,760
FALLBACK_STEP_S = 15.0
BUCKET_STEP_S = 300.0

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

    Raises PrometheusError when it cannot be read, InputError for a window without anything that fleetsim knows.
    """
    now_s = time.time() if now_s is None else now_s
    selector, mapping = discover.bare(selector), dict(mapping or {})
    problems = _problems(start_s, end_s, step_s) + mapped.unknown(mapping)
    if problems:
        raise InputError(problems)
    asked = wanted({name: mapped.PREFIX + name for name in mapping})
    known = [w for w in asked if w.signal.name not in mapping]
    engines = _names([w for w in known if w.signal.scope == "instance"])
    spans = discover.found(prometheus, engines, selector, start_s, end_s)
    trainer, trainer_selector, notes = _trainer(prometheus, known, selector, start_s, end_s)
    if not spans and not trainer and not mapping:
        raise InputError([discover.nothing(prometheus, engines, selector, start_s, end_s)])
    if not spans and not any(w.signal.scope == "instance" for w in asked if w.signal.name in mapping):
        notes.append(Note("missing", f"No engine metric in this window{f' for {selector}' if selector else ''}."))

    first = next(iter([*spans, *trainer]), None)
    rhythm = None
    if first is not None:
        where, span = (selector, spans[first]) if first in spans else (trainer_selector, trainer[first])
        rhythm = discover.scrapes(prometheus, first, where, min(span[1] + discover.LOOKBACK_S, end_s))
    grid, lookback_s, told = _grid(start_s, end_s, step_s, rhythm)
    notes += told
    coarse = _coarse(grid)

    selectors = {**dict.fromkeys(spans, selector), **dict.fromkeys(trainer, trainer_selector)}
    queries = list(_queries(asked, mapping, selectors, lookback_s))
    values: list[_Sample] = []
    buckets: list[_Sample] = []
    for done, query in enumerate(queries):
        if progress is not None:
            progress(done, len(queries), query.mapped or query.name)
        times = coarse if query.coarse else grid
        series = prometheus.query_range(query.expr, float(times[0]), float(times[-1]), float(times[1] - times[0]))
        if query.mapped is not None:
            problems += mapped.check(query.mapped, mapping[query.mapped], series)
        samples, told = one_per_target(query.name, [_sample(query, one) for one in series])
        notes += told
        (buckets if query.coarse and not query.name.endswith("_info") else values).extend(samples)
    if problems:
        raise InputError(problems)
    if progress is not None:
        progress(len(queries), len(queries), "merging")
    merged = merge(Catalogue(asked), values, buckets, coarse)
    step = float(grid[1] - grid[0])
    notes += [*_renames(known, {**spans, **trainer}), *merged.notes]
    notes += faults.holes(merged.values, merged.instances, step) + faults.resets(merged.values, merged.instances)
    notes += faults.clock(prometheus.clock_ahead_s, step)
    if first is not None:
        notes += _newest(prometheus, first, where, span, (end_s, now_s, step))
    notes += [_warning(text) for text in prometheus.warnings]
    return History(
        times=grid,
        step_s=step,
        instances=merged.instances,
        values=merged.values,
        fleet=merged.fleet,
        histograms=merged.histograms,
        configs=merged.configs,
        steps=None,
        notes=tuple(dict.fromkeys(notes)),
        source=f"Prometheus at {prometheus.url}" + (f", {{{selector}}}" if selector else ""),
    )


def _problems(start_s: float, end_s: float, step_s: float | None) -> list[Problem]:
    problems = []
    if not end_s - start_s >= 2:
        asked = f"{shown(start_s)} to {shown(end_s)}"
        problems.append(Problem("--start", asked, "is no window", "let --end come after --start"))
    if step_s is not None and not 1 <= step_s < max(end_s - start_s, 2):
        rule = "must be at least 1 s and shorter than the window"
        problems.append(Problem("--step", step_s, rule, "leave it out for the scrape interval"))
    return problems


def _names(asked: list[Wanted]) -> list[str]:
    """Names by which the metrics of these signals are looked up: of a histogram its buckets."""
    every = (name for one in asked for name in one.sample_names() if not name.endswith("_sum"))
    return list(dict.fromkeys(every))


def _trainer(
    prometheus: Prometheus, known: list[Wanted], selector: str, start_s: float, end_s: float
) -> tuple[dict[str, tuple[float, float]], str, list[Note]]:
    """The trainer's metrics: those that the selector matches; else, as it is mostly meant for the engines, those of the
    only trainer that there is."""
    names = _names([w for w in known if w.signal.scope == "fleet"])
    spans = discover.found(prometheus, names, selector, start_s, end_s)
    if spans or not selector:
        return spans, selector, []
    spans = discover.found(prometheus, names, "", start_s, end_s)
    if not spans:
        return {}, "", []
    name = next(iter(spans))
    series = prometheus.query_range(name, start_s, end_s, max((end_s - start_s) / discover.LOOKS, 1.0))
    jobs = sorted({one.labels.get("job", "") for one in series})
    who = {tuple(sorted((k, v) for k, v in one.labels.items() if k not in REPLICA_LABELS)) for one in series}
    if len(who) == 1:
        text = f'The selector matches no trainer metric; the only trainer there is (job="{jobs[0]}") was read.'
        return spans, "", [Note("other", text)]
    text = (
        f"The selector matches no trainer metric, and without it there are {len(who)} ({name}, jobs: "
        f"{', '.join(jobs[:5])}); none was read. Choose one with a selector that matches engines and trainer, or --map."
    )
    return {}, "", [Note("missing", text)]


def _grid(
    start_s: float, end_s: float, step_s: float | None, rhythm: discover.Scrapes | None
) -> tuple[Floats, float, list[Note]]:
    """The times to read, how far back a sample may lie to count for one, and what there is to say about it."""
    notes = []
    if rhythm is None:
        interval_s, slowest_s, offset_s = step_s or FALLBACK_STEP_S, 300.0, 0.0
        text = f"The scrape interval cannot be seen in the data; a step of {seconds(interval_s)} is assumed."
        notes.append(Note("other", text))
    else:
        interval_s, slowest_s, offset_s = rhythm.interval_s, rhythm.slowest_s, rhythm.offset_s
    step = step_s or interval_s
    fits = (end_s - start_s) / MAX_GRID
    if step < fits:
        coarser = interval_s * np.ceil(fits / interval_s)
        if step_s is not None:
            rule = f"gives more than {MAX_GRID:,} times in this window"
            raise InputError([Problem("--step", step_s, rule, f"give at least {coarser:g}, or a shorter window")])
        text = f"Read every {seconds(coarser)} though scraped every {seconds(interval_s)}: the window is long."
        notes.append(Note("truncated", text))
        step = float(coarser)
    first = start_s + np.mod(offset_s - start_s, interval_s)
    count = int(np.floor((end_s - first) / step + 1e-6)) + 1
    if count < 2:
        rule = f"is shorter than two steps of {seconds(step)}"
        asked = f"{shown(start_s)} to {shown(end_s)}"
        raise InputError([Problem("--start", asked, rule, "give a longer window")])
    # One millisecond less, so that a scrape that is missing shows, and the one before it does not stand in its place.
    lookback_s = max(step, slowest_s) - 0.001
    return np.round(first + step * np.arange(count), 3), lookback_s, notes


def _coarse(grid: Floats) -> Floats:
    """Times for histograms, ending with the grid: every 5 minutes, at least five of them, none between the grid's."""
    step = float(grid[1] - grid[0])
    every = max(int(min(BUCKET_STEP_S / step, (len(grid) - 1) / 4)), 1)
    return grid[(len(grid) - 1) % every :: every]


def _queries(
    asked: tuple[Wanted, ...], mapping: Mapping[str, str], where: Mapping[str, str], lookback_s: float
) -> Iterator[_Query]:
    """One query per metric that is there (where: name -> selector); a metric that serves two signals is read once."""
    done = set()
    window = f"[{round(lookback_s * 1000)}ms]"
    for one in asked:
        signal = one.signal
        if signal.name in mapping:
            expr, name = mapping[signal.name], mapped.PREFIX + signal.name
            whole = mapped.METRIC.fullmatch(expr) is not None
            if signal.kind == "histogram":
                base, brace, matchers = expr.partition("{")
                for suffix in ("_bucket", "_sum") if whole else ("_bucket",):
                    yield _Query(name + suffix, base + suffix + brace + matchers if whole else expr, True, signal.name)
            else:
                yield _Query(name, f"last_over_time({expr}{window})" if whole else expr, False, signal.name)
            continue
        for name in one.sample_names():
            found = name if not name.endswith("_sum") else name.removesuffix("_sum") + "_bucket"
            if name in done or found not in where:
                continue
            done.add(name)
            expr = discover.select(name, where[found])
            coarse = signal.kind in ("histogram", "info")
            yield _Query(name, expr if coarse else f"last_over_time({expr}{window})", coarse)


def _sample(query: _Query, series: SeriesData) -> _Sample:
    """As the catalogue takes it. A mapped value of the whole job has no labels that could tell against it."""
    whole = query.mapped is not None and BY_NAME[query.mapped].scope == "fleet"
    labels = {} if whole else {k: v for k, v in series.labels.items() if k != "__name__"}
    values = np.where(np.isfinite(series.values), series.values, np.nan)
    return query.name, labels, values * SCALES.get(query.name, 1.0)


def _renames(known: list[Wanted], spans: Mapping[str, tuple[float, float]]) -> list[Note]:
    notes = []
    for one in known:
        there = [name for name in one.sample_names() if name in spans]
        engines = {name.removeprefix("ray_").replace("vllm_", "vllm:").partition(":")[0] for name in there}
        if len(there) > 1 and len(engines) == 1 and "sglang" not in engines:
            notes.append(faults.renamed(one.signal.name, [(name, *spans[name]) for name in there]))
    return notes


def _newest(
    prometheus: Prometheus, name: str, selector: str, span: tuple[float, float], window: tuple[float, float, float]
) -> list[Note]:
    """For a window (end_s, now_s, step_s) that reaches up to now: how old the newest sample is; one of the future?

    span: when the metric was seen in the window, for the case that the last hour has nothing of it.
    """
    end_s, now_s, step_s = window
    if end_s < now_s - 2 * step_s - 60.0:
        return []
    expr = f"max(max_over_time(timestamp({discover.select(name, selector)})[2h:1m]))"
    raw = prometheus.query(expr, now_s + 3600.0)
    up = prometheus.query(f"max({discover.select('up', selector)})", now_s)
    last_s = float(raw[0].values[-1]) if raw and raw[0].values.size else span[1]
    return faults.newest(last_s, end_s, now_s, step_s, bool(up and up[0].values.size and up[0].values[-1] > 0))


def _warning(text: str) -> Note:
    """Infos of PromQL are about an expression's style; warnings are about data that did not come."""
    return Note("other" if text.startswith("PromQL info") else "partial", f"Prometheus says: {text}")
