"""What moved over a window: a mean over all of it hides that its end is not what its start was."""

from __future__ import annotations

import math

import numpy as np

from fleetsim import units
from fleetsim.history.history import Floats, History, Note
from fleetsim.replay.observe.lengths import growth_of
from fleetsim.replay.observe.observed import Moving, Trend
from fleetsim.replay.observe.steps import Steps

# Relative growth that is worth a word, and by how many of its own standard errors it must stand out.
MOVED, ERRORS = 0.10, 4.0
# Values that a quarter needs: fewer have no spread to speak of.
FEWEST = 4
_CLOCKS = 1e8  # unix seconds: below, time begins with the log


def trends_of(history: History, steps: Steps | None) -> tuple[Trend, ...]:
    """Response lengths (of the requests that ended, or of the run log) and the seconds of an optimizer step."""
    found = (_lengths(history, steps), _steps(steps))
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


def trend_notes(trends: tuple[Trend, ...]) -> tuple[Note, ...]:
    """One for each; longer responses ask for another fleet than their mean over the window does."""
    notes = []
    for trend in trends:
        text = trend_words(trend)
        if trend.what == "response_tokens":
            text += f"; means are over all of it, and a fleet is to be sized for the end: {sized_for_the_end(trend)}"
        notes.append(Note("other", text))
    return tuple(notes)


def sized_for_the_end(trend: Trend) -> str:
    """The command that looks at the last quarter alone; a log without a clock has no time to begin at."""
    if trend.from_s < _CLOCKS:
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
    means = history.steps.columns.get("length_mean", np.array([]))
    if not means.size and {"tokens", "samples"} <= steps.columns.keys():
        samples = steps.columns["samples"][0]
        means = steps.columns["tokens"][0] / np.where(samples > 0, samples, np.nan)
    if means.size != len(steps.end_s):
        return None
    return _trend("response_tokens", steps.end_s, means, np.ones(means.size), None)


def _steps(steps: Steps | None) -> Trend | None:
    if steps is None or steps.source == "inferred":
        return None
    known = np.isfinite(steps.elapsed_s) & (np.nan_to_num(steps.count) > 0)
    count = steps.count[known]
    return _trend("step_s", steps.end_s[known], steps.elapsed_s[known] / count, count, None)


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
