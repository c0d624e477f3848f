"""Instances that went in the window: from one time on nobody reads them, while the others are read."""

from __future__ import annotations

import numpy as np

from fleetsim import units
from fleetsim.history.history import History, Note
from fleetsim.replay.intervals import Intervals
from fleetsim.replay.observed import Departure
from fleetsim.replay.steps import Steps

# Samples that must miss at the end: fewer are scrapes that failed.
MISSING = 4
# Samples that show that an instance was there at all.
SEEN = 8
# A hole longer than this is an engine that comes and goes (lent by the trainer, restarted), not one that was lost.
HOLE_S = 300.0
# Within this time of a departure an instance that appears takes the place.
REPLACED_S = 900.0
# Rows of steps on a side of a departure that tell how long the trainer waited there.
FEWEST_STEPS = 4


def departures_of(history: History, intervals: Intervals, steps: Steps | None = None) -> tuple[Departure, ...]:
    """Who went, in the order of time. A pod that comes back under its own name has not gone. steps: of the trainer,
    which show whether it waits longer without them."""
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
        at_s = float(intervals.times[end])
        gone.append(Departure(history.instances[row], at_s, there, name, _waits(steps, at_s)))
    return tuple(gone)


def _waits(steps: Steps | None, at_s: float) -> tuple[float, float] | None:
    if steps is None:
        return None
    sides = steps.part(-np.inf, at_s), steps.part(at_s, np.inf)
    before, after = (side.per_second("wait_s") if len(side.end_s) >= FEWEST_STEPS else None for side in sides)
    return None if before is None or after is None else (min(before, 1.0), min(after, 1.0))


def departure_words(gone: Departure) -> str:
    """Who, when, and what share of the fleet that was."""
    after = "" if gone.replaced_by is None else f"; {gone.replaced_by} took its place"
    return (
        f"{gone.id} vanished at {units.clock(gone.at_s)}, {units.share(1 / gone.of)} of the fleet of {gone.of}{after}"
    )


def departure_notes(departed: tuple[Departure, ...]) -> tuple[Note, ...]:
    """One for each."""
    return tuple(Note("other", departure_words(d), 1 / d.of) for d in departed)
