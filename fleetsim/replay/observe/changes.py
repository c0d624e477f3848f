"""What changed within a window: instances that went while others were read, and what moved.

A mean over all of a window hides that its end is not what its start was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fleetsim import units
from fleetsim.history.history import Floats, History, Note
from fleetsim.history.window import has_clock
from fleetsim.replay.observe.intervals import Intervals
from fleetsim.replay.observe.lengths import growth_of
from fleetsim.replay.observe.observed import Departure, Moving, Observed, Trend
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
# The trainer waits longer since an instance went, by this share of its time: less is chance, or another cause's.
LONGER = 0.05
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
        sides = () if steps is None else (steps.part(-np.inf, at_s), steps.part(at_s, np.inf))
        waits = [side.per_second("wait_s") for side in sides if len(side.end_s) >= FEWEST_STEPS]
        known = [min(wait, 1.0) for wait in waits if wait is not None]
        both_sides = (known[0], known[1]) if len(known) == 2 else None
        gone.append(Departure(history.instances[row], at_s, there, name, both_sides))
    return tuple(gone)


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
    return units.few([str(d.id) for d in gone], NAMED)


def missed_words(gone: Sequence[Departure]) -> str:
    """A sentence for the headline: who went and when, and the trainer's wait on both sides of it, where that is known
    of one departure alone."""
    first, last = units.clock(gone[0].at_s), units.clock(gone[-1].at_s)
    when = f"at {first}" if first == last else f"from {first} to {last}"
    waited = _waits_words(gone[0]) if len(gone) == 1 else ""
    return f"{names_of(gone)} vanished {when} and nothing took the place{f' ({waited})' if waited else ''}."


def _waits_words(gone: Departure) -> str:
    """The trainer's wait on both sides of a departure; empty where it is not known."""
    if gone.waits is None:
        return ""
    before, after = (units.share(share) for share in gone.waits)
    return f"the trainer waited {before} of its time before and {after} after"


# Relative growth that is worth a word, and by how many of its own standard errors it must stand out.
MOVED, ERRORS = 0.10, 4.0
# Values that a quarter needs: fewer have no spread to speak of.
FEWEST = 4


def trends_of(history: History, steps: Steps | None) -> tuple[Trend, ...]:
    """Response lengths (of the requests that ended, or of the run log) and the seconds of an optimizer step."""
    found = [_lengths(history, steps)]
    if steps is not None and steps.source != "inferred":
        known = np.isfinite(steps.elapsed_s) & (np.nan_to_num(steps.count) > 0)
        count = steps.count[known]
        found.append(_trend("step_s", steps.end_s[known], steps.elapsed_s[known] / count, count, None))
    return tuple(t for t in found if t is not None)


def trend_words(trend: Trend) -> str:
    """Both ends, and how they differ."""
    percent = units.change(trend.growth, 0)
    if trend.what == "response_tokens":
        way = "grew" if trend.growth > 0 else "shrank"
        return (
            f"responses {way} from {trend.first:,.0f} tokens on average in the first quarter of the window to "
            f"{trend.last:,.0f} in the last ({percent})"
        )
    first, last = units.seconds(trend.first), units.seconds(trend.last)
    return f"a step takes {first} in the first quarter of the window, {last} in the last ({percent})"


def change_notes(departed: Sequence[Departure], trends: Sequence[Trend]) -> tuple[Note, ...]:
    """One for each; longer responses ask for another fleet than their mean over the window does."""
    notes = [Note("other", departure_words(d), 1 / d.of) for d in departed]
    for trend in trends:
        text = trend_words(trend)
        if trend.what == "response_tokens":
            text += f"; means are over all of it, and a fleet is to be sized for the end: {sized_for_the_end(trend)}"
        notes.append(Note("other", text))
    return tuple(notes)


def sized_for_the_end(trend: Trend) -> str:
    """The command that looks at the last quarter alone; a log without a clock has no time to begin at."""
    if not has_clock(trend.from_s):
        return "take a window of its last steps"
    return f"fleetsim replay ... --start {units.clock(trend.from_s).replace(' UTC', 'Z').replace(' ', 'T')} --recommend"


def _lengths(history: History, steps: Steps | None) -> Trend | None:
    buckets = history.histograms.get("output_tokens")
    if buckets is not None and len(buckets.times) >= 2:
        counts, sums = growth_of(buckets)
        number = counts[:, -1]
        ended = number > 0
        means = sums[ended] / number[ended]
        return _trend("response_tokens", buckets.times[1:][ended], means, number[ended], float(buckets.times[0]))
    if history.steps is None or steps is None:
        return None
    means = history.steps.columns.get("length_mean")
    if means is None and {"tokens", "samples"} <= steps.columns.keys():
        samples = steps.columns["samples"]
        means = steps.columns["tokens"] / np.where(samples > 0, samples, np.nan)
    return None if means is None else _trend("response_tokens", steps.end_s, means, np.ones(means.size), None)


def _trend(what: Moving, at: Floats, values: Floats, weights: Floats, start_s: float | None) -> Trend | None:
    """The first and the last quarter of the time, if they differ by more than the values scatter."""
    known = np.isfinite(values) & np.isfinite(at)
    at, values, weights = at[known], values[known], weights[known]
    if at.size < 2 * FEWEST:
        return None
    begin = float(at[0]) if start_s is None else start_s
    quarter = (float(at[-1]) - begin) / 4
    first, last = at <= begin + quarter, at > float(at[-1]) - quarter
    if min(first.sum(), last.sum()) < FEWEST:
        return None
    (a, error_a), (b, error_b) = _mean(values[first], weights[first]), _mean(values[last], weights[last])
    if a <= 0 or abs(b / a - 1.0) < MOVED or abs(b - a) < ERRORS * math.hypot(error_a, error_b):
        return None
    return Trend(what, a, b, float(at[-1]) - quarter)


def _mean(values: Floats, weights: Floats) -> tuple[float, float]:
    """Weighted mean, and its standard error from the scatter of the values."""
    mean = float(np.average(values, weights=weights))
    return mean, float(np.sqrt(np.average((values - mean) ** 2, weights=weights) / (len(values) - 1)))


def changed_words(observed: Observed) -> list[str]:
    """What made the fleet's work more, or its instances fewer, within the window."""
    said = ["; ".join(filter(None, (departure_words(gone), _waits_words(gone)))) for gone in observed.departed]
    responses, step = observed.trend("response_tokens"), observed.trend("step_s")
    if responses is not None:
        said.append(f"{trend_words(responses)}: size for the end, {sized_for_the_end(responses)}")
    return said if step is None else [*said, trend_words(step)]


def since_words(observed: Observed, *, count: bool) -> str:
    """The same for the headline: what the fleet was not sized for. count: the number of instances is the cause; then
    those that went are named, if the trainer waits longer without them."""
    gone = [d for d in unreplaced(observed.departed) if count and d.waits and d.waits[1] - d.waits[0] >= LONGER]
    responses = observed.trend("response_tokens")
    said = [f"{names_of(gone)} vanished"] if gone else []
    if responses is not None and responses.growth > 0:
        said.append(f"responses grew by {units.share(responses.growth)}")
    return f" since {' and '.join(said)}" if said else ""
