"""Several makes of engines behind one router: what each is, and what they must share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.engine.kernel.tables import POOL
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.speculation import DraftTables
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import InputError, Problem


class EnginePool(Struct, frozen=True):
    """Instances of one make. weight: samples that one is sent for each that an instance of weight 1 is sent."""

    step_time: StepTime
    limits: EngineLimits
    instances: int
    weight: float = 1.0


def check_alike(pools: Sequence[EnginePool]) -> None:
    """Raises InputError where pools that serve the same samples do not count their caches alike, or where one has
    prefill engines of its own."""
    first = pools[0]
    for number, pool in enumerate(pools[1:]):
        if pool.step_time.prefill is not None or first.step_time.prefill is not None:
            rule = "engines that compute their prompts themselves, where there are several pools"
            raise InputError([Problem(f"pools[{number}].engine", "disaggregated", rule, "leave disaggregation out")])
        for name in ("scheduler", "block_size", "state_blocks", "window_tokens", "window_blocks", "whole_blocks"):
            own, rest = getattr(pool.limits, name), getattr(first.limits, name)
            if own != rest:
                rule = f"as in the first pool ({rest}): a request may go to either"
                raise InputError([Problem(f"pools[{number}].{name}", own, rule, "give both pools the same")])
        windows = [each.step_time.window for each in (first, pool)]
        looks_back = [None if w is None else (w.tokens, w.chunked) for w in windows]
        if looks_back[0] != looks_back[1]:
            raise InputError(
                [Problem(f"pools[{number}].window", looks_back[1], "as in the first pool", "give the same")]
            )
        if (pool.step_time.speculation is None) != (first.step_time.speculation is None):
            rule = "drafts in every pool or in none"
            raise InputError([Problem(f"pools[{number}].speculation", "missing or alone", rule, "draft in all")])


def pool_rows(pools: Sequence[EnginePool]) -> NDArray[Any]:
    """Rows of POOL."""
    rows = np.zeros(len(pools), POOL)
    for row, pool in zip(rows, pools, strict=True):
        step_time, limits, seen = pool.step_time, pool.limits, pool.step_time.window
        engines = step_time.engines
        row["per_seq_s"] = step_time.per_seq_s
        row["per_prefill_token_s"] = step_time.prompt_token_s / engines
        row["per_kv_token_s"] = step_time.per_kv_token_s
        row["per_attn_pair_s"] = step_time.per_attn_pair_s / engines
        row["window_token_s"] = 0.0 if seen is None else seen.per_kv_token_s
        row["window_pair_s"] = 0.0 if seen is None else seen.per_attn_pair_s / engines
        row["max_num_seqs"], row["max_tokens"] = limits.max_num_seqs, limits.max_num_batched_tokens
        row["kv_blocks"], row["decoders"], row["weight"] = limits.kv_blocks, engines, pool.weight
        row["host_blocks"], row["load_block_s"] = limits.host_blocks, limits.load_block_s
    return rows


class PoolTables(Struct, frozen=True):
    """The kernel's tables of seconds and drafts, a line for each pool, and what drafts bring, which is the same in
    all."""

    table_s: NDArray[np.float64]
    drafts: NDArray[np.int32]
    draft_s: NDArray[np.float64]
    draft_kv_s: NDArray[np.float64]
    growths: NDArray[np.int32]
    redrafts: bool

    @classmethod
    def of(cls, pools: Sequence[EnginePool]) -> PoolTables:
        """The tables of these pools."""
        drafts = [DraftTables.of(p.step_time.speculation, p.limits, p.step_time.engines) for p in pools]
        growths = drafts[0].growths
        each = growths.shape[1]
        seconds = [p.step_time.table(max(p.limits.max_num_batched_tokens, p.limits.max_num_seqs * each)) for p in pools]
        return cls(
            _lines(seconds),
            _lines([each.k for each in drafts]),
            _lines([each.added_s for each in drafts]),
            _lines([each.added_kv_s for each in drafts]),
            growths,
            drafts[0].redrafts,
        )


def _lines(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One line for each array, as long as the longest; nobody reads beyond an array's own end."""
    if len(arrays) == 1:
        return arrays[0][None, :]
    lines = np.zeros((len(arrays), max(map(len, arrays))), arrays[0].dtype)
    for line, array in zip(lines, arrays, strict=True):
        line[: len(array)] = array
    return lines
