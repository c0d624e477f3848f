"""The step-time model as linear algebra: durations are sums of columns times non-negative coefficients.

    t = f(n) + g b + h p + beta K + delta A (+ overhead per client request)

f through knots k_0 < ... < k_m is f(k_0) times a column of ones plus, per piece, its slope times how far n has come
into the piece: all coefficients non-negative makes f non-decreasing. A piece's column is clip(n, k_i, k_i+1) - k_i, so
leaving out a knot adds the columns of its two pieces: the sums of squares for any subset of knots follow from those of
all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fleetsim.calibrate.fit.observations import Observations
from fleetsim.dataclass import dataclass

Array = NDArray[np.float64]

# The columns after those of f, in this order.
LINEAR = ("per_seq_s", "per_prefill_token_s", "per_kv_token_s", "per_attn_pair_s", "overhead_s")
SEQ, PREFILL, KV, PAIRS, OVERHEAD = range(5)
LAST_PIECE = 1.25  # the last knot over the one before it, at least


@dataclass(frozen=True, slots=True)
class Basis:
    """The columns of f. knots: tokens, increasing. pad_to: sizes that n is padded up to, empty where it is not."""

    knots: tuple[float, ...]
    pad_to: tuple[float, ...] = ()

    @property
    def pieces(self) -> int:
        """Pieces of f between its knots."""
        return len(self.knots) - 1

    def curve(self, n: Array) -> Array:
        """Columns of f at n tokens, shape (len(n), 1 + pieces); beyond the last knot the last piece goes on."""
        x = padded(n, self.pad_to)
        columns = np.empty((len(x), len(self.knots)))
        columns[:, 0] = 1.0
        for i in range(self.pieces):
            low, high = self.knots[i], self.knots[i + 1]
            columns[:, i + 1] = np.clip(x, low, high if i + 1 < self.pieces else np.inf) - low
        return columns

    def rows(self, o: Observations) -> Array:
        """One row per observation, shape (observations, 1 + pieces + len(LINEAR)), in seconds per coefficient."""
        n = o.tokens
        linear = np.column_stack([o.decodes, o.prefill_tokens, o.kv_tokens, o.attn_pairs])
        per_iteration = np.hstack([self.curve(n), linear])
        if len(o.of) != len(o):
            first = np.searchsorted(o.of, np.arange(len(o)))
            per_iteration = np.add.reduceat(per_iteration, first, axis=0)
        return np.hstack([per_iteration, o.overheads[:, None]])

    def merged(self, keep: NDArray[np.bool_]) -> Array:
        """The matrix M with rows(all knots) @ M = rows(kept knots). keep: which knots stay, the outer two must."""
        kept = np.flatnonzero(keep)
        piece = np.searchsorted(kept, np.arange(self.pieces), side="right") - 1
        width = 1 + self.pieces + len(LINEAR)
        out = np.zeros((width, len(kept) + len(LINEAR)))
        out[0, 0] = 1.0
        out[1 + np.arange(self.pieces), 1 + piece] = 1.0
        out[1 + self.pieces :, len(kept) :] = np.eye(len(LINEAR))
        return out

    def without(self, keep: NDArray[np.bool_]) -> Basis:
        """The basis with the kept knots only."""
        return Basis(tuple(k for k, stays in zip(self.knots, keep, strict=True) if stays), self.pad_to)


def padded(n: Array, sizes: tuple[float, ...]) -> Array:
    """n rounded up to the next of the sizes; beyond the largest as it is."""
    if not sizes:
        return n
    table = np.asarray(sizes, np.float64)
    place = np.searchsorted(table, n)
    return np.where(place < len(table), table[np.minimum(place, len(table) - 1)], n)


def candidates(tokens: Array, graph_sizes: tuple[float, ...], pad: bool) -> Basis:
    """Where f may bend: the ends of what was measured, powers of two and 1.5 times them, the end of the graphs.

    tokens: n of the iterations measured. Each knot needs a measurement of its own between its neighbours (otherwise f
    would not be determined there), and none lies so close to the last that a short piece would carry the slope beyond.
    Past the largest graph size an engine runs without a graph: f may jump there, between that size and the next token.
    """
    pad_to = tuple(sorted(graph_sizes)) if pad else ()
    n = np.unique(padded(tokens, pad_to))
    low, high = float(n[0]), float(n[-1])
    grid = {2.0**i for i in range(25)} | {1.5 * 2.0**i for i in range(1, 25)}
    after = max(graph_sizes) + 1.0 if graph_sizes else 0.0
    if graph_sizes:
        grid |= {after - 1.0, after}
    inner = sorted(k for k in grid if low < k <= high / LAST_PIECE)
    knots, used = [low], low
    for k, following in zip(inner, [*inner[1:], high], strict=True):
        near = n[(n > max(knots[-1], used)) & (n < following)]
        if len(near) and not (k == after and knots[-1] != after - 1.0):
            knots.append(k)
            used = float(near[0])
    if high > low:
        knots.append(high)
    return Basis(tuple(knots), pad_to)


def expanded(basis: Basis) -> Array:
    """The tokens at which the basis' f bends as a function of unpadded n: graph sizes become steps.

    Up to each size f is flat from the token after the size before it: knots at s_(i-1) + 1 and s_i. The last slope
    goes on beyond what was measured, there in steps as well.
    """
    knots = np.asarray(basis.knots)
    if not basis.pad_to:
        return knots
    sizes = np.asarray(basis.pad_to)
    steps = sizes[sizes >= knots[0]]
    beyond = knots[knots > sizes[-1]]
    if not len(beyond):
        beyond = 2.0 * sizes[-1:]
    return np.unique(np.concatenate([steps, steps[:-1] + 1.0, beyond]))
