"""Samples with times of their own, onto one evenly spaced grid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fleetsim.errors import InputError, Problem
from fleetsim.history.catalogue import Catalogue
from fleetsim.history.history import Floats, History, Note
from fleetsim.history.merge import merge
from fleetsim.units import seconds

HISTOGRAM_STEP_S = 300.0
_STALE_STEPS = 1.5  # beyond it a scrape was missed: a held value would look like an engine that stood still
_STALE_HISTOGRAM_S = 300.0  # totals, often written less often than the rest: as far back as Prometheus looks
_MOST_TIMES = 200_000


@dataclass(frozen=True, slots=True)
class Raw:
    """One series as it stands in a file. stamps: (n,) unix seconds, in any order; values: (n,)."""

    name: str
    labels: Mapping[str, str]
    stamps: Floats
    values: Floats


def history_of(
    series: Sequence[Raw], catalogue: Catalogue, *, step_s: float | None, source: str, notes: Iterable[Note] = ()
) -> History:
    """The series on a grid: at each time the last sample at or before it, NaN where a scrape was missed.

    step_s: None = the median spacing of the samples, at least 1 s. Histograms are read every 5 minutes (at least four
    times in the window). Raises InputError when no series carries a signal or the grid would be absurdly long.
    """
    mine = [_in_order(s) for s in series if catalogue.match(s.name, s.labels) and len(s.stamps)]
    if not mine:
        names = sorted({s.name for s in series})
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise InputError(
            [
                Problem(
                    source,
                    shown,
                    "none of these metrics is one that fleetsim knows",
                    "map them: --map generation_tokens=YOUR_METRIC (docs/metrics.md has the signals)",
                )
            ]
        )
    times, step_s = _grid(mine, step_s, source)
    coarse = _coarse(times, step_s)
    plain, histograms = [], []
    for s in mine:
        if catalogue.match(s.name, s.labels)[0].signal.kind == "histogram":
            histograms.append((s.name, s.labels, sample(s, coarse, max(_STALE_HISTOGRAM_S, _STALE_STEPS * step_s))))
        else:
            plain.append((s.name, s.labels, sample(s, times, _STALE_STEPS * step_s)))
    merged = merge(catalogue, plain, histograms, coarse)
    return History(
        times=times,
        step_s=step_s,
        instances=merged.instances,
        values=merged.values,
        fleet=merged.fleet,
        histograms=merged.histograms,
        configs=merged.configs,
        steps=None,
        notes=(*notes, *merged.notes),
        source=source,
    )


def sample(series: Raw, times: Floats, oldest_s: float) -> Floats:
    """At each time the last value at or before it that is at most oldest_s old, else NaN. Stamps must be sorted."""
    at = np.searchsorted(series.stamps, times + 1e-6, side="right") - 1
    found = np.maximum(at, 0)
    fresh = (at >= 0) & (times - series.stamps[found] <= oldest_s + 1e-6)
    out: Floats = np.where(fresh, series.values[found], np.nan)
    return out


def _in_order(series: Raw) -> Raw:
    """Sorted by time; of several samples of one moment the last counts (a stable sort keeps them in order)."""
    if (np.diff(series.stamps) >= 0).all():
        return series
    order = np.argsort(series.stamps, kind="stable")
    return Raw(series.name, series.labels, series.stamps[order], series.values[order])


def _grid(series: Sequence[Raw], step_s: float | None, source: str) -> tuple[Floats, float]:
    first = min(float(s.stamps[0]) for s in series)
    last = max(float(s.stamps[-1]) for s in series)
    if step_s is None:
        step_s = _spacing(series)
    if not step_s > 0 or not math.isfinite(step_s):
        raise InputError([Problem("step", step_s, "must be a positive number of seconds", "for instance 15")])
    many = (last - first) / step_s + 1e-6  # a stamp can be as large as a float, or infinite
    if not many < _MOST_TIMES:
        text = f"{seconds(last - first)} in steps of {step_s:g} s"
        rule = f"at most {_MOST_TIMES:,} times fit into one window; a stamp in another unit can be the cause too"
        raise InputError([Problem(source, text, rule, "cut the file to fewer days, or give a longer step")])
    return np.asarray(first + step_s * np.arange(math.floor(many) + 1), dtype=np.float64), step_s


def _spacing(series: Sequence[Raw]) -> float:
    """Median distance of samples, of the series that have most of them; whole seconds where it is close to them."""
    longest = sorted(series, key=lambda s: -len(s.stamps))[:50]
    gaps = np.concatenate([np.diff(s.stamps) for s in longest])
    gaps = gaps[gaps > 0]
    if not gaps.size:
        return 15.0
    spacing = float(np.median(gaps))
    whole = round(spacing)
    return max(1.0, float(whole) if whole and abs(spacing - whole) <= 0.05 * spacing else round(spacing, 3))


def _coarse(times: Floats, step_s: float) -> Floats:
    """Times for histograms: about every 5 minutes, both ends included, at least four intervals where there are."""
    stride = max(1, min(round(HISTOGRAM_STEP_S / step_s), (len(times) - 1) // 4))
    picked = np.unique(np.r_[0, np.arange(len(times) - 1, -1, -stride)])
    out: Floats = times[picked]
    return out
