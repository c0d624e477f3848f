"""What is wrong with a window that was read, as notes: holes, restarts, renamed metrics, clocks that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fleetsim.errors import Problem
from fleetsim.history import counters
from fleetsim.history.counters import MAX_HOLE_S, restarts
from fleetsim.history.history import Floats, InstanceId, Note
from fleetsim.history.window import shown
from fleetsim.units import plural, seconds, share


def holes(values: Mapping[str, Floats], instances: Sequence[InstanceId], step_s: float) -> list[Note]:
    """Scrapes that are missing between an instance's first and last one, of the signal that every engine exposes."""
    main = _main(values)
    if main is None or not len(instances):
        return []
    there = np.isfinite(main)
    index = np.arange(main.shape[1])
    first = np.where(there.any(axis=1), there.argmax(axis=1), main.shape[1])
    last = main.shape[1] - 1 - there[:, ::-1].argmax(axis=1)
    inside = (index >= first[:, None]) & (index <= last[:, None])
    lost = inside & ~there
    if not lost.any():
        return []
    part = float(lost.sum() / inside.sum())
    runs = [_longest(row) for row in lost]
    worst = int(np.argmax(runs))
    long = sum(1 for run in runs if (run + 1) * step_s > MAX_HOLE_S)
    text = (
        f"{share(part)} of the scrapes are missing, in {int(lost.any(axis=1).sum())} of {len(instances)} instances; the"
        f" longest hole is {seconds((runs[worst] + 1) * step_s)}, of {instances[worst]}."
    )
    over = f" Counters' growth is spread evenly over holes of up to {seconds(MAX_HOLE_S)}"
    text += over + (f"; longer ones, of {plural(long, 'instance')}, count as gaps." if long else ".")
    return [Note("gap", text, part)]


def resets(values: Mapping[str, Floats], instances: Sequence[InstanceId]) -> list[Note]:
    """Instances whose counters started again."""
    main = values.get("generation_tokens")
    if main is None:
        return []
    often = restarts(main)
    if not often.any():
        return []
    named = [f"{instances[i]} {n} x" if n > 1 else str(instances[i]) for i, n in enumerate(often) if n]
    more = f" and {len(named) - 8} more" if len(named) > 8 else ""
    text = f"Counters restarted {int(often.sum())} times: {', '.join(named[:8])}{more}. Growth is counted across it."
    return [Note("reset", text)]


def no_total(signal: str, labels: Mapping[str, str], values: Floats) -> Problem | None:
    """A series that was read, or mapped, as a running total and is none."""
    found = counters.no_total(values)
    if found is None:
        return None
    falls, changes = found
    of = labels.get("pod") or labels.get("instance")
    rule = f"falls in {falls:,} of its {changes:,} changes; a running total falls only where its process restarts"
    remedy = "map the counter itself, not rate() or increase() of it; scrape each engine, not an address that balances"
    return Problem(signal, of, rule, remedy)


def renamed(signal: str, spans: Sequence[tuple[str, float, float]]) -> Note:
    """One signal under several metric names in one window: (name, first seen, last seen)."""
    parts = [f"{name} ({shown(first)} to {shown(last)})" for name, first, last in spans]
    text = f"{signal} comes under {len(parts)} names, read as one: {', '.join(parts)}. Two releases of an engine?"
    return Note("rename", text)


def clock(ahead_s: float | None, step_s: float) -> list[Note]:
    """The server's clock against ours."""
    if ahead_s is None or abs(ahead_s) <= max(10.0, step_s):
        return []
    way = "ahead of" if ahead_s > 0 else "behind"
    text = f"Prometheus's clock is {seconds(abs(ahead_s))} {way} this machine's; times are Prometheus's."
    return [Note("skew", text)]


def newest(last_s: float | None, end_s: float, now_s: float, step_s: float, targets_up: bool) -> list[Note]:
    """A window that reaches up to now, and yet has nothing of the last minutes, or something of the future.

    last_s: time of the newest sample that Prometheus has; targets_up: whether it says that it scrapes them.
    """
    if last_s is None or end_s < now_s - 2 * step_s - 60.0:
        return []
    if last_s > now_s + max(10.0, step_s):
        return [Note("skew", f"The newest sample is {seconds(last_s - now_s)} in the future: clocks differ.")]
    silent_s = now_s - last_s
    if silent_s <= 3 * step_s + 60.0:
        return []
    why = "though its targets are up: is a clock wrong, or does data arrive late?" if targets_up else "no target is up."
    return [Note("skew" if targets_up else "gap", f"The newest sample is {seconds(silent_s)} old, {why}")]


def _main(values: Mapping[str, Floats]) -> Floats | None:
    for name in ("generation_tokens", "running"):
        if name in values:
            return values[name]
    return next(iter(values.values()), None)


def _longest(lost: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    """Length of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], lost.astype(np.int8), [0]))))
    return int((edges[1::2] - edges[::2]).max()) if edges.size else 0
