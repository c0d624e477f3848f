"""What instances and the fleet produced, and how full they were: over the window, and in each of its slices.

The slices are what a prediction is held against. Where nobody scrapes the engines, a run log says what it can.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from fleetsim.history.counters import growth, increments
from fleetsim.history.history import Floats, History, StepLog
from fleetsim.replay.observe.interruptions import Pause, outside
from fleetsim.replay.observe.intervals import Intervals, fleet_total, mean, number, percentile, sums_of
from fleetsim.replay.observe.observed import FleetView, Hour, InstanceView, LoggedRollout
from fleetsim.replay.observe.paces import Paces
from fleetsim.replay.observe.segments import Still, inside, overlap_s
from fleetsim.replay.observe.steps import NO_STEPS, Steps


def instance_views(
    history: History, intervals: Intervals, pauses: tuple[Pause, ...], paces: Paces
) -> tuple[InstanceView, ...]:
    """Every instance over the window. Rates are over the seconds whose growth is known, gaps left out on both sides."""
    known = intervals.known
    active = intervals.step_s - overlap_s(intervals.times[:-1], intervals.times[1:], pauses)
    tokens, free = np.where(known, intervals.growth, 0.0), outside(intervals, pauses)
    hits, queries = prefix_counts(history)
    preempted = _grown(history, "preemptions")
    views = []
    for row, instance in enumerate(history.instances):
        seconds = float(known[row].sum()) * intervals.step_s
        active_s = float(active[known[row]].sum())
        generated = float(tokens[row].sum())
        running, waiting, kv_use = (
            None if (values := history.values.get(name)) is None else values[row]
            for name in ("running", "waiting", "kv_use")
        )
        own = intervals.growth[row][known[row] & free]
        usual = float(own.mean()) if own.size else 0.0
        views.append(
            InstanceView(
                id=instance,
                present_s=seconds,
                generated_tokens=generated,
                tok_s=generated / seconds if seconds else 0.0,
                active_tok_s=generated / active_s if active_s > 0 else 0.0,
                spread=float(own.std()) / usual if usual > 0 else 0.0,
                running=number(mean(running)),
                waiting=number(mean(waiting)),
                kv_use=number(mean(kv_use)),
                kv_use_peak=percentile(kv_use, 100),
                preemptions=None if preempted is None else number(preempted[row]),
                prefix_hit=None if hits is None or queries is None else _share(float(hits[row]), float(queries[row])),
                restarts=int(intervals.restarts[row]),
                pace=float(paces.pace[row]),
                straggler=bool(paces.straggler[row]),
                running_peak=percentile(running, 100),
                full_share=_full_share(running, waiting),
                scraped=float(intervals.sampled[row].mean()),
            )
        )
    return tuple(views)


def fleet_view(
    history: History, intervals: Intervals, pauses: tuple[Pause, ...], views: tuple[InstanceView, ...]
) -> FleetView:
    """All instances together. tok_s: growth per known instance-second x instances present: gaps do not lower it."""
    there = intervals.present.sum(axis=0)[intervals.read]
    seconds = sum(view.present_s for view in views)
    instances = float(there.mean()) if there.size else 0.0
    each = sum(view.generated_tokens for view in views) / seconds if seconds else 0.0
    rates = np.array([view.active_tok_s for view in views if view.present_s > 0])
    free = ~inside(intervals.times, pauses)
    in_flight = np.zeros(0) if intervals.work is None else intervals.work[free]
    flying = in_flight[np.isfinite(in_flight)]
    running, waiting, kv_use = (history.values.get(name) for name in ("running", "waiting", "kv_use"))
    idle = behind = None
    if running is not None:
        idle = number(mean(np.where(np.isfinite(running[:, free]), running[:, free] == 0, np.nan)))
        if waiting is not None:  # an engine that runs none stands still, and is not full
            behind = _mean_total(np.where(running == 0, 0.0, waiting))
    hits, queries = prefix_counts(history)
    finished = total(history, "finished")
    return FleetView(
        instances=instances,
        instances_now=int(intervals.sampled[:, -3:].any(axis=1).sum()),
        instances_min=int(there.min(initial=len(views))),
        instances_max=int(there.max(initial=0)),
        tok_s=each * instances,
        instance_tok_s=each,
        tok_s_cv=float(rates.std() / rates.mean()) if rates.size and rates.mean() > 0 else 0.0,
        running=_mean_total(running),
        waiting=_mean_total(waiting),
        in_flight_mean=number(mean(in_flight)),
        in_flight_peak=percentile(in_flight, 99),
        kv_use=number(mean(kv_use)),
        kv_use_peak=percentile(kv_use, 99),
        idle_share=idle,
        preemptions_per_s=_per_second(history, intervals, "preemptions"),
        prefix_hit=None if hits is None or queries is None else _share(float(hits.sum()), float(queries.sum())),
        finished_s=_per_second(history, intervals, "finished"),
        aborted_share=_share(total(history, "finished_abort"), finished),
        length_share=_share(total(history, "finished_length"), finished),
        in_flight_scatter=float(flying.var() / flying.mean()) if flying.size and flying.mean() > 0 else None,
        waiting_behind=behind,
    )


def total(history: History, name: str) -> float | None:
    """Growth of a counter over the window, summed over instances; None where nobody exports it."""
    each = _grown(history, name)
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
    hits = _grown(history, "prefix_hits")
    queries = _grown(history, "prefix_queries")
    if queries is None:
        queries = _grown(history, "prompt_tokens")
    if hits is None or queries is None:
        return None, None
    both = np.isfinite(hits) & np.isfinite(queries)
    return np.where(both, hits, 0.0), np.where(both, queries, 0.0)


def _grown(history: History, name: str) -> Floats | None:
    """(I,) growth of a counter over the window."""
    values = history.values.get(name)
    return None if values is None else growth(values)


def _full_share(running: Floats | None, waiting: Floats | None) -> float | None:
    """Of the times at which requests wait, those at which as many run as ever; None where none ever waits."""
    if running is None or waiting is None:
        return None
    queued = np.isfinite(running) & (np.nan_to_num(waiting) > 0)
    return float((running[queued] >= np.nanmax(running) - 0.5).mean()) if queued.any() else None


def _mean_total(values: Floats | None) -> float | None:
    return None if values is None else number(mean(fleet_total(values)))


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


HOUR_S = 3600.0
PARTS = 4
SHORT_S = (PARTS - 0.5) * HOUR_S  # below: too few hours to compare
MOST = 2000  # slices; a window of over 12 weeks, or one whose clock jumped, has longer ones
LEAST_S = 600.0


def edges_of(start_s: float, end_s: float) -> Floats:
    """Bounds of the slices: hours from the start, a rest of under half an hour joined to the last; a window of fewer
    than PARTS of them in PARTS equal ones, or fewer so that each has ten minutes; beyond MOST hours, slices of so many
    hours."""
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
    part = (NO_STEPS if steps is None else steps).part(start_s, end_s)
    instances, each, tok_s = None, None, part.per_second("tokens")
    if intervals is not None:
        instances, each = rates_between(intervals, start_s, end_s)
        tok_s = None if each is None else each * instances
    idle, sync = part.per_second("wait_s"), part.per_second("sync_s")
    return Hour(
        start_s=start_s,
        end_s=end_s,
        instances=instances,
        tok_s=tok_s,
        instance_tok_s=each,
        step_s=part.step_s(),
        idle_fraction=None if idle is None else min(idle, 1.0),
        queue=_queue(history, steps, start_s, end_s),
        sync_fraction=None if sync is None else min(sync, 1.0),
    )


def rates_between(intervals: Intervals, start_s: float, end_s: float) -> tuple[float, float | None]:
    """Mean instances present, and output tokens per known instance-second; intervals count by their overlap."""
    left, right = intervals.times[:-1], intervals.times[1:]
    overlap = overlap_s(left, right, [Still(start_s, end_s)])
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


# What a log's columns say of the rollout side as they stand.
_ROLLOUT = {
    **{name: name for name in ("group_size", "running", "waiting", "kv_use", "prefix_hit", "preemptions")},
    "in_flight": "in_flight_samples",
    "in_flight_cap": "in_flight_cap_samples",
    "partial_share": "partial_share",
    "turns": "turns_mean",
    "tool_calls": "tool_calls_mean",
    "tool_s": "tool_s_mean",
    "tok_s": "rollout_tok_s",
}
_SAMPLE_S = ("mean", "p50", "p90", "p95", "p99", "max")


def logged_rollout(history: History) -> LoggedRollout | None:
    """Of a run log; None where there is none, or it says nothing of the rollout side."""
    log = history.steps
    if log is None:
        return None
    seconds = {
        of: tuple((name, value) for name in _SAMPLE_S if (value := log.mean(f"{of}_s_{name}")) is not None)
        for of in ("sample", "group")
    }
    size, cap = log.mean("group_size"), log.mean("queue_cap_groups")
    worked, stale = _share_of(log, "rollout_active_s", "rollout_window_s"), _share_of(log, "stale_samples", "samples")
    means = {name: log.mean(column) for name, column in _ROLLOUT.items()}
    found = LoggedRollout(
        **means,
        # of all seconds, so that long steps count for what they are; else the mean of the shares
        idle_share=log.mean("rollout_idle") if worked is None else min(1.0, max(0.0, 1.0 - worked)),
        queue_cap=None if size is None or cap is None else cap * size,
        sample_s=seconds["sample"],
        group_s=seconds["group"],
        stale_share=log.mean("stale_share") if "stale_share" in log.columns or stale is None else min(1.0, stale),
    )
    says = any(getattr(found, name) not in (None, ()) for name in LoggedRollout.__struct_fields__)
    return found if says else None


def _share_of(log: StepLog, part: str, whole: str) -> float | None:
    """Sum of a column / that of another, over the rows that have both; None where there are none."""
    if not {part, whole} <= log.columns.keys():
        return None
    top, bottom = sums_of(log.columns[part], log.columns[whole])
    return top / bottom if bottom > 0 else None
