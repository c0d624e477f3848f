"""What one engine may hold at once, in vLLM's words."""

from __future__ import annotations

from dataclasses import dataclass

from fleetsim.errors import InputError, Problem


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Limits of one engine instance.

    max_num_seqs: running requests. max_num_batched_tokens: tokens per iteration. kv_blocks: usable KV blocks
    (vLLM keeps one null block for itself: leave it out). block_size: tokens per block.

    Raises InputError when one is below 1, or when an iteration could not hold one token of every running request
    (vLLM refuses that too: `max_num_batched_tokens` must be at least `max_num_seqs`).
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int
    block_size: int = 16

    def __post_init__(self) -> None:
        problems = [
            Problem(f"limits.{name}", getattr(self, name), "an integer >= 1", f"raise {name}")
            for name in ("max_num_seqs", "max_num_batched_tokens", "kv_blocks", "block_size")
            if int(getattr(self, name)) != getattr(self, name) or getattr(self, name) < 1
        ]
        if not problems and self.max_num_batched_tokens < self.max_num_seqs:
            problems.append(
                Problem(
                    "limits.max_num_batched_tokens",
                    self.max_num_batched_tokens,
                    f">= max_num_seqs ({self.max_num_seqs})",
                    "raise max_num_batched_tokens or lower max_num_seqs; vLLM refuses this pair as well",
                )
            )
        if problems:
            raise InputError(problems)

    @property
    def kv_tokens(self) -> int:
        """KV capacity in tokens."""
        return self.kv_blocks * self.block_size
