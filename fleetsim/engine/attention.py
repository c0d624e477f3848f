"""Attention that keeps something else than keys and values per head: a latent (MLA), or a state of fixed size."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: per token the cache holds one compressed vector and one rotary key for all heads.

    Names as in config.json; q_lora_rank 0: queries are not compressed. Source: DeepSeek-V2, arXiv 2405.04434, section
    2.1; the decode form that multiplies queries into the latent space is its appendix and vLLM's MLA backend.
    """

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    @property
    def cached(self) -> int:
        """Numbers in the cache per token and layer."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    def params(self, hidden: int, heads: int) -> int:
        """Weights of one layer, its inner norms included."""
        query = heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        q = (hidden + query + 1) * self.q_lora_rank if self.q_lora_rank else hidden * query
        kv = hidden * self.cached + self.kv_lora_rank * (1 + heads * (self.qk_nope_head_dim + self.v_head_dim))
        return q + kv + heads * self.v_head_dim * hidden

    def prefill_flop(self, heads: int) -> int:
        """Operations per query-key pair and layer, keys and values expanded per head."""
        return 2 * heads * (self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim)

    def decode_flop(self, heads: int) -> int:
        """Operations per cached token, decode and layer, in the latent space."""
        return 2 * heads * (self.cached + self.kv_lora_rank)


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated delta-rule layers (Qwen3-Next, Qwen3.5): a state per sequence that does not grow with its length.

    layers: how many of the model's layers are such. The state is a matrix per value head in 32 bits and the last inputs
    of a short convolution in 16. Source: huggingface/transformers, models/qwen3_next/modular_qwen3_next.py; vLLM,
    model_executor/layers/mamba/mamba_utils.py (`gated_delta_net_state_shape`).
    """

    layers: int
    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int

    @property
    def _channels(self) -> int:
        return 2 * self.key_heads * self.key_head_dim + self.value_heads * self.value_head_dim

    def params(self, hidden: int) -> int:
        """Weights of one layer: projections in (q, k, v, gate, two per head), convolution, decays, norm, out."""
        value = self.value_heads * self.value_head_dim
        into = hidden * (self._channels + value + 2 * self.value_heads)
        inner = self._channels * self.conv_kernel + 2 * self.value_heads + self.value_head_dim
        return into + inner + value * hidden

    @property
    def state_bytes(self) -> int:
        """Bytes per sequence, all layers."""
        matrix = self.value_heads * self.key_head_dim * self.value_head_dim * 4
        return self.layers * (matrix + self._channels * (self.conv_kernel - 1) * 2)
