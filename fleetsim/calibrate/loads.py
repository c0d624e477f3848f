"""What an engine is asked to do while it is measured: requests, loads, and the order of loads that a calibration runs.

Numbers only: no engine, no clock, no randomness beyond a seed. The same limits and seed give the same loads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import Struct

from fleetsim.calibrate.raw import FITTED
from fleetsim.records import replace

# What a label says of how a load was run on a day, not of what it asks for: left out of its key.
OF_THE_DAY = frozenset({"length_scale", "est", "tokens", "held_blocks", "pool_blocks"})


class Limits(Struct, frozen=True):
    """What bounds a load. kv_blocks: usable ones. max_model_len: prompt plus response, tokens."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    kv_blocks: int
    block_size: int

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache holds."""
        return self.kv_blocks * self.block_size


class Request(Struct, frozen=True):
    """One request of a load.

    prompt: a key; requests with the same key and prompt_tokens have the same token ids, others differ in their first
    block. at: the iteration of the load (0, 1, ...) before which it arrives; where the engine is empty before then,
    time skips to it. cached_tokens: leading prompt tokens that lie in the prefix cache beforehand, whole blocks, fewer
    than prompt_tokens. read_cache: False has the whole prompt computed though its blocks may be cached.
    """

    prompt: int
    prompt_tokens: int
    output_tokens: int
    at: int = 0
    cached_tokens: int = 0
    read_cache: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that are run together, from an empty engine until all have ended: one segment of the raw measurements.

    phase: decode, prefill, mixed (fits see them) or rl_... (kept out of every fit). label: what was asked, copied into
    the records. requests: in the order in which they are submitted. warm: iterations at its beginning kept out of fits.
    max_num_batched_tokens, slots: limits for this load where they are below the engine's (slots: max_num_seqs).
    pool_blocks: KV blocks that the load may use. track: record submit, first token and finish of each request; the
    prefix cache is emptied before such a load. yields: its responses are shortened before those of other batches are.
    optional: for time that is left over. window: a client stops once every request has made so many tokens since the
    last of them began.
    """

    phase: str
    label: Mapping[str, Any]
    requests: tuple[Request, ...]
    warm: int = 0
    max_num_batched_tokens: int | None = None
    pool_blocks: int | None = None
    slots: int | None = None
    track: bool = False
    yields: bool = False
    optional: bool = False
    window: int | None = None
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", key_of(self.phase, self.label))

    @property
    def kept_out(self) -> bool:
        """Whether no fit may see it."""
        return self.phase not in FITTED


class Ran(Struct, frozen=True):
    """How a load went. decode_s: median seconds of its iterations of decodes only, after warm-up, None where none.

    prefill_tokens: prompt tokens computed. cut: the deadline came before its end.
    """

    wall_s: float
    cut: bool = False
    decode_s: float | None = None
    prefill_tokens: int = 0


def key_of(phase: str, label: Mapping[str, Any]) -> str:
    """What identifies a load among those of a calibration, across sessions (a resumed run skips what has ended)."""
    asked = {k: v for k, v in label.items() if k not in OF_THE_DAY}
    return f"{phase} {json.dumps(asked, sort_keys=True, separators=(',', ':'))}"


def warm_ups(limits: Limits) -> list[Load]:
    """Short loads whose only use is that kernels are compiled, caches filled and clocks raised after them."""
    few, some = min(4, limits.max_num_seqs), min(64, limits.max_num_seqs)
    short = max(1, min(200, limits.max_model_len // 2, limits.kv_tokens // (2 * some)))
    long = max(1, min(limits.max_model_len - 2, limits.max_num_batched_tokens, limits.kv_tokens // 2))
    shapes = ((few, min(64, short), 16), (some, short, 12), (1, long, 2))
    return [
        Load("warmup", {}, tuple(Request(900_000 + 1000 * k + i, p, out) for i in range(n)), warm=10**9)
        for k, (n, p, out) in enumerate(shapes)
    ]


def prompt_chunks(prompts: Sequence[float], budget: float) -> list[tuple[float, float]]:
    """Prompts computed first in, first out: (tokens, query-key pairs) per iteration of at most `budget` tokens.

    A chunk of q tokens after c computed ones has q c + q (q + 1) / 2 pairs (fleetsim.engine.step_time).
    """
    found: list[tuple[float, float]] = []
    room, tokens, pairs = budget, 0.0, 0.0
    for length in prompts:
        left = length
        while left > 0:
            q = min(room, left)
            tokens, pairs, room = tokens + q, pairs + q * (length - left) + q * (q + 1) / 2, room - q
            left -= q
            if room <= 0:
                found.append((tokens, pairs))
                room, tokens, pairs = budget, 0.0, 0.0
    if tokens > 0:
        found.append((tokens, pairs))
    return found


G = 8  # samples per prompt
CV = 0.9  # of the lognormal lengths before the cap
PROMPT = 512


def batch(
    limits: Limits,
    phase: str,
    groups: int,
    mean: float,
    cap: int,
    seed: int,
    *,
    cached: bool = True,
    pool_share: float | None = None,
    alike: int = 1,
    first_key: int = 0,
    **more: Any,
) -> Load:
    """Groups of G siblings, at most twice what runs at once. mean, cap: of the responses, tokens, where they fit.

    cached: whether prompts may be found in the prefix cache. pool_share: of the blocks needed that there are. alike: so
    many samples in a row are equally long. first_key: of the prompts. more: fields of the label.
    """
    groups = max(2, min(groups, 2 * limits.max_num_seqs // G))
    prompt = max(1, min(PROMPT, limits.max_model_len // 4))
    most = max(1, min(cap, limits.max_model_len - prompt - 1))
    mean *= most / cap
    lengths = np.repeat(lognormal(groups * G // alike, mean, most, seed), alike).tolist()
    requests = tuple(Request(first_key + i // G, prompt, n, read_cache=cached) for i, n in enumerate(lengths))
    label = {
        "groups": groups,
        "G": G,
        "P": prompt,
        "mean": round(mean),
        "cap": most,
        "cv": CV,
        "cached": cached,
        **more,
    }
    if pool_share is not None:
        label["pool_share"] = pool_share
    load = Load(phase, label, requests, track=True, yields=phase in ("rl_preempt", "rl_long"))
    return scaled(load, 1.0, limits)


def lognormal(n: int, mean: float, cap: int, seed: int) -> list[int]:
    """n response lengths, tokens: lognormal with this mean before the cap, deviation / mean = CV, and at least 1."""
    sigma2 = math.log(1.0 + CV * CV)
    drawn = np.random.default_rng([7, seed]).lognormal(math.log(mean) - sigma2 / 2.0, math.sqrt(sigma2), n)
    return [int(x) for x in np.clip(np.rint(drawn), 1, cap)]


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
