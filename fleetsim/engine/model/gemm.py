"""A weight matrix that every token is multiplied with."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Part = Literal["attention", "mlp", "expert"]
Split = Literal["columns", "rows", "none"]


class Gemm(Struct, frozen=True):
    """k inputs, n outputs, as engines fuse them: queries, keys and values are one, and so are gate and up.

    part: what of the checkpoint's precisions it has (`Parts`). split: what tensor parallelism divides by tp: the
    outputs (columns), the inputs (rows; an all-reduce follows), or nothing, so that every GPU has the whole. pieces:
    into how many `shared` of the outputs can be cut: those of keys and values, into their heads; more GPUs hold copies.
    """

    k: int
    n: int
    part: Part
    split: Split = "columns"
    shared: int = 0
    pieces: int = 1

    @property
    def params(self) -> int:
        """Its weights."""
        return self.k * self.n

    def on(self, tp: int) -> tuple[float, float]:
        """Inputs and outputs of the part that each of tp GPUs has."""
        if self.split == "rows":
            return self.k / tp, self.n
        if self.split == "none":
            return self.k, self.n
        if tp <= self.pieces or not self.shared:
            return self.k, self.n / tp
        return self.k, (self.n - self.shared) / tp + self.shared / self.pieces

    def params_on(self, tp: int) -> float:
        """Weights on each of tp GPUs."""
        k, n = self.on(tp)
        return k * n


def weights(gemms: tuple[Gemm, ...]) -> int:
    """Weights of all of them."""
    return sum(g.params for g in gemms)
