"""What an engine runs before the iterations that count: warm-up, and contexts that cannot be had for nothing."""

from __future__ import annotations

from dataclasses import replace

from fleetsim.calibrate.loads import Limits, Load, Request


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
