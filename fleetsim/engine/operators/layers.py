"""An iteration as the sum of its operators over a model's layers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from fleetsim.engine.layout import Layout
from fleetsim.engine.model.mlps import Mixture
from fleetsim.engine.model.precision import PRECISIONS, Precision
from fleetsim.engine.model.shape import Block, Mixer, ModelShape
from fleetsim.engine.model.states import StateMixer
from fleetsim.engine.operators.attention import Core, core_of, gemms_s
from fleetsim.engine.operators.curves import Curves, GemmCurve, Host
from fleetsim.engine.operators.device import EXCHANGES, Device, Tokens, experts_s
from fleetsim.records import replace

# Passes over a row of float32 logits in temperature, softmax and sampling.
_LOGIT_PASSES = 6
# Fewer tokens than this stay one batch: vLLM's `dbo_decode_token_threshold` (config/parallel.py). Others divide all.
FEWEST_OVERLAPPED = {"vllm": 32, "sglang": 2, "tensorrt-llm": 2}
# Cached tokens of a sequence whose attention hides exchanges; a longer context would hide more.
HIDING_TOKENS = 2048
# A drafted token picks experts that the tokens before it picked: it brings so much of what one of another sequence
# brings. Luce-Org/lucebox pull request 501 counts 39.4 experts of 256 for eight rows of one sequence (0.61 each beyond
# the first) and 58.9 for 15 (0.52); ml-explore/mlx-lm pull request 1485 has two tokens share 26 % of theirs (0.79).
DRAFTED_APART = 0.6


class Layers(Struct, frozen=True, eq=False):
    """A model on an engine's GPUs. dtype: of the weights that are wished. layout: how the GPUs share it. drafts: tokens
    that are verified beside each decode's own."""

    device: Device
    shape: ModelShape
    dtype: str
    layout: Layout
    curves: Curves
    host: Host
    engine: str = "vllm"
    drafts: int = 0

    def tokens_s(self, n: Tokens) -> Tokens:
        """Seconds that an iteration of n tokens takes whatever they are.

        Of several stages it is a round: as many batches as stages, with n tokens in all, go through all stages one
        behind the other. It ends when the first batch is through, or when the slowest stage has done the last one.
        """
        pp = self.layout.pp
        if pp == 1:
            return self.host.iteration_s + self._layers_s(n) + self._head_bytes / self._reads_s
        batches = np.minimum(n, pp)
        rows = n / batches
        layers, head_s = self._layers_s(rows), self._head_bytes / self._reads_s
        *others, last = self._stage_shares
        slowest = np.maximum(max(others) * layers, last * layers + head_s)
        passes = self.device.hand_over_s(pp, 2 * rows * self.shape.hidden * 2.0)  # hidden states and residual
        return np.asarray(self.host.iteration_s + np.maximum(layers + head_s, batches * slowest) + passes)

    def _layers_s(self, n: Tokens) -> Tokens:
        if self.layout.overlap == "none" or self.layout.dp == 1:
            return np.asarray(sum((b.count * self.layer_s(b, n) for b in self.shape.blocks), 0.0 * n))
        divided = n >= FEWEST_OVERLAPPED[self.engine]
        half = np.maximum(n / 2, 1.0)
        each = (b.count * np.where(divided, 2 * self._beside_s(b, half), self.layer_s(b, n)) for b in self.shape.blocks)
        return np.asarray(sum(each, 0.0 * n))

    def _beside_s(self, block: Block, n: Tokens) -> Tokens:
        """Seconds of one layer with n tokens of one of two batches that overlap.

        The attention of cached tokens, which `cores` counts, hides exchanges too: as much as a context of
        HIDING_TOKENS has.
        """
        if not isinstance(block.mlp, Mixture) or block.mixer is None:
            return self.layer_s(block, n)
        trunk_s = gemms_s(self.device, n, block.mlp.trunk_gemms(self.shape.hidden), self._precision("mlp"))
        own_s = self.layer_s(block, n) - self._mixture_s(block.mlp, n) + trunk_s
        core = core_of(self.device, block.mixer, 2)
        cached_s = n * (core.sequence_s + HIDING_TOKENS * core.kv_token_s)
        ways = (
            self.device.beside_s(own_s + experts_s, exchanged_s, cached_s)
            for experts_s, exchanged_s in self._ways_s(block.mlp, n)
        )
        return np.asarray(np.minimum.reduce([*ways]))

    @property
    def _stage_shares(self) -> list[float]:
        """Each stage's part of the layers."""
        return [layers / self.shape.layers for layers in self.layout.stages(self.shape.layers, self.engine)]

    def cores(self, cache_bytes: float, queries: int = 1) -> Core:
        """Seconds per sequence, token and pair, as `Core` has them, of the whole model, sampler and host included.

        Stages work on different sequences at the same time, so the one with most layers counts. The LM head and the
        sampler are on the last one for all sequences; the host works beside the other batches. queries: tokens of each
        decode, more than one where drafts are verified: each has logits and is sampled.
        """
        mixers, dcp = tuple(self.shape.mixers), self.layout.dcp
        found = [(n, core_of(self.device, mixer, cache_bytes, queries, dcp, self.engine)) for n, mixer in mixers]
        each = list(zip(found, (self.shape.in_window(mixer) for _, mixer in mixers), strict=True))
        whole, near = [core for core, some in each if not some], [core for core, some in each if some]
        part, batches = max(self._stage_shares), self.layout.pp
        gpu, shape = self.device.gpu, self.shape
        head_s = 2 * shape.vocab * shape.hidden / self.device.tp / (gpu.bf16_flop_s * self._wide.compute)
        sampler_s = _LOGIT_PASSES * 4 * shape.vocab / self._reads_s
        return Core(
            sequence_s=self.host.sequence_s / batches
            + head_s * queries
            + sampler_s * queries
            + part * sum(n * c.sequence_s for n, c in found)
            + part * queries * sum(n * self._context_sequence_s(mixer) for n, mixer in mixers),
            kv_token_s=part * sum(n * c.kv_token_s for n, c in whole),
            pair_s=part * sum(n * c.pair_s for n, c in whole),
            window_token_s=part * sum(n * c.kv_token_s for n, c in near),
            window_pair_s=part * sum(n * c.pair_s for n, c in near),
            prompt_token_s=self.host.prompt_token_s / batches + part * sum(n * c.prompt_token_s for n, c in found),
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
            total = total + self.host.allreduce * self._context_s(block.mixer, 0.0 * n)
            reduces += 1
        if isinstance(block.mlp, Mixture):
            total = total + self._mixture_s(block.mlp, n)
        elif block.mlp is not None:
            total = total + gemms_s(device, n, block.mlp.gemms(hidden), self._precision("mlp"))
        reduces += block.mlp is not None
        return np.asarray(total + reduces * self.host.allreduce * device.allreduce_s(device.tp, message))

    def _context_s(self, mixer: Mixer, decodes: Tokens) -> Tokens:
        """GPUs that divide a cache gather their heads' queries, and add up what each made of its part of the cache:
        together an all-reduce of both (vLLM, v1/attention/ops/common.py, `cp_lse_ag_out_rs`). Prompts need none."""
        dcp = self.layout.dcp
        if dcp == 1 or isinstance(mixer, StateMixer):
            return 0.0 * decodes
        return self.device.allreduce_s(dcp, decodes * mixer.heads / self.layout.tp * dcp * mixer.query_numbers * 2.0)

    def _context_sequence_s(self, mixer: Mixer) -> float:
        """What one more decode adds to that."""
        none, one = self._context_s(mixer, np.array([0.0, 1.0])).tolist()
        return float(self.host.allreduce * (one - none))

    def _mixture_s(self, mixture: Mixture, n: Tokens) -> Tokens:
        """Router and shared experts for the rank's own tokens, routed experts for those of all ranks."""
        total = gemms_s(self.device, n, mixture.trunk_gemms(self.shape.hidden), self._precision("mlp"))
        layout = self.layout
        if layout.dp > 1 and not layout.gathers(self.device.gpu.node_gpus):
            return np.asarray(total + np.minimum.reduce([a + b for a, b in self._ways_s(mixture, n)]))
        total = total + self._experts_s(mixture, n * layout.dp)
        if layout.dp > 1:
            gathered = self.device.allreduce_s(layout.dp, n * layout.dp * self.shape.hidden * 2.0, layout.tp)
            total = total + self.host.allreduce * gathered
        return np.asarray(total)

    def _ways_s(self, mixture: Mixture, n: Tokens) -> Iterator[tuple[Tokens, Tokens]]:
        """The ways to send n tokens of every rank to their experts and back: seconds of the experts and of the exchange
        of each.

        There in 8 bits with a scale for each 128 numbers where the experts are small, back in 16.
        """
        layout, device, width = self.layout, self.device, mixture.latent or self.shape.hidden
        small = self._precision("expert").weight_bytes < 2
        rows = (width * (1 + 4 / 128 if small else 2.0), 2.0 * width)
        own = n / layout.tp
        for kind in EXCHANGES:
            sent = (device.exchange_s(kind, layout.sharing, own, mixture.per_token, row) for row in rows)
            yield self._experts_s(mixture, n * layout.dp, kind), sum(sent, 0.0 * n)

    def _experts_s(self, mixture: Mixture, tokens: Tokens, exchange: str | None = None) -> Tokens:
        """Routed experts, divided among all GPUs: each reads its part of those that are touched.

        exchange: the kind of kernel that brought them their tokens, if one did.
        """
        device, gpus = self.device, self.layout.sharing
        precision = self._precision("expert")
        own, flop_s = device.expert_curve(precision)
        params = sum(g.params for g in mixture.expert_gemms(self.shape.hidden))
        expert = params, self.shape.hidden + mixture.width
        rows = tokens * mixture.per_token / gpus
        apart = (1 + DRAFTED_APART * self.drafts) / (1 + self.drafts)
        stored = mixture.touched(apart * tokens) * params * precision.weight_bytes / gpus
        uneven = self.curves.uneven if gpus > 1 else 1.0
        grouped = device.family.grouped.get(exchange or "")
        sent = grouped is not None and device.computes(precision) == "fp8"
        curve = grouped if sent and grouped else replace(own, start_s=self.host.experts * own.start_s)
        return experts_s(device.gpu, curve, flop_s, stored, rows, expert, uneven)

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
