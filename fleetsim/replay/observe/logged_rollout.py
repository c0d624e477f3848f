"""What a run log says of the rollout side, where nobody scrapes the engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fleetsim.history.history import Floats, History

# Rows whose wait was seen, to say how much of it lay beside a batch that was ready.
FEWEST = 8


@dataclass(frozen=True, slots=True)
class LoggedLaw:
    """A lognormal law of lengths: mean (tokens) and deviation / mean before the cap, which None stands for if there is
    none."""

    mean: float
    cv: float
    cap: float | None


@dataclass(frozen=True, slots=True)
class LoggedRollout:
    """Means over the steps of a run log; None = the log does not say.

    idle_share: of the time, engines without work. in_flight, in_flight_cap: samples in generation, and the most that
    the client keeps there. group_size: samples per prompt. queue_cap: samples. sample_s: seconds from a sample's begin
    to its end (mean, p50, p90, p95, p99, max; those that the log has); group_s: until its
    group is complete. running, waiting, kv_use: of an instance, means. prefix_hit: 0 to 1. preemptions: per sample.
    stale_share, partial_share: of the samples trained on, older than the trainer's weights, and made by more than one
    version of them. turns, tool_calls, tool_s: per sample. tok_s: output tokens per second, all instances.
    """

    idle_share: float | None
    in_flight: float | None
    in_flight_cap: float | None
    group_size: float | None
    queue_cap: float | None
    sample_s: tuple[tuple[str, float], ...]
    group_s: tuple[tuple[str, float], ...]
    running: float | None
    waiting: float | None
    kv_use: float | None
    prefix_hit: float | None
    preemptions: float | None
    stale_share: float | None
    partial_share: float | None
    turns: float | None
    tool_calls: float | None
    tool_s: float | None
    tok_s: float | None


_SAMPLE_S = ("mean", "p50", "p90", "p95", "p99", "max")


def logged_rollout(history: History) -> LoggedRollout | None:
    """Of a run log; None where there is none, or it says nothing of the rollout side."""
    if history.steps is None:
        return None
    columns = history.steps.columns

    def mean(name: str) -> float | None:
        values = columns.get(name)
        return None if values is None or not np.isfinite(values).any() else float(np.nanmean(values))

    def seconds(of: str) -> tuple[tuple[str, float], ...]:
        return tuple((name, value) for name in _SAMPLE_S if (value := mean(f"{of}_s_{name}")) is not None)

    size = mean("group_size")
    found = LoggedRollout(
        idle_share=_idle(columns.get("rollout_active_s"), columns.get("rollout_window_s"), mean("rollout_idle")),
        in_flight=mean("in_flight_samples"),
        in_flight_cap=mean("in_flight_cap_samples"),
        group_size=size,
        queue_cap=None if size is None or (cap := mean("queue_cap_groups")) is None else cap * size,
        sample_s=seconds("sample"),
        group_s=seconds("group"),
        running=mean("running"),
        waiting=mean("waiting"),
        kv_use=mean("kv_use"),
        prefix_hit=mean("prefix_hit"),
        preemptions=mean("preemptions"),
        stale_share=mean("stale_share") if "stale_share" in columns else _share(columns, "stale_samples"),
        partial_share=mean("partial_share"),
        turns=mean("turns_mean"),
        tool_calls=mean("tool_calls_mean"),
        tool_s=mean("tool_s_mean"),
        tok_s=mean("rollout_tok_s"),
    )
    says = any(getattr(found, name) not in (None, ()) for name in LoggedRollout.__slots__)
    return found if says else None


def _idle(active: Floats | None, window: Floats | None, mean: float | None) -> float | None:
    """Seconds without work / seconds, so that long steps count for what they are; else the mean of the shares."""
    if active is None or window is None:
        return mean
    known = np.isfinite(active) & np.isfinite(window)
    seconds = float(window[known].sum())
    return mean if seconds <= 0 else min(1.0, max(0.0, 1.0 - float(active[known].sum()) / seconds))


def _share(columns: Mapping[str, Floats], name: str) -> float | None:
    """Sum of a column / samples trained, over the rows that have both."""
    values, samples = columns.get(name), columns.get("samples")
    if values is None or samples is None:
        return None
    known = np.isfinite(values) & np.isfinite(samples)
    whole = float(samples[known].sum())
    return min(1.0, float(values[known].sum()) / whole) if whole > 0 else None


def logged_ready_share(history: History) -> float | None:
    """The share of the trainer's waiting in rows at whose both ends the queue held what it takes at once; None where
    the log does not say, or has too few rows. A queue that is full before and after a wait was no reason to wait."""
    if history.steps is None:
        return None
    columns = history.steps.columns
    if not {"queue_groups", "pull_groups", "wait_s"} <= set(columns):
        return None
    queue, need, wait = columns["queue_groups"], columns["pull_groups"], columns["wait_s"]
    full = np.nan_to_num(queue) >= need * (1.0 - 1e-6)
    known = np.isfinite(wait) & np.isfinite(need) & np.r_[False, np.isfinite(queue[:-1])] & np.isfinite(queue)
    waited = float(wait[known].sum())
    if known.sum() < FEWEST or waited <= 0:
        return None
    ready = known & full & np.r_[False, full[:-1]]
    return float(wait[ready].sum()) / waited
