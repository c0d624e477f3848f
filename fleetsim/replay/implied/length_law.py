"""The law of output lengths behind an exported histogram: its buckets are coarse, its mean is exact.

Between two bucket bounds the share of shorter responses is interpolated on (log length, normal quantile), a straight
line for a lognormal; the last bounds' slope goes on to the cap, where what is left forms the atom that `max_tokens`
makes. Inside each bucket the mass is then tilted, all buckets alike, until the law's mean is the observed sum / count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.workload import Histogram
from fleetsim.replay.observe.observed import LengthHistogram

Floats = NDArray[np.float64]
_NORMAL = NormalDist()
# Parts of each bucket; lengths are whole tokens, so narrow buckets get fewer.
_PARTS = 12
# A tilt beyond this has put a bucket's mass at its edge: no tilt reaches the mean then.
_MOST_TILT = 30.0
# A share of responses that is none, for all that its logarithms can tell.
_LEAST_SHARE = 1e-12
# Caps that clients set, for a window whose tail says nothing else.
_FARTHEST = 4.0


@dataclass(frozen=True, slots=True)
class LengthLaw:
    """The law, and how its cap came about: given, counted (share cut by length), mean (of the sum), bound."""

    law: Histogram
    cap: float
    cap_from: str


def length_law(lengths: LengthHistogram, cap: float | None = None, length_share: float | None = None) -> LengthLaw:
    """The law of `lengths`. cap: longest response where it is known; length_share: share of responses cut by it."""
    bounds, shares = _finite(lengths)
    open_share = max(0.0, 1.0 - float(shares.sum()))
    slope, last_z = _slope(bounds, shares)
    how = "given"
    if cap is None or (cap < bounds[-1] and open_share > 0):
        cap, how = _cap(lengths, bounds, shares, slope, last_z, length_share)
    cap = max(cap, 1.0)
    edges, mass = _parts(bounds, shares, slope, cap, open_share)
    mass = _tilted(edges, mass, _bucket_of(edges, bounds), lengths.mean, cap)
    # The atom at the cap: a bucket beyond it, all of which `max` cuts back.
    top = max(cap * 1.001, float(edges[-1]) + 1.0)
    count = [*(float(m) for m in mass[:-1]), float(mass[-1])]
    law = Histogram(le=(*(float(e) for e in edges[1:]), top), count=tuple(count), max=float(cap))
    return LengthLaw(law, float(cap), how)


def _finite(lengths: LengthHistogram) -> tuple[Floats, Floats]:
    """Finite upper bounds and the share of responses in each bucket. Empty ends are cut off, unless longer responses
    lie beyond them."""
    le, count = np.asarray(lengths.le, float), np.asarray(lengths.count, float)
    total = max(float(count.sum()), 1e-300)
    keep = np.isfinite(le)
    le, count = le[keep], count[keep]
    used = np.flatnonzero(count > 0)
    if not len(used):
        return np.array([max(1.0, lengths.mean)]), np.array([1e-9])
    beyond = float(lengths.count[-1]) > 0 and not keep[-1]
    last = len(le) if beyond else int(used[-1]) + 1  # an empty bucket before the open one says where nothing ended
    return le[:last], count[:last] / total


def _slope(bounds: Floats, shares: Floats) -> tuple[float, float]:
    """d z / d log(length) at the upper end, and z at the last bound below 1."""
    below = np.cumsum(shares)
    inside = [(math.log(b), _NORMAL.inv_cdf(float(f))) for b, f in zip(bounds, below, strict=True) if 0 < f < 1 - 1e-12]
    if len(inside) < 2:
        return 1.5, inside[0][1] if inside else 0.0
    (x0, z0), (x1, z1) = inside[-2:]
    return max(0.2, (z1 - z0) / (x1 - x0)), z1


def _cap(
    lengths: LengthHistogram, bounds: Floats, shares: Floats, slope: float, last_z: float, length_share: float | None
) -> tuple[float, str]:
    """The cap that the counted share of cut responses, or else the mean, asks for."""
    top = float(bounds[-1])
    open_share = max(0.0, 1.0 - float(shares.sum()))
    if open_share <= _LEAST_SHARE:
        return top, "bound"
    if length_share is not None and _LEAST_SHARE < length_share < open_share:
        z = _NORMAL.inv_cdf(1.0 - length_share)
        return min(top * _FARTHEST, top * math.exp((z - last_z) / slope)), "counted"
    if length_share is not None and length_share >= open_share:
        return top * 1.0001, "counted"

    def mean(cap: float) -> float:
        edges, mass = _parts(bounds, shares, slope, cap, open_share)
        return _mean(edges, mass, cap)

    low, high = top, top * _FARTHEST
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if mean(middle) < lengths.mean else (low, middle)
    return 0.5 * (low + high), "mean"


def _parts(bounds: Floats, shares: Floats, slope: float, cap: float, open_share: float) -> tuple[Floats, Floats]:
    """Edges (n + 1,) and mass (n + 1,) of the parts: n intervals and the atom at the cap."""
    edges, mass = [0.0], []
    below, lower = 0.0, 0.0
    points: list[tuple[float, float, float, float]] = []
    for bound, share in zip(bounds, shares, strict=True):
        points.append((lower, float(bound), below, below + float(share)))
        lower, below = float(bound), below + float(share)
    for a, b, p, q in points:
        top = min(b, cap)
        if top <= a:
            break
        cuts = _cuts(a, top)
        f = _between(cuts, a, b, p, q, slope)
        edges += list(cuts[1:])
        mass += list(np.diff(f))
    if cap > lower and open_share > 0:
        cuts = _cuts(lower, cap)
        z0 = _NORMAL.inv_cdf(min(1 - 1e-12, max(1e-12, below)))
        z = z0 + slope * (np.log(cuts) - math.log(lower))
        f = np.array([_NORMAL.cdf(v) for v in z])
        f[0] = below
        edges += list(cuts[1:])
        mass += list(np.maximum(0.0, np.diff(f)))
    atom = max(0.0, 1.0 - sum(mass))
    return np.array(edges), np.array([*mass, atom])


def _cuts(low: float, high: float) -> Floats:
    """Edges of the parts of one bucket, even in the logarithm, whole tokens apart at least."""
    parts = int(max(1, min(_PARTS, round(high - low))))
    return np.geomspace(low, high, parts + 1) if low > 0 else np.linspace(low, high, parts + 1)


def _between(cuts: Floats, a: float, b: float, p: float, q: float, slope: float) -> Floats:
    """Share of responses up to each cut of the bucket (a, b] that goes from share p to q."""
    if q <= p:
        return np.full(len(cuts), p)
    if a <= 0:
        return p + (q - p) * cuts / b
    low = _NORMAL.inv_cdf(p) if p > 0 else None
    high = _NORMAL.inv_cdf(q) if q < 1 - 1e-12 else None
    x = np.log(cuts)
    if low is None and high is None:
        return p + (q - p) * (cuts - a) / (b - a)
    if low is None:
        assert high is not None
        low = high - slope * float(x[-1] - x[0])
    if high is None:
        high = low + slope * (math.log(b) - math.log(a))
    span = math.log(b) - math.log(a)
    z = low + (high - low) * (x - math.log(a)) / span
    f = np.array([_NORMAL.cdf(v) for v in z])
    low_f, high_f = _NORMAL.cdf(low), _NORMAL.cdf(high)
    return np.asarray(p + (q - p) * (f - low_f) / max(1e-300, high_f - low_f))


def _bucket_of(edges: Floats, bounds: Floats) -> NDArray[np.int64]:
    """Which exported bucket each part lies in."""
    return np.searchsorted(bounds, 0.5 * (edges[:-1] + edges[1:]))


def _mean(edges: Floats, mass: Floats, cap: float) -> float:
    middle = 0.5 * (edges[:-1] + edges[1:])
    return float((middle * mass[:-1]).sum() + cap * mass[-1]) / float(mass.sum())


def _tilted(edges: Floats, mass: Floats, bucket: NDArray[np.int64], mean: float, cap: float) -> Floats:
    """The mass, moved inside its buckets until the law has this mean (as near to it as the buckets allow)."""
    middle = 0.5 * (edges[:-1] + edges[1:])
    places, totals = [], []
    for b in np.unique(bucket):
        inside = np.flatnonzero(bucket == b)
        places.append(inside)
        totals.append(float(mass[inside].sum()))
    width = [max(1e-9, float(edges[i[-1] + 1] - edges[i[0]])) for i in places]

    def tilt(theta: float) -> Floats:
        out = mass.copy()
        for inside, total, w in zip(places, totals, width, strict=True):
            if total > 0 and len(inside) > 1:
                weight = mass[inside] * np.exp(theta * (middle[inside] - middle[inside].mean()) / w)
                out[inside] = total * weight / weight.sum()
        return out

    low, high = -_MOST_TILT, _MOST_TILT
    for _ in range(80):
        theta = 0.5 * (low + high)
        low, high = (theta, high) if _mean(edges, tilt(theta), cap) < mean else (low, theta)
    return tilt(0.5 * (low + high))
