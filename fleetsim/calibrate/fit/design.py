"""The step-time model as linear algebra: durations are sums of columns times non-negative coefficients.

    t = f(n) + g b + h p + beta K + delta A (+ overhead per client request)

f through knots k_0 < ... < k_m is f(k_0) times a column of ones plus, per piece, its slope times how far n has come
into the piece: all coefficients non-negative makes f non-decreasing. A piece's column is clip(n, k_i, k_i+1) - k_i, so
leaving out a knot adds the columns of its two pieces: the sums of squares for any subset of knots follow from those of
all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.calibrate.raw import FITTED, Raw
from fleetsim.least_squares import non_negative

# --- What the fit sees: seconds, and the iterations that took them.

Array = NDArray[np.float64]
HELD = ("nd", "K", "np", "A", "dr")  # as raw measurements name what an iteration held


class Observations(Struct, frozen=True):
    """Durations, each of one iteration or of several in a row.

    seconds: shape (observations,), > 0. segment: which load, shape (observations,): what was measured together is kept
    together in folds and bootstraps. overheads: fixed costs of a client that lie in the duration (0 in process, 1 in a
    time to first token). of: index into seconds per iteration, sorted, shape (iterations,). held: what each iteration
    held, shape (iterations, 5): b, K, p, A (averages may be fractions), and drafted tokens, which it verifies.
    """

    seconds: Array
    segment: NDArray[np.int32]
    overheads: Array
    of: NDArray[np.int64]
    held: Array

    decodes = property(lambda o: o.held[:, 0])
    kv_tokens = property(lambda o: o.held[:, 1])
    prefill_tokens = property(lambda o: o.held[:, 2])
    attn_pairs = property(lambda o: o.held[:, 3])
    drafted = property(lambda o: o.held[:, 4])

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def tokens(self) -> Array:
        """n of each iteration: a token for each decode, those drafted, those of prompts."""
        return np.asarray(self.held[:, [0, 2, 4]].sum(axis=1))

    def means(self) -> Array:
        """b, K, p, A of the mean iteration of each observation, shape (observations, 4)."""
        return np.asarray(self.sums() / np.bincount(self.of, minlength=len(self))[:, None])

    def sums(self) -> Array:
        """b, K, p, A summed over the iterations of each observation, shape (observations, 4)."""
        if len(self.of) == len(self):
            return self.held[:, :4]
        each = [np.bincount(self.of, v, minlength=len(self)) for v in self.held[:, :4].T]
        return np.column_stack(each).astype(np.float64)

    def where(self, keep: NDArray[np.bool_]) -> Observations:
        """The observations that stay, with their iterations."""
        rows, place = keep[self.of], np.cumsum(keep) - 1
        return Observations(
            self.seconds[keep], self.segment[keep], self.overheads[keep], place[self.of[rows]], self.held[rows]
        )


def observations_of(raw: Raw) -> Observations:
    """All that a fit may see of the raw measurements: the sweeps, without warm-up, without kept-out batches.

    Left out as well: iterations that an engine began empty (they hold the first schedule, not the pace) unless a
    prompt was computed in them, and empty ones. Fewer than one may remain; the fit says so.
    """
    return in_a_row([_of_iterations(raw), *(_of_client(record) for record in raw.obs if record.get("ph") in FITTED)])


def in_a_row(parts: Sequence[Observations]) -> Observations:
    """The observations of all parts; each keeps its segment."""
    starts = np.cumsum([0, *map(len, parts)])
    of = np.concatenate([p.of + s for p, s in zip(parts, starts[:-1], strict=True)])
    seconds, segment, overheads, held = (
        np.concatenate([getattr(p, name) for p in parts]) for name in ("seconds", "segment", "overheads", "held")
    )
    return Observations(seconds, segment, overheads, of, held)


def _of_iterations(raw: Raw) -> Observations:
    c = raw.columns
    fitted = np.array([p in FITTED for p in raw.phase_of], np.bool_)
    use = (c["warm"] == 0) & (c["nd"] + c["np"] > 0) & (c["dt"] > 0) & ((c["idle"] == 0) | (c["np"] > 0))
    if len(fitted):
        use &= fitted[raw.segment]
    n = int(use.sum())
    held = np.column_stack([c[name][use] for name in HELD]).astype(np.float64)
    return Observations(c["dt"][use] * 1e-6, raw.segment[use], np.zeros(n), np.arange(n, dtype=np.int64), held)


def _of_client(record: dict[str, Any]) -> Observations:
    def column(name: str, otherwise: Array) -> Array:
        return np.atleast_1d(np.asarray(record.get(name, otherwise), np.float64))

    seconds, decodes = (column(name, np.empty(0)) for name in ("dt", "nd"))
    n = len(seconds)
    return Observations(
        seconds * 1e-6,
        np.full(n, record["id"], np.int32),
        column("ovh", np.zeros(n)),
        column("of", np.arange(n, dtype=np.float64)).astype(np.int64),
        np.column_stack([column(name, np.zeros(len(decodes))) for name in HELD]),
    )


# The columns after those of f, in this order.
LINEAR = ("per_seq_s", "per_prefill_token_s", "per_kv_token_s", "per_attn_pair_s", "overhead_s")
SEQ, PREFILL, KV, PAIRS, OVERHEAD = range(5)
LAST_PIECE = 1.25  # the last knot over the one before it, at least


class Basis(Struct, frozen=True):
    """The columns of f. knots: tokens, increasing. pad_to: sizes that n is padded up to, empty where it is not."""

    knots: tuple[float, ...]
    pad_to: tuple[float, ...] = ()

    @property
    def pieces(self) -> int:
        """Pieces of f between its knots."""
        return len(self.knots) - 1

    def curve(self, n: Array) -> Array:
        """Columns of f at n tokens, shape (len(n), 1 + pieces); beyond the last knot the last piece goes on."""
        low, high = self.knots[:-1], np.array([*self.knots[1:-1], np.inf][: self.pieces])
        return np.column_stack([np.ones(len(n)), np.clip(padded(n, self.pad_to)[:, None], low, high) - low])

    def rows(self, o: Observations) -> Array:
        """One row per observation, shape (observations, 1 + pieces + len(LINEAR)), in seconds per coefficient."""
        per_iteration = np.hstack([self.curve(o.tokens), o.held[:, [0, 2, 1, 3]]])
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


RIDGE = 1e-12  # of a column's own square: separates columns that are the same but for rounding


class Grams(Struct, frozen=True):
    """Sums over the rows of each unit (a load's iterations of one kind), each row's weights adding up to 1 in its unit.

    products: of all columns with each other, the target behind them, shape (units, columns + 1, columns + 1). load:
    which load each unit belongs to, shape (units,), 0, 1, 2... in this order, none left out. weight: how much a unit
    counts in a fit, shape (units,).
    """

    products: Array
    load: NDArray[np.int64]
    weight: Array

    @property
    def loads(self) -> int:
        """Number of loads."""
        return int(self.load.max(initial=-1)) + 1

    def merged(self, matrix: Array) -> Grams:
        """The sums of the columns multiplied by a matrix."""
        with_target = np.zeros([n + 1 for n in matrix.shape])
        with_target[:-1, :-1], with_target[-1, -1] = matrix, 1.0
        return Grams(with_target.T @ self.products @ with_target, self.load, self.weight)

    def total(self, weight: Array | None = None) -> tuple[Array, Array]:
        """X'WX and X'Wy over all units, by weight or the units' own."""
        summed = np.tensordot(self.weight if weight is None else weight, self.products, 1)
        return summed[:-1, :-1], summed[:-1, -1]

    def errors(self, c: Array) -> Array:
        """Mean squared error of each unit under coefficients c, shape (units,). Never below 0."""
        off = np.append(c, -1.0)
        return np.maximum(np.asarray((self.products @ off) @ off), 0.0)


def sum_up(
    rows: Array, y: Array, unit: NDArray[np.int64], row_weight: Array, load: NDArray[np.int64], weight: Array
) -> Grams:
    """Sums of products per unit. unit: per row, 0, 1, 2...; rows of weight 0 do not count."""
    share = row_weight / np.maximum(np.bincount(unit, row_weight, minlength=len(load))[unit], 1e-300)
    order = np.argsort(unit, kind="stable")
    x = (np.column_stack([rows, y]) * np.sqrt(share)[:, None])[order]
    ends = np.searchsorted(unit[order], np.arange(1, len(load)))
    return Grams(np.array([part.T @ part for part in np.split(x, ends)]), load, weight)


def factor(xx: Array) -> tuple[Array, Array]:
    """The Cholesky factor R (R'R = X'X with columns scaled to length 1) and the lengths (0 columns have length inf)."""
    length = np.sqrt(np.diag(xx))
    length = np.where(length > 0, length, np.inf)
    scaled, ridge = xx / length[:, None] / length, RIDGE
    while True:
        np.fill_diagonal(scaled, 1.0 + ridge)
        try:
            return np.asarray(np.linalg.cholesky(scaled).T, np.float64), length
        except np.linalg.LinAlgError:  # columns that differ by rounding only
            ridge *= 10.0


def solve(xx: Array, xy: Array, free: NDArray[np.bool_] | None = None) -> Array:
    """The non-negative c that minimises c'xx c - 2 xy c. free: which linear coefficients may be above 0, else all."""
    return np.asarray(solve_many(xx, xy[None], np.ones(0, np.bool_) if free is None else free)[0])


def solve_many(xx: Array, xys: Array, free: NDArray[np.bool_]) -> Array:
    """Solves for many right sides, shape (draws, columns), and one matrix."""
    use = np.flatnonzero(with_curve(free, len(xx)))
    root, length = factor(xx[np.ix_(use, use)])
    found = np.zeros_like(xys)
    above = np.ones(len(use), np.bool_)
    for c, target in zip(found, np.linalg.solve(root.T, (xys[:, use] / length).T).T, strict=True):
        c[use] = non_negative(root, target, above) / length
        above = c[use] > 0.0  # most likely the same ones are in the next
    return found


def with_curve(free: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    """Which of `width` columns may be above 0: all of f's, and the linear ones that are free."""
    return np.concatenate([np.ones(width - len(free), np.bool_), free])
