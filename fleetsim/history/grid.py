"""Samples with times of their own, onto one evenly spaced grid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from fleetsim.errors import InputError, Problem
from fleetsim.faces import text
from fleetsim.history.catalogue import Catalogue, base_key
from fleetsim.history.faults import one_job
from fleetsim.history.history import Floats, History, Note, RawSeries
from fleetsim.history.merge import merge
from fleetsim.history.option_names import SELECTOR, START, STEP, mapped
from fleetsim.history.selection import picked
from fleetsim.history.window import shown
from fleetsim.records import replace
from fleetsim.units import seconds

HISTOGRAM_STEP_S = 300.0
_STALE_STEPS = 1.5  # beyond it a scrape was missed: a held value would look like an engine that stood still
_STALE_HISTOGRAM_S = 300.0  # totals, often written less often than the rest: as far back as Prometheus looks
_MOST_TIMES = 200_000


def history_of(
    series: Sequence[RawSeries],
    catalogue: Catalogue,
    *,
    step_s: float | None,
    source: str,
    notes: Iterable[Note] = (),
    selector: str = "",
) -> History:
    """The series on a grid: at each time the last sample at or before it, NaN where a scrape was missed.

    step_s: None = the median spacing of the samples, at least 1 s. Histograms are read every 5 minutes (at least four
    times in the window). selector: matchers for the engines, and for the trainer where they match its metrics. Raises
    InputError when no series carries a signal, the grid would be absurdly long, or the engines are those of several
    jobs.
    """
    asked = bool(series)
    series, told = picked(series, catalogue, selector)
    if asked and not series:
        rule = "matches none of the series in the file"
        raise InputError([Problem(SELECTOR, selector, rule, "take it from the labels in the file")])
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
                    text("map them: {} (docs/metrics.md has the signals)", mapped("generation_tokens", "YOUR_METRIC")),
                )
            ]
        )
    times, step_s = _grid(mine, step_s, source)
    coarse = np.unique(np.append(times[:1], _every_five_minutes(times, step_s)))  # both ends
    plain, histograms = [], []
    for s in mine:
        if catalogue.match(s.name, s.labels)[0].signal.kind == "histogram":
            histograms.append((s.name, s.labels, sample(s, coarse, max(_STALE_HISTOGRAM_S, _STALE_STEPS * step_s))))
        else:
            plain.append((s.name, s.labels, sample(s, times, _STALE_STEPS * step_s)))
    found = merge(catalogue, plain, histograms, times=times, step_s=step_s, coarse=coarse, source=source)
    return one_job(replace(found, notes=(*notes, *told, *found.notes)), selector)


def sample(series: RawSeries, times: Floats, oldest_s: float) -> Floats:
    """At each time the last value at or before it that is at most oldest_s old, else NaN. Stamps must be sorted."""
    at = np.searchsorted(series.stamps, times + 1e-6, side="right") - 1
    found = np.maximum(at, 0)
    fresh = (at >= 0) & (times - series.stamps[found] <= oldest_s + 1e-6)
    return np.where(fresh, series.values[found], np.nan)


def _in_order(series: RawSeries) -> RawSeries:
    """Sorted by time; of several samples of one moment the last counts (a stable sort keeps them in order)."""
    if (np.diff(series.stamps) >= 0).all():
        return series
    order = np.argsort(series.stamps, kind="stable")
    return RawSeries(series.name, series.labels, series.stamps[order], series.values[order])


def _grid(series: Sequence[RawSeries], step_s: float | None, source: str) -> tuple[Floats, float]:
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
    targets = {base_key(s.labels): s.stamps for s in sorted(series, key=lambda s: len(s.stamps))}
    scraped_s = _spacing(series)  # a coarser step begins with the first scrape of all, too
    phase = float(np.mod(offset_of(list(targets.values()), scraped_s) - first, scraped_s))
    late_s = 0.1 * scraped_s  # behind the last scrape by so much, a time still shows it
    count = math.floor((last + late_s - first - phase) / step_s + 1e-6) + 1
    return np.asarray(first + phase + step_s * np.arange(max(count, 1)), dtype=np.float64), step_s


def offset_of(times: Sequence[Floats], interval_s: float) -> float:
    """Where to put a grid so that each of its intervals holds one scrape of each target, also when scrapes jitter.

    Targets are scraped at phases of their own. The grid goes into the widest stretch without a scrape: right behind
    its beginning, by twice the jitter seen, so that what it shows is as fresh as can be.
    """
    phases, jitter = [], 0.0
    for at in times:
        turned = np.mod(at, interval_s)
        middle = float(turned[-1])
        off = np.mod(turned - middle + interval_s / 2, interval_s) - interval_s / 2
        phases.append(float(np.mod(middle + np.median(off), interval_s)))
        jitter = max(jitter, float(np.percentile(np.abs(off - np.median(off)), 90)))
    ordered = np.sort(phases)
    free = np.diff(np.append(ordered, ordered[0] + interval_s))
    widest = int(np.argmax(free))
    return float(np.mod(ordered[widest] + min(2 * jitter, free[widest] / 2), interval_s))


def _spacing(series: Sequence[RawSeries]) -> float:
    """Median distance of samples, of the series that have most of them; whole seconds where it is close to them."""
    longest = sorted(series, key=lambda s: -len(s.stamps))[:50]
    gaps = np.concatenate([np.diff(s.stamps) for s in longest])
    gaps = gaps[gaps > 0]
    if not gaps.size:
        return 15.0
    spacing = float(np.median(gaps))
    whole = round(spacing)
    return max(1.0, float(whole) if whole and abs(spacing - whole) <= 0.05 * spacing else round(spacing, 3))


# ------------------------------------------------------------------------------------------- of a Prometheus

MAX_GRID = 20_000  # times; 24 h at 15 s are 5,760
FALLBACK_STEP_S = 15.0
FALLBACK_LOOKBACK_S = 300.0


class Scrapes(Struct, frozen=True):
    """How targets are scraped: interval_s between scrapes (the median over targets), slowest_s (the 90th percentile),
    offset_s: where on a grid of interval_s the targets' samples end, so that a grid there meets each scrape once."""

    interval_s: float
    slowest_s: float
    offset_s: float


class Sampling(Struct, frozen=True):
    """times: (T,) the grid; coarse: (H,) the histograms'. notes: what there is to say about the choice."""

    times: Floats
    coarse: Floats
    notes: tuple[Note, ...]

    @property
    def step_s(self) -> float:
        """Between two times of the grid."""
        return float(self.times[1] - self.times[0])

    def lookback_s(self, scrapes: Scrapes | None) -> float:
        """How far back a sample may lie to count: a scrape interval, less one millisecond, so that a scrape that is
        missing shows, and the one before it does not stand in its place."""
        return max(self.step_s, scrapes.slowest_s if scrapes else FALLBACK_LOOKBACK_S) - 0.001


def sampling(start_s: float, end_s: float, step_s: float | None, scrapes: Scrapes | None) -> Sampling:
    """The grid of a window: of the scrape interval unless step_s says otherwise, coarser where that were too many
    times. Raises InputError for a step that is too fine and a window that is too short."""
    notes = []
    if scrapes is None:
        interval_s, offset_s = step_s or FALLBACK_STEP_S, 0.0
        text = f"The scrape interval cannot be seen in the data; a step of {seconds(interval_s)} is assumed."
        notes.append(Note("other", text))
    else:
        interval_s, offset_s = scrapes.interval_s, scrapes.offset_s
    step = step_s or interval_s
    fits = (end_s - start_s) / MAX_GRID
    if step < fits:
        coarser = float(interval_s * np.ceil(fits / interval_s))
        if step_s is not None:
            rule = f"gives more than {MAX_GRID:,} times in this window"
            raise InputError([Problem(STEP, step_s, rule, f"give at least {coarser:g}, or a shorter window")])
        text = f"Read every {seconds(coarser)} though scraped every {seconds(interval_s)}: the window is long."
        notes.append(Note("truncated", text))
        step = coarser
    first = start_s + np.mod(offset_s - start_s, interval_s)
    count = int(np.floor((end_s - first) / step + 1e-6)) + 1
    if count < 2:
        rule = f"is shorter than two steps of {seconds(step)}"
        asked = f"{shown(start_s)} to {shown(end_s)}"
        raise InputError([Problem(START, asked, rule, "give a longer window")])
    times = np.round(first + step * np.arange(count), 3)
    return Sampling(times, _every_five_minutes(times, step), tuple(notes))


def _every_five_minutes(times: Floats, step_s: float) -> Floats:
    """Every 5 minutes of the grid, at least five times where it has as many, ending where it ends."""
    every = max(int(min(HISTOGRAM_STEP_S / step_s, (len(times) - 1) / 4)), 1)
    return times[(len(times) - 1) % every :: every]
