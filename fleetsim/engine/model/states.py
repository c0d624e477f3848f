"""Layers that keep a state of fixed size per sequence instead of a cache that grows with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from fleetsim.engine.model.gemm import Gemm, weights


@dataclass(frozen=True, slots=True)
class StateMixer(ABC):
    """What all of them have in common. Subclasses say what they are made of."""

    @abstractmethod
    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """The projections into the layer and out of it."""

    @abstractmethod
    def inner_params(self, hidden: int) -> int:
        """Weights beside the projections: convolution, decays, norm."""

    @property
    @abstractmethod
    def matrix(self) -> int:
        """Numbers in the state of one sequence, its convolution's inputs apart."""

    @property
    @abstractmethod
    def state_bytes(self) -> int:
        """Bytes per sequence."""

    @property
    @abstractmethod
    def tensors(self) -> int:
        """Weight tensors in a checkpoint."""

    def params(self, hidden: int) -> int:
        """All weights."""
        return weights(self.gemms(hidden)) + self.inner_params(hidden)


@dataclass(frozen=True, slots=True)
class GatedDelta(StateMixer):
    """Gated delta rule (Qwen3-Next, Qwen3.5).

    The state is a matrix per value head in 32 bits and the last inputs of a short convolution in 16. Source:
    huggingface/transformers, models/qwen3_next/modular_qwen3_next.py; vLLM, model_executor/layers/mamba/mamba_utils.py
    (`gated_delta_net_state_shape`).
    """

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int

    @property
    def _value(self) -> int:
        return self.value_heads * self.value_head_dim

    @property
    def _channels(self) -> int:
        return 2 * self.key_heads * self.key_head_dim + self._value

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Queries, keys, values and gate; two numbers per head; the way out."""
        into = Gemm(hidden, self._channels + self._value, "attention")
        return into, Gemm(hidden, 2 * self.value_heads, "attention"), Gemm(self._value, hidden, "attention", "rows")

    def inner_params(self, hidden: int) -> int:
        """Convolution, decays, norm."""
        return self._channels * self.conv_kernel + 2 * self.value_heads + self.value_head_dim

    @property
    def matrix(self) -> int:
        """A key by value matrix for each value head."""
        return self.value_heads * self.key_head_dim * self.value_head_dim

    @property
    def state_bytes(self) -> int:
        """Bytes per sequence."""
        return self.matrix * 4 + self._channels * (self.conv_kernel - 1) * 2

    @property
    def tensors(self) -> int:
        """Weight tensors in a checkpoint."""
        return 7


@dataclass(frozen=True, slots=True)
class KimiDelta(StateMixer):
    """Kimi delta attention (Kimi-Linear): the delta rule with a decay for each channel of the keys.

    Decays and output gate come through a rank of head_dim. full_gate: the gate does not. Source:
    moonshotai/Kimi-Linear-48B-A3B-Instruct, modeling_kimi.py; vLLM, model_executor/layers/kda.py.
    """

    heads: int
    head_dim: int
    conv_kernel: int
    full_gate: bool = False

    @property
    def _width(self) -> int:
        return self.heads * self.head_dim

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Queries, keys and values; a number per head; decay and gate through their rank; the way out."""
        low = Gemm(hidden, self.head_dim, "attention", "none"), Gemm(self.head_dim, self._width, "attention")
        into = Gemm(hidden, 3 * self._width, "attention"), Gemm(hidden, self.heads, "attention")
        gate = (Gemm(hidden, self._width, "attention"),) if self.full_gate else low
        return *into, *low, *gate, Gemm(self._width, hidden, "attention", "rows")

    def inner_params(self, hidden: int) -> int:
        """Convolutions, decays, norm."""
        return 3 * self._width * self.conv_kernel + self.heads + self._width + self.head_dim

    @property
    def matrix(self) -> int:
        """A square matrix for each head."""
        return self._width * self.head_dim

    @property
    def state_bytes(self) -> int:
        """Bytes per sequence: the matrices in 32 bits, the convolutions' inputs in 16."""
        return self.matrix * 4 + 3 * self._width * (self.conv_kernel - 1) * 2

    @property
    def tensors(self) -> int:
        """Weight tensors in a checkpoint."""
        return 15


@dataclass(frozen=True, slots=True)
class Mamba2(StateMixer):
    """Mamba 2 (Nemotron-H): heads that share a state per group.

    state: numbers per channel. groups: of inputs and outputs of the state. state_element: bytes of one number of the
    state. Source: huggingface/transformers, models/nemotron_h; vLLM, mamba_utils.py (`mamba2_state_shape`).
    """

    heads: int
    head_dim: int
    state: int
    groups: int
    conv_kernel: int
    state_element: int = 2

    @property
    def _width(self) -> int:
        return self.heads * self.head_dim

    @property
    def _channels(self) -> int:
        return self._width + 2 * self.groups * self.state

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Gate, channels and steps in one; the way out."""
        into = Gemm(hidden, self._width + self._channels + self.heads, "attention")
        return into, Gemm(self._width, hidden, "attention", "rows")

    def inner_params(self, hidden: int) -> int:
        """Convolution with bias; decay, skip and step per head; norm."""
        return self._channels * (self.conv_kernel + 1) + 3 * self.heads + self._width

    @property
    def matrix(self) -> int:
        """`state` numbers for each channel."""
        return self._width * self.state

    @property
    def state_bytes(self) -> int:
        """Bytes per sequence, the convolution's inputs in 16 bits."""
        return self.matrix * self.state_element + self._channels * (self.conv_kernel - 1) * 2

    @property
    def tensors(self) -> int:
        """Weight tensors in a checkpoint."""
        return 8


@dataclass(frozen=True, slots=True)
class LightningAttention(StateMixer):
    """Lightning attention (MiniMax-M1): linear attention with a fixed decay per head and an output gate.

    Source: vLLM, model_executor/models/minimax_text_01.py and mamba_utils.py (`linear_attention_state_shape`).
    """

    heads: int
    head_dim: int

    @property
    def _width(self) -> int:
        return self.heads * self.head_dim

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Queries, keys and values; the gate; the way out."""
        gate = Gemm(hidden, self._width, "attention")
        return Gemm(hidden, 3 * self._width, "attention"), gate, Gemm(self._width, hidden, "attention", "rows")

    def inner_params(self, hidden: int) -> int:
        """The norm."""
        return self._width

    @property
    def matrix(self) -> int:
        """A square matrix for each head."""
        return self._width * self.head_dim

    @property
    def state_bytes(self) -> int:
        """Bytes per sequence, in 32 bits."""
        return self.matrix * 4

    @property
    def tensors(self) -> int:
        """Weight tensors in a checkpoint."""
        return 4
