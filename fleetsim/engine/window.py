"""Layers that look back a number of tokens only: what they see of a context, and what that takes."""

from __future__ import annotations

import math

from msgspec import Struct

from fleetsim.errors import InputError, Problem
from fleetsim.records import replace


class AttentionWindow(Struct, frozen=True):
    """All layers of a model that look back `tokens` tokens.

    chunked: they look back to the last multiple of `tokens` instead (Llama 4). per_kv_token_s: seconds for each cached
    token that a decode sees in them. per_attn_pair_s: for each query-key pair of a prompt.
    Raises InputError for a window below 1, or seconds that are negative or not finite.
    """

    tokens: int
    per_kv_token_s: float
    per_attn_pair_s: float
    chunked: bool = False

    def __post_init__(self) -> None:
        problems = [
            Problem(f"window.{name}", seconds, "a finite number >= 0", "give seconds")
            for name in ("per_kv_token_s", "per_attn_pair_s")
            if not (math.isfinite(seconds := getattr(self, name)) and seconds >= 0)
        ]
        if self.tokens < 1:
            problems.append(Problem("window.tokens", self.tokens, "an integer >= 1", "give tokens, or no window"))
        if problems:
            raise InputError(problems)

    def slower(self, factor: float) -> AttentionWindow:
        """The same layers, `factor` times as slow."""
        return replace(self, per_kv_token_s=factor * self.per_kv_token_s, per_attn_pair_s=factor * self.per_attn_pair_s)

    def decode_s(self, context: float) -> float:
        """Seconds of a decode with about so many cached tokens; beyond a chunk it sees half of one in the mean."""
        beyond = self.tokens / 2.0 if self.chunked else self.tokens
        return self.per_kv_token_s * (context if context < self.tokens else beyond)

    def prompt_token_s(self, looks_at: float) -> float:
        """Seconds of each token of a prompt whose tokens would look at so many in the mean, if at all before them."""
        length = 2.0 * looks_at
        if length <= self.tokens:
            return self.per_attn_pair_s * looks_at
        if self.chunked:
            return self.per_attn_pair_s * self.tokens / 2.0
        return self.per_attn_pair_s * self.tokens * (1.0 - self.tokens / (2.0 * length))
