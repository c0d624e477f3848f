"""How far off a derived profile is: each benchmark run predicted by a fit without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.calibrate.fit.observations import Observations
from fleetsim.calibrate.sources.source import Array, subset
from fleetsim.config.engine_profile import ProfileError
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError

if TYPE_CHECKING:
    from fleetsim.calibrate.fit.identifiability import Prior

LEAST_POINTS = 3
MOST_FITS = 12


def left_out_error(o: Observations, runs: NDArray[np.int64], prior: Prior | None, seed: int, one: str) -> ProfileError:
    """Relative errors of durations, each predicted by a fit to the other runs; nothing with fewer than three points.

    runs: the run of each observation, `one` what to call it. Where there are fewer than three runs, single points are
    left out instead; where there are more than 12, twelfths are left out, each of neighbours: what lies next to a point
    would give it away. First tokens, which hold a client's own time, count only where there is nothing else.
    """
    from fleetsim.calibrate.fit.fit import fit

    point = np.unique(runs, return_inverse=True)[1]
    if point.max(initial=-1) + 1 < LEAST_POINTS:
        point, one = np.arange(len(o)), "point"
    n = int(point.max(initial=-1)) + 1
    if n < LEAST_POINTS:
        what = f"unknown: {n} {one}{'s' * (n != 1)}, at least {LEAST_POINTS} are needed to leave one out"
        return ProfileError(what=what)
    part = point * min(n, MOST_FITS) // n
    expected = np.full(len(o), np.nan)
    for k in np.unique(part):
        try:
            found = fit(subset(o, part != k), prior=prior, seed=seed)
        except InputError:  # the others alone do not tell enough
            continue
        expected[part == k] = predicted_s(found.step_time, found.error.overhead_s, o)[part == k]
    count = (o.overheads == 0.0) | np.all(o.overheads > 0.0)
    count &= np.isfinite(expected)
    if not np.any(count):
        return ProfileError(what=f"unknown: without any one {one} the others do not tell enough")
    off = np.abs(expected[count] / o.seconds[count] - 1.0)
    left = f"one {one} of {n}" if n <= MOST_FITS else f"a twelfth of {n} {one}s"
    return ProfileError(
        median=units.short(float(np.median(off))),
        p90=units.short(float(np.percentile(off, 90.0))),
        worst=units.short(float(off.max())),
        what=f"iteration times in the files, each predicted by a fit that left out {left}",
    )


def predicted_s(step_time: StepTime, overhead_s: float, o: Observations) -> Array:
    """Seconds of each observation by the model, shape (observations,)."""
    each = step_time.each_s(o.decodes, o.prefill_tokens, o.kv_tokens, o.attn_pairs)
    return np.asarray(np.bincount(o.of, each, minlength=len(o)) + overhead_s * o.overheads)
