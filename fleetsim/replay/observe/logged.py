"""What a run log says of the rollout side, where nobody scrapes the engines.

Response lengths become a law from the mean, the percentiles, the longest and the share that was cut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

from fleetsim.config.workload import LEAST_CV, MOST_CV
from fleetsim.history.history import Floats, History
from fleetsim.replay.observe.lengths import DRIFT_H, quantile
from fleetsim.replay.observe.observed import LengthHistogram, LoggedLaw, LoggedRollout, Reading
from fleetsim.replay.observe.steps import Steps
from fleetsim.replay.observe.trainer import slope_per_h

_SAMPLE_S = ("mean", "p50", "p90", "p95", "p99", "max")


def logged_rollout(history: History) -> LoggedRollout | None:
    """Of a run log; None where there is none, or it says nothing of the rollout side."""
    if history.steps is None:
        return None
    columns = history.steps.columns

    def mean(name: str) -> float | None:
        values = columns.get(name)
        return None if values is None or not np.isfinite(values).any() else float(np.nanmean(values))

    def seconds(of: str) -> tuple[tuple[str, float], ...]:
        return tuple((name, value) for name in _SAMPLE_S if (value := mean(f"{of}_s_{name}")) is not None)

    size = mean("group_size")
    found = LoggedRollout(
        idle_share=_idle(columns.get("rollout_active_s"), columns.get("rollout_window_s"), mean("rollout_idle")),
        in_flight=mean("in_flight_samples"),
        in_flight_cap=mean("in_flight_cap_samples"),
        group_size=size,
        queue_cap=None if size is None or (cap := mean("queue_cap_groups")) is None else cap * size,
        sample_s=seconds("sample"),
        group_s=seconds("group"),
        running=mean("running"),
        waiting=mean("waiting"),
        kv_use=mean("kv_use"),
        prefix_hit=mean("prefix_hit"),
        preemptions=mean("preemptions"),
        stale_share=mean("stale_share") if "stale_share" in columns else _share(columns, "stale_samples"),
        partial_share=mean("partial_share"),
        turns=mean("turns_mean"),
        tool_calls=mean("tool_calls_mean"),
        tool_s=mean("tool_s_mean"),
        tok_s=mean("rollout_tok_s"),
    )
    says = any(getattr(found, name) not in (None, ()) for name in LoggedRollout.__slots__)
    return found if says else None


def _idle(active: Floats | None, window: Floats | None, mean: float | None) -> float | None:
    """Seconds without work / seconds, so that long steps count for what they are; else the mean of the shares."""
    if active is None or window is None:
        return mean
    known = np.isfinite(active) & np.isfinite(window)
    seconds = float(window[known].sum())
    return mean if seconds <= 0 else min(1.0, max(0.0, 1.0 - float(active[known].sum()) / seconds))


def _share(columns: Mapping[str, Floats], name: str) -> float | None:
    """Sum of a column / samples trained, over the rows that have both."""
    values, samples = columns.get(name), columns.get("samples")
    if values is None or samples is None:
        return None
    known = np.isfinite(values) & np.isfinite(samples)
    whole = float(samples[known].sum())
    return min(1.0, float(values[known].sum()) / whole) if whole > 0 else None


_NORMAL = NormalDist()
_SIGMAS = np.arange(0.05, 2.5, 0.01)
_QUANTILES = {"length_p50": 0.5, "length_p90": 0.9, "length_p95": 0.95, "length_p99": 0.99}
_BUCKETS = 40
# The bucket of what was cut: as narrow as this below the cap.
_ATOM = 0.999
_erf = np.frompyfunc(math.erf, 1, 1)


def logged_lengths(history: History, steps: Steps) -> LengthHistogram | None:
    """A lognormal law, cut at the cap, whose mean is the log's and whose width fits best what else the log says: its
    percentiles, the share that was cut, or the longest of a step's samples; without them its standard deviation. None
    where nothing but a mean is known.

    Its quantiles are those of this law, except where the log has its own."""
    columns = {} if history.steps is None else history.steps.columns
    mean, clip = _mean(columns, "length_mean"), _mean(columns, "clip_share")
    if mean is None or mean <= 0:
        return None
    longest = columns.get("length_max", np.array([np.nan]))
    most = float(np.nanmax(longest)) if np.isfinite(longest).any() else None
    cap = most if clip and most is not None and most > mean else None
    facts = [(q, v) for name, q in _QUANTILES.items() if (v := _mean(columns, name)) is not None and v > 0]
    samples = _mean(columns, "samples")
    if cap is not None and clip and 0 < clip < 1:
        facts.append((1.0 - clip, cap))
    elif most is not None and samples is not None and samples > 1:
        facts.append((0.5 ** (1.0 / samples), float(np.nanmedian(longest))))
    deviation = _mean(columns, "length_std")
    if not facts and not deviation:
        return None
    mu, sigma = _fitted(mean, cap, facts, deviation or 0.0)
    le, count = _buckets(mu, sigma, cap, most or mean * 20.0, steps.total or 1.0, samples or 1.0)
    own = {q: _mean(columns, name) for name, q in _QUANTILES.items()}
    size = _mean(columns, "group_size")
    return LengthHistogram(
        le=tuple(map(float, le)),
        count=tuple(map(float, count)),
        mean=mean,
        p50=own[0.5] or quantile(le, count, 0.5),
        p90=own[0.9] or quantile(le, count, 0.9),
        p99=own[0.99] or quantile(le, count, 0.99),
        prompt_mean=_mean(columns, "prompt_mean"),
        group_size=None if size is None else Reading(size, "log"),
        drift_per_h=_drift(columns["length_mean"], steps, mean),
        law=_lognormal(mu, sigma, cap),
    )


def _lognormal(mu: float, sigma: float, cap: float | None) -> LoggedLaw | None:
    """The law as a scenario writes it; None for one that is too wide to be written."""
    cv, mean = (float(f"{x:.6g}") for x in (math.sqrt(math.expm1(sigma**2)), math.exp(mu + sigma**2 / 2.0)))
    return LoggedLaw(mean, cv, cap) if LEAST_CV <= cv <= MOST_CV else None


def _mean(columns: Mapping[str, Floats], name: str) -> float | None:
    values = columns.get(name)
    return None if values is None or not np.isfinite(values).any() else float(np.nanmean(values))


def _fitted(mean: float, cap: float | None, facts: list[tuple[float, float]], deviation: float) -> tuple[float, float]:
    """(mu, sigma) of the logarithm: each width has the one location that gives the mean; the width whose law lies
    nearest to the facts (share below, length) counts, distances in standard normal quantiles; without a fact the width
    that has the standard deviation, which a few long responses move more."""
    low, high = np.full(_SIGMAS.size, -20.0), np.full(_SIGMAS.size, math.log(mean) + 20.0)
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = _cut_mean(middle, _SIGMAS, cap) < mean
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    mu = 0.5 * (low + high)
    off = sum(((math.log(v) - mu) / _SIGMAS - _NORMAL.inv_cdf(q)) ** 2 for q, v in facts)
    if not facts:
        off = np.abs(np.sqrt(np.maximum(_cut_mean(mu, _SIGMAS, cap, 2) - mean**2, 0.0)) - deviation)
    best = int(np.argmin(off))
    return float(mu[best]), float(_SIGMAS[best])


def _cut_mean(mu: Floats, sigma: Floats, cap: float | None, power: int = 1) -> Floats:
    """E[min(X, cap) ** power] of a lognormal X."""
    whole = np.exp(np.minimum(power * mu + (power * sigma) ** 2 / 2.0, 700.0))
    if cap is None:
        return whole
    z = (math.log(cap) - mu) / sigma
    return np.asarray(whole * _cdf(z - power * sigma) + cap**power * (1.0 - _cdf(z)))


def _cdf(z: Floats) -> Floats:
    """The distribution of a standard normal. scipy has it, too, but takes long to import."""
    return 0.5 * (1.0 + np.asarray(_erf(z / math.sqrt(2.0)), float))


def _buckets(
    mu: float, sigma: float, cap: float | None, most: float, steps: float, samples: float
) -> tuple[Floats, Floats]:
    """Bounds and counts of the law, even in the logarithm; the last bucket holds what was cut, or what is longer."""
    top = most if cap is None else cap * _ATOM
    lowest = min(math.exp(mu - 3.5 * sigma), top / 2.0)
    le = np.geomspace(max(1.0, lowest), max(2.0, top), _BUCKETS)
    below = _cdf((np.log(le) - mu) / sigma)
    if cap is not None:
        le, below = np.append(le, cap), np.append(below, 1.0)
    else:
        below[-1] = 1.0
    return le, np.diff(below, prepend=0.0) * max(1.0, steps * samples)


def _drift(means: Floats, steps: Steps, mean: float) -> float | None:
    if len(steps.end_s) < 3 or steps.end_s[-1] - steps.end_s[0] < DRIFT_H * 3600.0:
        return None
    slope = slope_per_h(steps.end_s, means)
    return None if slope is None else slope / mean
