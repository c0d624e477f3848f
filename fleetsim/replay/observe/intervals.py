"""`Intervals`: what each instance did between two neighbouring times of the grid."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.history.counters import increments, lifespan, restarts
from fleetsim.history.history import Floats, History
from fleetsim.replay.observe.segments import Mask

ALIKE = 0.7  # of the larger of two loads: less is another load


class Intervals(Struct, frozen=True):
    """The T-1 intervals of a window of I instances; interval k lies between times[k] and times[k+1].

    times: (T,) unix seconds, step_s apart. growth: (I, T-1) output tokens, NaN where nobody can know them. sharp:
    (I, T-1) both ends were sampled, so the growth belongs to this interval and no other. present: (I, T-1) the instance
    was there, read or not. sampled: (I, T) there is a sample. running, waiting, kv_use: (I, T-1) means of both ends,
    None if not exported, NaN where neither end was sampled. steady: (I, T-1) what ran at both ends differs by at most
    three tenths, so that it tells what ran in between; all True if not exported. work: (T,) running and waiting
    requests of the fleet, None if not exported. restarts: (I,).
    """

    times: Floats
    step_s: float
    growth: Floats
    sharp: Mask
    present: Mask
    sampled: Mask
    running: Floats | None
    waiting: Floats | None
    kv_use: Floats | None
    steady: Mask
    work: Floats | None
    restarts: NDArray[np.intp]

    @property
    def known(self) -> Mask:
        """(I, T-1): the growth is known."""
        return np.isfinite(self.growth)

    @property
    def read(self) -> Mask:
        """(T-1,): some instance was sampled at one end."""
        some = np.asarray(self.sampled.any(axis=0))
        return np.asarray(some[:-1] | some[1:])

    @property
    def read_s(self) -> float:
        """Seconds of the window in which the growth of some instance is known: what counts per second is over these."""
        return float(self.known.any(axis=0).sum()) * self.step_s

    @property
    def gap_share(self) -> float:
        """Of present instance-time, the share in which growth is not known."""
        total = int(self.present.sum())
        return float((self.present & ~self.known).sum()) / total if total else 0.0

    def fleet_growth(self) -> Floats:
        """(T-1,) output tokens of the whole fleet; instances that were not read count as the mean of those that were.

        NaN where nobody was read."""
        read = self.known.sum(axis=0)
        there = np.maximum(self.present.sum(axis=0), read)
        total = np.where(self.known, self.growth, 0.0).sum(axis=0)
        return np.where(read > 0, total * there / np.maximum(read, 1), np.nan)


def intervals_of(history: History) -> Intervals:
    """The intervals of a history that has output tokens of at least one instance."""
    totals = history.values["generation_tokens"]
    sampled = np.isfinite(totals)
    growth, steady = increments(totals, history.step_s), np.ones((len(totals), totals.shape[1] - 1), dtype=bool)
    means = {name: between(history.values[name]) for name in ("running", "waiting", "kv_use") if name in history.values}
    if (running := history.values.get("running")) is not None:
        low, high = (of(running[:, :-1], running[:, 1:]) for of in (np.minimum, np.maximum))
        steady = np.asarray((low >= ALIKE * high) & (high > 0))
    return Intervals(
        times=history.times,
        step_s=history.step_s,
        growth=growth,
        sharp=sampled[:, :-1] & sampled[:, 1:],
        present=_present(totals, sampled),
        sampled=sampled,
        running=means.get("running"),
        waiting=means.get("waiting"),
        kv_use=means.get("kv_use"),
        steady=steady,
        work=work_of(history),
        restarts=restarts(totals),
    )


def mean(values: Floats | None, axis: int | None = None) -> Floats:
    """Mean of what is there, NaN where nothing is, without numpy's warning about it."""
    if values is None:
        return np.asarray(np.nan)
    there = np.isfinite(values)
    count = there.sum(axis=axis)
    total = np.where(there, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def sums_of(*columns: Floats) -> list[float]:
    """The sum of each column over the rows in which all are known."""
    known = np.logical_and.reduce([np.isfinite(column) for column in columns])
    return [float(column[known].sum()) for column in columns]


def number(value: float | Floats) -> float | None:
    """The value, or None where it is NaN."""
    return float(value) if np.isfinite(value) else None


def percentile(values: Floats | None, q: float) -> float | None:
    """The q-th percentile of what is there; None if nothing is."""
    if values is None:
        return None
    there = values[np.isfinite(values)]
    return float(np.percentile(there, q)) if there.size else None


def work_of(history: History) -> Floats | None:
    """(T,) running + waiting requests of the fleet; None where running is not exported."""
    running, waiting = history.values.get("running"), history.values.get("waiting")
    if running is None:
        return None
    return fleet_total(running if waiting is None else running + np.where(np.isfinite(waiting), waiting, 0.0))


def fleet_total(values: Floats) -> Floats:
    """(I, T) gauge -> (T,) total; instances that miss a sample count as the mean of the others. NaN where none has."""
    read = np.isfinite(values)
    count, summed = read.sum(axis=0), np.where(read, values, 0.0).sum(axis=0)
    return np.where(count > 0, summed * lifespan(read).sum(axis=0) / np.maximum(count, 1), np.nan)


def made_of(growth: Floats, due: Floats, read: Mask, axis: int = 0) -> Floats:
    """Of what was due, the part that was made, over what was `read`; NaN where nothing was due."""
    made, whole = (np.where(read, values, 0.0).sum(axis=axis) for values in (growth, due))
    return np.divide(made, whole, out=np.full(made.shape, np.nan), where=whole > 0)


def between(values: Floats) -> Floats:
    """(..., T) a gauge -> (..., T-1) mean of both ends of each interval, of one where the other was not read."""
    left, right = values[..., :-1], values[..., 1:]
    both = np.where(np.isfinite(left) & np.isfinite(right), (left + right) / 2, np.nan)
    return np.where(np.isfinite(both), both, np.where(np.isfinite(left), left, right))


def _present(totals: Floats, sampled: Mask) -> Mask:
    """(I, T-1): from an instance's first sample to its last, but for holes in which it was down.

    A hole that ends with a restart while others were read is an instance that was not there; any other hole is a
    failure to read one that was.
    """
    size = totals.shape[1]
    present = np.zeros((len(totals), size - 1), dtype=bool)
    others = sampled.sum(axis=0)
    for row, there in enumerate(sampled):
        at = np.flatnonzero(there)
        if at.size < 2:
            continue
        present[row, at[0] : at[-1]] = True
        for hole in np.flatnonzero(np.diff(at) > 1):
            left, right = at[hole], at[hole + 1]
            if totals[row, right] < totals[row, left] and others[left + 1 : right].max() > 0:
                present[row, left:right] = False
    return present
