"""What an engine is asked to do while it is measured: requests, loads, and the order of loads that a calibration runs.

Numbers only: no engine, no clock, no randomness beyond a seed. The same limits and seed give the same loads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from fleetsim.calibrate.raw import FITTED
from fleetsim.dataclass import dataclass

# What a label says of how a load was run on a day, not of what it asks for: left out of its key.
OF_THE_DAY = frozenset({"length_scale", "est", "tokens", "held_blocks", "pool_blocks"})


@dataclass(frozen=True, slots=True)
class Limits:
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


@dataclass(frozen=True, slots=True)
class Request:
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
    optional: for time that is left over.
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
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", key_of(self.phase, self.label))

    @property
    def kept_out(self) -> bool:
        """Whether no fit may see it."""
        return self.phase not in FITTED


@dataclass(frozen=True, slots=True)
class Ran:
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
