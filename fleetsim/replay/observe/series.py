"""A window over time, in at most so many bins: what the fleet, its instances, its trainer and its queue did when.

Every bin holds whole intervals of the grid, and its value is the mean of those that are known; a bin in which nothing
is known is NaN, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from fleetsim.history.history import Floats, History
from fleetsim.replay.observe.intervals import Intervals, between, fleet_total, mean
from fleetsim.replay.observe.steps import Steps

MOST_BINS = 360  # a line on a screen shows no more; a day at 15 s is 5,760 intervals


class Bins(Struct, frozen=True):
    """Where the bins of a grid lie. edges: (N+1,) unix seconds. per_bin: intervals of the grid in each; 1 = as read."""

    edges: Floats
    per_bin: int

    @classmethod
    def of(cls, times: Floats, most: int = MOST_BINS) -> Bins:
        """Bins over a grid of at least two times."""
        per_bin = max(1, math.ceil((len(times) - 1) / most))
        return cls(np.append(times[:-1:per_bin], times[-1]), per_bin)

    def means(self, values: Floats) -> Floats:
        """(..., T-1) values of the intervals -> (..., N) means of what is known in each bin."""
        short = -values.shape[-1] % self.per_bin
        padding = [(0, 0)] * (values.ndim - 1) + [(0, short)]
        padded = np.pad(np.asarray(values, dtype=np.float64), padding, constant_values=np.nan)
        return mean(padded.reshape(*values.shape[:-1], -1, self.per_bin), axis=-1)

    def gauge(self, values: Floats) -> Floats:
        """(..., T) values at the times of the grid -> (..., N): the mean of those in a bin, both ends included."""
        return self.means(between(values))


class FleetSeries(Struct, frozen=True):
    """All instances together and each of them, by bin.

    instances: (N,) mean number that was there and read at some time of a bin. tok_s: (N,) output tokens per second of
    the fleet; instances that were not read count as the mean of the others, as everywhere. running, waiting: (N,) of
    the fleet. each: signal (tok_s, running, waiting) -> (I, N), one row an instance, only those that are exported.
    """

    bins: Bins
    instances: Floats
    tok_s: Floats
    running: Floats | None
    waiting: Floats | None
    each: dict[str, Floats]


class TrainerSeries(Struct, frozen=True):
    """Optimizer steps by row: single ones, or the means of those that ended in the same bin.

    start_s, end_s: (n,) of the rows. steps: (n,) in each. step_s, wait_s, train_s, sync_s: (n,) seconds of a step,
    NaN where not known; None where nothing is. idle_fraction: (n,) of the row's time, waiting for samples. merged:
    whether a row is a mean over several of the rows that were read.
    """

    start_s: Floats
    end_s: Floats
    steps: Floats
    step_s: Floats | None
    wait_s: Floats | None
    train_s: Floats | None
    sync_s: Floats | None
    idle_fraction: Floats | None
    merged: bool


class QueueSeries(Struct, frozen=True):
    """Finished samples that wait for the trainer. start_s, end_s: (n,) unix seconds. depth, oldest_age_steps: (n,)
    means, None where not exported. highest: (n,) largest depth of a bin, None where bins are single values."""

    start_s: Floats
    end_s: Floats
    depth: Floats | None
    highest: Floats | None
    oldest_age_steps: Floats | None


def fleet_over_time(history: History, intervals: Intervals) -> FleetSeries:
    """The engines' side of a window that has instances."""
    bins = Bins.of(intervals.times)
    there = np.where(intervals.read, intervals.present.sum(axis=0), np.nan)
    each = {"tok_s": bins.means(intervals.growth / intervals.step_s)}
    for name, values in (("running", intervals.running), ("waiting", intervals.waiting)):
        if values is not None:
            each[name] = bins.means(values)
    totals = {
        name: bins.gauge(fleet_total(history.values[name])) for name in ("running", "waiting") if name in history.values
    }
    return FleetSeries(
        bins,
        bins.means(there),
        bins.means(intervals.fleet_growth() / intervals.step_s),
        totals.get("running"),
        totals.get("waiting"),
        each,
    )


def trainer_over_time(steps: Steps | None) -> TrainerSeries | None:
    """The steps of a window; None where nothing shows them, or how long they took."""
    if steps is None:
        return None
    timed = np.isfinite(steps.end_s) & np.isfinite(steps.elapsed_s) & (steps.elapsed_s > 0)
    if not timed.any():
        return None
    known = steps.where(timed)
    of = np.arange(len(known.end_s)) * min(MOST_BINS, len(known.end_s)) // len(known.end_s)
    rows = [known.where(of == k) for k in range(int(of[-1]) + 1)]

    def each(value: Callable[[Steps], float | None]) -> Floats | None:
        found = np.array([np.nan if (x := value(row)) is None else x for row in rows])
        return found if np.isfinite(found).any() else None

    idle = each(lambda row: row.per_second("wait_s"))
    return TrainerSeries(
        start_s=np.array([(row.end_s - row.elapsed_s).min() for row in rows]),
        end_s=np.array([row.end_s.max() for row in rows]),
        steps=np.array([np.nansum(row.count) for row in rows]),
        step_s=each(lambda row: row.step_s()),
        wait_s=each(lambda row: row.per_step("wait_s")),
        train_s=each(lambda row: row.per_step("train_s")),
        sync_s=each(lambda row: row.per_step("sync_s")),
        idle_fraction=None if idle is None else np.minimum(idle, 1.0),
        merged=len(rows) < len(known.end_s),
    )


def queue_over_time(history: History, steps: Steps | None) -> QueueSeries | None:
    """The queue, of the trainer's gauges or of a run log; None where neither depth nor age is known."""
    if history.steps is not None and steps is not None:
        depth, age = (history.steps.columns.get(name) for name in ("queue_samples", "staleness_steps"))
        elapsed = np.where(np.isfinite(steps.elapsed_s), steps.elapsed_s, 0.0)
        known = depth is not None or age is not None
        return QueueSeries(steps.end_s - elapsed, steps.end_s, depth, None, age) if known else None
    depth, age = history.fleet.get("queue.samples"), history.fleet.get("queue.oldest_age_steps")
    if (depth is None and age is None) or len(history.times) < 2:
        return None
    bins = Bins.of(history.times)
    highest = None
    if depth is not None and bins.per_bin > 1:
        starts = np.arange(0, len(depth) - 1, bins.per_bin)
        highest = np.fmax.reduceat(depth[:-1], starts)
    return QueueSeries(
        bins.edges[:-1],
        bins.edges[1:],
        None if depth is None else bins.gauge(depth),
        highest,
        None if age is None else bins.gauge(age),
    )
