"""Instances that went in the window: from one time on nobody reads them, while the others are read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetsim import units
from fleetsim.history.history import History, Note
from fleetsim.replay.observe.intervals import Intervals
from fleetsim.replay.observe.observed import Departure
from fleetsim.replay.observe.steps import Steps

# Samples that must miss at the end: fewer are scrapes that failed.
MISSING = 4
# Samples that show that an instance was there at all.
SEEN = 8
# A hole longer than this is an engine that comes and goes (lent by the trainer, restarted), not one that was lost.
HOLE_S = 300.0
# Within this time of a departure an instance that appears takes the place; before it, where an old name lingers beside
# the new one: Prometheus answers with the last sample of a series for five minutes, and a rolling update starts a pod
# before it ends another.
REPLACED_S, LINGERS_S = 900.0, 300.0
# Rows of steps on a side of a departure that tell how long the trainer waited there.
FEWEST_STEPS = 4
# Instances that a sentence names.
NAMED = 3


def departures_of(history: History, intervals: Intervals, steps: Steps | None = None) -> tuple[Departure, ...]:
    """Who went, in the order of time. A pod that comes back under its own name has not gone. steps: of the trainer,
    which show whether it waits longer without them."""
    sampled = intervals.sampled
    size = sampled.shape[1]
    first = [int(row.argmax()) if row.any() else size for row in sampled]
    last = [size - 1 - int(row[::-1].argmax()) if row.any() else -1 for row in sampled]
    read = np.cumsum(sampled.any(axis=0))
    newcomers = {row: at for row, at in enumerate(first) if 0 < at < size}
    gone = []
    for row in sorted(range(len(sampled)), key=lambda r: (last[r], r)):
        end = last[row]
        seen = np.flatnonzero(sampled[row])
        if seen.size < SEEN or not sampled[:, end + MISSING :].any():
            continue
        missed = np.diff(read[seen]).max() * intervals.step_s  # while others were read: a hole of all is nobody's
        if missed > max(HOLE_S, MISSING * intervals.step_s):
            continue
        least, most = end - max(1.0, LINGERS_S / intervals.step_s), end + REPLACED_S / intervals.step_s
        near = [r for r, at in newcomers.items() if r != row and least <= at <= most]
        heir = min(near, key=lambda r: abs(newcomers[r] - end), default=None)
        both = heir is not None and newcomers.pop(heir) < end  # one of them counts
        there = max(1, int(intervals.present[:, end - 1].sum()) - both)
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
    at, share = units.clock(gone.at_s), f"{units.share(1 / gone.of)} of the fleet of {gone.of}"
    if gone.replaced_by is not None:
        return f"{gone.replaced_by} took the place of {gone.id} at {at}, {share}"
    return f"{gone.id} vanished at {at}, {share}"


def unreplaced(departed: Sequence[Departure]) -> tuple[Departure, ...]:
    """Those whose place nobody took, unless the trainer waits less since: then the fleet does without them."""
    return tuple(d for d in departed if d.replaced_by is None and (d.waits is None or d.waits[1] > d.waits[0]))


def names_of(gone: Sequence[Departure]) -> str:
    """The first few by name."""
    more = len(gone) - NAMED
    return ", ".join(str(d.id) for d in gone[:NAMED]) + (f" and {more} more" if more > 0 else "")


def missed_words(gone: Sequence[Departure]) -> str:
    """A sentence for the headline: who went and when, and the trainer's wait on both sides of it, where that is known
    of one departure alone."""
    first, last = units.clock(gone[0].at_s), units.clock(gone[-1].at_s)
    when = f"at {first}" if first == last else f"from {first} to {last}"
    waits = gone[0].waits if len(gone) == 1 else None
    waited = "" if waits is None else f" (the trainer waited {units.share(waits[0])} of its time before, "
    waited += "" if waits is None else f"{units.share(waits[1])} after)"
    return f"{names_of(gone)} vanished {when} and nothing took the place{waited}."


def departure_notes(departed: tuple[Departure, ...]) -> tuple[Note, ...]:
    """One for each."""
    return tuple(Note("other", departure_words(d), 1 / d.of) for d in departed)
