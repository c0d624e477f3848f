"""What a layer does among the tokens of a sequence: attention to keys and values, to a latent, or a state."""

from __future__ import annotations

from dataclasses import dataclass

from fleetsim.engine.model.gemm import Gemm, weights


@dataclass(frozen=True, slots=True)
class Indexer:
    """Picks the tokens that sparse attention looks at: a small attention of its own with one cached key per token.

    heads, head_dim: of the scores. top_k: tokens that are picked; a shorter context is looked at in full. rank: numbers
    that its queries are projected from, 0 = the hidden state. Source: DeepSeek-V3.2 report, section 2.1, and vLLM,
    model_executor/models/deepseek_v2.py (`Indexer`).
    """

    heads: int
    head_dim: int
    top_k: int
    rank: int = 0

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Queries, and the key with the weights of the heads. They are small and stay whole on every GPU."""
        queries = Gemm(self.rank or hidden, self.heads * self.head_dim, "attention", "none")
        return queries, Gemm(hidden, self.head_dim + self.heads, "attention", "none")

    @property
    def inner_params(self) -> int:
        """Its key's norm, with a bias."""
        return 2 * self.head_dim

    @property
    def pair_flop(self) -> int:
        """Operations per token of context that is scored."""
        return 2 * self.heads * self.head_dim

    @property
    def cached_bytes(self) -> int:
        """Bytes of its key in the cache: fp8, with a scale of 32 bits for each 128."""
        return self.head_dim + 4 * -(-self.head_dim // 128)


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention: keys and values per head in the cache.

    value_dim: of the values where it is not head_dim. window: tokens that it looks back, 0 = all. bias: of queries,
    keys and values. qk_norm: queries and keys are normed per head. gate: queries come with a gate of their size.
    head_gate: with one number per head. kv_shared: it reads the keys and values of an earlier layer and has none.
    k_is_v: values are its keys before their norm, so that no weights make them. indexer: it looks at picked tokens.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int = 0
    window: int = 0
    bias: bool = False
    qk_norm: bool = False
    gate: bool = False
    head_gate: bool = False
    kv_shared: bool = False
    k_is_v: bool = False
    indexer: Indexer | None = None

    @property
    def values(self) -> int:
        """Numbers of one value."""
        return self.value_dim or self.head_dim

    @property
    def _fused(self) -> int:
        query = self.heads * self.head_dim * (2 if self.gate else 1) + (self.heads if self.head_gate else 0)
        made = 0 if self.kv_shared else self.head_dim + (0 if self.k_is_v else self.values)
        return query + self.kv_heads * made

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Queries, keys and values in one, and the way out."""
        out = Gemm(self.heads * self.values, hidden, "attention", "rows")
        return Gemm(hidden, self._fused, "attention"), out, *(self.indexer.gemms(hidden) if self.indexer else ())

    def params(self, hidden: int) -> int:
        """All weights, inner norms included."""
        bias = self.heads * self.head_dim + self.kv_heads * (self.head_dim + self.values) if self.bias else 0
        norms = 2 * self.head_dim if self.qk_norm else 0
        return weights(self.gemms(hidden)) + bias + norms + (self.indexer.inner_params if self.indexer else 0)

    def cached(self, tp: int = 1, element_bytes: float = 2) -> float:
        """Bytes in the cache of one of tp GPUs per token; heads are replicated where there are fewer than GPUs."""
        own = 0 if self.kv_shared else max(1, self.kv_heads // tp) * (self.head_dim + self.values)
        return own * element_bytes + (self.indexer.cached_bytes if self.indexer else 0)

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
        return own + 3 * self.bias + 2 * self.qk_norm + self.head_gate + 4 * bool(self.indexer)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: per token the cache holds one compressed vector and one rotary key for all heads.

    Names as in config.json; q_lora_rank 0: queries are not compressed. indexer: sparse, as in DeepSeek-V3.2. Source:
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
        return into, queries, keys, out, *(self.indexer.gemms(hidden) if self.indexer else ())

    def params(self, hidden: int) -> int:
        """All weights, inner norms included."""
        inner = self.indexer.inner_params if self.indexer else 0
        return weights(self.gemms(hidden)) + self.q_lora_rank + self.kv_lora_rank + inner

    def cached(self, tp: int = 1, element_bytes: float = 2) -> float:
        """Bytes in the cache of each of tp GPUs per token: the latent belongs to all heads and is on every GPU."""
        return self.latent * element_bytes + (self.indexer.cached_bytes if self.indexer else 0)

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
        return (7 if self.q_lora_rank else 5) + 4 * bool(self.indexer)
