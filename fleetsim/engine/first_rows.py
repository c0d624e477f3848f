"""Rows of a fleet's tables as a run begins: its instances, its prefill engines, its clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.engine.kernel.tables import ACC_OFF, DOWN, IDLE, INIT_RATIO, INSTANCE, SGLANG, TENSORRT, VLLM
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.speculation import WHOLE
from fleetsim.engine.step_time import AttentionWindow, PrefillSide, StepTime
from fleetsim.errors import InputError, Problem

UNLIMITED = 1 << 60
_SCHEDULERS = {"vllm": VLLM, "sglang": SGLANG, "tensorrt-llm": TENSORRT}


def instance_rows(n: int, up: int, free: int, slow: Sequence[float], pool: int = 0) -> NDArray[Any]:
    """Rows of n instances of a pool, of which the first `up` are there. free: blocks of each. slow: as `World` takes
    it."""
    rows = np.zeros(n, INSTANCE)
    for name in ("head", "tail", "fresh", "partial", "wait_head", "wait_tail", "system", "promised_last"):
        rows[name] = -1
    rows["free"], rows["slow"], rows["accepting"], rows["kind"], rows["pool"] = free, 1.0, 1, IDLE, pool
    rows["slow"][: len(slow)] = slow
    rows["ratio"], rows["growth"], rows["host_epoch"] = INIT_RATIO, WHOLE, -1
    rows["accepting"][up:], rows["kind"][up:], rows["account"][up:] = 0, DOWN, ACC_OFF
    return rows


def limit_fields(limits: EngineLimits, window: AttentionWindow | None) -> dict[str, int]:
    """The part of the fleet row that the limits of all pools have alike. window: what the step time looks back. Raises
    InputError where that is another window than the limits'."""
    if limits.window_blocks and (window is None or window.chunked or window.tokens != limits.window_tokens):
        rule = "what the window of the step time looks back, and no chunk"
        raise InputError([Problem("limits.window_tokens", limits.window_tokens, rule, "give both the same window")])
    return {
        "block_size": limits.block_size,
        "state_blocks": limits.state_blocks,
        "whole_blocks": limits.whole_blocks,
        "window_blocks": limits.window_blocks,
        "near_blocks": -(-limits.window_tokens // limits.block_size),
        "chunk_unit": limits.chunk_unit,
        "most_output": UNLIMITED if limits.max_output_tokens is None else limits.max_output_tokens,
        "scheduler": int(_SCHEDULERS[limits.scheduler]),
        "no_evict": int(limits.no_evict),
    }


def time_fields(step_time: StepTime) -> dict[str, float]:
    """The same of the step times."""
    seen = step_time.window
    return {
        "window": 0 if seen is None else seen.tokens,
        "chunked": int(seen is not None and seen.chunked),
        "speculates": int(step_time.speculation is not None),
    }


def prefill_fields(side: PrefillSide | None) -> dict[str, float]:
    """The prefill engines' part of the fleet row."""
    if side is None:
        return {}
    return {
        "prefills": side.engines,
        "prompt_seqs": side.limits.max_num_seqs,
        "prompt_tokens": side.limits.max_num_batched_tokens,
        "prompt_unit": side.limits.chunk_unit,
        "prompt_token_s": side.step_time.prompt_token_s,
        "prompt_pair_s": side.step_time.per_attn_pair_s,
        "prompt_window_pair_s": 0.0 if side.step_time.window is None else side.step_time.window.per_attn_pair_s,
        "transfer_s": side.transfer_s,
        "transfer_token_s": side.transfer_token_s,
    }


def clock_tree(leaves: NDArray[np.float64]) -> NDArray[np.float64]:
    """A binary tree whose nodes hold the least of their leaves, shape (2 * leaves,); the root is at 1."""
    tree = np.concatenate([np.full(len(leaves), np.inf), leaves])
    for at in range(len(leaves) - 1, 0, -1):
        tree[at] = min(tree[2 * at], tree[2 * at + 1])
    return tree
