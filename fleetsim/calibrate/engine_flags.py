"""What the user knows of an engine that a server or a file does not say."""

from __future__ import annotations

from dataclasses import fields

from fleetsim.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class GivenFlags:
    """Values of the flags of `fleetsim calibrate`; None where a flag is not given. kv_blocks: usable ones."""

    model: str | None = None
    gpu: str | None = None
    tp: int | None = None
    dtype: str | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    kv_blocks: int | None = None
    block_size: int | None = None
    gpu_memory_utilization: float | None = None

    @classmethod
    def of(cls, asked: object) -> GivenFlags:
        """What a question says whose options have these names."""
        return cls(**{name: getattr(asked, name) for name in NAMES})


NAMES = tuple(f.name for f in fields(GivenFlags))
