"""What instances and the fleet produced, and how full they were: over the window, and in each of its slices.

The slices are what a prediction is held against.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from fleetsim.history.counters import growth, increments
from fleetsim.history.history import Floats, History
from fleetsim.replay.observe.interruptions import Pause, outside, paused_s
from fleetsim.replay.observe.intervals import Intervals, Mask, fleet_total, mean, number, percentile
from fleetsim.replay.observe.observed import FleetView, Hour, InstanceView
from fleetsim.replay.observe.paces import Paces
from fleetsim.replay.observe.steps import Steps


def instance_views(
    history: History, intervals: Intervals, pauses: tuple[Pause, ...], paces: Paces
) -> tuple[InstanceView, ...]:
    """Every instance over the window. Rates are over the seconds whose growth is known, gaps left out on both sides."""
    known = intervals.known
    left, right = intervals.times[:-1], intervals.times[1:]
    active = intervals.step_s - paused_s(left, right, pauses)
    tokens = np.where(known, intervals.growth, 0.0)
    hits, queries = prefix_counts(history)
    preempted = _per_instance(history, "preemptions")
    views = []
    for row, instance in enumerate(history.instances):
        seconds = float(known[row].sum()) * intervals.step_s
        active_s = float(active[known[row]].sum())
        generated = float(tokens[row].sum())
        kv_use = _row(history, "kv_use", row)
        views.append(
            InstanceView(
                id=instance,
                present_s=seconds,
                generated_tokens=generated,
                tok_s=generated / seconds if seconds else 0.0,
                active_tok_s=generated / active_s if active_s > 0 else 0.0,
                spread=_spread(intervals.growth[row][known[row] & outside(intervals, pauses)]),
                running=number(mean(_row(history, "running", row))),
                waiting=number(mean(_row(history, "waiting", row))),
                kv_use=number(mean(kv_use)),
                kv_use_peak=percentile(kv_use, 100),
                preemptions=None if preempted is None else number(preempted[row]),
                prefix_hit=_ratio(hits, queries, row),
                restarts=int(intervals.restarts[row]),
                pace=float(paces.pace[row]),
                straggler=bool(paces.straggler[row]),
                running_peak=percentile(_row(history, "running", row), 100),
                full_share=_full_share(_row(history, "running", row), _row(history, "waiting", row)),
            )
        )
    return tuple(views)


def fleet_view(
    history: History, intervals: Intervals, pauses: tuple[Pause, ...], views: tuple[InstanceView, ...]
) -> FleetView:
    """All instances together. tok_s: growth per known instance-second x instances present: gaps do not lower it."""
    there = intervals.present.sum(axis=0)[intervals.read]
    seconds = sum(view.present_s for view in views)
    generated = sum(view.generated_tokens for view in views)
    instances = float(there.mean()) if there.size else 0.0
    each = generated / seconds if seconds else 0.0
    rates = np.array([view.active_tok_s for view in views if view.present_s > 0])
    free = _times_outside(intervals.times, pauses)
    in_flight = intervals.work
    hits, queries = prefix_counts(history)
    finished = total(history, "finished")
    finished_s, preemptions_s = (_per_second(history, intervals, name) for name in ("finished", "preemptions"))
    aborted, cut = total(history, "finished_abort"), total(history, "finished_length")
    kv_use = history.values.get("kv_use")
    return FleetView(
        instances=instances,
        instances_now=int(intervals.sampled[:, -3:].any(axis=1).sum()),
        instances_min=int(there.min(initial=len(views))),
        instances_max=int(there.max(initial=0)),
        tok_s=each * instances,
        instance_tok_s=each,
        tok_s_cv=float(rates.std() / rates.mean()) if rates.size and rates.mean() > 0 else 0.0,
        running=_mean_total(history.values.get("running")),
        waiting=_mean_total(history.values.get("waiting")),
        in_flight_mean=None if in_flight is None else number(mean(in_flight[free])),
        in_flight_peak=None if in_flight is None else percentile(in_flight[free], 99),
        kv_use=number(mean(kv_use)),
        kv_use_peak=percentile(kv_use, 99),
        idle_share=_idle_share(history, free),
        preemptions_per_s=preemptions_s,
        prefix_hit=None if hits is None or queries is None else _share(float(hits.sum()), float(queries.sum())),
        finished_s=finished_s,
        aborted_share=_share(aborted, finished),
        length_share=_share(cut, finished),
        in_flight_scatter=None if in_flight is None else _scatter(in_flight[free]),
        waiting_behind=_behind(history),
    )


def total(history: History, name: str) -> float | None:
    """Growth of a counter over the window, summed over instances; None where nobody exports it."""
    each = _per_instance(history, name)
    return None if each is None or not np.isfinite(each).any() else float(each[np.isfinite(each)].sum())


def _per_second(history: History, intervals: Intervals, name: str) -> float | None:
    """Growth of a counter of all instances per second, over the instances' seconds that were read: what grew in a hole
    counts no more than the hole's time does. None where nobody exports it."""
    values = history.values.get(name)
    if values is None:
        return None
    grown = increments(values, history.step_s)
    seconds = float(intervals.known.sum()) * intervals.step_s
    there = intervals.present.sum(axis=0)[intervals.read]
    if not np.isfinite(grown).any() or seconds <= 0:
        return None
    return float(np.where(intervals.known, np.nan_to_num(grown), 0.0).sum()) / seconds * float(there.mean())


def prefix_counts(history: History) -> tuple[Floats | None, Floats | None]:
    """(I,) prompt tokens found in the prefix cache, and looked up: all prompts, where look-ups are not counted."""
    hits = _per_instance(history, "prefix_hits")
    queries = _per_instance(history, "prefix_queries")
    if queries is None:
        queries = _per_instance(history, "prompt_tokens")
    if hits is None or queries is None:
        return None, None
    both = np.isfinite(hits) & np.isfinite(queries)
    return np.where(both, hits, 0.0), np.where(both, queries, 0.0)


def _per_instance(history: History, name: str) -> Floats | None:
    values = history.values.get(name)
    return None if values is None else growth(values)


def _row(history: History, name: str, row: int) -> Floats | None:
    values = history.values.get(name)
    return None if values is None else values[row]


def _full_share(running: Floats | None, waiting: Floats | None) -> float | None:
    """Of the times at which requests wait, those at which as many run as ever; None where none ever waits."""
    if running is None or waiting is None:
        return None
    queued = np.isfinite(running) & (np.nan_to_num(waiting) > 0)
    return float((running[queued] >= np.nanmax(running) - 0.5).mean()) if queued.any() else None


def _mean_total(values: Floats | None) -> float | None:
    return None if values is None else number(mean(fleet_total(values)))


def _scatter(values: Floats) -> float | None:
    """Variance / mean of the values that are known."""
    known = values[np.isfinite(values)]
    return float(known.var() / known.mean()) if known.size and known.mean() > 0 else None


def _behind(history: History) -> float | None:
    """Requests that wait in engines that run others: one that runs none stands still, and is not full."""
    running, waiting = history.values.get("running"), history.values.get("waiting")
    if running is None or waiting is None:
        return None
    return _mean_total(np.where(running == 0, 0.0, waiting))


def _idle_share(history: History, free: Mask) -> float | None:
    running = history.values.get("running")
    if running is None:
        return None
    return number(mean(np.where(np.isfinite(running[:, free]), running[:, free] == 0, np.nan)))


def _times_outside(times: Floats, pauses: tuple[Pause, ...]) -> Mask:
    free = np.ones(len(times), dtype=bool)
    for pause in pauses:
        free &= (times <= pause.start_s) | (times >= pause.end_s)
    return free


def _spread(growth_of_one: Floats) -> float:
    average = float(growth_of_one.mean()) if growth_of_one.size else 0.0
    return float(growth_of_one.std()) / average if average > 0 else 0.0


def _ratio(part: Floats | None, whole: Floats | None, row: int) -> float | None:
    return None if part is None or whole is None else _share(float(part[row]), float(whole[row]))


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


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
