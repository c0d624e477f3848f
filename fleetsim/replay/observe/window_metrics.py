"""The metrics of a window as means over its blocks: each one a pair of sums per block, what it counts and of what.

Means over a window with intervals: the window in blocks, because what neighbouring steps do is not independent.

The method of batch means (B. W. Schmeiser, "Batch size effects in the analysis of simulation output", Operations
Research 30 (1982): 10 to 30 batches): a mean is a ratio of two sums, its error that of the blocks' residuals
numerator - ratio x denominator. What is left of the correlation between neighbouring blocks is taken as that of a
first-order autoregression with coefficient r: m blocks are worth m (1 - r) / (1 + r) independent ones. r is the lag-1
autocorrelation, corrected for its bias of -(1 + 3 r) / m (F. H. C. Marriott and J. A. Pope, Biometrika 41 (1954)), and
counts only above 0. Percentiles have no such ratio: their residuals are block percentiles - the window's ("sectioning",
S. Asmussen and P. W. Glynn, Stochastic Simulation (2007), III.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from msgspec import Struct

from fleetsim.contrast import Mean
from fleetsim.history.counters import growth_between
from fleetsim.history.history import Floats, History
from fleetsim.replay.observe.intervals import Intervals, fleet_total, intervals_of
from fleetsim.replay.observe.lengths import growth_of, quantile
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.rates import rates_between
from fleetsim.replay.observe.segments import Still, overlap_s
from fleetsim.replay.observe.steps import Steps, steps_of

MOST, FEWEST = 20, 5
STEPS_EACH = 2  # rows of steps in a block, at least
SCRAPES_EACH = 4
STRONGEST = 0.9  # correlation of neighbouring blocks that anything is still said of


def edges_of(history: History, steps: Steps | None) -> Floats:
    """(m + 1,) unix seconds: m blocks of about as many steps each, so that none ends within a step; of as much time
    each where no steps are known. Empty where the window is too short for five."""
    if steps is not None and len(steps.end_s) >= FEWEST * STEPS_EACH:
        ends = steps.end_s
        known = steps.elapsed_s[np.isfinite(steps.elapsed_s)]
        first = float(ends[0]) - float(steps.elapsed_s[0] if np.isfinite(steps.elapsed_s[0]) else known.mean())
        blocks = min(MOST, len(ends) // STEPS_EACH)
        last = np.round(np.linspace(0, len(ends), blocks + 1)[1:]).astype(int) - 1
        return np.concatenate([[first], ends[last]])
    blocks = min(MOST, (len(history.times) - 1) // SCRAPES_EACH)
    if blocks < FEWEST or steps is not None:
        return np.zeros(0)
    return np.linspace(history.start_s, history.end_s, blocks + 1)


def ratio_mean(top: Floats, bottom: Floats) -> Mean | None:
    """sum(top) / sum(bottom) over blocks (m,); one with nothing below, or NaN, has nothing to say. None without any.

    Such blocks count for nothing: what is read every few minutes would look sure of itself by them."""
    known = np.isfinite(top) & np.isfinite(bottom) & (np.nan_to_num(bottom) > 0)
    top, bottom = top[known], bottom[known]
    if not top.size:
        return None
    value = float(top.sum() / bottom.sum())
    return _with_error(value, (top - value * bottom) / bottom.mean())


def section_mean(value: float, blocks: Floats) -> Mean | None:
    """A statistic of the whole window with the error that its values over blocks (m,) tell."""
    blocks = blocks[np.isfinite(blocks)]
    return _with_error(value, blocks - value) if math.isfinite(value) else None


def _with_error(value: float, residuals: Floats) -> Mean:
    m = len(residuals)
    if m < FEWEST:
        return Mean(value, 0.0, 0.0)
    square = float(np.sum(residuals**2)) / (m - 1)
    if square <= 0.0:
        return Mean(value, 0.0, m - 1.0)
    alike = correlation(residuals)
    worth = m * (1.0 - alike) / (1.0 + alike)
    return Mean(value, math.sqrt(square / worth), max(worth - 1.0, 1.0))


def correlation(residuals: Floats) -> float:
    """Of neighbouring blocks, 0 to 0.9."""
    m = len(residuals)
    about = residuals - residuals.mean()
    whole = float(np.sum(about**2))
    if whole <= 0.0 or m < FEWEST:
        return 0.0
    lag = float(np.sum(about[1:] * about[:-1])) / whole
    return min(max((m * lag + 1.0) / (m - 3.0), 0.0), STRONGEST)


TAIL = 0.99


class Window(Struct, frozen=True):
    """history, and what was seen in it. edges: (m + 1,) unix seconds, of its blocks."""

    history: History
    observed: Observed
    intervals: Intervals | None
    steps: Steps | None
    edges: Floats

    @property
    def blocks(self) -> int:
        """How many."""
        return max(len(self.edges) - 1, 0)


def window_of(history: History) -> Window:
    """Raises InputError as `observe` does."""
    seen = observe(history)
    pauses = seen.pauses.each if seen.pauses is not None else ()
    steps = steps_of(history, pauses, seen.placement)
    intervals = intervals_of(history) if history.instances else None
    return Window(history, seen, intervals, steps, edges_of(history, steps))


def window_means(window: Window) -> tuple[dict[str, Mean], dict[str, str]]:
    """Means by metric of `WINDOW_METRICS`, and why the others are missing."""
    if window.blocks < FEWEST:
        rows = 0 if window.steps is None else len(window.steps.end_s)
        short = f"too short for an interval: {rows} steps" if rows else "too short for an interval"
        return {}, dict.fromkeys(_MISSING, short)
    means: dict[str, Mean] = {}
    for name, top, bottom in (*_of_steps(window), *_of_engines(window), *_of_lengths(window), *_of_queue(window)):
        found = ratio_mean(top, bottom)
        if found is not None:
            means[name] = found
    tail = _tail(window)
    if isinstance(tail, Mean):
        means["response_tokens.p99"] = tail
    missing = {name: why for name, why in _MISSING.items() if name not in means}
    if isinstance(tail, str):
        missing["response_tokens.p99"] = tail
    few = [name for name, found in means.items() if found.freedom <= 0]
    missing |= dict.fromkeys(few, f"read in fewer than {FEWEST} blocks of the window: too short for an interval")
    return {name: found for name, found in means.items() if name not in few}, missing


_MISSING = {
    "step_s": "no optimizer steps are exported",
    "trainer_idle_fraction": "the trainer's sample-wait is not exported",
    "sync_fraction": "the trainer's weight sync is not exported",
    "train_s": "the trainer's compute is not exported",
    "instance_s_per_step": "engines or optimizer steps are not exported",
    "trained_samples": "trained samples are not exported",
    "tokens_per_trained_token": "trained tokens are not exported",
    "queue_depth": "the queue of finished samples is not exported",
    "oldest_sample_age_steps": "the age of queued samples is not exported",
    "prefix_hit": "nothing is looked up in a prefix cache, or no engine counts it",
    "dropped_share": "dropped samples are not exported",
    **dict.fromkeys(("response_tokens.mean", "response_tokens.p99"), "response lengths are not exported"),
    "mfu": "the trainer's utilization is not exported",
    **dict.fromkeys(
        (
            *("generated_tok_s", "instance_tok_s", "pause_share", "running", "waiting", "kv_use"),
            *("preemptions_per_s", "finished_s", "aborted_share", "length_share"),
        ),
        "no engine exports it",
    ),
}
_Series = tuple[str, Floats, Floats]


def _of_steps(w: Window) -> Iterator[_Series]:
    steps = w.steps
    if steps is None:
        return
    parts = [steps.part(a, b) for a, b in pairwise(w.edges)]

    def sums(of: Callable[[Steps], Floats]) -> Floats:
        """Over each block; NaN where a row of it is not known."""
        return np.array([float(of(part).sum()) if len(part.end_s) else np.nan for part in parts])

    count, elapsed = sums(lambda p: p.count), sums(lambda p: p.elapsed_s)
    columns = {name: sums(lambda p, name=name: p.columns[name]) for name in steps.columns}
    yield "step_s", elapsed, count
    for metric, name, of in (
        ("trainer_idle_fraction", "wait_s", elapsed),
        ("sync_fraction", "sync_s", elapsed),
        ("train_s", "train_s", count),
        ("trained_samples", "samples", count),
    ):
        if name in columns:
            yield metric, columns[name], of
    if w.intervals is None:
        return
    there, each = _rates(w.intervals, w.edges)
    # Over the steps' own time, as their count: a block can hold a hole.
    yield "instance_s_per_step", there * elapsed, count
    if "tokens" in columns:
        yield "tokens_per_trained_token", there * each * elapsed, columns["tokens"]


def _rates(intervals: Intervals, edges: Floats) -> tuple[Floats, Floats]:
    """(m,) mean instances of each block, and output tokens per second of one; NaN where nobody was read."""
    rates = [rates_between(intervals, a, b) for a, b in pairwise(edges)]
    return np.array([n for n, _ in rates]), np.array([np.nan if rate is None else rate for _, rate in rates])


def _of_engines(w: Window) -> Iterator[_Series]:
    if w.intervals is None:
        return
    history, width = w.history, np.diff(w.edges)
    there, each = _rates(w.intervals, w.edges)
    yield "generated_tok_s", each * there * width, width
    yield "instance_tok_s", each * there * width, there * width
    if w.observed.pauses is not None:
        read = w.intervals.known.any(axis=0)
        left, right = w.intervals.times[:-1], w.intervals.times[1:]
        held = overlap_s(w.edges[:-1], w.edges[1:], w.observed.pauses.each)
        inside = (overlap_s(left, right, [Still(a, b)]) for a, b in pairwise(w.edges))
        yield "pause_share", held, np.array([float((part * read).sum()) for part in inside])
    for name in ("running", "waiting"):
        if name in history.values:
            yield name, *_counted(w, fleet_total(history.values[name]))
    if "kv_use" in history.values:
        yield "kv_use", *_while_computing(w)
    grown = {name: _growth(w, history.values[name]) for name in _COUNTERS if name in history.values}
    for metric, top, bottom in (
        ("preemptions_per_s", "preemptions", None),
        ("finished_s", "finished", None),
        ("prefix_hit", "prefix_hits", "prefix_queries"),
        ("aborted_share", "finished_abort", "finished"),
        ("length_share", "finished_length", "finished"),
    ):
        if top in grown and (bottom is None or bottom in grown):
            yield metric, grown[top], width if bottom is None else grown[bottom]


_COUNTERS = ("preemptions", "finished", "finished_abort", "finished_length", "prefix_hits", "prefix_queries")


def _growth(w: Window, totals: Floats) -> Floats:
    """(m,) growth of counters (I, T) or (T,) over the blocks, restarts mended, even between two samples."""
    rows = [growth_between(w.history.times, row, w.edges) for row in np.atleast_2d(totals)]
    return np.nansum(rows, axis=0) if np.isfinite(rows).any() else np.full(w.blocks, np.nan)


def _counted(w: Window, values: Floats, steps: Steps | None = None) -> tuple[Floats, Floats]:
    """Sum and number of the known samples of a gauge (T,) in each block; of a run log's values, one a step."""
    at, side = (w.history.times, "right") if steps is None else (steps.end_s, "left")
    block = np.searchsorted(w.edges, at, side=side) - 1
    known = np.isfinite(values) & (block >= 0) & (block < w.blocks)
    total, number = np.zeros(w.blocks), np.zeros(w.blocks)
    np.add.at(total, block[known], values[known])
    np.add.at(number, block[known], 1.0)
    return total, number


def _while_computing(w: Window) -> tuple[Floats, Floats]:
    """KV use of the instances that run something, at all times."""
    use, running = w.history.values["kv_use"], w.history.values.get("running")
    counts = np.isfinite(use) & (np.ones_like(use, dtype=bool) if running is None else np.nan_to_num(running) > 0)
    total, _ = _counted(w, np.where(counts, use, 0.0).sum(axis=0))
    number, _ = _counted(w, counts.sum(axis=0).astype(np.float64))
    return total, number


def _of_queue(w: Window) -> Iterator[_Series]:
    fleet, log = w.history.fleet, w.history.steps
    for metric, signal, column in (
        ("queue_depth", "queue.samples", "queue_samples"),
        ("oldest_sample_age_steps", "queue.oldest_age_steps", "staleness_steps"),
        ("mfu", "trainer.mfu", ""),
    ):
        if signal in fleet:
            yield metric, *_counted(w, fleet[signal])
        elif log is not None and w.steps is not None and column in log.columns:
            yield metric, *_counted(w, log.columns[column], w.steps)
    if "trainer.dropped_samples" in fleet and "trainer.trained_samples" in fleet:
        lost, used = (_growth(w, fleet[f"trainer.{name}_samples"]) for name in ("dropped", "trained"))
        yield "dropped_share", lost, lost + used


def _of_lengths(w: Window) -> Iterator[_Series]:
    found = _ended(w)
    if found is not None:
        counts, sums = found
        yield "response_tokens.mean", sums, counts[:, -1]
    elif w.history.steps is not None and w.steps is not None and "length_mean" in w.history.steps.columns:
        yield "response_tokens.mean", *_counted(w, w.history.steps.columns["length_mean"], w.steps)


def _ended(w: Window) -> tuple[Floats, Floats] | None:
    """Requests that ended, cumulative over the bounds (m, E), and their tokens (m,), in blocks of the histogram's own
    readings: it is read every few minutes."""
    buckets = w.history.histograms.get("output_tokens")
    if buckets is None or len(buckets.times) < 2:
        return None
    counts, sums = growth_of(buckets)
    blocks = min(MOST, len(sums))
    at = np.arange(len(sums)) * blocks // len(sums)
    by_block, tokens = np.zeros((blocks, counts.shape[1])), np.zeros(blocks)
    np.add.at(by_block, at, counts)
    np.add.at(tokens, at, sums)
    return (by_block, tokens) if by_block[:, -1].sum() > 0 else None


def _tail(w: Window) -> Mean | str | None:
    """The 99th percentile of the lengths; why there is none; None where lengths are not known at all."""
    found, buckets = _ended(w), w.history.histograms.get("output_tokens")
    if found is None or buckets is None:
        return None
    each = np.diff(found[0], axis=1, prepend=0.0).clip(min=0.0)
    whole = each.sum(axis=0)
    if np.isinf(buckets.le[-1]) and whole[-1] > (1.0 - TAIL) * whole.sum():
        return "it lies beyond the histogram's largest bucket"
    blocks = np.array([quantile(buckets.le, row, TAIL) if row.sum() > 0 else np.nan for row in each])
    return section_mean(quantile(buckets.le, whole, TAIL), blocks)
