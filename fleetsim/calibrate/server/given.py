"""What the user knows of the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Given:
    """What the user says of the server, None where nothing. kv_blocks: usable ones."""

    model: str | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    kv_blocks: int | None = None
    block_size: int | None = None
    max_model_len: int | None = None
    gpu: str | None = None
    tp: int | None = None
    dtype: str | None = None
