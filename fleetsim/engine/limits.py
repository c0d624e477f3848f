"""What one engine may hold at once, in vLLM's words, and by whose rules it takes it."""

from __future__ import annotations

from dataclasses import dataclass

from fleetsim.errors import InputError, Problem

SCHEDULERS = ("vllm", "sglang", "tensorrt-llm")


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Limits of one engine instance.

    max_num_seqs: running requests. max_num_batched_tokens: tokens per iteration. kv_blocks: usable KV blocks
    (vLLM keeps one null block for itself: leave it out). block_size: tokens per block. state_blocks: blocks that a
    running request holds whatever its length (the state of linear attention layers). max_output_tokens: the cap that
    the client sets on every response, None = none; the schedulers of SGLang and TensorRT-LLM reserve room by it.
    scheduler: vllm, sglang or tensorrt-llm; max_num_batched_tokens is SGLang's chunked_prefill_size (prompts only) and
    TensorRT-LLM's max_num_tokens. no_evict: TensorRT-LLM's guaranteed_no_evict, else max_utilization.

    Raises InputError when one is below 1, or when an iteration could not hold one token of every running request
    (vLLM refuses that too: `max_num_batched_tokens` must be at least `max_num_seqs`).
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int
    block_size: int = 16
    state_blocks: int = 0
    max_output_tokens: int | None = None
    scheduler: str = "vllm"
    no_evict: bool = True

    def __post_init__(self) -> None:
        problems = [
            Problem(f"limits.{name}", getattr(self, name), "an integer >= 1", f"raise {name}")
            for name in ("max_num_seqs", "max_num_batched_tokens", "kv_blocks", "block_size")
            if int(getattr(self, name)) != getattr(self, name) or getattr(self, name) < 1
        ]
        if self.scheduler not in SCHEDULERS:
            problems.append(
                Problem("limits.scheduler", self.scheduler, f"one of {', '.join(SCHEDULERS)}", "name the engine")
            )
        if not problems and self.scheduler != "sglang" and self.max_num_batched_tokens < self.max_num_seqs:
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
    def chunk_unit(self) -> int:
        """Tokens at whose multiples a prompt is cut: a block, where the engine reuses nothing smaller."""
        cut = self.scheduler != "vllm" and self.block_size <= self.max_num_batched_tokens
        return self.block_size if cut else 1

    def blocks_for(self, tokens: int) -> int:
        """Blocks that a running request of so many cached tokens holds."""
        return -(-tokens // self.block_size) + self.state_blocks

    @property
    def kv_tokens(self) -> int:
        """KV capacity in tokens."""
        return self.kv_blocks * self.block_size
