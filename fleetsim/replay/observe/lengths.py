"""Output lengths, prompts and groups of the requests that finished in the window."""

from __future__ import annotations

import math

import numpy as np

from fleetsim.config.scenario import Scenario
from fleetsim.history.history import Buckets, Floats, History, Note
from fleetsim.replay.observe.observed import LengthHistogram, Reading
from fleetsim.replay.observe.rates import prefix_counts, total

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
    hours = (buckets.times[1:] - buckets.times[0]) / 3600
    ended = number > 0
    if ended.sum() < 3 or hours[-1] < DRIFT_H or mean <= 0:
        return None
    weights = number[ended]
    at = hours[ended] - np.average(hours[ended], weights=weights)
    slope = float(np.sum(weights * at * (sums[ended] / weights)) / np.sum(weights * at**2))
    return slope / mean


def _prompt_mean(history: History) -> float | None:
    buckets = history.histograms.get("prompt_length")
    if buckets is not None and len(buckets.times) >= 2:
        counts, sums = growth_of(buckets)
        if counts[:, -1].sum() > 0:
            return float(sums.sum() / counts[:, -1].sum())
    tokens, ended = total(history, "prompt_tokens"), total(history, "finished")
    return tokens / ended if tokens is not None and ended else None


def _group_size(
    history: History, prompt: float | None, block: int | None, caching: bool | None, scenario: Scenario | None
) -> tuple[Reading | None, tuple[Note, ...]]:
    """Samples per prompt: n of the requests; if clients send siblings one by one (n = 1), from the prefix cache."""
    buckets = history.histograms.get("params_n")
    if buckets is not None and len(buckets.times) >= 2:
        counts, sums = growth_of(buckets)
        if counts[:, -1].sum() > 0 and (n := float(sums.sum() / counts[:, -1].sum())) > 1.001:
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
