"""A weight matrix that every token is multiplied with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Part = Literal["attention", "mlp", "expert"]
Split = Literal["columns", "rows", "none"]


@dataclass(frozen=True, slots=True)
class Gemm:
    """k inputs, n outputs, as engines fuse them: queries, keys and values are one, and so are gate and up.

    part: what of the checkpoint's precisions it has (`Parts`). split: what tensor parallelism divides by tp: the
    outputs (columns), the inputs (rows; an all-reduce follows), or nothing, so that every GPU has the whole.
    """

    k: int
    n: int
    part: Part
    split: Split = "columns"

    @property
    def params(self) -> int:
        """Its weights."""
        return self.k * self.n


def weights(gemms: tuple[Gemm, ...]) -> int:
    """Weights of all of them."""
    return sum(g.params for g in gemms)
