"""What is wrong with a window that was read: holes, restarts, renamed metrics, clocks that differ; values that cannot
be (they count as missing); and the engines of several jobs at once (they are refused).

A history may come from a table that somebody edited, an expression that was mapped wrongly, or an exporter with a
fault. Every reader's result passes here, so that no later arithmetic meets an infinite load or 10^300 tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.counters import MAX_HOLE_S, lifespan, no_total, restarts
from fleetsim.history.history import Buckets, Floats, History, InstanceId, Note
from fleetsim.history.option_names import SELECTOR
from fleetsim.history.signals import BY_NAME
from fleetsim.history.window import shown
from fleetsim.records import replace
from fleetsim.units import few, plural, seconds, share


def holes(values: Mapping[str, Floats], instances: Sequence[InstanceId], step_s: float) -> list[Note]:
    """Scrapes that are missing between an instance's first and last one, of the signal that every engine exposes."""
    main = values.get("generation_tokens", values.get("running", next(iter(values.values()), None)))
    if main is None or not len(instances):
        return []
    there = np.isfinite(main)
    inside = lifespan(there)
    lost = inside & ~there
    if not lost.any():
        return []
    part = float(lost.sum() / inside.sum())
    runs = [max(sum(run) for _, run in groupby(row.tolist())) for row in lost]  # of True
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
    text = f"Counters restarted {units.plural(int(often.sum()), 'time')}: {few(named, 8)}. Growth is counted across it."
    return [Note("reset", text)]


def check_totals(totals: Iterable[tuple[str, Mapping[str, str], Floats]]) -> None:
    """(signal, labels, values) of series that were read, or mapped, as running totals: whether they are any. Raises
    InputError, with one problem a signal."""
    problems: dict[str, Problem] = {}
    for signal, labels, values in totals:
        if signal in problems or (found := no_total(values)) is None:
            continue
        of, (falls, changes) = labels.get("pod") or labels.get("instance"), found
        rule = f"falls in {falls:,} of its {changes:,} changes; a running total falls only where its process restarts"
        remedy = (
            "map the counter itself, not rate() or increase() of it; scrape each engine, not an address that balances"
        )
        problems[signal] = Problem(signal, of, rule, remedy)
    if problems:
        raise InputError(list(problems.values()))


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


# By unit: the most that one value of a gauge, or one bound of a histogram, can be.
_MOST: Mapping[str, float] = {
    "tokens": 1e9,
    "requests": 1e7,
    "samples": 1e9,
    "seconds": 1e9,
    "steps": 1e9,
    "share": 100.0,
}
# A counter grows for the life of a process.
_MOST_COUNTED = 1e18
# A log's columns: samples, tokens, steps; its clock is unix seconds.
_MOST_LOGGED = 1e12
# Beyond it nothing is a number of anything, and products and sums of such numbers overflow.
_NO_NUMBER = 1e30


def bounded(history: History) -> History:
    """The history with what cannot be taken out, and a note of each signal that it was taken from."""
    notes: list[Note] = []
    values = {name: _values(name, value, notes) for name, value in history.values.items()}
    fleet = {name: _values(name, value, notes) for name, value in history.fleet.items()}
    histograms = {name: _buckets(name, b, notes) for name, b in history.histograms.items()}
    steps = history.steps
    if steps is not None:
        columns = {name: _within(name, v, _most_logged(name), notes) for name, v in steps.columns.items()}
        steps = replace(steps, columns=columns)
    if not notes:
        return history
    return replace(
        history, values=values, fleet=fleet, histograms=histograms, steps=steps, notes=(*history.notes, *notes)
    )


def _most_logged(column: str) -> float:
    return _MOST["seconds"] if column.endswith("_s") and column != "time_s" else _MOST_LOGGED


def representable(name: str, value: Floats, notes: list[Note]) -> Floats:
    """A metric of a log as it was written, in whatever unit: what no arithmetic may meet counts as missing."""
    wrong = np.abs(value) > _NO_NUMBER
    return _without(name, value, wrong, f"{_NO_NUMBER:g} at most can be", notes) if wrong.any() else value


def _values(name: str, value: Floats, notes: list[Note]) -> Floats:
    signal = BY_NAME.get(name)
    if signal is None:
        return value
    return _within(name, value, _MOST_COUNTED if signal.kind == "counter" else _MOST.get(signal.unit, 1e18), notes)


def _within(name: str, value: Floats, most: float, notes: list[Note]) -> Floats:
    """Below 0 or above `most` is NaN. A log's time may be anything that is finite."""
    with np.errstate(invalid="ignore"):
        wrong = np.isinf(value) | (value > most) | ((value < 0) & (name != "time_s"))
    if not wrong.any():
        return value
    return _without(name, value, wrong, f"0 to {most:g} can be", notes)


def _without(name: str, value: Floats, wrong: NDArray[np.bool_], rule: str, notes: list[Note]) -> Floats:
    part = float(wrong.sum() / value.size)
    first = float(value[wrong][0])
    text = f"{share(part)} of {name} cannot be (the first is {first:g}; {rule}): they count as missing."
    notes.append(Note("partial", text, part))
    return np.where(wrong, np.nan, value)


def _buckets(name: str, b: Buckets, notes: list[Note]) -> Buckets:
    """Without bounds at or below 0 or out of reach; the next one holds what they do: counts run up over bounds."""
    signal = BY_NAME.get(name)
    most = _MOST.get(signal.unit, 1e9) if signal is not None else 1e9
    keep = np.isinf(b.le) & (b.le > 0) | (b.le > 0) & (b.le <= most)
    if not keep.all():
        out = ", ".join(f"{bound:g}" for bound in b.le[~keep][:4])
        notes.append(Note("partial", f"{name} has bounds that cannot be ({out}): they are left out."))
    counts = _within(f"{name}'s counts", b.counts[..., keep], _MOST_COUNTED, notes)
    return Buckets(b.le[keep], b.times, counts, _within(f"{name}'s sums", b.sums, _MOST_COUNTED, notes))


# What a job has one of, the most telling first; the model goes by vLLM's and SGLang's label.
JOB_LABELS = ("model_name", "namespace", "job", "cluster", "application", "deployment", "app")
# Of the times: two values side by side for less are an old fleet that leaves while a new one comes.
TOGETHER = 0.1
_NAMED = 3


def one_job(history: History, selector: str = "") -> History:
    """The history, if it can be of one job. selector: the matchers with which it was read; a label that they name was
    chosen, whatever values it has. Raises InputError for engines of several jobs, and for addresses whose counters jump
    back and forth."""
    problems = _several(history, selector)
    if problems:
        raise InputError(problems)
    return history


def _several(history: History, selector: str) -> list[Problem]:
    main = history.values.get("generation_tokens", history.values.get("running"))
    if main is None or len(history.instances) < 2:
        return []
    there = np.isfinite(main)
    free = (label for label in JOB_LABELS if re.search(rf"(?<![\w]){label}\s*(=~|=)", selector) is None)
    groups = {label: _groups(history, there, label) for label in free}
    differing = {label: names for label, names in groups.items() if len(names) > 1}
    if not differing:
        return []
    label, names = next(iter(differing.items()))
    shown = "; ".join(f'{label}="{value}" ({few(who, _NAMED)})' for value, who in list(names.items())[:5])
    also = f"; they differ in {', '.join(differing)}" if len(differing) > 1 else ""
    pick = next((x for x in differing if x in ("job", "namespace")), label)
    largest = max(groups[pick], key=lambda value: len(groups[pick][value]))
    every = "|".join(re.escape(value) for value in groups[pick])
    remedy = text(
        """choose one, {} '{}="{}"', or say that all are of one job: '{}=~"{}"'""", SELECTOR, pick, largest, pick, every
    )
    rule = f"engines of several jobs at once: {shown}{also}"
    return [Problem(SELECTOR, selector or "none", rule, remedy)]


def _groups(history: History, there: NDArray[np.bool_], label: str) -> dict[str, list[str]]:
    """Value of a label -> who bears it; only values that are there beside another for long enough."""
    rows: dict[str, list[int]] = {}
    for row, instance in enumerate(history.instances):
        value = instance.model if label == "model_name" else instance.labels.get(label, "")
        if value:
            rows.setdefault(value, []).append(row)
    if len(rows) < 2:
        return {}
    seen = {value: there[mine].any(axis=0) for value, mine in rows.items()}
    several = np.sum(list(seen.values()), axis=0) > 1
    times = max(int(there.any(axis=0).sum()), 1)
    kept = {value: mine for value, mine in rows.items() if (seen[value] & several).sum() >= TOGETHER * times}
    return {value: [str(history.instances[row]) for row in mine] for value, mine in kept.items()}
