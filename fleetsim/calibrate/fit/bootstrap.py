"""How well the coefficients are known: a wild bootstrap over loads, and over the choices of knots.

Each draw moves every load's residuals by one random factor and fits again; what a load shares stays together.
Resampling whole loads instead would drop the only load at an end of the range in a third of the draws.

Compared on synthetic sweeps (2 % noise per iteration, 1 % per load, 50 to 60 seeds, knots chosen each time): the share
of 95 % intervals that held the truth, over f, per_seq_s, per_kv_token_s and per_attn_pair_s, for a full sweep of 74
loads and a quick one of 27. Resampled loads 0.86 and 0.89; Bayesian bootstrap 0.82 and 0.72; wild with plain residuals
0.83 and 0.72, with jackknifed ones 0.88 and 0.87; these over all choices of knots that cross-validation does not tell
apart, with Student's t, 0.90 and 0.91; and no load known better than to half a per cent, 0.93 and 0.94: as done here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fleetsim.calibrate.fit.least_squares import Array, Grams, solve_many

LEVERAGE = 0.95  # above it a load is all that says something: its residual says nothing of its error
LEAST = 5e-3  # relative: no load's mean is known better than this


def draws(
    grams: Grams, c: Array, free: NDArray[np.bool_], measured: NDArray[np.bool_], prior_sigma: float, random: Array
) -> Array:
    """Coefficients of refits, shape (draws, columns).

    c: the fit. free: columns that may be above 0. measured: which loads were measured; the others are a prior, off by
    one factor of relative spread prior_sigma. random: standard normal, shape (draws, loads + loads + 1).
    """
    loads = grams.loads
    first = np.searchsorted(grams.load, np.arange(loads))
    xx = np.add.reduceat(grams.weight[:, None, None] * grams.xx, first)
    xy = np.add.reduceat(grams.weight[:, None] * grams.xy, first)
    total = xx.sum(axis=0)
    active = np.flatnonzero(free & (c > 0))
    residual = _jackknifed(xy - xx @ c, xx, total, active)
    factor = _student(int(measured.sum()) - len(active))
    moved = np.where(measured, factor, 0.0)
    right = (
        total @ c
        + (random[:, :loads] * moved) @ residual
        + (random[:, loads : 2 * loads] * (LEAST * moved)) @ xy
        + random[:, -1:] * prior_sigma * xy[~measured].sum(axis=0)
    )
    return solve_many(total, right, free)


def _jackknifed(scores: Array, xx: Array, total: Array, active: NDArray[np.intp]) -> Array:
    """Each load's score from its residuals under a fit without it: (I - X_l G^-1 X_l')^-1 e_l, in columns."""
    out = scores.copy()
    if not len(active):
        return out
    length = np.sqrt(np.diag(total)[active])
    block = np.ix_(active, active)
    root = np.linalg.cholesky(total[block] / length[:, None] / length + 1e-10 * np.eye(len(active)))
    inverse = np.linalg.inv(root) / length
    share, vectors = np.linalg.eigh(inverse @ xx[:, active[:, None], active] @ inverse.T)
    turned = np.einsum("lij,li->lj", vectors, scores[:, active] @ inverse.T)
    grown = np.einsum("lij,lj->li", vectors, turned / (1.0 - np.clip(share, 0.0, LEVERAGE)))
    out[:, active] = grown @ root.T * length
    return out


def _student(degrees: int) -> float:
    """How much wider a 95 % interval is with Student's t than with a normal law."""
    return float(stdtrit(max(2, degrees), 0.975)) / 1.959964


def interval(values: Array, middle: Array) -> tuple[Array, Array]:
    """95 % percentile intervals, shape (quantities,) each; they hold the estimates `middle`."""
    low, high = np.percentile(values, [2.5, 97.5], axis=0)
    return np.minimum(low, middle), np.maximum(high, middle)
