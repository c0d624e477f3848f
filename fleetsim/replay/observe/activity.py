"""What each instance did when, as far as scrapes show it: at work, paused, without work, not read, not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fleetsim.history.history import History, InstanceId
from fleetsim.replay.observe.intervals import Intervals, runs_of
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.pauses import paused_s

Doing = Literal["working", "paused", "idle", "still", "unread"]
DOING: tuple[Doing, ...] = ("working", "paused", "idle", "still", "unread")

# A strip of more intervals shows no single one; the last ones are shown then.
MOST_INTERVALS, MOST_ROWS = 240, 48


@dataclass(frozen=True, slots=True)
class Strip:
    """One instance. spans: (doing, start, end) in unix seconds, in the order of time, none where it was not there.

    working: it made tokens. paused: half of the interval or more lay in a stop of the whole fleet. idle: no request
    ran, no token was made. still: no token was made outside such a stop, with requests at hand or none exported.
    unread: it was there, and nothing was read of it.
    """

    id: InstanceId
    spans: tuple[tuple[Doing, float, float], ...]


@dataclass(frozen=True, slots=True)
class Activity:
    """strips: of the instances that are shown, in the history's order. of: instances there are. from_s, until_s: what
    part of the window; resolution_s: an interval, within which nothing is told apart."""

    strips: tuple[Strip, ...]
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
    paused = paused_s(left, right, pauses) >= 0.5 * intervals.step_s
    strips = []
    for row in _shown(history, intervals, observed):
        growth, there = intervals.growth[row, part], intervals.present[row, part]
        known = np.isfinite(growth)
        working = known & (np.nan_to_num(growth) > 0) & ~paused
        stopped = known & there & ~working & ~paused
        nothing = np.zeros(len(left), dtype=bool)
        if intervals.running is not None:
            nothing = stopped & (intervals.running[row, part] == 0)
        masks: dict[Doing, np.ndarray[tuple[int], np.dtype[np.bool_]]] = {
            "working": there & working,
            "paused": known & there & paused,
            "idle": nothing,
            "still": stopped & ~nothing,
            "unread": there & ~known,
        }
        spans = [(doing, float(left[a]), float(right[b])) for doing in DOING for a, b in runs_of(masks[doing])]
        strips.append(Strip(history.instances[row], tuple(sorted(spans, key=lambda s: s[1]))))
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
