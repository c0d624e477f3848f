"""When to read: the grid of a window, how far back a sample counts for a time on it, and the histograms' own grid."""

from __future__ import annotations

import numpy as np

from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, Problem
from fleetsim.history.discovery import Scrapes
from fleetsim.history.history import Floats, Note
from fleetsim.history.option_names import START, STEP
from fleetsim.history.window import shown
from fleetsim.units import seconds

MAX_GRID = 20_000  # times; 24 h at 15 s are 5,760
FALLBACK_STEP_S = 15.0
FALLBACK_LOOKBACK_S = 300.0
BUCKET_STEP_S = 300.0


@dataclass(frozen=True, slots=True)
class Sampling:
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
    return Sampling(times, _coarse(times, step), tuple(notes))


def _coarse(times: Floats, step_s: float) -> Floats:
    """Every 5 minutes of the grid, at least five times where it has as many, ending where it ends."""
    every = max(int(min(BUCKET_STEP_S / step_s, (len(times) - 1) / 4)), 1)
    return times[(len(times) - 1) % every :: every]
