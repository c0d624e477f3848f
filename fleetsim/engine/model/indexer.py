"""What picks the tokens that sparse attention looks at."""

from __future__ import annotations

from msgspec import Struct

from fleetsim.engine.model.gemm import Gemm


class Indexer(Struct, frozen=True):
    """Picks the tokens that sparse attention looks at: a small attention of its own with one cached key per token.

    heads, head_dim: of the scores. top_k: tokens that are picked; a shorter context is looked at in full. rank: numbers
    that its queries are projected from, 0 = the hidden state. shared: it takes what an earlier layer picked, and has no
    weights and no cache. element_bytes: of its cached key, scale included. Source: DeepSeek-V3.2 report, section 2.1,
    and vLLM, model_executor/models/deepseek_v2.py (`Indexer`): a key of 128 numbers in fp8 with a scale of 32 bits.
    """

    heads: int
    head_dim: int
    top_k: int
    rank: int = 0
    shared: bool = False
    element_bytes: float = 1 + 4 / 128

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Queries, and the key with the weights of the heads. They are small and stay whole on every GPU."""
        if self.shared:
            return ()
        queries = Gemm(self.rank or hidden, self.heads * self.head_dim, "attention", "none")
        return queries, Gemm(hidden, self.head_dim + self.heads, "attention", "none")

    @property
    def inner_params(self) -> int:
        """Its key's norm, with a bias."""
        return 0 if self.shared else 2 * self.head_dim

    @property
    def pair_flop(self) -> int:
        """Operations per token of context that is scored."""
        return 0 if self.shared else 2 * self.heads * self.head_dim

    @property
    def cached_bytes(self) -> float:
        """Bytes of its key in the cache."""
        return 0.0 if self.shared else self.head_dim * self.element_bytes

    @property
    def tensors(self) -> int:
        """Weight tensors in a checkpoint."""
        return 0 if self.shared else 5
