"""The order of loads that a calibration runs, of an engine in process and of a server.

Machines drift: they warm up, and neighbours come and go. So the sweeps run in several passes, each shuffled, with the
batches between them: a drift then looks like noise instead of bending a curve, and the batches are predicted from
measurements of before and after. In process, the first pass is coarse, so that a short budget covers the whole range.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from fleetsim.calibrate.loads import G, Limits, Load, Request, batch
from fleetsim.records import replace

EXTRA_PASSES = 3  # over everything, where time is left in the end
BATCHES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
FIRST_KEY = 1_000_000  # of prompts that no load shares
LENGTHS, QUICK_LENGTHS = (1536, 8192), (384, 2048)  # mean and cap of responses
POOL_SHARE = 0.6  # of the blocks that a batch needs at its peak: rl_preempt gets no more, so that it preempts


def loads_in_order(limits: Limits, *, quick: bool = False, seed: int = 0) -> list[Load]:
    """All loads in the order in which they should run. Quick: two coarse passes, a short batch after each."""
    keys = itertools.count(FIRST_KEY)
    rng = np.random.default_rng([11, seed])
    number = itertools.count(1)

    def one_pass(coarse: bool) -> list[Load]:
        points = [*decodes(limits, coarse), *prompts(limits, coarse, keys), *mixtures(limits, coarse, keys)]
        return _shuffled(points, next(number), rng)

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


def _shuffled(points: Sequence[Load], number: int, rng: np.random.Generator) -> list[Load]:
    """One pass over all points, its number in their labels."""
    return [
        replace(points[i], label={**points[i].label, "pass": number}) for i in rng.permutation(len(points)).tolist()
    ]


def batches(limits: Limits, *, quick: bool, seed: int) -> list[Load]:
    """The batches, the most telling first. Where the engine holds few or short requests they are fewer and shorter.

    rl_on, rl_off: the same samples with the prefix cache read and not read. rl_preempt: in a pool of blocks that is too
    small. rl_long: long responses. Quick: the first two, a quarter as long.
    """
    mean, cap = QUICK_LENGTHS if quick else LENGTHS
    both = [batch(limits, phase, 64, mean, cap, seed, cached=phase == "rl_on") for phase in ("rl_on", "rl_off")]
    if quick:
        return both
    return [
        *both,
        batch(limits, "rl_preempt", 24, 768, 3072, seed + 1, pool_share=POOL_SHARE),
        batch(limits, "rl_long", 32, 4096, 16384, seed + 2),
    ]


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
        held = max(1, min(int(ROOM * limits.kv_tokens / (c + spare)), limits.max_num_seqs))  # by the cache
        sizes = set(COARSE_BATCHES if coarse else BATCHES) | {limits.max_num_seqs, held}
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


# --- Of a server. A client can put no context into its cache, and sees no iterations but those of whole windows.

CACHE_SHARE = 0.85  # of the KV cache that a sweep may fill: nothing is to be preempted in it
PASSES = 3  # over the decodes
SERVED_BATCHES = (1, 4, 16, 64, 128, 256, 512, 1024)  # quick
SIBLINGS_KEY = 500_000  # prompts of the second batch are none of the first


def loads_in_turn(limits: Limits, *, quick: bool, seed: int, at_once: int, cached: bool, mixed: bool) -> list[Load]:
    """All loads for a server: prompts, decodes, a batch, mixtures, decodes twice more, so that a drift averages out,
    and the second batch. Where the server is small they shrink.

    at_once: streams that the client can hold open. cached: whether prompts are found again. mixed: whether iterations
    can be counted while a prompt is computed.
    """
    slots = min(limits.max_num_seqs, at_once)
    keys = itertools.count(FIRST_KEY)
    rng = np.random.default_rng([seed, 1])
    points = _served_decodes(limits, slots, quick)
    first, second, third = (_shuffled(points, number, rng) for number in range(PASSES))
    requests, siblings = served_batches(limits, quick=quick, seed=seed, at_once=at_once, cached=cached)
    beside = _served_mixtures(limits, slots, quick, keys) if mixed else []
    before = _served_prompts(limits, slots, quick, keys)
    return [*before, *first, requests, *beside, *second, *third, siblings]


def _served_prompts(limits: Limits, slots: int, quick: bool, keys: Iterator[int]) -> list[Load]:
    """Prompts sent to an idle server, one or several at once, each point some times in a row."""
    longest = limits.max_model_len - 2
    lengths = (128, 512, 2048, 8192) if quick else (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
    several = ((4, 256), (8, 512)) if quick else ((4, 128), (16, 128), (4, 512), (16, 512), (4, 2048), (8, 1024))
    points = dict.fromkeys((n, min(p, longest)) for n, p in (*((1, p) for p in lengths), *several))
    times = range(3 if quick else 5)
    return [
        _served("prefill", {"N": n, "P": p}, tuple(Request(next(keys), p, 1, at=k) for k in times for _ in range(n)))
        for n, p in points
        if n <= slots and n * p <= CACHE_SHARE * limits.kv_tokens and p >= 16
    ]


def _served_decodes(limits: Limits, slots: int, quick: bool) -> list[Load]:
    """Batch x context. Prompts have the keys 0, 1, ...: computed once, then found in the cache."""
    window = 28 if quick else 52
    contexts = (128, 2048) if quick else (128, 1024, 4096, 16384)
    points: dict[tuple[int, int], int] = {}
    for c in contexts:
        for b in sorted({b for b in (SERVED_BATCHES if quick else BATCHES) if b <= slots} | {slots}):
            most = min(window + 64 + b // 4 + -(-b * c // limits.max_num_batched_tokens), 512)
            fits = min(c, limits.max_model_len - most - 2, int(CACHE_SHARE * limits.kv_tokens / b) - most)
            if fits >= min(c, 16) and (fits >= 0.4 * c or c == contexts[0]):
                points[b, fits] = most
    return [
        _served("decode", {"B": b, "C": c}, tuple(Request(i, c, most) for i in range(b)), window)
        for (b, c), most in points.items()
    ]


def _served_mixtures(limits: Limits, slots: int, quick: bool, keys: Iterator[int]) -> list[Load]:
    """Decodes beside which a prompt arrives every `gap` tokens."""
    sizes = [b for b in ((16, 128) if quick else (8, 32, 128, 256)) if b < slots] or [max(1, slots // 2)]
    lengths = (256, 1024) if quick else (128, 512, 2048, 8192)
    several, gap = (3, 6) if quick else (5, 8)
    context = min(128, limits.max_model_len // 8)
    found = []
    for b, p in itertools.product(sizes, dict.fromkeys(min(p, limits.max_model_len - 2) for p in lengths)):
        most = min(several * (gap + 4 + -(-p // max(1, limits.max_num_batched_tokens - b))) + 96 + b // 4, 1024)
        most = min(most, limits.max_model_len - context - 1)
        if b * (context + most) + several * p <= CACHE_SHARE * limits.kv_tokens:
            decoding = tuple(Request(i, context, most) for i in range(b))
            arriving = tuple(Request(next(keys), p, 1, at=gap * (k + 1)) for k in range(several))
            found.append(_served("mixed", {"B": b, "C": context, "P": p}, decoding + arriving))
    return found


def _served(phase: str, label: dict[str, int], requests: tuple[Request, ...], window: int | None = None) -> Load:
    return Load(phase, {**label, "client": True}, requests, window=window)


def served_batches(limits: Limits, *, quick: bool, seed: int, at_once: int, cached: bool) -> tuple[Load, Load]:
    """RL-like batches: one with a request per sample, one with n = 8 per request.

    n samples in one request share max_tokens, so there a group's siblings are equally long.
    """
    groups = min(32 if quick else 64, max(2, at_once // G))
    mean, cap = QUICK_LENGTHS if quick else LENGTHS
    alike = {"alike": G, "first_key": SIBLINGS_KEY}
    return (
        batch(limits, "rl_requests", groups, mean, cap, seed, cached=cached, client=True),
        batch(limits, "rl_n", groups, mean, cap, seed + 1, cached=cached, **alike, client=True, n=G),
    )
