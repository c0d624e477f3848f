"""Rows of a fleet's tables as a run begins: its instances, its prefill engines, its clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.engine.kernel.tables import ACC_OFF, DOWN, IDLE, INIT_RATIO, INSTANCE
from fleetsim.engine.speculation import WHOLE
from fleetsim.engine.step_time import PrefillSide


def instance_rows(n: int, up: int, free: int, slow: Sequence[float]) -> NDArray[Any]:
    """Rows of n instances, of which the first `up` are there. free: blocks of each. slow: as `World` takes it."""
    rows = np.zeros(n, INSTANCE)
    for name in ("head", "tail", "fresh", "partial", "wait_head", "wait_tail", "system"):
        rows[name] = -1
    rows["free"], rows["slow"], rows["accepting"], rows["kind"] = free, 1.0, 1, IDLE
    rows["slow"][: len(slow)] = slow
    rows["ratio"], rows["growth"] = INIT_RATIO, WHOLE
    rows["accepting"][up:], rows["kind"][up:], rows["account"][up:] = 0, DOWN, ACC_OFF
    return rows


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
