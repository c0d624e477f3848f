"""RL-like batches, kept out of every fit: groups of siblings whose responses have heavy-tailed lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fleetsim.calibrate.loads import Limits, Load, Request

G = 8  # samples per prompt
CV = 0.9  # of the lognormal lengths before the cap
PROMPT = 512
POOL_SHARE = 0.6  # of the blocks that a batch needs at its peak: rl_preempt gets no more, so that it preempts


def batches(limits: Limits, *, quick: bool, seed: int) -> list[Load]:
    """The batches, the most telling first. Where the engine holds few or short requests they are fewer and shorter.

    rl_on, rl_off: the same samples with the prefix cache read and not read. rl_preempt: in a pool of blocks that is too
    small. rl_long: long responses. Quick: the first two, a quarter as long.
    """
    mean, cap = (384, 2048) if quick else (1536, 8192)
    both = [_batch(limits, phase, 64, mean, cap, seed, cached=phase == "rl_on") for phase in ("rl_on", "rl_off")]
    if quick:
        return both
    return [
        *both,
        _batch(limits, "rl_preempt", 24, 768, 3072, seed + 1, pool_share=POOL_SHARE),
        _batch(limits, "rl_long", 32, 4096, 16384, seed + 2),
    ]


def _batch(
    limits: Limits,
    phase: str,
    groups: int,
    mean: float,
    cap: int,
    seed: int,
    *,
    cached: bool = True,
    pool_share: float | None = None,
) -> Load:
    groups = max(2, min(groups, 2 * limits.max_num_seqs // G))
    prompt = max(1, min(PROMPT, limits.max_model_len // 4))
    most = max(1, min(cap, limits.max_model_len - prompt - 1))
    mean *= most / cap
    lengths = lognormal(groups * G, mean, most, seed)
    requests = tuple(Request(i // G, prompt, n, read_cache=cached) for i, n in enumerate(lengths))
    label = {
        "groups": groups,
        "G": G,
        "P": prompt,
        "mean": round(mean),
        "cap": most,
        "cv": CV,
        "cached": cached,
        "length_scale": 1.0,
        "tokens": sum(lengths),
    }
    if pool_share is not None:
        label["pool_share"] = pool_share
    load = Load(phase, label, requests, track=True, yields=phase in ("rl_preempt", "rl_long"))
    return scaled(load, 1.0, limits)


def lognormal(n: int, mean: float, cap: int, seed: int) -> list[int]:
    """n response lengths, tokens: lognormal with this mean before the cap, and at least 1."""
    return [int(x) for x in np.clip(np.rint(heavy_tailed(n, mean, np.random.default_rng([7, seed]))), 1, cap)]


def heavy_tailed(n: int, mean: float, random: np.random.Generator) -> NDArray[np.float64]:
    """n lengths, tokens, before the cap: lognormal, deviation / mean = CV."""
    sigma2 = math.log(1.0 + CV * CV)
    return random.lognormal(math.log(mean) - sigma2 / 2.0, math.sqrt(sigma2), n)


def scaled(load: Load, scale: float, limits: Limits) -> Load:
    """The batch with responses `scale` times as long, and with the smaller pool that goes with them."""
    requests = tuple(replace(r, output_tokens=max(1, round(r.output_tokens * scale))) for r in load.requests)
    tokens = sum(r.output_tokens for r in requests)
    label = {**load.label, "length_scale": round(scale, 4), "tokens": tokens}
    pool = None
    share = load.label.get("pool_share")
    if share is not None:
        longest = max(r.prompt_tokens + r.output_tokens for r in requests)
        pool = max(math.ceil(longest / limits.block_size) + 4, int(share * peak_blocks(requests, limits)))
        label["pool_blocks"] = pool = min(pool, limits.kv_blocks)
    return replace(load, label=label, requests=requests, pool_blocks=pool)


def peak_blocks(requests: Sequence[Request], limits: Limits) -> int:
    """Most KV blocks in use at once if all decode from the start: siblings share their prompt's whole blocks."""
    length = np.sort([r.output_tokens for r in requests])[::-1][: limits.max_num_seqs]
    prompt = requests[0].prompt_tokens
    shared = prompt // limits.block_size
    best = 0
    for t in range(0, int(length[0]), max(1, limits.block_size // 2)):
        active = int((length > t).sum())
        own = math.ceil((prompt + t) / limits.block_size) - shared
        best = max(best, active * own + math.ceil(active / G) * shared)
    return best
