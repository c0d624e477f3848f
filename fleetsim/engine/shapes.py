"""Model shapes: how many weights a transformer has, how many it reads per token, how large its KV cache is.

Only what sets speed and memory is kept. `models.model_shape` gives a built-in one by its Hugging Face id, or reads any
`config.json` (`hf_config`).
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetsim.engine.attention import LatentAttention, LinearAttention

# Weights and cache in bytes; the norms' and biases' share of a model is below 0.1 % and is counted where config.json
# tells of it, so that parameter counts can be checked against the published ones.
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder-only transformer with gated MLPs, dense or mixture of experts, and grouped-query attention or MLA.

    intermediate: MLP width of the dense layers. experts, experts_per_token, moe_intermediate: 0 for a dense model.
    shared_intermediate: width of the experts that every token visits, summed. dense_layers: layers of a mixture that
    keep a dense MLP. gated_mlp: three MLP matrices (SwiGLU), else two. output_gate: queries come with a gate of their
    size. shared_gate: the shared expert is weighted by a gate. mla: latent attention instead of keys and values per
    head. linear: the layers that have a state instead of a KV cache. dtype: of the checkpoint's weights. max_position:
    tokens that it was made to read, None where it does not say. window, window_layers: tokens that some layers look
    back, and how many do; 0 where all see everything. notes: what of the checkpoint is counted otherwise, in words.
    """

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied_embeddings: bool = False
    experts: int = 0
    experts_per_token: int = 0
    moe_intermediate: int = 0
    shared_intermediate: int = 0
    dense_layers: int = 0
    qkv_bias: bool = False
    qk_norm: bool = False
    gated_mlp: bool = True
    dtype: str = "bfloat16"
    max_position: int | None = None
    output_gate: bool = False
    shared_gate: bool = False
    mla: LatentAttention | None = None
    linear: LinearAttention | None = None
    window: int = 0
    window_layers: int = 0
    notes: tuple[str, ...] = ()

    def weights_type(self, dtype: str) -> str:
        """The type of the weights that `dtype` asks for: auto is the checkpoint's own."""
        return self.dtype if dtype == "auto" else dtype

    @property
    def full_layers(self) -> int:
        """Layers that attend to the whole context, and cache it."""
        return self.layers - (self.linear.layers if self.linear else 0)

    @property
    def moe_layers(self) -> int:
        """Layers whose MLP is a mixture of experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def attention_params(self) -> int:
        """Attention and norm weights of one layer that attends to the whole context."""
        if self.mla:
            return self.mla.params(self.hidden, self.heads) + 2 * self.hidden
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        bias = q + 2 * kv if self.qkv_bias else 0
        norms = 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        return self.hidden * (q * (2 if self.output_gate else 1) + 2 * kv) + q * self.hidden + bias + norms

    @property
    def mixer_params(self) -> int:
        """Attention and norm weights of all layers."""
        linear = self.linear.layers * (self.linear.params(self.hidden) + 2 * self.hidden) if self.linear else 0
        return self.full_layers * self.attention_params + linear

    def _mlp_params(self, width: int) -> int:
        return (3 if self.gated_mlp else 2) * self.hidden * width

    @property
    def expert_params(self) -> int:
        """Weights of one routed expert in one layer, 0 for a dense model."""
        return self._mlp_params(self.moe_intermediate) if self.experts else 0

    @property
    def embedding_params(self) -> int:
        """Input embedding: looked up, not multiplied, so it is stored but not read in full."""
        return self.vocab * self.hidden

    @property
    def trunk_params(self) -> int:
        """Weights that every iteration reads whatever it holds: all layers without their routed experts."""
        moe = self.moe_layers
        router = self.hidden * (self.experts + self.shared_gate) + self._mlp_params(self.shared_intermediate)
        dense_mlp = self._mlp_params(self.intermediate) * (self.layers - moe)
        return self.mixer_params + dense_mlp + moe * router + self.hidden

    @property
    def routed_params(self) -> int:
        """Weights of all routed experts."""
        return self.moe_layers * self.experts * self.expert_params

    @property
    def params(self) -> int:
        """Parameters, as published counts have them (tied embeddings once)."""
        embeddings = self.embedding_params * (1 if self.tied_embeddings else 2)
        return self.trunk_params + self.routed_params + embeddings

    @property
    def active_trunk_params(self) -> int:
        """Weights that one token is multiplied with before the LM head."""
        return self.trunk_params + self.moe_layers * self.experts_per_token * self.expert_params

    @property
    def active_params(self) -> int:
        """Parameters that one token uses, embeddings included, as in "30B-A3B"."""
        return self.active_trunk_params + self.embedding_params * (1 if self.tied_embeddings else 2)

    def experts_touched(self, tokens: float) -> float:
        """Expected routed experts read per layer by `tokens` tokens that pick independently and evenly.

        E * (1 - (1 - k/E)^n). Real routers are uneven, which touches fewer: this errs on the slow side.
        """
        if not self.experts:
            return 0.0
        return float(self.experts * (1.0 - (1.0 - self.experts_per_token / self.experts) ** tokens))

    def weight_bytes(self, dtype: str | None = None) -> int:
        """Bytes of all weights; fp8 checkpoints keep embeddings and LM head in 16 bits."""
        size = DTYPE_BYTES[dtype or self.dtype]
        embeddings = self.embedding_params * (1 if self.tied_embeddings else 2)
        return (self.params - embeddings) * size + embeddings * 2

    def weight_bytes_per_gpu(self, tp: int = 1, dp: int = 1, dtype: str | None = None) -> float:
        """Bytes of weights on each GPU: 1 / tp of all, but of the routed experts 1 / (tp x dp)."""
        routed = self.routed_params * DTYPE_BYTES[dtype or self.dtype]
        return (self.weight_bytes(dtype) - routed) / tp + routed / (tp * dp)

    def kv_bytes_per_token(self, tp: int = 1, element_bytes: int = 2) -> int:
        """KV cache bytes of one token on one of `tp` GPUs.

        Heads are replicated when there are fewer than GPUs; MLA's latent belongs to all heads and is on every GPU.
        """
        if self.mla:
            return self.layers * self.mla.cached * element_bytes
        heads = max(1, self.kv_heads // tp)
        return 2 * self.full_layers * heads * self.head_dim * element_bytes

    def state_bytes(self, tp: int = 1) -> float:
        """Bytes that one sequence holds on each GPU whatever its length."""
        return self.linear.state_bytes / tp if self.linear else 0.0

    @property
    def prefill_pair_flop(self) -> int:
        """Attention operations per query-key pair of a prompt, all layers."""
        per_layer = self.mla.prefill_flop(self.heads) if self.mla else 4 * self.heads * self.head_dim
        return self.full_layers * per_layer

    @property
    def decode_pair_flop(self) -> int:
        """Attention operations per cached token of a decode, all layers."""
        per_layer = self.mla.decode_flop(self.heads) if self.mla else 4 * self.heads * self.head_dim
        return self.full_layers * per_layer
