"""What a layer does among the tokens of a sequence: attention to keys and values, to a latent, or a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from msgspec import Struct

from fleetsim.engine.model.gemm import Gemm, weights
from fleetsim.engine.model.indexer import Indexer

# Tokens in a group of DeepSeek-V4's small groups, which overlap.
_OVERLAPS = 4
# In a longer window many responses end: what they see of it, and hold, grows with them until they leave it.
SHORT_WINDOW = 2048


class Windowed(ABC):
    """Attention that may look back so few tokens, `window`, that its cache does not grow with the context."""

    __slots__ = ()

    @property
    @abstractmethod
    def window(self) -> int:
        """Tokens that it looks back, 0 = all."""

    @abstractmethod
    def token_bytes(self, tp: int = 1, element_bytes: float = 2) -> float:
        """Bytes in the cache of one of tp GPUs per token."""

    @property
    def near(self) -> bool:
        """Whether it does so."""
        return 0 < self.window <= SHORT_WINDOW

    def window_bytes(self, tp: int = 1, element_bytes: float = 2) -> float:
        """Bytes that one sequence holds at most, where the cache does not grow with the context; else 0."""
        return self.window * self.token_bytes(tp, element_bytes) if self.near else 0.0


@dataclass(frozen=True, slots=True)
class Attention(Windowed):
    """Grouped-query attention: keys and values per head in the cache.

    value_dim: of the values where it is not head_dim. window: tokens that it looks back, 0 = all. chunked: it looks
    back to the last multiple of the window (Llama 4's local attention). bias: of queries, keys and values. qk_norm:
    queries and keys are normed per head. gate: queries come with a gate of their size. kv_shared: it reads the keys and
    values of an earlier layer and has none. k_is_v: values are its keys before their norm, so that no weights make
    them. indexer: it looks at picked tokens.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int = 0
    window: int = 0
    chunked: bool = False
    bias: bool = False
    qk_norm: bool = False
    gate: bool = False
    kv_shared: bool = False
    k_is_v: bool = False
    indexer: Indexer | None = None

    @property
    def values(self) -> int:
        """Numbers of one value."""
        return self.value_dim or self.head_dim

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Queries, keys and values in one, and the way out."""
        query = self.heads * self.head_dim * (2 if self.gate else 1)
        made = 0 if self.kv_shared else self.head_dim + (0 if self.k_is_v else self.values)
        shared = self.kv_heads * made
        fused = Gemm(hidden, query + shared, "attention", shared=shared, pieces=self.kv_heads)
        out = Gemm(self.heads * self.values, hidden, "attention", "rows")
        return fused, out, *(self.indexer.gemms(hidden) if self.indexer else ())

    def params(self, hidden: int) -> int:
        """All weights, inner norms included."""
        bias = self.heads * self.head_dim + self.kv_heads * (self.head_dim + self.values) if self.bias else 0
        norms = 2 * self.head_dim if self.qk_norm else 0
        return weights(self.gemms(hidden)) + bias + norms + (self.indexer.inner_params if self.indexer else 0)

    def token_bytes(self, tp: int = 1, element_bytes: float = 2) -> float:
        """Bytes in the cache of one of tp GPUs per token; heads are replicated where there are fewer than GPUs."""
        own = 0 if self.kv_shared else max(1, self.kv_heads // tp) * (self.head_dim + self.values)
        return own * element_bytes + (self.indexer.cached_bytes if self.indexer else 0)

    @property
    def query_numbers(self) -> float:
        """Numbers of one head's query, or of what it makes of the cache: their mean."""
        return (self.head_dim + self.values) / 2

    @property
    def prefill_flop(self) -> int:
        """Operations per query-key pair of a prompt."""
        return 2 * self.heads * (self.head_dim + self.values)

    @property
    def decode_flop(self) -> int:
        """Operations per cached token and decode."""
        return self.prefill_flop

    @property
    def tensors(self) -> int:
        """Weight tensors in a checkpoint."""
        own = 2 if self.kv_shared else 3 if self.k_is_v else 4
        return own + 3 * self.bias + 2 * self.qk_norm + (self.indexer.tensors if self.indexer else 0)


@dataclass(frozen=True, slots=True)
class LatentAttention(Windowed):
    """Multi-head latent attention: per token the cache holds one compressed vector and one rotary key for all heads.

    Names as in config.json; q_lora_rank 0: queries are not compressed. indexer: sparse, as in DeepSeek-V3.2. gate: of
    the output, made from the hidden state. window: tokens that it looks back, 0 = all. Source:
    DeepSeek-V2, arXiv 2405.04434, section 2.1; the decode form that multiplies queries into the latent space is its
    appendix and vLLM's MLA backend.
    """

    heads: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    indexer: Indexer | None = None
    gate: bool = False
    window: int = 0

    @property
    def latent(self) -> int:
        """Numbers in the cache per token."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Into the latents (whole on every GPU), out of them per head, and the way out."""
        query = self.heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        into = Gemm(hidden, self.q_lora_rank + self.latent, "attention", "none")
        queries = Gemm(self.q_lora_rank or hidden, query, "attention")
        keys = Gemm(self.kv_lora_rank, self.heads * (self.qk_nope_head_dim + self.v_head_dim), "attention")
        out = Gemm(self.heads * self.v_head_dim, hidden, "attention", "rows")
        gate = (Gemm(hidden, self.heads * self.v_head_dim, "attention"),) if self.gate else ()
        return into, queries, keys, out, *gate, *(self.indexer.gemms(hidden) if self.indexer else ())

    def params(self, hidden: int) -> int:
        """All weights, inner norms included."""
        inner = self.indexer.inner_params if self.indexer else 0
        return weights(self.gemms(hidden)) + self.q_lora_rank + self.kv_lora_rank + inner

    def token_bytes(self, tp: int = 1, element_bytes: float = 2) -> float:
        """Bytes in the cache of each of tp GPUs per token: the latent belongs to all heads and is on every GPU."""
        return self.latent * element_bytes + (self.indexer.cached_bytes if self.indexer else 0)

    @property
    def query_numbers(self) -> float:
        """Numbers of one head's query in the latent space, or of what it makes of the cache: their mean."""
        return (self.latent + self.kv_lora_rank) / 2

    @property
    def prefill_flop(self) -> int:
        """Operations per query-key pair, keys and values expanded per head."""
        return 2 * self.heads * (self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim)

    @property
    def decode_flop(self) -> int:
        """Operations per cached token and decode, in the latent space."""
        return 2 * self.heads * (self.latent + self.kv_lora_rank)

    @property
    def tensors(self) -> int:
        """Weight tensors in a checkpoint."""
        return (7 if self.q_lora_rank else 5) + self.gate + (self.indexer.tensors if self.indexer else 0)


class CompressedAttention(Struct, frozen=True):
    """DeepSeek-V4: one key for all heads, which is its own value, of the last tokens and of groups of earlier ones.

    ratio: tokens that are compressed into one cached vector; 0: only the window is seen. window: last tokens, which are
    kept as they are. indexer: it looks at picked groups (the compressed sparse layers), else at all (the heavily
    compressed ones). q_rank, o_rank, o_groups: of the queries' and the output's low-rank projections. Source:
    DeepSeek-V4 report, section 2, and the `inference/model.py` of deepseek-ai/DeepSeek-V4-Pro.
    """

    heads: int
    head_dim: int
    q_rank: int
    o_rank: int
    o_groups: int
    window: int
    ratio: int = 0
    indexer: Indexer | None = None

    @property
    def _overlap(self) -> int:
        """Neighbouring groups overlap where they are small, which takes two sets of weights."""
        return 2 if self.ratio == _OVERLAPS else 1

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Into the queries' rank and the key, queries, the way out through its rank, compressors, the indexer."""
        width = self.heads * self.head_dim
        compressed = (self.head_dim + (self.indexer.head_dim if self.indexer else 0)) if self.ratio else 0
        compressor = Gemm(hidden, 2 * self._overlap * compressed, "attention", "none")
        picks = self.indexer
        scored = (Gemm(self.q_rank, picks.heads * picks.head_dim, "attention", "none"),) if picks else ()
        return (
            Gemm(hidden, self.q_rank + self.head_dim, "attention", "none"),
            Gemm(self.q_rank, width, "attention"),
            Gemm(width, self.o_rank, "attention", "rows"),
            Gemm(self.o_groups * self.o_rank, hidden, "attention", "rows"),
            *((compressor,) if self.ratio else ()),
            *scored,
            *((Gemm(hidden, picks.heads, "attention", "none"),) if picks else ()),
        )

    def params(self, hidden: int) -> int:
        """All weights, inner norms included."""
        return weights(self.gemms(hidden)) + self.q_rank + self.head_dim + self.heads

    def token_bytes(self, tp: int = 1, element_bytes: float = 2) -> float:
        """Bytes in the cache of each of tp GPUs per token that leaves the window: its share of a group's vectors."""
        picks = self.indexer.cached_bytes if self.indexer else 0.0
        return (self.head_dim * element_bytes + picks) / self.ratio if self.ratio else 0.0

    @property
    def near(self) -> bool:
        """Whether it has a window only."""
        return not self.ratio

    def window_bytes(self, tp: int = 1, element_bytes: float = 2) -> float:
        """Bytes that the window of one sequence holds on each GPU."""
        return self.window * self.head_dim * element_bytes

    @property
    def query_numbers(self) -> float:
        """Numbers of one head's query, or of what it makes of the cache."""
        return self.head_dim

    @property
    def window_flop(self) -> float:
        """Operations of one token with the window."""
        return 4.0 * self.heads * self.head_dim * self.window

    @property
    def prefill_flop(self) -> float:
        """Operations per query-key pair of a prompt, beyond the window."""
        return 4 * self.heads * self.head_dim / self.ratio if self.ratio else 0.0

    @property
    def decode_flop(self) -> float:
        """Operations per token of context and decode, beyond the window."""
        return self.prefill_flop

    @property
    def tensors(self) -> int:
        """Weight tensors in a checkpoint."""
        return 8 + (4 if self.ratio else 0) + (6 if self.indexer else 0)
