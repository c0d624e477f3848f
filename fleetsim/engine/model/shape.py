"""Model shapes: how many weights a transformer has, how many it reads per token, how large its KV cache is.

Only what sets speed and memory is kept. `names.model_shape` gives a built-in one by its Hugging Face id, or reads any
`config.json` (`hf_config`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from fleetsim.engine.model.gemm import Gemm, weights
from fleetsim.engine.model.mixers import SHORT_WINDOW, Attention, CompressedAttention, LatentAttention
from fleetsim.engine.model.mlps import Mixture, Mlp
from fleetsim.engine.model.precision import PRECISIONS, WIDE, Parts, kv_precision_of, precision_of, usual_parts
from fleetsim.engine.model.states import StateMixer

Attending = Attention | LatentAttention | CompressedAttention
Mixer = Attending | StateMixer


class Block(Struct, frozen=True):
    """`count` like layers. A layer may have no mixer, or no MLP: some models have layers of one only."""

    count: int
    mixer: Mixer | None
    mlp: Mlp | None

    def gemms(self, hidden: int) -> tuple[Gemm, ...]:
        """The weight matrices of one layer; of a mixture those of one expert."""
        return tuple(g for part in (self.mixer, self.mlp) if part is not None for g in part.gemms(hidden))


def _params_on(part: Mixer | Mlp, hidden: int, tp: int) -> float:
    """Weights of a mixer, or of an MLP without its routed experts, on each of tp GPUs. What is no matrix is whole."""
    if isinstance(part, Mixture):
        gemms, params = part.trunk_gemms(hidden), part.trunk_params(hidden)
    else:
        gemms, params = part.gemms(hidden), part.params(hidden)
    return params - weights(gemms) + sum(g.params_on(tp) for g in gemms)


def _has_long_window(mixer: Attending) -> bool:
    return mixer.window > SHORT_WINDOW and not isinstance(mixer, CompressedAttention)


def blocks_of(layers: Iterable[tuple[Mixer | None, Mlp | None]]) -> tuple[Block, ...]:
    """Blocks of a model's layers: like ones are counted together, wherever they stand."""
    return tuple(Block(count, mixer, mlp) for (mixer, mlp), count in Counter(layers).items())


class ModelShape(Struct, frozen=True):
    """A decoder-only language model: its layers from first to last, its embedding and its LM head.

    blocks: runs of like layers; the order of unlike ones does not matter. tied_embeddings: the LM head is the
    embedding. parts: in which precision the checkpoint stores its weights. kv_dtype: of the KV cache, as the checkpoint
    asks for it. max_position: tokens that it was made to read, None where it does not say. notes: what of the
    checkpoint is counted otherwise, in words. mtp: the checkpoint is known to have layers that predict further tokens.
    """

    name: str
    hidden: int
    vocab: int
    blocks: tuple[Block, ...]
    tied_embeddings: bool = False
    parts: Parts = WIDE
    kv_dtype: str = "bfloat16"
    max_position: int | None = None
    notes: tuple[str, ...] = ()
    mtp: bool = False

    # ------------------------------------------------------------------------------------------------ precisions

    @property
    def dtype(self) -> str:
        """The precision that names the checkpoint: the smallest of its layers."""
        return self.parts.smallest

    def weights_type(self, dtype: str) -> str:
        """The precision that `dtype`, a name, an alias or auto, asks for: auto is the checkpoint's own."""
        return self.dtype if dtype == "auto" else precision_of(dtype).name

    def cache_type(self, kv_dtype: str) -> str:
        """The type of the KV cache that `kv_dtype`, a name or auto, asks for: auto is as the checkpoint asks."""
        return self.kv_dtype if kv_dtype == "auto" else kv_precision_of(kv_dtype)

    def stored(self, dtype: str = "auto") -> Parts:
        """The precision of each part for a wished one: auto and the checkpoint's own are as it is stored."""
        wished = self.weights_type(dtype)
        if wished == self.dtype:
            return self.parts
        return usual_parts(wished, self.parts, experts=self.mixture is not None, latent=self.latent)

    # ---------------------------------------------------------------------------------------------------- layers

    @property
    def layers(self) -> int:
        """All layers."""
        return sum(b.count for b in self.blocks)

    @property
    def mixers(self) -> Iterator[tuple[int, Mixer]]:
        """How many layers have which mixer."""
        return ((b.count, b.mixer) for b in self.blocks if b.mixer is not None)

    @property
    def mixtures(self) -> Iterator[tuple[int, Mixture]]:
        """How many layers have which mixture of experts."""
        return ((b.count, b.mlp) for b in self.blocks if isinstance(b.mlp, Mixture))

    @property
    def attentions(self) -> Iterator[tuple[int, Attending]]:
        """How many layers have which attention."""
        return ((n, m) for n, m in self.mixers if not isinstance(m, StateMixer))

    @property
    def states(self) -> Iterator[tuple[int, StateMixer]]:
        """How many layers have which state."""
        return ((n, m) for n, m in self.mixers if isinstance(m, StateMixer))

    @property
    def mixture(self) -> Mixture | None:
        """The model's mixture of experts: its first, where layers differ; None for a dense model."""
        return next((m for _, m in self.mixtures), None)

    @property
    def latent(self) -> bool:
        """Whether it has latent attention: one cached vector for all heads."""
        return any(not isinstance(m, Attention) for _, m in self.attentions)

    @property
    def heads(self) -> int:
        """What tensor parallelism must divide: the attention heads, or their common divisor where layers differ."""
        return math.gcd(*(m.heads for _, m in self.attentions))

    @property
    def window(self) -> int:
        """Tokens that layers look back in the long window of the model, that of most layers; 0 without one."""
        layers: Counter[int] = Counter()
        for n, m in self._growing:
            layers[m.window] += n * _has_long_window(m)
        return max((w for w in layers if layers[w]), key=lambda w: (layers[w], w), default=0)

    def in_window(self, mixer: Mixer) -> bool:
        """Whether a layer looks back no more than `window` tokens. Any other that grows sees the whole context here."""
        return (
            isinstance(mixer, Attention | LatentAttention) and _has_long_window(mixer) and mixer.window == self.window
        )

    @property
    def chunked(self) -> bool:
        """Whether they look back to the last multiple of `window`."""
        return any(isinstance(m, Attention) and m.chunked for _, m in self.attentions if self.in_window(m))

    @property
    def held_whole(self) -> tuple[int, int]:
        """Layers with a window whose cache grows with the context here, and their shortest window; or 0, 0."""
        found = [(n, m.window) for n, m in self._growing if m.window and not isinstance(m, CompressedAttention)]
        return sum(n for n, _ in found), min((window for _, window in found), default=0)

    @property
    def _growing(self) -> list[tuple[int, Attending]]:
        """Layers whose cache grows with the context; all of them, where none would."""
        found = [(n, m) for n, m in self.attentions if not m.near]
        return found or list(self.attentions)

    # --------------------------------------------------------------------------------------------------- weights

    @property
    def mixer_params(self) -> int:
        """Mixers of all layers with the norms before them."""
        return sum(n * (m.params(self.hidden) + self.hidden) for n, m in self.mixers)

    @property
    def mlp_params(self) -> int:
        """MLPs of all layers without routed experts, with the norms before them."""
        total = 0
        for b in self.blocks:
            if b.mlp is not None:
                own = b.mlp.trunk_params if isinstance(b.mlp, Mixture) else b.mlp.params
                total += b.count * (own(self.hidden) + self.hidden)
        return total

    @property
    def routed_params(self) -> int:
        """Weights of all routed experts."""
        return sum(n * m.experts * m.expert_params(self.hidden) for n, m in self.mixtures)

    @property
    def active_routed_params(self) -> int:
        """Weights of the routed experts that one token visits."""
        return sum(n * m.per_token * m.expert_params(self.hidden) for n, m in self.mixtures)

    @property
    def embedding_params(self) -> int:
        """Input embedding: looked up, not multiplied, so it is stored but not read in full."""
        return self.vocab * self.hidden

    @property
    def embeddings_params(self) -> int:
        """Embedding and LM head, once where they are tied."""
        return self.embedding_params * (1 if self.tied_embeddings else 2)

    @property
    def trunk_params(self) -> int:
        """Weights that every iteration reads whatever it holds: all layers without their routed experts."""
        return self.mixer_params + self.mlp_params + self.hidden

    @property
    def params(self) -> int:
        """Parameters, as published counts have them (tied embeddings once)."""
        return self.trunk_params + self.routed_params + self.embeddings_params

    @property
    def active_trunk_params(self) -> int:
        """Weights that one token is multiplied with before the LM head."""
        return self.trunk_params + self.active_routed_params

    # ----------------------------------------------------------------------------------------------------- bytes

    def trunk_bytes(self, dtype: str = "auto") -> float:
        """Bytes of `trunk_params`."""
        parts = self.stored(dtype)
        mixers = (self.mixer_params + self.hidden) * PRECISIONS[parts.attention].weight_bytes
        return mixers + self.mlp_params * PRECISIONS[parts.mlp].weight_bytes

    def routed_bytes(self, dtype: str = "auto") -> float:
        """Bytes of `routed_params`."""
        return self.routed_params * PRECISIONS[self.stored(dtype).expert].weight_bytes

    def weight_bytes(self, dtype: str = "auto") -> int:
        """Bytes of all weights."""
        head = self.embeddings_params * PRECISIONS[self.stored(dtype).head].weight_bytes
        return round(self.trunk_bytes(dtype) + self.routed_bytes(dtype) + head)

    def layer_bytes_per_gpu(self, tp: int = 1, dp: int = 1, dtype: str = "auto") -> float:
        """Bytes of all layers on each GPU.

        Whole on every GPU: norms, routers, the ways into a latent space, and heads of keys and values that are fewer
        than the GPUs. Of the routed experts 1 / (tp x dp), of the rest 1 / tp.
        """
        parts = self.stored(dtype)
        mixers = sum(n * (_params_on(m, self.hidden, tp) + self.hidden) for n, m in self.mixers)
        mlps = sum(b.count * (_params_on(b.mlp, self.hidden, tp) + self.hidden) for b in self.blocks if b.mlp)
        return (
            mixers * PRECISIONS[parts.attention].weight_bytes
            + mlps * PRECISIONS[parts.mlp].weight_bytes
            + self.routed_bytes(dtype) / (tp * dp)
        )

    def head_bytes_per_gpu(self, tp: int = 1, dtype: str = "auto") -> float:
        """Bytes of the LM head on each GPU; the embedding has as many."""
        return self.embedding_params * PRECISIONS[self.stored(dtype).head].weight_bytes / tp

    def weight_bytes_per_gpu(self, tp: int = 1, dp: int = 1, dtype: str = "auto") -> float:
        """Bytes of weights on each GPU."""
        final_norm = self.hidden * PRECISIONS[self.stored(dtype).attention].weight_bytes
        heads = (1 if self.tied_embeddings else 2) * self.head_bytes_per_gpu(tp, dtype)
        return self.layer_bytes_per_gpu(tp, dp, dtype) + heads + final_norm

    def kv_bytes_per_token(self, tp: int = 1, element_bytes: float = 2) -> float:
        """KV cache bytes of one token on one of `tp` GPUs, in all layers whose cache grows with the context.

        Where no layer's does, because all look back a number of tokens only, all are taken to see everything.
        """
        return sum(n * m.token_bytes(tp, element_bytes) for n, m in self._growing)

    def window_bytes(self, tp: int = 1, element_bytes: float = 2) -> float:
        """KV cache bytes that one sequence holds at most in the layers that look back a number of tokens only."""
        grows = any(not m.near for _, m in self.attentions)
        return sum(n * m.window_bytes(tp, element_bytes) for n, m in self.attentions) if grows else 0.0

    def state_bytes(self, tp: int = 1) -> float:
        """Bytes that one sequence holds on each GPU whatever its length."""
        return sum(n * m.state_bytes for n, m in self.states) / tp

    # ------------------------------------------------------------------------------------------------ operations

    @property
    def prefill_pair_flop(self) -> float:
        """Attention operations per query-key pair of a prompt, all layers that see the whole context."""
        return sum(n * m.prefill_flop for n, m in self._growing)
