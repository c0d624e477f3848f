"""What a signal can be: values beyond it are no measurement, wherever they come from, and count as missing.

A history may come from a table that somebody edited, an expression that was mapped wrongly, or an exporter with a
fault. Every reader's result passes here, so that no later arithmetic meets an infinite load or 10^300 tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fleetsim.history.history import Buckets, Floats, History, Note
from fleetsim.history.signals import BY_NAME
from fleetsim.units import share

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
# A log's columns: seconds, samples, tokens, steps; its clock is unix seconds.
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
        columns = {name: _within(name, v, _MOST_LOGGED, notes) for name, v in steps.columns.items()}
        steps = replace(steps, columns=columns)
    if not notes:
        return history
    return replace(
        history, values=values, fleet=fleet, histograms=histograms, steps=steps, notes=(*history.notes, *notes)
    )


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
