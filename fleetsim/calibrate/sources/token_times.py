"""A benchmark run with the time of every token: what the engine held, window by window.

While at least one request decodes, that request is in every iteration, so tokens made / requests decoding counts the
iterations of a window. Batches that fill and drain give points of their own: one run covers a range of batch sizes.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from fleetsim.calibrate.sources.source import Array, Duration
from fleetsim.dataclass import dataclass

WINDOWS = 40
LEAST_ITERATIONS = 8.0
LEAST_DECODES = 1.0
TOGETHER = 0.3  # of an iteration: first tokens that close came out of one
STEADY = 0.25  # a window is left out where the batch changes by more than this from end to end


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """Requests of a run. prompt_tokens, start_s: shape (requests,). tokens_s: when each token came, per request."""

    prompt_tokens: Array
    start_s: Array
    tokens_s: list[Array]


def windows_of(t: TokenTimes, budget: int, number: int) -> list[Duration]:
    """One mean iteration per window in which requests decoded throughout; as many windows as the run has room for.

    K follows from the tokens made so far, p from the prompts that were computed. Those that came out in one iteration
    were computed together, first come first served: from the one before, or from their own arrival, to their first
    token. Windows in which the batch changes much are left out, because f bends. budget: max_num_batched_tokens.
    """
    first = np.array([s[0] for s in t.tokens_s])
    last = np.array([s[-1] for s in t.tokens_s])
    later = np.sort(np.concatenate([s[1:] for s in t.tokens_s]))
    if not len(later):
        return []
    gaps = np.concatenate([np.diff(s) for s in t.tokens_s])
    prefills = _prefills(t, first, TOGETHER * float(np.median(gaps)), budget)
    n = int(np.clip(len(later) / float(np.mean([len(s) for s in t.tokens_s])), 4, WINDOWS))
    even = np.linspace(first.min(), last.max(), n + 1)
    edges = np.unique(later[np.clip(np.searchsorted(later, even), 0, len(later) - 1)])  # where an iteration ended
    idle = _idle(first, last)
    found = []
    for low, high in pairwise(edges.tolist()):
        seconds = high - low
        overlap = np.clip(np.minimum(last, high) - np.maximum(first, low), 0.0, None)
        b = float(overlap.sum() / seconds)
        ends = [int(np.sum((first <= at) & (last > at))) for at in (low, high - 1e-9 * seconds)]
        alone = bool(np.any((idle[:, 0] < high) & (idle[:, 1] > low)))
        count = int(np.searchsorted(later, high, "right") - np.searchsorted(later, low, "right"))
        if b < LEAST_DECODES or alone or min(ends) < 1 or abs(ends[1] - ends[0]) > STEADY * max(ends):
            continue
        if count / b < LEAST_ITERATIONS:
            continue
        contexts = _context_seconds(t, overlap, low, high) / seconds
        found.append(_window(seconds, count / b, b, contexts, _within(prefills, low, high), number))
    return found


def _idle(first: Array, last: Array) -> Array:
    """When nothing decoded between the first token and the last, shape (gaps, 2): from, to."""
    order = np.argsort(first, kind="stable")
    until = np.maximum.accumulate(last[order])[:-1]
    after = first[order][1:]
    gap = after > until
    return np.column_stack([until[gap], after[gap]])


def _prefills(t: TokenTimes, first: Array, together_s: float, budget: int) -> Array:
    """Prompts that were computed together, shape (groups, 5): from, to, iterations, tokens, pairs."""
    order = np.argsort(first, kind="stable")
    new = np.append(True, np.diff(first[order]) > together_s)
    group = np.cumsum(new) - 1
    prompts, starts = t.prompt_tokens[order], t.start_s[order]
    until = first[order][np.flatnonzero(new)]
    begun = np.minimum.reduceat(starts, np.flatnonzero(new))
    begun = np.maximum(begun, np.append(-np.inf, until[:-1]))
    tokens = np.bincount(group, prompts)
    pairs = np.bincount(group, prompts * (prompts + 1.0) / 2.0)
    return np.stack([begun, until, np.maximum(1.0, np.ceil(tokens / budget)), tokens, pairs], axis=1, dtype=np.float64)


def _within(prefills: Array, low: float, high: float) -> Array:
    """What of the prefills lies in a window: iterations, tokens, pairs, shape (3,)."""
    begun, until = prefills[:, 0], prefills[:, 1]
    inside = np.clip(np.minimum(until, high) - np.maximum(begun, low), 0.0, None)
    share = np.where(until > begun, inside / np.maximum(until - begun, 1e-12), (until > low) & (until <= high))
    return np.asarray(share @ prefills[:, 2:])


def _window(seconds: float, iterations: float, b: float, kv: float, prefill: Array, number: int) -> Duration:
    """The window as whole iterations, as many as lie between two with prompts, the first of them with its share."""
    holding, tokens, pairs = prefill.tolist()
    n = int(np.clip(round(iterations / holding), 1, round(iterations))) if tokens > 0.0 else 1
    rows = np.zeros((n, 4))
    rows[:, 0], rows[:, 1] = b, kv
    rows[0, 2:] = tokens * n / iterations, pairs * n / iterations
    return Duration(seconds / iterations * n, rows, run=number)


def _context_seconds(t: TokenTimes, overlap: Array, low: float, high: float) -> float:
    """Integral over the window of the tokens in the caches of decoding requests (prompt + tokens made - 1)."""
    total = 0.0
    for i in np.flatnonzero(overlap > 0.0):
        s = t.tokens_s[i]
        spans = np.clip(np.minimum(s[1:], high) - np.maximum(s[:-1], low), 0.0, None)
        total += float(spans @ (t.prompt_tokens[i] + np.arange(len(spans))))
    return total
