"""A benchmark run in totals, as observations: what its mean iteration held, and how long that took.

The step time is linear in all but f(n), so averages over the iterations of a run lie on the model, if they are averages
over the same iterations. They are not quite. Against an engine with known times (tests/calibrate/bench.py) a mean
iteration lies within 7 % of the model for runs of ten requests per slot; this is where it comes from:

- A client sees iterations through tokens, so an iteration with many decodes counts more often than one with few. While
  a run fills and drains, the mean concurrency lies below the batch that most tokens saw. Where a client says its cap,
  `seen_decodes` puts that right for a run that drains evenly; without it, at a given batch the step time comes out too
  long.
- Prompts are told apart from decodes only by their number: how many iterations hold a prompt is assumed (spread evenly,
  one after another). Where f bends, a wrong share moves seconds between f and the prefill.
- Without the lengths of single requests, the mean context is P + (O - 2) / 2 and the pairs of a prompt P (P + 1) / 2 at
  the mean lengths: with spread lengths both are too low.
- Prompts found in a prefix cache are taken as computed: give results of distinct prompts.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from msgspec import Struct

from fleetsim.calibrate.sources.source import Array, Duration, iteration, of_a_prompt

ALONE = 1.05  # mean requests in flight up to which a first token waits for nobody else
MOST_ITERATIONS = 256  # between two prompts; beyond, the prompt's share is averaged in
MOST_OF_A_BATCH = 200_000  # iterations


class Run(Struct, frozen=True):
    """Means of a run.

    prompt_tokens, output_tokens: per request. decodes: decoding on average. between_tokens_s: between the tokens of
    a request, mean over tokens. first_token_s: from a request to its first token, None where not measured. in_flight:
    requests in the engine on average. context_tokens, pairs: mean K of a decode and A of a prompt, where known.
    """

    prompt_tokens: float
    output_tokens: float
    decodes: float
    between_tokens_s: float
    first_token_s: float | None = None
    in_flight: float | None = None
    context_tokens: float | None = None
    pairs: float | None = None


def seen_decodes(mean: float, full: float | None) -> float:
    """The batch that the mean token saw, E[b^2] / E[b], in a run that is full, then drains evenly to 0.

    mean: E[b] by Little's law. full: decodes while it was full. With u = mean / full, full (4 u - 1) / (3 u); where
    u is below 1/2 or unknown, the run was never full for long and the mean is taken.
    """
    if full is None or not 0.5 * full <= mean < full:
        return mean
    u = mean / full
    return full * (4.0 * u - 1.0) / (3.0 * u)


def measured_of(run: Run, budget: int, number: int) -> list[Duration]:
    """The run as observations: the iterations from one prompt to the next, and a first token that waited for nobody.

    budget: max_num_batched_tokens. number: of the run in its file. A request in flight alone decodes alone, so its
    prompt is not in the time between tokens; of n requests, n - 1 see each other's prompts.
    """
    found = []
    later = run.output_tokens - 1.0
    if later > 0.0:
        b = max(1.0, run.decodes)
        context = run.context_tokens
        if context is None:
            context = run.prompt_tokens + max(0.0, (later - 1.0) / 2.0)
        rate = b / later * (b - 1.0) / b  # prompts per iteration that a decode sees
        found.append(_cycle(run, b, context, rate, budget, number))
    if run.first_token_s is not None and run.in_flight is not None and run.in_flight <= ALONE:
        prompt = of_a_prompt(run.prompt_tokens, budget)
        found.append(Duration(run.first_token_s, prompt, overheads=1.0, run=number))
    return found


def _cycle(run: Run, b: float, context: float, rate: float, budget: int, number: int) -> Duration:
    """As many iterations as there are from prompt to prompt, the first of them with the prompts that fall due."""
    pairs = run.prompt_tokens * (run.prompt_tokens + 1.0) / 2.0 if run.pairs is None else run.pairs
    n = 1 if rate <= 0.0 else int(np.clip(round(1.0 / rate), 1, MOST_ITERATIONS))
    prompts = rate * n
    tokens = prompts * run.prompt_tokens
    holding = int(np.clip(np.ceil(tokens / max(1.0, budget - b)), 1, n))
    rows = np.repeat(iteration(b, b * context), n, axis=0)
    rows[:holding, 2] = tokens / holding
    rows[:holding, 3] = prompts * pairs / holding
    return Duration(run.between_tokens_s * n, rows, run=number)


WINDOWS = 40
LEAST_ITERATIONS = 8.0
LEAST_DECODES = 1.0
TOGETHER = 0.3  # of an iteration: first tokens that close came out of one
STEADY = 0.25  # a window is left out where the batch changes by more than this from end to end


class TokenTimes(Struct, frozen=True):
    """Requests of a run. prompt_tokens, start_s: shape (requests,). tokens_s: when each token came, per request."""

    prompt_tokens: Array
    start_s: Array
    tokens_s: list[Array]

    def moments(self) -> dict[str, float | None]:
        """Mean context of a decode and mean pairs of a prompt, as `Run` has them."""
        later = np.array([len(s) - 1.0 for s in self.tokens_s])
        context = later * (self.prompt_tokens + (later - 1.0) / 2.0)
        pairs = self.prompt_tokens * (self.prompt_tokens + 1.0) / 2.0
        mean = float(context.sum() / later.sum()) if later.sum() else None
        return {"context_tokens": mean, "pairs": float(pairs.mean())}


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
        # the integral over the window of the tokens in the caches of decoding requests (prompt + tokens made - 1)
        contexts = 0.0
        for s, prompt in ((t.tokens_s[i], t.prompt_tokens[i]) for i in np.flatnonzero(overlap > 0.0)):
            spans = np.clip(np.minimum(s[1:], high) - np.maximum(s[:-1], low), 0.0, None)
            contexts += float(spans @ (prompt + np.arange(len(spans))))
        found.append(_window(seconds, count / b, b, contexts / seconds, _within(prefills, low, high), number))
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


def batch_iterations(requests: int, prompt_tokens: int, output_tokens: int, slots: int, budget: int) -> Array:
    """The iterations of equal requests that are all there from the start, shape (iterations, 4).

    At most MOST_OF_A_BATCH of them. slots: running at once. budget: max_num_batched_tokens. Running requests first,
    then new ones while slots and budget last; a prompt's last token also yields the first output token. KV blocks are
    taken as enough.
    """
    left_prompt = np.full(requests, prompt_tokens, np.int64)
    made = np.zeros(requests, np.int64)
    running: list[int] = []
    arrived = 0
    rows: list[list[float]] = []
    while (running or arrived < requests) and len(rows) < MOST_OF_A_BATCH:
        while len(running) < slots and arrived < requests:
            running.append(arrived)
            arrived += 1
        who = np.array(running)
        decoding = who[left_prompt[who] == 0]
        room = budget - len(decoding)
        b, kv = len(decoding), float((prompt_tokens + made[decoding] - 1).sum())
        tokens, pairs = 0, 0.0
        made[decoding] += 1
        for i in who[left_prompt[who] > 0]:
            chunk = min(room, int(left_prompt[i]))
            if chunk <= 0:
                break
            pairs += chunk * (prompt_tokens - int(left_prompt[i])) + chunk * (chunk + 1) / 2
            tokens, room = tokens + chunk, room - chunk
            left_prompt[i] -= chunk
            made[i] += left_prompt[i] == 0
        rows.append([b, kv, tokens, pairs])
        running = [i for i in running if made[i] < output_tokens]
    return np.array(rows, np.float64)
