"""What LoRA adapters take beside a model's matrices: bytes, and seconds of an iteration.

An adapter of rank r adds A (r x k) and B (n x r) to a matrix of k inputs and n outputs. vLLM (0.32.0, `vllm/lora`) runs
two kernels for each fused matrix, whatever the batch: shrink (x A into r numbers of 32 bits) and expand (added to what
the matrix made). Queries, keys and values, gate and up have an A each; the router has none. Of a column-parallel matrix
every GPU holds the whole A and its part of B, of a row-parallel one its part of A and the whole B. Memory for max_loras
adapters of the largest rank is taken when the engine starts.
"""

from __future__ import annotations

from msgspec import Struct

from fleetsim.engine.layout import Layout
from fleetsim.engine.model.gemm import Gemm
from fleetsim.engine.model.mixers import Attention, LatentAttention
from fleetsim.engine.model.mlps import Dense, Mixture
from fleetsim.engine.model.shape import Block, Mixer, ModelShape
from fleetsim.engine.operators.device import Device, Tokens

# One kernel at a small batch. Where no adapter is in use it ends at once: 10.5 % of Llama-2-7B's 6.6 ms for all 256
# of them, 2.7 us each (vllm-project/vllm#25914). A profile shows an expand with 10 to 14 us (#32425). In between.
KERNEL_S = 5e-6
_ELEMENT, _BETWEEN = 2, 4  # bytes of an adapter's numbers, and of those between the two kernels


class Adapters(Struct, frozen=True):
    """So many adapters of a rank. experts: routed ones have them, too."""

    rank: int
    count: int = 1
    experts: bool = True

    def bytes_each(self, shape: ModelShape) -> float:
        """Of one adapter, whole: what a weight sync sends."""
        return sum(b.count * self._block_bytes(b, shape.hidden, Layout(1)) for b in shape.blocks)

    def bytes_per_gpu(self, shape: ModelShape, layout: Layout) -> float:
        """Of all of them on each GPU."""
        return self.count * sum(b.count * self._block_bytes(b, shape.hidden, layout) for b in shape.blocks)

    def tensors(self, shape: ModelShape) -> int:
        """Tensors of one adapter in a checkpoint: A and B of each matrix."""
        found = 0
        for block in shape.blocks:
            own = sum(slices for _, slices in _adapted(block, shape.hidden))
            routed = sum(slices for _, slices in _routed(block, shape.hidden)) if self.experts else 0
            found += block.count * 2 * (own + routed * _experts(block))
        return found

    def tokens_s(self, device: Device, shape: ModelShape, layout: Layout, n: Tokens) -> Tokens:
        """Seconds that they add to an iteration of n tokens."""
        total = 0.0 * n
        for block in shape.blocks:
            total = total + block.count * self._block_s(device, block, shape.hidden, layout, n)
        return total

    def _block_s(self, device: Device, block: Block, hidden: int, layout: Layout, n: Tokens) -> Tokens:
        total = 0.0 * n
        for gemm, slices in _adapted(block, hidden):
            total = total + self._pair_s(device, gemm, slices, n, self.count * self._bytes(gemm, slices, device.tp))
        if self.experts and isinstance(block.mlp, Mixture):
            rows = n * layout.dp * block.mlp.per_token / layout.sharing
            touched = block.mlp.touched(n * layout.dp) / layout.sharing
            for gemm, slices in _routed(block, hidden):
                total = total + self._pair_s(
                    device, gemm, slices, rows, touched * self.count * self._bytes(gemm, slices)
                )
        return total

    def _pair_s(self, device: Device, gemm: Gemm, slices: int, n: Tokens, stored: Tokens | float) -> Tokens:
        """Shrink and expand of n rows; stored: bytes of the adapters that they read."""
        k, out = gemm.on(device.tp) if gemm.part != "expert" else (gemm.k, gemm.n)
        curve = device.family.gemm["bfloat16"]
        moved = stored + n * (k * 2 + 2 * slices * self.rank * _BETWEEN + 2 * out * 2)
        operations = 2.0 * n * self.rank * (slices * k + out)
        read_s = moved / (device.gpu.memory_bytes_s * curve.bandwidth)
        return 2 * KERNEL_S + read_s + operations / (device.gpu.bf16_flop_s * curve.compute)

    def _block_bytes(self, block: Block, hidden: int, layout: Layout) -> float:
        own = sum(self._bytes(g, slices, layout.tp) for g, slices in _adapted(block, hidden))
        if not self.experts:
            return own
        routed = sum(self._bytes(g, slices) for g, slices in _routed(block, hidden))
        return own + _experts(block) * routed / layout.sharing

    def _bytes(self, gemm: Gemm, slices: int, tp: int = 1) -> float:
        """Of one adapter of one matrix on each of tp GPUs."""
        k, out = gemm.on(tp)
        return self.rank * (slices * k + out) * _ELEMENT


def _adapted(block: Block, hidden: int) -> tuple[tuple[Gemm, int], ...]:
    """The matrices of a layer that every token is multiplied with, each with how many As it has."""
    found: list[tuple[Gemm, int]] = []
    if block.mixer is not None:
        found += [(g, _fused(block.mixer) if i == 0 else 1) for i, g in enumerate(block.mixer.gemms(hidden))]
    if isinstance(block.mlp, Dense):
        found += _in_and_out(block.mlp.gemms(hidden), block.mlp.gated)
    elif block.mlp is not None:
        _, *trunk = block.mlp.trunk_gemms(hidden)  # the first is the router
        shared = 2 if block.mlp.shared_width else 0
        found += _in_and_out(tuple(trunk[:shared]), block.mlp.gated)
        found += [(g, 1) for g in trunk[shared:]]
    return tuple(found)


def _fused(mixer: Mixer) -> int:
    """Matrices that the first of a mixer's is made of: queries, keys and values; the ways into two latents."""
    if isinstance(mixer, Attention):
        return 1 if mixer.kv_shared else 2 if mixer.k_is_v else 3
    return 2 if isinstance(mixer, LatentAttention) and mixer.q_lora_rank else 1


def _routed(block: Block, hidden: int) -> tuple[tuple[Gemm, int], ...]:
    """Those of one routed expert."""
    if not isinstance(block.mlp, Mixture):
        return ()
    return tuple(_in_and_out(block.mlp.expert_gemms(hidden), block.mlp.gated))


def _in_and_out(gemms: tuple[Gemm, ...], gated: bool) -> list[tuple[Gemm, int]]:
    return [(g, 1 + gated if i == 0 else 1) for i, g in enumerate(gemms)]


def _experts(block: Block) -> int:
    return block.mlp.experts if isinstance(block.mlp, Mixture) else 0
