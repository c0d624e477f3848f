"""One engine's GPUs as its operators see them: data sheet, family, tensor parallelism, and what joins them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.engine.gpus import GpuSpec
from fleetsim.engine.layout import near
from fleetsim.engine.model.precision import PRECISIONS, Precision
from fleetsim.engine.operators.curves import AllReduceCurve, ExpertCurve, GemmCurve, GpuFamily, GroupedCurve

Tokens = NDArray[np.float64]

_Curve = TypeVar("_Curve", GemmCurve, ExpertCurve)
_TILE = 128
# Fewer rows than this fill no instruction of the tensor cores: they take as long as so many.
_LEAST_ROWS = 16
# Without peer access over NVLink, NCCL's ring starts later than a one-shot kernel.
_PCIE_START_S = 20e-6
# Across servers an all-reduce of a few bytes takes 25 us on two H100 servers by NCCL's own estimate (NVIDIA/nccl issue
# 1453: "128 Bytes ... time 25.214764"; src/graph/tuning.cc: 6.8 us, 0.6 us a hop inside and 5 us a hop of the tree
# between servers, both up and down), measured 19 to 20 us between two GPUs (NVIDIA/nccl-tests issue 150).
_NETWORK_START_S, _NETWORK_HOP_S = 15.2e-6, 10e-6
# Share of a network card that large messages reach (as `sync.link.efficiency`: PrimeIntellect-ai/prime-rl pull request
# 3341 measured 44.26 of 50 GB/s).
NETWORK_SHARE = 0.88
# Kernels that send experts' tokens there and back. One for few tokens sends one copy to each expert; one for many sends
# one copy to each server, but asks the hosts first how many will come (the latter's start is assumed). Published
# seconds of DeepEP (deepseek-ai/DeepEP, docs/legacy.md, 128 tokens on 8 to 256 H800) come out within 15 %.
EXCHANGES = ("few", "many")
_EXCHANGE_START_S, _COUNTED_EXCHANGE_START_S = 30e-6, 300e-6
# Part of an exchange for which the GPU does not compute for another batch: it holds or slows the processors. One number
# for what SGLang's two-batch overlap gained on 32 and 72 H100 (lmsys.org, 2025-05-05: 27 to 35 % with prompts, 25.5 %
# with 256 decodes a GPU, nothing between 64 and 128, -27 % with 32). Alone the kernel for few needs 0.06 of 0.17 ms.
_HELD = 0.4
# From one stage to the next: NCCL's send, and the sizes that vLLM sends through the hosts before it (vllm/distributed/
# parallel_state.py, `send_tensor_dict`). Assumed.
_HAND_OVER_S = 100e-6
_ACTIVATION_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "fp4": PRECISIONS["nvfp4"].weight_bytes}


class Device(Struct, frozen=True, eq=False):
    """`tp` GPUs of one type. family: what they reach of the data sheet."""

    gpu: GpuSpec
    family: GpuFamily
    tp: int

    def computes(self, precision: Precision) -> str:
        """The type that weights of a precision are multiplied in: bfloat16 where the GPU has no such arithmetic."""
        has = {"fp8": self.gpu.fp8_flop_s, "fp4": self.gpu.fp4_flop_s}
        return precision.computes if has.get(precision.computes) is not None else "bfloat16"

    def gemm_s(self, n: Tokens, k: float, out: float, precision: Precision) -> Tokens:
        """Seconds of the product of n rows with a k x out matrix, both sizes of one GPU."""
        kind = self.computes(precision)
        curve, moved = _nearest(self.family.gemm, kind), (precision.weight_bytes, _ACTIVATION_BYTES[kind])
        return product_s(self.gpu, curve, self.gpu.flop_s(kind), n, k, out, moved)

    def expert_curve(self, precision: Precision) -> tuple[ExpertCurve, float]:
        """The curve of routed experts, and the operations per second that it takes a share of."""
        kind = self.computes(precision)
        unpacked = kind == "bfloat16" and precision.weight_bytes < 2
        curve = self.family.experts.get("weights" if unpacked else kind)
        return curve or _nearest(self.family.experts, kind), self.gpu.flop_s(kind)

    def allreduce_s(self, gpus: int, message_bytes: Tokens, stride: int = 1) -> Tokens:
        """Seconds of one all-reduce over so many GPUs, every stride-th of the servers.

        Across servers the GPUs of each add up first, each sends its part of the sums through its own card, and hands
        the result round.
        """
        if gpus == 1:
            return np.zeros_like(message_bytes)
        inside = near(gpus, self.gpu.node_gpus, stride)
        servers = gpus // inside
        curve = self.family.allreduce
        if servers == 1:
            return links_start_s(self.gpu, curve, gpus) + through_links_s(self.gpu, curve, inside, message_bytes)
        between_s = 2 * (servers - 1) / servers * message_bytes / inside / self._network_bytes_s
        start_s = _NETWORK_START_S + _NETWORK_HOP_S * math.log2(servers)
        return start_s + between_s + through_links_s(self.gpu, curve, inside, message_bytes)

    @property
    def _peers_bytes_s(self) -> float:
        """Between the GPUs of a server."""
        return _peers_bytes_s(self.gpu, self.family.allreduce)

    @property
    def _network_bytes_s(self) -> float:
        """Through one GPU's network card."""
        return self.gpu.nic_bytes_s * NETWORK_SHARE

    def exchange_s(self, kind: str, gpus: int, tokens: Tokens, per_token: int, row_bytes: float) -> Tokens:
        """Seconds until so many tokens of each GPU are at their `per_token` experts, evenly on `gpus` GPUs; or back.

        kind: of the kernel, one of EXCHANGES.
        """
        inside = near(gpus, self.gpu.node_gpus)
        servers = gpus // inside
        sent = tokens * row_bytes
        peers_s = sent * per_token * (inside - 1) / gpus / self._peers_bytes_s
        if kind == "few":
            copies, start_s = per_token * (servers - 1) / servers, _EXCHANGE_START_S
        else:
            copies, start_s = (servers - 1) * (1 - (1 - 1 / servers) ** per_token), _COUNTED_EXCHANGE_START_S
        return start_s + np.maximum(sent * copies / self._network_bytes_s, peers_s)

    def beside_s(self, computed_s: Tokens, exchanged_s: Tokens, more_s: Tokens) -> Tokens:
        """Seconds of one of two batches that take turns, each computing while the other's tokens are exchanged.

        more_s: seconds that the GPU computes beside, which are counted elsewhere.
        """
        return np.maximum(computed_s + _HELD * exchanged_s, exchanged_s - more_s)

    def hand_over_s(self, stages: int, message_bytes: Tokens) -> Tokens:
        """Seconds that a batch's hidden states take on their way through all stages.

        Each of tp GPUs sends its part to its peer, and the peers gather the parts.
        """
        if stages == 1:
            return np.zeros_like(message_bytes)
        beside = max(1, self.gpu.node_gpus // self.tp)
        away = -(-stages // beside) - 1
        per_gpu = message_bytes / self.tp
        sent_s = (stages - 1 - away) * per_gpu / self._peers_bytes_s + away * per_gpu / self._network_bytes_s
        gathered_s = (stages - 1) * self.allreduce_s(self.tp, message_bytes / 2)
        return (stages - 1) * _HAND_OVER_S + sent_s + gathered_s


# Of one size, or of as many as the arrays have: `calibration/kernels.py` fits the curves with these to whole tables.


def product_s(
    gpu: GpuSpec,
    curve: GemmCurve,
    peak_flop_s: float | Tokens,
    n: Tokens,
    k: float | Tokens,
    out: float | Tokens,
    moved_bytes: tuple[float | Tokens, float | Tokens],
) -> Tokens:
    """Seconds of the product of n rows with a k x out matrix. moved_bytes: of one weight, and of one activation."""
    weight_bytes, activation_bytes = moved_bytes
    flop_s = peak_flop_s * curve.compute
    moved = k * out * weight_bytes + n * (k * activation_bytes + out * 2)
    rows_s = 2 * k * out * np.maximum(n, _LEAST_ROWS) / flop_s
    wave_s = curve.wave * 2 * k * _TILE * _TILE * gpu.processors / flop_s
    moved_s = moved / (gpu.memory_bytes_s * curve.bandwidth)
    return curve.start_s + _knee(moved_s, _knee(rows_s, wave_s, curve.knee), curve.knee)


def experts_s(
    gpu: GpuSpec,
    curve: ExpertCurve | GroupedCurve,
    peak_flop_s: float | Tokens,
    stored_bytes: Tokens,
    rows: Tokens,
    expert: tuple[float | Tokens, float | Tokens],
    uneven: float = 1.0,
) -> Tokens:
    """Seconds of a layer's routed experts on one GPU. stored_bytes: of those that its rows visit.

    curve: kernels of experts whose tokens were sent to them (GroupedCurve) compute while they read, others in turns.
    expert: parameters of one, and its inputs and inner numbers together, each of which is moved three times in 16 bits.
    uneven: how much longer the busiest GPU takes for its operations.
    """
    params, width = expert
    read_s = (stored_bytes + rows * 3 * width * 2) / (gpu.memory_bytes_s * curve.bandwidth)
    computed_s = 2 * params * rows * uneven / (peak_flop_s * curve.compute)
    if isinstance(curve, GroupedCurve):
        return curve.start_s + np.maximum(read_s, computed_s)
    return np.asarray(curve.start_s + read_s + computed_s)


def links_start_s(gpu: GpuSpec, curve: AllReduceCurve, gpus: float | Tokens) -> float | Tokens:
    """Seconds that an all-reduce over so many GPUs of a server takes whatever its message."""
    start_s = curve.start_s * (1 + curve.per_doubling * np.log2(gpus / 2))
    return start_s + (_PCIE_START_S if gpu.pcie else 0.0)


def through_links_s(gpu: GpuSpec, curve: AllReduceCurve, gpus: float | Tokens, message_bytes: Tokens) -> Tokens:
    """Seconds that its message takes beside that."""
    return np.asarray(2 * (gpus - 1) / gpus * message_bytes / _peers_bytes_s(gpu, curve))


def _peers_bytes_s(gpu: GpuSpec, curve: AllReduceCurve) -> float:
    return gpu.link_bytes_s * (1.0 if gpu.pcie else curve.link)


def _nearest(curves: Mapping[str, _Curve], kind: str) -> _Curve:
    """The curve of a type, or of 16 bits where that was never measured."""
    return curves.get(kind) or curves["bfloat16"]


def _knee(a: Tokens | float, b: Tokens | float, sharpness: float) -> Tokens:
    return np.asarray((a**sharpness + b**sharpness) ** (1 / sharpness))
