"""Named events of a window: instances that went, came or started again, holes in the data, long stops, what moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fleetsim import units
from fleetsim.history.history import History
from fleetsim.replay.observe.departures import departure_words
from fleetsim.replay.observe.intervals import Intervals, runs_of
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.trends import trend_words

Kind = Literal["went", "came", "restarted", "hole", "stop", "moved"]

# A hole in the data of fewer intervals is a scrape that was late.
_HOLE = 2
# A stop is worth a name when it lasts so many times the usual one, and so many seconds.
_LONG, _LONG_S = 3.0, 30.0
# Of one kind, so many have a name each; more are told together.
_MOST_OF_A_KIND = 4


@dataclass(frozen=True, slots=True)
class Event:
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
