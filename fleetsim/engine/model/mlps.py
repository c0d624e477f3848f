"""What a layer does with each token by itself: a dense MLP, or a mixture of experts."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.engine.model.gemm import Gemm, Part, weights

Counts = TypeVar("Counts", float, "NDArray[np.float64]")


def _mlp(hidden: int, width: int, gated: bool, part: Part) -> tuple[Gemm, ...]:
    return Gemm(hidden, (2 if gated else 1) * width, part), Gemm(width, hidden, part, "rows")


class Dense(Struct, frozen=True):
    """One MLP for all tokens. gated: three matrices (SwiGLU), else two. bias: of all of them."""

    width: int
    gated: bool = True
    bias: bool = False

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Gate and up in one, and down."""
        return _mlp(hidden, self.width, self.gated, "mlp")

    def params(self, hidden: int) -> int:
        """All weights."""
        bias = (1 + self.gated) * self.width + hidden if self.bias else 0
        return weights(self.gemms(hidden)) + bias

    @property
    def peak_width(self) -> int:
        """Activations of one token at once."""
        return self.width

    @property
    def tensors(self) -> int:
        """Weight tensors in a checkpoint."""
        return (2 + self.gated) * (1 + self.bias)


class Mixture(Struct, frozen=True):
    """Routed experts, of which a token visits `per_token`, and shared ones that every token visits.

    width: of one routed expert. shared_width: of the shared ones, summed. shared_gate: the shared one is weighted by a
    gate. gated: three matrices (SwiGLU), else two. bias: of the router and of the experts. latent: width of the space
    that tokens are projected into before their routed experts, and back after; 0 without one.
    """

    experts: int
    per_token: int
    width: int
    shared_width: int = 0
    shared_gate: bool = False
    gated: bool = True
    bias: bool = False
    latent: int = 0

    def expert_gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Those of one routed expert."""
        return _mlp(self.latent or hidden, self.width, self.gated, "expert")

    def trunk_gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Those that every token is multiplied with: router, shared experts, the way into the latent space and back."""
        router = Gemm(hidden, self.experts + self.shared_gate, "mlp", "none")
        shared = _mlp(hidden, self.shared_width, self.gated, "mlp") if self.shared_width else ()
        latent = (Gemm(hidden, self.latent, "mlp", "none"), Gemm(self.latent, hidden, "mlp", "none"))
        return (router, *shared, *(latent if self.latent else ()))

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """Those of the trunk and of one routed expert."""
        return *self.trunk_gemms(hidden), *self.expert_gemms(hidden)

    def expert_params(self, hidden: int) -> int:
        """Weights of one routed expert."""
        bias = (1 + self.gated) * self.width + (self.latent or hidden) if self.bias else 0
        return weights(self.expert_gemms(hidden)) + bias

    def trunk_params(self, hidden: int) -> int:
        """Weights that every token is multiplied with."""
        return weights(self.trunk_gemms(hidden)) + (self.experts if self.bias else 0)

    def params(self, hidden: int) -> int:
        """All weights."""
        return self.trunk_params(hidden) + self.experts * self.expert_params(hidden)

    def touched(self, tokens: Counts) -> Counts:
        """Expected routed experts that `tokens` tokens visit, one count or an array, each picking independently.

        And evenly: E * (1 - (1 - k/E)^n). Real routers are uneven, which touches fewer: this errs on the slow side.
        """
        found: Counts = self.experts * (1.0 - (1.0 - self.per_token / self.experts) ** tokens)
        return found

    @property
    def peak_width(self) -> int:
        """Activations of one token at once, in all its experts."""
        return self.per_token * self.width + self.shared_width

    @property
    def expert_tensors(self) -> int:
        """Weight tensors of the routed experts in a checkpoint, experts apart."""
        return self.experts * (2 + self.gated)

    @property
    def tensors(self) -> int:
        """Weight tensors in a checkpoint."""
        mlp = 2 + self.gated
        return self.expert_tensors + 1 + (mlp + self.shared_gate if self.shared_width else 0) + 2 * bool(self.latent)


Mlp = Dense | Mixture
