"""The standing signals as numbers: what Prometheus would have scraped of a simulated run, and what rules make of it.

A signal's formula (`signals.py`) reads a `View` as it reads a `Query` of PromQL; tests let a real Prometheus evaluate
both.

`rate`, `max_over_time` and `count_over_time` are as Prometheus computes them (`extrapolatedRate` in
`promql/functions.go` of prometheus/prometheus): growth between the first and the last sample of the window, resets
mended, is stretched to the window's edges where a sample interval (1.1 of it) reaches them, by half an interval where
not, and never to before the counter was zero. Prometheus 2 counts a sample that lies exactly on the window's start,
Prometheus 3 does not (`left_open`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.engine.kernel.tables import DONE
from fleetsim.export.openmetrics import engine_values, trainer_values
from fleetsim.export.series import incarnations, requests, running_counts, scrape_times
from fleetsim.history.counters import Floats, mended
from fleetsim.history.signals import SIGNALS
from fleetsim.sim.records import Records

Ints = NDArray[np.int64]


class Windows(Struct, frozen=True):
    """Which samples the windows (at - window_s, at] hold. first, last: (E,) indices into times, last < first = none."""

    times: Floats
    at: Floats
    window_s: float
    first: Ints
    last: Ints


def windows(times: Floats, at: Floats, window_s: float, left_open: bool = True) -> Windows:
    """The windows that end at each of `at` (E,), over samples at `times` (T,), increasing."""
    # a thousandth of a second is the resolution of Prometheus
    first = np.searchsorted(times, at - window_s + (5e-4 if left_open else -5e-4))
    last = np.searchsorted(times, at + 5e-4, "right") - 1
    return Windows(times, at, window_s, first.astype(np.int64), last.astype(np.int64))


class _Ends(Struct, frozen=True):
    """Per series and window: the first and the last sample that are there, and how many. Arrays (S, E)."""

    first: Ints
    last: Ints
    count: Ints


def _ends(values: Floats, w: Windows) -> _Ends:
    there = ~np.isnan(values)
    count = np.zeros((values.shape[0], values.shape[1] + 1), np.int64)
    np.cumsum(there, axis=1, out=count[:, 1:])
    n = values.shape[1]
    index = np.arange(n)
    following = np.minimum.accumulate(np.where(there, index, n)[:, ::-1], axis=1)[:, ::-1]
    previous = np.maximum.accumulate(np.where(there, index, -1), axis=1)
    a, b = np.minimum(w.first, n - 1), np.maximum(w.last, 0)
    held = np.where(w.last >= w.first, count[:, b + 1] - count[:, np.minimum(w.first, n)], 0)
    return _Ends(np.clip(following[:, a], 0, n - 1), np.clip(previous[:, b], 0, n - 1), np.maximum(held, 0))


def rates(values: Floats, w: Windows) -> Floats:
    """`rate(counter[window])`: (S, T), NaN where nothing was scraped -> (S, E), NaN with fewer than two samples."""
    ends = _ends(values, w)
    rows = np.arange(len(values))[:, None]
    grown = mended(values)
    growth = grown[rows, ends.last] - grown[rows, ends.first]
    start, end = w.times[ends.first], w.times[ends.last]
    sampled = end - start
    known = (ends.count >= 2) & (sampled > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        between = sampled / (ends.count - 1)
        to_start, to_end = start - (w.at - w.window_s), w.at - end
        to_zero = sampled * values[rows, ends.first] / growth
        to_start = np.where((growth > 0) & (to_zero < to_start), to_zero, to_start)
        reach = sampled + np.where(to_start < 1.1 * between, to_start, between / 2)
        reach = reach + np.where(to_end < 1.1 * between, to_end, between / 2)
        result = growth * reach / sampled / w.window_s
    return np.where(known, result, np.nan)


def highest(values: Floats, w: Windows) -> Floats:
    """`max_over_time(gauge[window])`: (S, T) -> (S, E), NaN where the window holds no sample."""
    found = np.full((len(values), len(w.at)), -np.inf)
    spans, reach = np.where(np.isnan(values), -np.inf, values), 1  # the highest of `reach` samples from each on
    held = w.last - w.first + 1
    while (some := held >= reach).any():  # two spans, one from each end, cover what holds fewer than two of the next
        ends = spans[:, w.first[some]], spans[:, w.last[some] - reach + 1]
        found[:, some] = np.maximum(found[:, some], np.maximum(*ends))
        spans, reach = np.maximum(spans[:, :-reach], spans[:, reach:]), 2 * reach
    return np.where(np.isfinite(found), found, np.nan)


def counts(values: Floats, w: Windows) -> Ints:
    """`count_over_time(series[window])`: (S, T) -> (S, E), zero where Prometheus would return nothing."""
    return _ends(values, w).count


def total(parts: Floats) -> Floats:
    """`sum()` of (S, E) over series: (E,), those that are not there left out, NaN where none is."""
    there = ~np.isnan(parts)
    return np.where(there.any(axis=0), np.where(there, parts, 0.0).sum(axis=0), np.nan)


def lowest_lately(values: Floats, points: int) -> Floats:
    """The least of the last `points` values (E,), the current one included; NaN where fewer than that are known."""
    if points <= 1:
        return values.copy()
    padded = np.concatenate([np.full(points - 1, np.nan), values])
    seen = np.lib.stride_tricks.sliding_window_view(padded, points)
    found: Floats = seen.min(axis=1)  # NaN wins, which is what a broken `for` needs
    return found


def any_lately(true: NDArray[np.bool_], points: int) -> NDArray[np.bool_]:
    """Whether one of the last `points` values (E,), the current one included, is true."""
    so_far = np.concatenate([np.zeros(max(points, 1), np.int64), np.cumsum(true)])
    return so_far[max(points, 1) :] > so_far[: -max(points, 1)]


# --- What Prometheus would have scraped of a simulated run, and what rules make of it.

# An instance is compared with others only if this share of its samples is there: one that was lost or has just come
# back has a low rate for another reason than being slow.
PRESENT = 0.9


class Scraped(Struct, frozen=True):
    """Samples on one grid of scrapes.

    times: (T,) seconds since the start of the run. engines: signal -> (I, T), NaN while an instance is not up; counters
    since its process began; `output_tokens_sum` and `output_tokens_count` are the histogram's. trainer: signal -> (T,).
    """

    times: Floats
    engines: Mapping[str, Floats]
    trainer: Mapping[str, Floats]

    @property
    def hours(self) -> float:
        """Hours that it spans."""
        return float(self.times[-1] - self.times[0]) / 3600.0


# What is read of the engines, and of the trainer.
ENGINES = ("running", "kv_use", "generation_tokens", "decoding_s", "prefix_hits", "preemptions", "prompt_tokens")
TRAINER = ("trainer.steps", "trainer.wait_s_total", "trainer.train_s_total", "trainer.sync_s_total",
           "trainer.trained_tokens", "trainer.trained_samples", "queue.samples", "queue.oldest_age_steps")  # fmt: skip
_SIGNAL_OF = {metric: signal.name for signal in SIGNALS for metric in signal.metrics}


def scraped_of(records: Records, *, whole: bool = False) -> Scraped:
    """What a monitoring system saw of a run that was simulated with `scrape_every_s`: what `export` writes of it.

    whole: the queue's gauges with the most that any scrape since the one before could have seen. It is longest, and its
    oldest sample oldest, when a batch is taken.
    """
    times, lives, samples = scrape_times(records), incarnations(records), records.samples
    shape = int(records.scrapes["instance"].max()) + 1, len(times)
    lengths = "output_tokens_count", "output_tokens_sum"
    engines = {name: np.full(shape, np.nan) for name in (*ENGINES, *lengths)}
    trainer = {}
    for family in (*engine_values(records, lives), *trainer_values(records)):
        for series in family.series:
            name = _SIGNAL_OF.get(f"{family.name}{series.lines[0][0]}", "")
            if name in ENGINES:
                engines[name][series.target, series.rows] = series.values[:, 0]
            elif name in TRAINER:
                trainer[name] = series.values[:, 0].astype(float)
    if whole:
        steps = records.steps[records.steps["ready_s"] <= times[-1]]
        at = np.searchsorted(times, steps["ready_s"])
        np.maximum.at(trainer["queue.samples"], at, steps["queue_depth"])
        np.maximum.at(trainer["queue.oldest_age_steps"], at, steps["oldest_age_steps"])
    ended = requests(records, samples["status"] == DONE).with_values(samples["made"] / (samples["turn"] + 1))
    for life in lives:
        counts, sums = running_counts(ended, life, times, np.array([np.inf]), life.rows)
        for name, values in zip(lengths, (counts[:, 0], sums), strict=True):
            engines[name][life.instance, life.rows] = values
    engines["finished"] = engines["output_tokens_count"]
    return Scraped(times, engines, trainer)


class Expected(Struct, frozen=True):
    """What the plan says: instances; the trainer's compute seconds per step and per trained token; mean prompt."""

    instances: int
    step_s: float
    token_s: float
    prompt_tokens: float


class View(Struct, frozen=True):
    """Samples and the windows through which a rule sees them. Its ratios may divide by zero: `np.errstate`."""

    scraped: Scraped
    windows: Windows
    expected: Expected

    def each(self, signal: str) -> Floats:
        """Growth per second of a counter: (S, E)."""
        return rates(self._values(signal), self.windows)

    def rate(self, signal: str, suffix: str = "") -> Floats:
        """The same, summed over the fleet: (E,). suffix: `_sum` or `_count` of a histogram."""
        return total(self.each(signal + suffix))

    def highest(self, signal: str) -> Floats:
        """The highest sample of a gauge in the windows: (E,).

        Steps and scrapes keep time where one lasts a few of the other, and a mean is then one of the same few moments
        of a step. Whatever moments they are, no sample is above what the gauge was.
        """
        found: Floats = np.fmax.reduce(highest(self._values(signal), self.windows), axis=0)
        return found

    def instances(self) -> Floats:
        """Instances that were scraped within the window: (E,)."""
        found: Floats = (counts(self.scraped.engines["running"], self.windows) > 0).sum(axis=0).astype(float)
        return found

    def straggler(self) -> Floats:
        """Tokens per second and decoding request of the slowest instance / those of the median one: (E,).

        Both are counters. A mean of `running` would be a mean of its scrapes: where a step lasts some whole number of
        scrape intervals, they see the same moments of every step, which are other ones on every instance. Such a mean
        stays off for as long as that lasts, and how wide it scatters depends on the length of a step, which the plan
        does not know so well: a fleet 10 % faster than the one that a threshold was made from scattered twice as wide.
        """
        held = counts(self.scraped.engines["running"], self.windows)
        pace = self.each("generation_tokens") / self.each("decoding_s")
        pace = np.where(held > PRESENT * held.max(axis=0), pace, np.nan)
        slowest: Floats = np.fmin.reduce(pace, axis=0) / _median(pace)
        return slowest

    def _values(self, signal: str) -> Floats:
        if signal in self.scraped.trainer:
            return self.scraped.trainer[signal][None, :]
        return self.scraped.engines[signal]


def view(scraped: Scraped, at: Floats, window_s: float, expected: Expected, left_open: bool = True) -> View:
    """What windows of window_s that end at each of `at` show."""
    return View(scraped, windows(scraped.times, at, window_s, left_open), expected)


def _median(values: Floats) -> Floats:
    """`quantile(0.5, ...)` of (I, E) over instances that are there."""
    known = np.sort(values, axis=0)  # NaN last
    n = (~np.isnan(values)).sum(axis=0)
    middle = 0.5 * (np.maximum(n, 1) - 1)
    low, high = np.floor(middle).astype(int), np.ceil(middle).astype(int)
    e = np.arange(values.shape[1])
    # an instance that made first tokens only has an infinite pace, here as in Prometheus
    with np.errstate(invalid="ignore"):
        median: Floats = known[low, e] * (1 - (middle - low)) + known[high, e] * (middle - low)
    return median
