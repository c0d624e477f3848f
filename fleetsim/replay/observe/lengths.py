"""Output lengths, prompts and groups of the requests that finished in the window.

Response lengths of a run log become a law from the mean, the percentiles, the longest and the share that was cut.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from fleetsim.config.scenario import Scenario
from fleetsim.config.workload import LEAST_CV, MOST_CV
from fleetsim.history.history import Buckets, Floats, History, Note, StepLog
from fleetsim.replay.observe.observed import LengthHistogram, LoggedLaw, Reading
from fleetsim.replay.observe.rates import prefix_counts, total
from fleetsim.replay.observe.steps import Steps
from fleetsim.replay.observe.trainer import slope_per_h

DRIFT_H = 3.0  # hours: over less, the slope says more about the batches than about the policy
NEAR = 0.03  # of a whole number of siblings; groups that are spread over instances hit at any rate
LARGEST_GROUP = 256  # above, 1 - hits / queries is a small difference of large numbers


def lengths_of(
    history: History, block_size: int | None, caching: bool | None, scenario: Scenario | None
) -> tuple[LengthHistogram | None, tuple[Note, ...]]:
    """The lengths of the window; None without the histogram, or if no request ended in it."""
    buckets = history.histograms.get("output_tokens")
    if buckets is None or len(buckets.times) < 2:
        return None, ()
    counts, sums = growth_of(buckets)
    each = np.diff(counts.sum(axis=0), prepend=0.0).clip(min=0.0)
    number = float(each.sum())
    if number <= 0:
        return None, (Note("missing", "no request ended in the window: response lengths are not known"),)
    mean = float(sums.sum()) / number
    prompt_mean = _prompt_mean(history)
    group, notes = _group_size(history, prompt_mean, block_size, caching, scenario)
    return (
        LengthHistogram(
            le=tuple(map(float, buckets.le)),
            count=tuple(map(float, each)),
            mean=mean,
            p50=quantile(buckets.le, each, 0.5),
            p90=quantile(buckets.le, each, 0.9),
            p99=quantile(buckets.le, each, 0.99),
            prompt_mean=prompt_mean,
            group_size=group,
            drift_per_h=_drift(buckets, counts[:, -1], sums, mean),
        ),
        notes,
    )


def growth_of(buckets: Buckets) -> tuple[Floats, Floats]:
    """Growth of a histogram between its times, summed over instances: counts (H-1, E) cumulative over le, sums (H-1,).

    A restart is one if any bucket fell: then all of them show what came after it. Growth over missing samples counts in
    the last interval of the hole.
    """
    instances, times, bounds = buckets.counts.shape
    counts, sums = np.zeros((times - 1, bounds)), np.zeros(times - 1)
    for i in range(instances):
        read = np.flatnonzero(np.isfinite(buckets.counts[i]).all(axis=1) & np.isfinite(buckets.sums[i]))
        if read.size < 2:
            continue
        seen, summed = buckets.counts[i, read], buckets.sums[i, read]
        restarted = (np.diff(seen, axis=0) < 0).any(axis=1) | (np.diff(summed) < 0)
        counts[read[1:] - 1] += np.where(restarted[:, None], seen[1:], np.diff(seen, axis=0))
        sums[read[1:] - 1] += np.where(restarted, summed[1:], np.diff(summed))
    return counts, sums


def quantile(le: Floats, count: Floats, q: float) -> float:
    """Interpolated inside the bucket as if its values were even in it; the last finite bound if it lies beyond that."""
    cumulative = np.cumsum(count)
    at = int(np.searchsorted(cumulative, q * cumulative[-1] * (1 - 1e-12)))
    low = float(le[at - 1]) if at else 0.0
    if not math.isfinite(le[at]):
        return low
    inside = (q * cumulative[-1] - (cumulative[at] - count[at])) / count[at]
    return low + float(inside) * (float(le[at]) - low)


def _drift(buckets: Buckets, number: Floats, sums: Floats, mean: float) -> float | None:
    ended = number > 0
    if buckets.times[-1] - buckets.times[0] < DRIFT_H * 3600.0 or mean <= 0:
        return None
    slope = slope_per_h(buckets.times[1:][ended], sums[ended] / number[ended], number[ended])
    return None if slope is None else slope / mean


def _prompt_mean(history: History) -> float | None:
    if (mean := _mean(history, "prompt_length")) is not None:
        return mean
    tokens, ended = total(history, "prompt_tokens"), total(history, "finished")
    return tokens / ended if tokens is not None and ended else None


def _mean(history: History, signal: str) -> float | None:
    """Mean of what a histogram counted in the window; None where it counted nothing, or is not there."""
    buckets = history.histograms.get(signal)
    if buckets is None or len(buckets.times) < 2:
        return None
    counts, sums = growth_of(buckets)
    number = float(counts[:, -1].sum())
    return float(sums.sum()) / number if number > 0 else None


def _group_size(
    history: History, prompt: float | None, block: int | None, caching: bool | None, scenario: Scenario | None
) -> tuple[Reading | None, tuple[Note, ...]]:
    """Samples per prompt: n of the requests; if clients send siblings one by one (n = 1), from the prefix cache."""
    if (n := _mean(history, "params_n")) is not None and n > 1.001:
        return Reading(n, "exported"), ()
    if prompt is None or block is None or caching is False:
        return None, ()
    if scenario is not None and (scenario.workload.shared_prefix_tokens or scenario.workload.turns.several):
        return None, (Note("missing", "a shared system prompt and turns hit the prefix cache too: group size unknown"),)
    hits, queries = prefix_counts(history)
    if hits is None or queries is None or queries.sum() <= 0:
        return None, ()
    group = group_from_hits(float(hits.sum() / queries.sum()), prompt, block)
    if group is None:
        return None, ()
    text = (
        f"group size {group} follows from the prefix hits, if siblings share an instance and groups share no system "
        "prompt"
    )
    return Reading(float(group), "inferred"), (Note("other", text),)


def group_from_hits(hit: float, prompt: float, block: int) -> int | None:
    """G from hits / queries = (G - 1) / G x share of a prompt that siblings can hit; None if no G of 2 to 256 fits.

    The last prompt token is always computed, so floor((P - 1) / block) blocks can be hit (vLLM,
    vllm/v1/core/kv_cache_manager.py). Of prompts that differ in length only the mean is known: their last block is half
    full on average.
    """
    if prompt == round(prompt):
        reach = (prompt - 1) // block * block / prompt
    else:
        reach = max(prompt - 1 - (block - 1) / 2, 0.0) / prompt
    if reach <= 0 or not 0 <= hit < reach:
        return None
    exact = 1 / (1 - hit / reach)
    group = round(exact)
    return group if 2 <= group <= LARGEST_GROUP and abs(exact - group) <= NEAR * exact else None


def expected_hits(group: float, prompt: float, block: int, places: float = 1.0) -> float:
    """The hit ratio of a group's prompts alone: (G - d) / G x floor((P - 1) / block) block / P.

    d: instances that a group's samples are spread over; the first sample on each computes the prompt. Full blocks are
    found, and the last token is always computed (vLLM, v1/core/kv_cache_manager.py: get_computed_blocks).
    """
    blocks = max(0, int(prompt - 1) // block) * block
    return max(0.0, group - places) / group * blocks / prompt if prompt > 0 and group > 0 else 0.0


def places_when_spread(group: float, instances: float) -> float:
    """Instances that a group's samples fall on where nothing keeps them together: n (1 - (1 - 1 / n)^G)."""
    return instances * (1.0 - (1.0 - 1.0 / instances) ** group) if instances > 1 else 1.0


_NORMAL = NormalDist()
_SIGMAS = np.arange(0.05, 2.5, 0.01)
_QUANTILES = {"length_p50": 0.5, "length_p90": 0.9, "length_p95": 0.95, "length_p99": 0.99}
_BUCKETS = 40
# The bucket of what was cut: as narrow as this below the cap.
_ATOM = 0.999
_erf = np.frompyfunc(math.erf, 1, 1)


def logged_lengths(log: StepLog, steps: Steps) -> LengthHistogram | None:
    """A lognormal law, cut at the cap or the longest response, whose mean is the log's and whose width fits best what
    else the log says: its percentiles, the share that was cut, or the longest of a step's samples; without them its
    standard deviation. None where nothing but a mean is known.

    Its quantiles are those of this law, except where the log has its own."""
    mean = log.mean("length_mean")
    if mean is None or mean <= 0:
        return None
    clip, longest = log.mean("clip_share"), log.columns.get("length_max", np.array([np.nan]))
    most = float(np.nanmax(longest)) if np.isfinite(longest).any() else None
    cap = most if clip and most is not None and most > mean else None
    facts = [(q, v) for name, q in _QUANTILES.items() if (v := log.mean(name)) is not None and v > 0]
    samples = log.mean("samples")
    if cap is not None and clip and 0 < clip < 1:
        facts.append((1.0 - clip, cap))
    elif most is not None and samples is not None and samples > 1:
        facts.append((0.5 ** (1.0 / samples), float(np.nanmedian(longest))))
    deviation = log.mean("length_std")
    if not facts and not deviation:
        return None
    # nobody saw a longer one: a law without an end would draw responses that no context holds
    end = most if cap is None and most is not None and most > mean else cap
    mu, sigma = _fitted(mean, end, facts, deviation or 0.0)
    le, count = _buckets(mu, sigma, cap, most or mean * 20.0, steps.total or 1.0, samples or 1.0)
    own = {q: log.mean(name) for name, q in _QUANTILES.items()}
    # as a scenario writes it; one that is too wide is not to be written
    cv, whole = (float(f"{x:.6g}") for x in (math.sqrt(math.expm1(sigma**2)), math.exp(mu + sigma**2 / 2.0)))
    long = len(steps.end_s) >= 3 and steps.end_s[-1] - steps.end_s[0] >= DRIFT_H * 3600.0
    slope = slope_per_h(steps.end_s, log.columns["length_mean"]) if long else None
    size = log.mean("group_size")
    return LengthHistogram(
        le=tuple(map(float, le)),
        count=tuple(map(float, count)),
        mean=mean,
        p50=own[0.5] or quantile(le, count, 0.5),
        p90=own[0.9] or quantile(le, count, 0.9),
        p99=own[0.99] or quantile(le, count, 0.99),
        prompt_mean=log.mean("prompt_mean"),
        group_size=None if size is None else Reading(size, "log"),
        drift_per_h=None if slope is None else slope / mean,
        law=LoggedLaw(whole, cv, end) if LEAST_CV <= cv <= MOST_CV else None,
    )


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
    return np.asarray(whole * normal_cdf(z - power * sigma) + cap**power * (1.0 - normal_cdf(z)))


def normal_cdf(z: Floats) -> Floats:
    """The distribution of a standard normal. scipy has it, too, but takes long to import."""
    return 0.5 * (1.0 + np.asarray(_erf(z / math.sqrt(2.0)), float))


def _buckets(
    mu: float, sigma: float, cap: float | None, most: float, steps: float, samples: float
) -> tuple[Floats, Floats]:
    """Bounds and counts of the law, even in the logarithm; the last bucket holds what was cut, or what is longer."""
    top = most if cap is None else cap * _ATOM
    lowest = min(math.exp(mu - 3.5 * sigma), top / 2.0)
    le = np.geomspace(max(1.0, lowest), max(2.0, top), _BUCKETS)
    below = normal_cdf((np.log(le) - mu) / sigma)
    if cap is not None:
        le, below = np.append(le, cap), np.append(below, 1.0)
    else:
        below[-1] = 1.0
    return le, np.diff(below, prepend=0.0) * max(1.0, steps * samples)
