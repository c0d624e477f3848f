"""The order of loads that a calibration runs.

Machines drift: they warm up, and neighbours come and go. So the sweeps run in several passes, each shuffled, with the
batches between them: a drift then looks like noise instead of bending a curve, and the batches are predicted from
measurements of before and after. The first pass is coarse, so that a short budget covers the whole range.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fleetsim.calibrate.loads import Limits, Load, Request, batches

EXTRA_PASSES = 3  # over everything, where time is left in the end


def loads_in_order(limits: Limits, *, quick: bool = False, seed: int = 0) -> list[Load]:
    """All loads in the order in which they should run. Quick: two coarse passes, a short batch after each."""
    keys = itertools.count(1_000_000)
    rng = np.random.default_rng([11, seed])
    number = itertools.count(1)

    def one_pass(coarse: bool) -> list[Load]:
        loads = sweep(limits, coarse=coarse, number=next(number), keys=keys)
        return [loads[i] for i in rng.permutation(len(loads))]

    kept_out = batches(limits, quick=quick, seed=seed)
    if quick:
        parts = [one_pass(True), [kept_out[0]], one_pass(True), [kept_out[1]]]
    else:
        on, off, preempt, long = kept_out
        first, whole, last = one_pass(True), one_pass(False), one_pass(True)
        half = len(whole) // 2
        parts = [first, [on], whole[:half], [off], whole[half:], [preempt], last, [long]]
    extra = [replace(load, optional=True) for _ in range(EXTRA_PASSES) for load in one_pass(quick)]
    return [*itertools.chain(*parts), *extra]


BATCHES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
COARSE_BATCHES = (1, 8, 32, 64, 128, 256, 512, 768, 1024)
BETWEEN = (3, 12, 100, 130, 520, 640, 896)  # not sizes of a graph; the last three beyond the largest
CONTEXTS = (256, 2048, 8192, 32768)
COARSE_CONTEXTS = (256, 2048)
ROOM = 0.97  # of the KV cache is used at most: nothing is to be preempted here
LESS = 0.6  # of a context: a batch for which there is no room runs with a shorter one, this much of it at least
ALIKE = 1.15  # points closer together than this factor say the same

PROMPTS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
MANY_PROMPTS = ((4, 128), (16, 128), (4, 512), (16, 512), (32, 512), (4, 2048), (8, 2048), (2, 8192), (4, 4096))
CHUNKS = (512, 2048, 4096, 8192)  # budgets of the longest prompt, where below the engine's

DECODES_BESIDE = (32, 128, 256, 512)
PROMPTS_BESIDE = (128, 512, 2048, 8192)


def sweep(limits: Limits, *, coarse: bool, number: int, keys: Iterator[int]) -> list[Load]:
    """One pass over all points, in no useful order yet. number: the pass, in the labels. keys: unused prompt keys."""
    lists = (decodes(limits, coarse), prompts(limits, coarse, keys), mixtures(limits, coarse, keys))
    return [replace(load, label={**load.label, "pass": number}) for load in itertools.chain(*lists)]


def decodes(limits: Limits, coarse: bool) -> list[Load]:
    """Decodes only: label B, C. Contexts are whole blocks, and a little shorter where the cache is small."""
    warm, measured = (5, 14) if coarse else (6, 28)
    steps = warm + measured + 2
    spare = steps + 2 * limits.block_size
    longest = limits.max_model_len - spare
    contexts: list[int] = []
    for c in COARSE_CONTEXTS if coarse else CONTEXTS:
        if min(c, longest) > ALIKE * (contexts[-1] if contexts else 0):
            contexts.append(min(c, longest))
    points: dict[tuple[int, int], None] = {}
    for c in contexts:
        sizes = set(COARSE_BATCHES if coarse else BATCHES) | {limits.max_num_seqs, _fitting(limits, c + spare)}
        if not coarse and c == contexts[min(1, len(contexts) - 1)]:
            sizes.update(BETWEEN)
        taken = 0.0
        for b in sorted(sizes):
            room = int(ROOM * limits.kv_blocks / b) * limits.block_size - spare
            context = max(min(c, room) // limits.block_size, 1) * limits.block_size
            wanted = b in BETWEEN or b in BATCHES or b == limits.max_num_seqs or b >= ALIKE * taken
            fits = b <= limits.max_num_seqs and context <= min(room, longest)
            if wanted and fits and (context > LESS * c or c < 512):
                points[b, context] = None
                taken = b
    return [
        Load("decode", {"B": b, "C": c}, tuple(Request(i, c + 1, steps, cached_tokens=c) for i in range(b)), warm)
        for b, c in points
    ]


def _fitting(limits: Limits, tokens: int) -> int:
    """How many requests of so many tokens the cache holds, at least 1."""
    return max(1, min(int(ROOM * limits.kv_tokens / tokens), limits.max_num_seqs))


def prompts(limits: Limits, coarse: bool, keys: Iterator[int]) -> list[Load]:
    """Prompts only, back to back: label N at a time, P tokens each, budget tokens per iteration."""
    longest = min(limits.max_model_len - 2, 16384)
    full = limits.max_num_batched_tokens
    if coarse:
        points = [(1, p, full) for p in (128, 512, 2048, 8192, longest)]
        points += [(1, 1024, full), (8, 128, full)]  # as many tokens, not as many pairs
        points += [(16, 512, full), (1, longest, 2048)]
    else:
        points = [(1, p, full) for p in (*PROMPTS, longest)] + [(n, p, full) for n, p in MANY_PROMPTS]
        points += [(1, longest, chunk) for chunk in CHUNKS] + [(8, 2048, 2048), (16, 512, 2048)]
    loads: dict[tuple[int, int, int], Load] = {}
    for n, p, budget in points:
        p, budget = min(p, longest), min(budget, full)
        if p < 1 or n > limits.max_num_seqs or n * (p + limits.block_size) > 0.9 * limits.kv_tokens:
            continue
        iterations = math.ceil(n * p / budget)
        times = max(3, min(4 if coarse else 6, 20_000 // (n * p))) if iterations == 1 else 2
        loads[n, p, budget] = Load(
            "prefill",
            {"N": n, "P": p, "budget": budget},
            tuple(Request(next(keys), p, 1, at=k * iterations) for k in range(times) for _ in range(n)),
            1,
            budget,
            slots=budget if budget < limits.max_num_seqs else None,  # a request takes a token at least
        )
    return list(loads.values())


def mixtures(limits: Limits, coarse: bool, keys: Iterator[int]) -> list[Load]:
    """Decodes beside which a prompt arrives every few iterations: label B, C, P, budget."""
    longest = min(limits.max_model_len - 2, 8192)
    full = limits.max_num_batched_tokens
    beside = [(p, full) for p in PROMPTS_BESIDE] + ([] if coarse else [(2048, 1024), (longest, 2048)])
    loads: dict[tuple[int, int, int], Load] = {}
    for b, (p, budget) in itertools.product((32, 256) if coarse else DECODES_BESIDE, beside):
        b, p, budget = min(b, limits.max_num_seqs - 2), min(p, longest), min(budget, full)
        if b < 1 or p < 1 or budget <= b or (b, p, budget) in loads:
            continue
        chunks = math.ceil(p / (budget - b))
        gap = max(3, chunks + 1)
        times = 3 if coarse else 5
        first, warm = 5, 4
        steps = first + gap * times + chunks
        spare = steps + 2 * limits.block_size
        room = (0.95 * limits.kv_blocks - 2 * math.ceil(p / limits.block_size)) // b * limits.block_size - spare
        c = int(min(1024, limits.max_model_len - spare, room)) // limits.block_size * limits.block_size
        if c < limits.block_size:
            continue
        decoding = tuple(Request(i, c + 1, steps, cached_tokens=c) for i in range(b))
        arriving = tuple(Request(next(keys), p, 1, at=first + gap * k) for k in range(times))
        label = {"B": b, "C": c, "P": p, "budget": budget}
        loads[b, p, budget] = Load("mixed", label, decoding + arriving, warm, budget)
    return list(loads.values())


def computed(load: Load, limits: Limits) -> Load:
    """The load for an engine in which contexts cannot be put into the cache: its warm-up computes them.

    Everybody decodes until the last context is there, so warm-up, responses and later arrivals move by that many
    iterations; contexts shrink where the longest request would not fit otherwise.
    """
    budget = load.max_num_batched_tokens or limits.max_num_batched_tokens
    first = [r for r in load.requests if r.cached_tokens]
    chunk = max(1, min(budget, limits.max_num_batched_tokens) - len(first))
    more = -(-sum(r.prompt_tokens for r in first) // chunk) + 1
    requests = tuple(
        replace(
            r,
            prompt_tokens=max(1, min(r.prompt_tokens, limits.max_model_len - r.output_tokens - more)),
            output_tokens=min(r.output_tokens + more, limits.max_model_len - 1),
            cached_tokens=0,
        )
        if r.cached_tokens
        else replace(r, at=r.at + more)
        for r in load.requests
    )
    return replace(load, requests=requests, warm=load.warm + more)
