"""Speculative decoding: what an iteration drafts for each decode, what that costs, and how many tokens it brings.

With k drafted tokens an iteration verifies k + 1 tokens of each decode. a_j is the share of drafts whose first j tokens
are all accepted; the iteration then brings L = 1 + a_1 + ... + a_k tokens of each decode on average (vLLM and SGLang
call L the acceptance length). It pays where L iterations without drafts take longer than one with them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.engine.limits import EngineLimits
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace

# The kernel counts growth in such parts of a token (`kernel/growth.py`).
WHOLE = 1 << 20
# No engine drafts more; with it the kernel's numbers stay within 32 bits.
MOST_DRAFTS = 64

Floats = NDArray[np.float64]


class DraftsAt(Struct, frozen=True):
    """Speculation with so many decodes, elementwise: tokens drafted and brought for each, seconds added to an
    iteration, and to each cached token."""

    k: Floats
    tokens: Floats
    added_s: Floats
    added_kv_token_s: Floats


class Speculation(Struct, frozen=True):
    """Drafts of an engine.

    schedule: (most decodes, k), ascending: up to so many decodes k tokens are drafted for each; beyond the last pair
    none. lengths: L by age of the drafter in weight versions (rows) and by k from 0 to the largest (columns); the first
    column is 1. redrafted: after the last row the first follows (the drafter is trained anew), else the last one stays.
    knots_sequences, added_s: seconds that drafting and verifying with k (rows) add to an iteration of so many decodes,
    beside the f(n) of the verified tokens; linear between knots. added_kv_token_s: the same for each cached token, by
    k. prompt_token_s: of the drafter, for each prompt token. source: method and where the acceptance is from.

    Raises InputError when the schedule does not ascend, or a length lies outside of 1 to k + 1.
    """

    schedule: tuple[tuple[int, int], ...]
    lengths: tuple[tuple[float, ...], ...]
    knots_sequences: tuple[float, ...] = (0.0,)
    added_s: tuple[tuple[float, ...], ...] = ()
    added_kv_token_s: tuple[float, ...] = ()
    redrafted: bool = False
    prompt_token_s: float = 0.0
    source: str = "given as numbers"

    def __post_init__(self) -> None:
        problems = []
        most = [n for n, _ in self.schedule]
        if not most or any(a >= b for a, b in pairwise(most)) or most[0] < 1:
            problems.append(Problem("schedule", self.schedule, "ascending batch sizes of at least 1", "sort the pairs"))
        if any(not 0 <= k <= MOST_DRAFTS for _, k in self.schedule):
            problems.append(Problem("schedule", self.schedule, f"0 to {MOST_DRAFTS} drafted tokens", "draft fewer"))
        for row in self.lengths:
            within = all(math.isfinite(x) and 1.0 <= x <= k + 1.0 for k, x in enumerate(row))
            if len(row) <= self.most or not within:
                rule = f"{self.most + 1} acceptance lengths from 1 to k + 1, for k = 0 to {self.most}"
                problems.append(Problem("lengths", row, rule, "count the certain token, too"))
                break
        if problems:
            raise InputError(problems)

    def slower(self, factor: float) -> Speculation:
        """The same drafts, all their seconds `factor` times as long."""
        return replace(
            self,
            added_s=tuple(tuple(factor * s for s in row) for row in self.added_s),
            added_kv_token_s=tuple(factor * s for s in self.added_kv_token_s),
            prompt_token_s=factor * self.prompt_token_s,
        )

    @property
    def most(self) -> int:
        """The most tokens that are drafted."""
        return max((k for _, k in self.schedule), default=0)

    def k_at(self, decodes: Floats) -> NDArray[np.int64]:
        """Tokens drafted for each of so many decodes."""
        found = np.searchsorted([n for n, _ in self.schedule], decodes, side="left")
        return np.array([*(k for _, k in self.schedule), 0], np.int64)[found]

    def at(self, decodes: Floats, k: NDArray[np.int64] | None = None) -> DraftsAt:
        """Speculation with so many decodes, or with k drafts for each, by a drafter that is as good as new."""
        drafts = self.k_at(decodes) if k is None else k
        tokens = np.asarray(self.lengths[0], np.float64)[drafts]
        rows = np.asarray(self.added_s or [[0.0] * len(self.knots_sequences)] * (self.most + 1), np.float64)
        added = np.zeros_like(decodes, dtype=np.float64)
        for each in np.unique(drafts):
            chosen = drafts == each
            added[chosen] = _along(self.knots_sequences, rows[each], decodes[chosen])
        kv = np.asarray(self.added_kv_token_s or [0.0] * (self.most + 1), np.float64)[drafts]
        return DraftsAt(drafts.astype(np.float64), tokens, added, kv)


def _along(knots: Sequence[float], seconds: Floats, at: Floats) -> Floats:
    """Linear between the knots, with the last slope after the last."""
    found = np.interp(at, knots, seconds)
    if len(knots) > 1:
        slope = (seconds[-1] - seconds[-2]) / (knots[-1] - knots[-2])
        found = np.where(at > knots[-1], seconds[-1] + slope * (at - knots[-1]), found)
    return np.asarray(found, np.float64)


class DraftTables(Struct, frozen=True):
    """Speculation as the kernel looks it up: by decodes (k, added seconds), and growth by age and k in 2^-20 tokens."""

    k: NDArray[np.int32]
    added_s: Floats
    added_kv_s: Floats
    growths: NDArray[np.int32]
    redrafts: bool

    @classmethod
    def of(cls, speculation: Speculation | None, limits: EngineLimits, engines: int = 1) -> DraftTables:
        """Tables for so many engines that share the decodes. Where the token budget leaves less than k for each decode,
        fewer are drafted."""
        if speculation is None:
            return cls(np.zeros(1, np.int32), np.zeros(1), np.zeros(1), np.full((1, 1), WHOLE, np.int32), False)
        decodes = np.arange(limits.max_num_seqs + 1, dtype=np.float64)
        at_work = np.clip(decodes, 1.0, engines)
        decodes /= at_work
        k = speculation.k_at(decodes)
        if limits.scheduler != "sglang":  # whose budget is of prompts only
            k = np.minimum(k, limits.max_num_batched_tokens // np.maximum(1, np.arange(len(k))) - 1)
        at = speculation.at(decodes, k)
        growths = np.round(np.asarray(speculation.lengths)[:, : speculation.most + 1] * WHOLE).astype(np.int32)
        return cls(k.astype(np.int32), at.added_s, at.added_kv_token_s / at_work, growths, speculation.redrafted)
