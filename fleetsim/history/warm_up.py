"""The first steps of a run: engines and trainer compile, caches fill, the pipeline is still empty."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fleetsim import units
from fleetsim.history.history import Floats, Note

# Steps of a log below which its first ones are not told from the others, and the share of it that they are at most.
FEWEST, MOST = 12, 0.25
# A first step stands out where it is off the later ones' median by half of it, and by so many of their robust
# standard deviations. A trend does neither: its own scatter is as wide as it is long.
OFF, DEVIATIONS = 0.5, 6.0
# The very first step begins with an empty pipeline: it stands out where it is off by less.
FIRST_OFF, FIRST_DEVIATIONS = 0.4, 3.5
# What shows it: seconds are longer, responses may be either.
_LONGER, _EITHER = ("step_s", "train_s"), ("length_mean",)


def warm_up(columns: Mapping[str, Floats]) -> tuple[int, Note | None]:
    """How many of a step log's first rows are no steady step of the job, and a note that says so.

    columns: of a `StepLog`. A beginning that does not end within a quarter of the log is no warm-up: what the run is
    like then has changed within it, and is for the reader to see.
    """
    size = len(next(iter(columns.values()), ()))
    most = int(MOST * size)
    if size < FEWEST:
        return 0, None
    lasts = {n: _leading(columns[n], most, n in _EITHER) for n in (*_LONGER, *_EITHER) if n in columns}
    count = max(lasts.values(), default=0)
    if count == 0:
        return 0, None
    name = max(lasts, key=lambda n: (lasts[n], n in _LONGER))
    shown = units.tokens if name in _EITHER else units.seconds
    what = {"step_s": "a step took", "train_s": "the trainer computed", "length_mean": "responses had"}[name]
    values = columns[name]
    first, later = float(values[np.isfinite(values)][0]), _later(values, most)[0]
    tokens = " tokens" if name in _EITHER else ""
    many = "step is" if count == 1 else f"{count} steps are"
    text = (
        f"The first {many} left out: warming up (compiling, filling caches), {what} {shown(first)}{tokens} at first, "
        f"{shown(later)} later."
    )
    return count, Note("other", text, count / size)


def _later(values: Floats, most: int) -> tuple[float, float]:
    """Median and robust standard deviation of what comes after any warm-up."""
    rest = values[most:][np.isfinite(values[most:])]
    if not rest.size:
        return np.nan, np.nan
    middle = float(np.median(rest))
    return middle, 1.4826 * float(np.median(np.abs(rest - middle)))


def _leading(values: Floats, most: int, either: bool) -> int:
    """Rows at the beginning that stand out, among them those that say nothing; 0 where they do not end within `most`,
    or all say nothing."""
    middle, scatter = _later(values, most)
    away = values[: most + 1] - middle
    off = (np.abs(away) if either else away) > max(OFF * middle, DEVIATIONS * scatter)
    known = np.flatnonzero(np.isfinite(away))
    if not either and known.size:
        off[known[0]] |= away[known[0]] > max(FIRST_OFF * middle, FIRST_DEVIATIONS * scatter)
    inside = np.flatnonzero(~off & np.isfinite(away))
    last = int(inside[0]) if inside.size else 0
    return last if off[:last].any() else 0
