"""One engine's GPUs as its operators see them: data sheet, family, tensor parallelism."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fleetsim.engine.gpus import GpuSpec
from fleetsim.engine.model.precision import PRECISIONS, Precision
from fleetsim.engine.operators.curves import ExpertCurve, Family, GemmCurve

Tokens = NDArray[np.float64]

_Curve = TypeVar("_Curve", GemmCurve, ExpertCurve)
_TILE = 128
# Fewer rows than this fill no instruction of the tensor cores: they take as long as so many.
_LEAST_ROWS = 16
# Without peer access over NVLink, NCCL's ring starts later than a one-shot kernel.
_PCIE_START_S = 20e-6
_ACTIVATION_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "fp4": PRECISIONS["nvfp4"].weight_bytes}


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """`tp` GPUs of one type. family: what they reach of the data sheet."""

    gpu: GpuSpec
    family: Family
    tp: int

    def computes(self, precision: Precision) -> str:
        """The type that weights of a precision are multiplied in: bfloat16 where the GPU has no such arithmetic."""
        has = {"fp8": self.gpu.fp8_flop_s, "fp4": self.gpu.fp4_flop_s}
        return precision.computes if has.get(precision.computes) is not None else "bfloat16"

    def gemm_s(self, n: Tokens, k: float, out: float, precision: Precision) -> Tokens:
        """Seconds of the product of n rows with a k x out matrix, both sizes of one GPU."""
        kind = self.computes(precision)
        curve = _nearest(self.family.gemm, kind)
        flop_s = self.gpu.flop_s(kind) * curve.compute
        moved = k * out * precision.weight_bytes + n * (k * _ACTIVATION_BYTES[kind] + out * 2)
        rows_s = 2 * k * out * np.maximum(n, _LEAST_ROWS) / flop_s
        wave_s = curve.wave * 2 * k * _TILE * _TILE * self.gpu.processors / flop_s
        moved_s = moved / (self.gpu.memory_bytes_s * curve.bandwidth)
        return curve.start_s + _knee(moved_s, _knee(rows_s, wave_s, curve.knee), curve.knee)

    def expert_curve(self, precision: Precision) -> tuple[ExpertCurve, float]:
        """The curve of routed experts, and the operations per second that it takes a share of."""
        kind = self.computes(precision)
        unpacked = kind == "bfloat16" and precision.weight_bytes < 2
        curve = self.family.experts.get("weights" if unpacked else kind)
        return curve or _nearest(self.family.experts, kind), self.gpu.flop_s(kind)

    def allreduce_s(self, gpus: int, message_bytes: Tokens) -> Tokens:
        """Seconds of one all-reduce over so many GPUs."""
        if gpus == 1:
            return np.zeros_like(message_bytes)
        curve = self.family.allreduce
        moved = 2 * (gpus - 1) / gpus * message_bytes
        start_s = curve.start_s * (1 + curve.per_doubling * math.log2(gpus / 2))
        if self.gpu.pcie:
            return _PCIE_START_S + start_s + moved / self.gpu.link_bytes_s
        return start_s + moved / (self.gpu.link_bytes_s * curve.link)


def _nearest(curves: Mapping[str, _Curve], kind: str) -> _Curve:
    """The curve of a type, or of 16 bits where that was never measured."""
    return curves.get(kind) or curves["bfloat16"]


def _knee(a: Tokens | float, b: Tokens | float, sharpness: float) -> Tokens:
    return np.asarray((a**sharpness + b**sharpness) ** (1 / sharpness))
