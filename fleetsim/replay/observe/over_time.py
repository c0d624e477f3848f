"""`OverTime`: all that a window shows over time, for whoever draws it: what the fleet, its instances, its trainer and
its queue did when, in at most so many bins, and named events.

Every bin holds whole intervals of the grid, and its value is the mean of those that are known; a bin in which nothing
is known is NaN, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from msgspec import Struct, field

from fleetsim import units
from fleetsim.history.history import Floats, History, InstanceId
from fleetsim.replay.observe.changes import departure_words, trend_words
from fleetsim.replay.observe.intervals import Intervals, between, fleet_total, intervals_of, mean
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.segments import Mask, overlap_s, runs_of
from fleetsim.replay.observe.steps import Steps, steps_of

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

    def series(self, of: dict[str, Floats], each: dict[str, Floats] | None = None) -> WindowSeries:
        """Values by bin as a series."""
        return WindowSeries(self.edges[:-1], self.edges[1:], of, each or {}, self.per_bin, self.per_bin > 1)


class WindowSeries(Struct, frozen=True):
    """One side of a window over time: the engines by bin, the trainer by row of its steps, the queue by bin or row.

    start_s, end_s: (n,) unix seconds. of: name -> (n,) means, NaN where nothing is known; only what is known somewhere.
    each: name -> (I, n), one row an instance. per_point: readings, of the trainer steps, that a point is the mean of.
    merged: whether that is more than was read together.
    """

    start_s: Floats
    end_s: Floats
    of: dict[str, Floats]
    each: dict[str, Floats] = field(default_factory=dict)
    per_point: float = 1.0
    merged: bool = False

    @property
    def middle_s(self) -> Floats:
        """(n,) unix seconds."""
        return np.asarray((self.start_s + self.end_s) / 2)


def fleet_over_time(history: History, intervals: Intervals) -> WindowSeries:
    """The engines' side of a window that has instances: how many were there and read (`instances`), output tokens per
    second (`tok_s`; instances that were not read count as the mean of the others, as everywhere), `running`, `waiting`.
    """
    bins = Bins.of(intervals.times)
    there = np.where(intervals.read, intervals.present.sum(axis=0), np.nan)
    loads = {"running": intervals.running, "waiting": intervals.waiting}
    each = {"tok_s": intervals.growth / intervals.step_s} | {k: v for k, v in loads.items() if v is not None}
    of = {"instances": bins.means(there), "tok_s": bins.means(intervals.fleet_growth() / intervals.step_s)}
    of |= {name: bins.gauge(fleet_total(history.values[name])) for name in loads if name in each}
    return bins.series(of, {name: bins.means(values) for name, values in each.items()})


def trainer_over_time(steps: Steps | None) -> WindowSeries | None:
    """The steps of a window, single ones or the means of those that ended in the same bin: seconds of a step (`step_s`,
    `wait_s`, `sync_s`), and the share of the time that was waited (`idle`); None where nothing shows them, or how long
    they took."""
    if steps is None:
        return None
    timed = np.isfinite(steps.end_s) & np.isfinite(steps.elapsed_s) & (steps.elapsed_s > 0)
    if not timed.any():
        return None
    known = steps.where(timed)
    of = np.arange(len(known.end_s)) * min(MOST_BINS, len(known.end_s)) // len(known.end_s)
    rows = [known.where(of == k) for k in range(int(of[-1]) + 1)]
    found = {
        "step_s": [row.step_s() for row in rows],
        "wait_s": [row.per_step("wait_s") for row in rows],
        "sync_s": [row.per_step("sync_s") for row in rows],
        "idle": [None if (x := row.per_second("wait_s")) is None else min(x, 1.0) for row in rows],
    }
    return WindowSeries(
        np.array([(row.end_s - row.elapsed_s).min() for row in rows]),
        np.array([row.end_s.max() for row in rows]),
        {name: np.array(values, dtype=float) for name, values in found.items() if any(x is not None for x in values)},
        per_point=float(np.median([np.nansum(row.count) for row in rows])),
        merged=len(rows) < len(known.end_s),
    )


def queue_over_time(history: History, steps: Steps | None) -> WindowSeries | None:
    """Finished samples that wait for the trainer, of its gauges or of a run log: how many (`depth`; `highest` of a bin,
    where a bin is more than a reading), and the `age` of the oldest in steps; None where neither is known."""
    if history.steps is not None and steps is not None:
        depth, age = (history.steps.columns.get(name) for name in ("queue_samples", "staleness_steps"))
        elapsed = np.where(np.isfinite(steps.elapsed_s), steps.elapsed_s, 0.0)
        of = {name: values for name, values in (("depth", depth), ("age", age)) if values is not None}
        return WindowSeries(steps.end_s - elapsed, steps.end_s, of) if of else None
    gauges = {"depth": history.fleet.get("queue.samples"), "age": history.fleet.get("queue.oldest_age_steps")}
    known = {name: values for name, values in gauges.items() if values is not None}
    if not known or len(history.times) < 2:
        return None
    bins = Bins.of(history.times)
    of = {name: bins.gauge(values) for name, values in known.items()}
    if "depth" in known and bins.per_bin > 1:
        starts = np.arange(0, len(history.times) - 1, bins.per_bin)
        of["highest"] = np.fmax.reduceat(known["depth"][:-1], starts)
    return bins.series(of)


Doing = Literal["working", "paused", "idle", "still", "unread"]
DOING: tuple[Doing, ...] = ("working", "paused", "idle", "still", "unread")

# A strip of more intervals shows no single one; the last ones are shown then.
MOST_INTERVALS, MOST_ROWS = 240, 48


class Activity(Struct, frozen=True):
    """strips: of the instances that are shown, in the history's order: (doing, start, end) in unix seconds, in the
    order of time, none where it was not there. of: instances there are. from_s, until_s: what part of the window;
    resolution_s: an interval, within which nothing is told apart.

    working: it made tokens. paused: half of the interval or more lay in a stop of the whole fleet. idle: no request
    ran, no token was made. still: no token was made outside such a stop, with requests at hand or none exported.
    unread: it was there, and nothing was read of it.
    """

    strips: tuple[tuple[InstanceId, tuple[tuple[Doing, float, float], ...]], ...]
    of: int
    from_s: float
    until_s: float
    resolution_s: float


def activity_of(history: History, intervals: Intervals, observed: Observed) -> Activity:
    """The last intervals of a window, all of it where it is short; of a large fleet those that stand out, and others
    evenly."""
    count = intervals.growth.shape[1]
    first = max(0, count - MOST_INTERVALS)
    part = slice(first, count)
    left, right = intervals.times[:-1][part], intervals.times[1:][part]
    pauses = () if observed.pauses is None else observed.pauses.each
    paused = overlap_s(left, right, pauses) >= 0.5 * intervals.step_s
    strips = []
    for row in _shown(history, intervals, observed):
        growth, there = intervals.growth[row, part], intervals.present[row, part]
        known = np.isfinite(growth)
        working = known & (np.nan_to_num(growth) > 0) & ~paused
        stopped = known & there & ~working & ~paused
        nothing = np.zeros(len(left), dtype=bool)
        if intervals.running is not None:
            nothing = stopped & (intervals.running[row, part] == 0)
        masks: dict[Doing, Mask] = {
            "working": there & working,
            "paused": known & there & paused,
            "idle": nothing,
            "still": stopped & ~nothing,
            "unread": there & ~known,
        }
        spans = [(doing, float(left[a]), float(right[b])) for doing in DOING for a, b in runs_of(masks[doing])]
        strips.append((history.instances[row], tuple(sorted(spans, key=lambda s: s[1]))))
    return Activity(tuple(strips), len(history.instances), float(left[0]), float(right[-1]), intervals.step_s)


def _shown(history: History, intervals: Intervals, observed: Observed) -> list[int]:
    """Rows of the instances to show: all, or stragglers and those that went, restarted or were not read, and others."""
    size = len(history.instances)
    if size <= MOST_ROWS:
        return list(range(size))
    odd = {str(view.id) for view in observed.instances if view.straggler or view.restarts}
    odd |= {str(one) for gone in observed.departed for one in (gone.id, gone.replaced_by)}
    unread = (intervals.present & ~intervals.known).sum(axis=1)
    first = sorted((row for row in range(size) if str(history.instances[row]) in odd), key=lambda r: (-unread[r], r))
    chosen = first[: MOST_ROWS // 2]
    rest = [row for row in range(size) if row not in set(chosen)]
    more = MOST_ROWS - len(chosen)
    chosen += [rest[k * (len(rest) - 1) // (more - 1)] for k in range(more)]
    return sorted(chosen)


Kind = Literal["went", "came", "restarted", "hole", "stop", "moved"]

# A hole in the data of fewer intervals is a scrape that was late.
_HOLE = 2
# A stop is worth a name when it lasts so many times the usual one, and so many seconds.
_LONG, _LONG_S = 3.0, 30.0
# Of one kind, so many have a name each; more are told together.
_MOST_OF_A_KIND = 4


class Event(Struct, frozen=True):
    """at_s: unix seconds; until_s: its end, None for a moment. text: one sentence without the time."""

    at_s: float
    until_s: float | None
    kind: Kind
    text: str


def events_of(history: History, intervals: Intervals | None, observed: Observed) -> tuple[Event, ...]:
    """The events of a window in the order of time."""
    found: list[Event] = []
    if intervals is not None:
        found += _summed(list(_came(history, intervals, observed)), "instances came")
        found += _summed(list(_restarted(history, intervals)), "restarts")
        found += _summed(list(_holes(intervals)), "holes, in which no instance was read")
    gone = [Event(d.at_s, None, "went", departure_words(d)) for d in observed.departed]
    found += _summed(gone, "instances went")
    found += _summed(list(_stops(observed)), "stops of the whole fleet that are longer than usual")
    found += [Event(t.from_s, observed.end_s, "moved", trend_words(t)) for t in observed.trends]
    return tuple(sorted(found, key=lambda e: (e.at_s, e.kind, e.text)))


def _came(history: History, intervals: Intervals, observed: Observed) -> Iterator[Event]:
    heirs = {str(d.replaced_by) for d in observed.departed}
    for row, sampled in enumerate(intervals.sampled):
        first = int(sampled.argmax())
        if sampled.any() and first > _HOLE and str(history.instances[row]) not in heirs:
            yield Event(float(intervals.times[first]), None, "came", f"{history.instances[row]} appeared")


def _restarted(history: History, intervals: Intervals) -> Iterator[Event]:
    """Where a running total fell: the process has begun to count anew."""
    for row, totals in enumerate(history.values["generation_tokens"]):
        there = np.flatnonzero(np.isfinite(totals))
        for at in there[1:][np.diff(totals[there]) < 0]:
            text = f"{history.instances[row]} restarted: it counts its tokens anew"
            yield Event(float(intervals.times[at]), None, "restarted", text)


def _holes(intervals: Intervals) -> Iterator[Event]:
    for first, last in runs_of(~intervals.read):
        if last - first + 1 >= _HOLE:
            start, end = float(intervals.times[first]), float(intervals.times[last + 1])
            yield Event(start, end, "hole", f"nothing was read of any instance for {units.seconds(end - start)}")


def _stops(observed: Observed) -> Iterator[Event]:
    each = () if observed.pauses is None else observed.pauses.each
    if len(each) < 2:
        return
    usual = float(np.median([p.seconds for p in each]))
    for pause in each:
        if pause.seconds >= max(_LONG * usual, _LONG_S):
            text = (
                f"the fleet stood still for {units.seconds(pause.seconds)}, {pause.seconds / usual:.1f} times as long "
                "as it usually does"
            )
            yield Event(pause.start_s, pause.end_s, "stop", text)


def _summed(events: list[Event], what: str) -> list[Event]:
    """As they are while they are few; else one event for all of them, from the first to the last."""
    if len(events) <= _MOST_OF_A_KIND:
        return events
    events.sort(key=lambda e: e.at_s)
    first = events[0]
    end = max(e.until_s if e.until_s is not None else e.at_s for e in events)
    return [Event(first.at_s, end, first.kind, f"{len(events)} {what}; the first: {first.text}")]


class OverTime(Struct, frozen=True):
    """A window over time; None is what was not observed. names: of the instances, row by row of `fleet`."""

    names: tuple[str, ...]
    fleet: WindowSeries | None
    trainer: WindowSeries | None
    queue: WindowSeries | None
    activity: Activity | None
    events: tuple[Event, ...]


def over_time(history: History, observed: Observed) -> OverTime:
    """The window that `observed` was read off, over time."""
    intervals = intervals_of(history) if observed.fleet is not None else None
    pauses = () if observed.pauses is None else observed.pauses.each
    steps = steps_of(history, pauses, observed.placement if intervals is not None else None)
    return OverTime(
        tuple(str(one) for one in history.instances),
        None if intervals is None else fleet_over_time(history, intervals),
        trainer_over_time(steps),
        queue_over_time(history, steps),
        None if intervals is None else activity_of(history, intervals, observed),
        events_of(history, intervals, observed),
    )
