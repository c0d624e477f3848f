"""An iteration as the sum of its operators over a model's layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetsim.engine.model.mlps import Mixture
from fleetsim.engine.model.precision import PRECISIONS, Precision
from fleetsim.engine.model.shape import Block, ModelShape
from fleetsim.engine.operators.attention import Core, core_of, gemms_s
from fleetsim.engine.operators.curves import Curves, GemmCurve, Host
from fleetsim.engine.operators.device import Device, Tokens

# Passes over a row of float32 logits in temperature, softmax and sampling.
_LOGIT_PASSES = 6


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """A model on an engine's GPUs. dtype: of the weights that are wished. dp: ranks that share the routed experts."""

    device: Device
    shape: ModelShape
    dtype: str
    dp: int
    curves: Curves
    host: Host

    def tokens_s(self, n: Tokens) -> Tokens:
        """Seconds that an iteration of n tokens takes whatever they are."""
        layers = sum((b.count * self.layer_s(b, n) for b in self.shape.blocks), 0.0 * n)
        return self.host.iteration_s + layers + self._head_bytes / self._reads_s

    def cores(self, cache_bytes: float, queries: int = 1) -> Core:
        """Seconds per sequence, cached token, pair and prompt token of the whole model, sampler and host included.

        queries: tokens of each decode, more than one where drafts are verified: each has logits and is sampled.
        """
        found = [(n, core_of(self.device, mixer, cache_bytes, queries)) for n, mixer in self.shape.mixers]
        gpu, shape = self.device.gpu, self.shape
        head_s = 2 * shape.vocab * shape.hidden / self.device.tp / (gpu.bf16_flop_s * self._wide.compute)
        sampler_s = _LOGIT_PASSES * 4 * shape.vocab / self._reads_s
        return Core(
            sequence_s=self.host.sequence_s
            + head_s * queries
            + sampler_s * queries
            + sum(n * c.sequence_s for n, c in found),
            kv_token_s=sum(n * c.kv_token_s for n, c in found),
            pair_s=sum(n * c.pair_s for n, c in found),
            prompt_token_s=self.host.prompt_token_s + sum(n * c.prompt_token_s for n, c in found),
        )

    def layer_s(self, block: Block, n: Tokens) -> Tokens:
        """Seconds of one layer with n tokens."""
        device, hidden = self.device, self.shape.hidden
        message = n * hidden * 2.0
        total = self.host.layer_s + self.curves.passes * message / device.gpu.memory_bytes_s
        reduces = 0
        if block.mixer is not None:
            total = total + gemms_s(device, n, block.mixer.gemms(hidden), self._precision("attention"))
            total = total + core_of(device, block.mixer, 2).start_s
            reduces += 1
        if isinstance(block.mlp, Mixture):
            total = total + self._mixture_s(block.mlp, n)
        elif block.mlp is not None:
            total = total + gemms_s(device, n, block.mlp.gemms(hidden), self._precision("mlp"))
        reduces += block.mlp is not None
        return np.asarray(total + reduces * self.host.allreduce * device.allreduce_s(device.tp, message))

    def _mixture_s(self, mixture: Mixture, n: Tokens) -> Tokens:
        """Router and shared experts for the rank's own tokens, routed experts for those of all ranks.

        The ranks gather their tokens before the experts and scatter the sums after: together an all-reduce.
        """
        device, hidden = self.device, self.shape.hidden
        total = gemms_s(device, n, mixture.trunk_gemms(hidden), self._precision("mlp"))
        total = total + self._experts_s(mixture, n * self.dp)
        gathered = device.allreduce_s(self.dp, n * self.dp * hidden * 2.0)
        return np.asarray(total + self.host.allreduce * gathered)

    def _experts_s(self, mixture: Mixture, tokens: Tokens) -> Tokens:
        """Routed experts, divided among all GPUs: each reads its part of those that are touched."""
        device, gpus = self.device, self.device.tp * self.dp
        precision = self._precision("expert")
        curve, flop_s = device.expert_curve(precision)
        params = sum(g.params for g in mixture.expert_gemms(self.shape.hidden))
        width = self.shape.hidden + mixture.width
        rows = tokens * mixture.per_token / gpus
        moved = mixture.touched(tokens) * params * precision.weight_bytes / gpus + rows * 3 * width * 2
        operations = 2 * params * rows * (self.curves.uneven if gpus > 1 else 1.0)
        read_s = moved / (device.gpu.memory_bytes_s * curve.bandwidth)
        return np.asarray(self.host.experts * curve.start_s + read_s + operations / (flop_s * curve.compute))

    def _precision(self, part: str) -> Precision:
        return PRECISIONS[getattr(self.shape.stored(self.dtype), part)]

    @property
    def _wide(self) -> GemmCurve:
        return self.device.family.gemm["bfloat16"]

    @property
    def _reads_s(self) -> float:
        return self.device.gpu.memory_bytes_s * self._wide.bandwidth

    @property
    def _head_bytes(self) -> float:
        head = PRECISIONS[self.shape.stored(self.dtype).head].weight_bytes
        return self.shape.vocab * self.shape.hidden * head / self.device.tp
