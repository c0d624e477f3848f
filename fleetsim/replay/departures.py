"""Instances that went in the window: from one time on nobody reads them, while the others are read."""

from __future__ import annotations

import numpy as np

from fleetsim import units
from fleetsim.history.history import History, Note
from fleetsim.replay.intervals import Intervals
from fleetsim.replay.observed import Departure

# Samples that must miss at the end: fewer are scrapes that failed.
MISSING = 4
# Samples that show that an instance was there at all.
SEEN = 8
# A hole longer than this is an engine that comes and goes (lent by the trainer, restarted), not one that was lost.
HOLE_S = 300.0
# Within this time of a departure an instance that appears takes the place.
REPLACED_S = 900.0


def departures_of(history: History, intervals: Intervals) -> tuple[Departure, ...]:
    """Who went, in the order of time. A pod that comes back under its own name has not gone."""
    sampled = intervals.sampled
    size = sampled.shape[1]
    first = [int(row.argmax()) if row.any() else size for row in sampled]
    last = [size - 1 - int(row[::-1].argmax()) if row.any() else -1 for row in sampled]
    newcomers = {row: at for row, at in enumerate(first) if 0 < at < size}
    gone = []
    for row in sorted(range(len(sampled)), key=lambda r: (last[r], r)):
        end = last[row]
        seen = np.flatnonzero(sampled[row])
        if seen.size < SEEN or not sampled[:, end + MISSING :].any():
            continue
        if np.diff(seen).max() * intervals.step_s > max(HOLE_S, MISSING * intervals.step_s):
            continue
        most = end + REPLACED_S / intervals.step_s
        heir = next((r for r, at in newcomers.items() if r != row and end - 1 <= at <= most), None)
        if heir is not None:
            del newcomers[heir]
        there = max(1, int(intervals.present[:, end - 1].sum()))
        name = None if heir is None else history.instances[heir]
        gone.append(Departure(history.instances[row], float(intervals.times[end]), there, name))
    return tuple(gone)


def departure_words(gone: Departure) -> str:
    """Who, when, and what share of the fleet that was."""
    after = "" if gone.replaced_by is None else f"; {gone.replaced_by} took its place"
    return (
        f"{gone.id} vanished at {units.clock(gone.at_s)}, {units.share(1 / gone.of)} of the fleet of {gone.of}{after}"
    )


def departure_notes(departed: tuple[Departure, ...]) -> tuple[Note, ...]:
    """One for each."""
    return tuple(Note("other", departure_words(d), 1 / d.of) for d in departed)
