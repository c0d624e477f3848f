"""Slices of the window: what changes over it, and what a prediction is held against."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from fleetsim.history.history import Floats, History
from fleetsim.replay.observe.intervals import Intervals, mean, number
from fleetsim.replay.observe.observed import Hour
from fleetsim.replay.observe.steps import Steps

HOUR_S = 3600.0
SHORT_S = 3 * HOUR_S  # below: too few hours to compare
PARTS = 4
MOST = 2000  # slices; a window of over 12 weeks, or one whose clock jumped, has longer ones
LEAST_S = 600.0


def edges_of(start_s: float, end_s: float) -> Floats:
    """Bounds of the slices: hours from the start, a rest of under half an hour joined to the last; a window below three
    hours in four equal parts, or fewer so that each has ten minutes; beyond MOST hours, slices of so many hours."""
    span = end_s - start_s
    if span < SHORT_S:
        parts = int(min(PARTS, max(1, span // LEAST_S)))
        return np.linspace(start_s, end_s, parts + 1)
    each_s = HOUR_S * math.ceil(span / (MOST * HOUR_S))
    whole = int(span // each_s)
    parts = whole + (span - whole * each_s >= each_s / 2)
    return np.append(start_s + each_s * np.arange(parts), end_s)


def hours_of(history: History, intervals: Intervals | None, steps: Steps | None) -> tuple[Hour, ...]:
    """Every slice of the window. Without engines (a run log) there are no instances, and tokens are those trained."""
    start_s, end_s = history.start_s, history.end_s
    if intervals is None and steps is not None and len(steps.end_s):
        start_s, end_s = log_span(steps)
    bounds = edges_of(start_s, end_s)
    return tuple(_hour(history, intervals, steps, float(a), float(b)) for a, b in pairwise(bounds))


def log_span(steps: Steps) -> tuple[float, float]:
    """Start of the first step and end of the last, as far as the log says."""
    first = float(steps.elapsed_s[0]) if np.isfinite(steps.elapsed_s[0]) else 0.0
    return float(steps.end_s[0]) - first, float(steps.end_s[-1])


def _hour(history: History, intervals: Intervals | None, steps: Steps | None, start_s: float, end_s: float) -> Hour:
    part = None if steps is None else steps.part(start_s, end_s)
    instances = tok_s = each = None
    if intervals is not None:
        instances, each = rates_between(intervals, start_s, end_s)
        tok_s = None if each is None else each * instances
    elif part is not None:
        tok_s = part.per_second("tokens")
    idle = None if part is None else part.per_second("wait_s")
    sync = None if part is None else part.per_second("sync_s")
    return Hour(
        start_s=start_s,
        end_s=end_s,
        instances=instances,
        tok_s=tok_s,
        instance_tok_s=each,
        step_s=None if part is None else part.step_s(),
        idle_fraction=None if idle is None else min(idle, 1.0),
        queue=_queue(history, steps, start_s, end_s),
        sync_fraction=None if sync is None else min(sync, 1.0),
    )


def rates_between(intervals: Intervals, start_s: float, end_s: float) -> tuple[float, float | None]:
    """Mean instances present, and output tokens per known instance-second; intervals count by their overlap."""
    left, right = intervals.times[:-1], intervals.times[1:]
    overlap = np.clip(np.minimum(right, end_s) - np.maximum(left, start_s), 0.0, None)
    weights = np.where(intervals.read, overlap, 0.0)
    instances = float((intervals.present.sum(axis=0) * weights).sum() / weights.sum()) if weights.any() else 0.0
    seconds = float((intervals.known * overlap).sum())
    tokens = float((np.where(intervals.known, intervals.growth, 0.0) * overlap).sum()) / intervals.step_s
    return instances, tokens / seconds if seconds > 0 else None


def _queue(history: History, steps: Steps | None, start_s: float, end_s: float) -> float | None:
    if (depth := history.fleet.get("queue.samples")) is not None:
        return number(mean(depth[(history.times >= start_s) & (history.times <= end_s)]))
    if history.steps is not None and (depth := history.steps.columns.get("queue_samples")) is not None:
        inside = None if steps is None else (steps.end_s > start_s) & (steps.end_s <= end_s)
        return None if inside is None else number(mean(depth[inside]))
    return None
