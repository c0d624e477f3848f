"""Layers that keep a state of fixed size per sequence instead of a cache that grows with it: one record for all."""

from __future__ import annotations

from msgspec import Struct

from fleetsim.engine.model.gemm import Gemm, weights
from fleetsim.records import replace


class StateMixer(Struct, frozen=True):
    """Such a layer.

    projections: the ways into it and out of it; 0 inputs or outputs stand for the hidden state's. inner: weights beside
    them: convolution, decays, norm. matrix: numbers in the state of one sequence, its convolution's inputs apart.
    state_bytes: of one sequence, with them. tensors: weight tensors in a checkpoint.
    """

    projections: tuple[Gemm, ...]
    inner: int
    matrix: int
    state_bytes: int
    tensors: int

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """The projections of a model whose hidden state has so many numbers."""
        return tuple(replace(g, k=g.k or hidden, n=g.n or hidden) for g in self.projections)

    def params(self, hidden: int) -> int:
        """All weights."""
        return weights(self.gemms(hidden)) + self.inner


def _into(outputs: int) -> Gemm:
    return Gemm(0, outputs, "attention")


def _out(inputs: int) -> Gemm:
    return Gemm(inputs, 0, "attention", "rows")


def gated_delta(
    key_heads: int, value_heads: int, key_head_dim: int, value_head_dim: int, conv_kernel: int
) -> StateMixer:
    """Gated delta rule (Qwen3-Next, Qwen3.5): a matrix per value head.

    It is in 32 bits, the last inputs of a short convolution are in 16. Source: huggingface/transformers,
    models/qwen3_next/modular_qwen3_next.py; vLLM, model_executor/layers/mamba/mamba_utils.py
    (`gated_delta_net_state_shape`).
    """
    value = value_heads * value_head_dim
    channels, matrix = 2 * key_heads * key_head_dim + value, value * key_head_dim
    return StateMixer(
        # queries, keys, values and gate; two numbers per head
        projections=(_into(channels + value), _into(2 * value_heads), _out(value)),
        inner=channels * conv_kernel + 2 * value_heads + value_head_dim,
        matrix=matrix,
        state_bytes=matrix * 4 + channels * (conv_kernel - 1) * 2,
        tensors=7,
    )


def kimi_delta(heads: int, head_dim: int, conv_kernel: int, full_gate: bool = False) -> StateMixer:
    """Kimi delta attention (Kimi-Linear): the delta rule with a decay for each channel of the keys.

    Decays and output gate come through a rank of head_dim. full_gate: the gate does not. The matrices are in 32 bits,
    the convolutions' inputs in 16. Source: moonshotai/Kimi-Linear-48B-A3B-Instruct, modeling_kimi.py; vLLM,
    model_executor/layers/kda.py.
    """
    width = heads * head_dim
    low = Gemm(0, head_dim, "attention", "none"), Gemm(head_dim, width, "attention")
    gate = (_into(width),) if full_gate else low
    return StateMixer(
        # queries, keys and values; a number per head; decay and gate
        projections=(_into(3 * width), _into(heads), *low, *gate, _out(width)),
        inner=3 * width * conv_kernel + heads + width + head_dim,
        matrix=width * head_dim,
        state_bytes=width * head_dim * 4 + 3 * width * (conv_kernel - 1) * 2,
        tensors=15,
    )


def mamba2(heads: int, head_dim: int, state: int, groups: int, conv_kernel: int, state_element: int = 2) -> StateMixer:
    """Mamba 2 (Nemotron-H): heads that share a state per group.

    state: numbers per channel. groups: of inputs and outputs of the state. state_element: bytes of one number of the
    state; the convolution's inputs have 16 bits. Source: huggingface/transformers, models/nemotron_h; vLLM,
    mamba_utils.py (`mamba2_state_shape`).
    """
    width = heads * head_dim
    channels = width + 2 * groups * state
    return StateMixer(
        projections=(_into(width + channels + heads), _out(width)),  # gate, channels and steps in one
        inner=channels * (conv_kernel + 1) + 3 * heads + width,  # convolution with bias; decay, skip, step; norm
        matrix=width * state,
        state_bytes=width * state * state_element + channels * (conv_kernel - 1) * 2,
        tensors=8,
    )


def lightning_attention(heads: int, head_dim: int) -> StateMixer:
    """Lightning attention (MiniMax-M1): linear attention with a fixed decay per head and an output gate, in 32 bits.

    Source: vLLM, model_executor/models/minimax_text_01.py and mamba_utils.py (`linear_attention_state_shape`).
    """
    width = heads * head_dim
    return StateMixer(
        projections=(_into(3 * width), _into(width), _out(width)),
        inner=width,
        matrix=width * head_dim,
        state_bytes=width * head_dim * 4,
        tensors=4,
    )
