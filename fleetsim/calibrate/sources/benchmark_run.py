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

import numpy as np

from fleetsim.calibrate.sources.source import Duration, iteration, of_a_prompt
from fleetsim.dataclass import dataclass

ALONE = 1.05  # mean requests in flight up to which a first token waits for nobody else
MOST_ITERATIONS = 256  # between two prompts; beyond, the prompt's share is averaged in


@dataclass(frozen=True, slots=True)
class Run:
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
