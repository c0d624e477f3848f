"""What one engine may hold at once, in vLLM's words, and by whose rules it takes it."""

from __future__ import annotations

import math

from msgspec import Struct

from fleetsim.errors import InputError, Problem
from fleetsim.records import replace

SCHEDULERS = ("vllm", "sglang", "tensorrt-llm")


class EngineLimits(Struct, frozen=True):
    """Limits of one engine instance.

    max_num_seqs: running requests. max_num_batched_tokens: tokens per iteration. kv_blocks: usable KV blocks
    (vLLM keeps one null block for itself: leave it out). block_size: tokens per block. state_blocks: blocks that a
    running request holds whatever its length (the state of linear attention layers). max_output_tokens: the cap that
    the client sets on every response, None = none; the schedulers of SGLang and TensorRT-LLM reserve room by it.
    scheduler: vllm, sglang or tensorrt-llm; max_num_batched_tokens is SGLang's chunked_prefill_size (prompts only) and
    TensorRT-LLM's max_num_tokens. no_evict: TensorRT-LLM's guaranteed_no_evict, else max_utilization. window_blocks:
    blocks that block_size tokens take in layers of which vLLM keeps the last window_tokens only (its hybrid KV cache
    manager), beside whole_blocks in the others; 0: all layers keep all tokens, and block_size tokens take one block.
    host_blocks: blocks of which host memory keeps copies, of vLLM and SGLang with layers that keep all tokens;
    load_block_s: seconds in which one of them comes back. Prefix caching finds them.

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
    window_tokens: int = 0
    window_blocks: int = 0
    whole_blocks: int = 1
    host_blocks: int = 0
    load_block_s: float = 0.0

    def __post_init__(self) -> None:
        problems = [
            Problem(f"limits.{name}", getattr(self, name), "an integer >= 1", f"raise {name}")
            for name in ("max_num_seqs", "max_num_batched_tokens", "kv_blocks", "block_size")
            if int(getattr(self, name)) != getattr(self, name) or getattr(self, name) < 1
        ]
        problems += [
            Problem(f"limits.{name}", getattr(self, name), "an integer >= 0", "give blocks and tokens, or leave it out")
            for name in ("window_tokens", "window_blocks", "whole_blocks")
            if int(getattr(self, name)) != getattr(self, name) or getattr(self, name) < 0
        ]
        keeps = self.window_blocks > 0
        if keeps and (self.scheduler != "vllm" or self.window_tokens < 1):
            rule = "of vLLM only, and with window_tokens"
            problems.append(Problem("limits.window_blocks", self.window_blocks, rule, "leave it out"))
        if not keeps and self.whole_blocks != 1:
            rule = "1 where layers keep all tokens"
            problems.append(Problem("limits.whole_blocks", self.whole_blocks, rule, "leave it out"))
        wrong = self.host_blocks < 0 or not 0 <= self.load_block_s < math.inf
        if wrong or (self.host_blocks and (keeps or self.state_blocks or self.scheduler == "tensorrt-llm")):
            rule = "0 but for vLLM and SGLang with layers that keep all tokens; load_block_s: finite seconds >= 0"
            problems.append(Problem("limits.host_blocks", self.host_blocks, rule, "leave it out"))
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
        n = -(-tokens // self.block_size)
        near = min(n, -(-self.window_tokens // self.block_size))
        return self.whole_blocks * n + self.window_blocks * near + self.state_blocks

    def cache_tokens(self, context: float) -> float:
        """Tokens of the capacity `kv_tokens` that the cache of about so many tokens takes."""
        if self.window_blocks == 0:
            return context
        return self.whole_blocks * context + self.window_blocks * min(context, self.window_tokens)

    def held_tokens(self, context: float) -> float:
        """The same of a running request, with its state."""
        return self.cache_tokens(context) + self.state_blocks * self.block_size

    @property
    def keeping_all(self) -> EngineLimits:
        """The same memory, whose layers all keep all tokens: what has no place for a window takes it for that."""
        if self.window_blocks == 0:
            return self
        blocks = self.kv_blocks // (self.whole_blocks + self.window_blocks)
        return replace(self, kv_blocks=max(1, blocks), window_tokens=0, window_blocks=0, whole_blocks=1)

    @property
    def kv_tokens(self) -> int:
        """KV capacity in tokens, where each takes a block's part and no more (`cache_tokens`)."""
        return self.kv_blocks * self.block_size
