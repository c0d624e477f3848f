"""Model shapes: how many weights a transformer has, how many it reads per token, how large its KV cache is.

Only what sets speed and memory is kept. `model_shape` gives a built-in one by its Hugging Face id, or reads any
`config.json` (`fleetsim.engine.hf_config`).
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from fleetsim.engine.attention import LatentAttention, LinearAttention
from fleetsim.errors import InputError, Problem

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
    head. linear: the layers that have a state instead of a KV cache.
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


def _qwen25(name: str, layers: int, hidden: int, inter: int, heads: int, kv: int, vocab: int, tied: bool) -> ModelShape:
    return ModelShape(
        name, layers, hidden, inter, heads, kv, 128 if hidden != 896 else 64, vocab, tied, qkv_bias=True,
        max_position=32768,
    )  # fmt: skip


def _qwen3(name: str, layers: int, hidden: int, inter: int, heads: int, kv: int, tied: bool) -> ModelShape:
    return ModelShape(
        name, layers, hidden, inter, heads, kv, 128, 151936, tied, qk_norm=True, max_position=40960
    )  # fmt: skip


def _llama(name: str, layers: int, hidden: int, inter: int, heads: int, kv: int, vocab: int, dtype: str, ctx: int
           ) -> ModelShape:  # fmt: skip
    return ModelShape(name, layers, hidden, inter, heads, kv, 128, vocab, dtype=dtype, max_position=ctx)


def _deepseek(name: str, layers: int, hidden: int, inter: int, heads: int, vocab: int, experts: int, top: int,
              moe: int, shared: int, dense: int, q_lora: int, dtype: str, ctx: int) -> ModelShape:  # fmt: skip
    return ModelShape(
        name, layers, hidden, inter, heads, heads, 128, vocab, experts=experts, experts_per_token=top,
        moe_intermediate=moe, shared_intermediate=shared, dense_layers=dense, dtype=dtype, max_position=ctx,
        mla=LatentAttention(q_lora, 512, 128, 64, 128),
    )  # fmt: skip


# Source of every row: that repository's config.json on the Hugging Face hub.
_SHAPES = (
    _qwen25("Qwen/Qwen2.5-0.5B", 24, 896, 4864, 14, 2, 151936, True),
    _qwen25("Qwen/Qwen2.5-1.5B", 28, 1536, 8960, 12, 2, 151936, True),
    _qwen25("Qwen/Qwen2.5-3B", 36, 2048, 11008, 16, 2, 151936, True),
    _qwen25("Qwen/Qwen2.5-7B", 28, 3584, 18944, 28, 4, 152064, False),
    _qwen25("Qwen/Qwen2.5-14B", 48, 5120, 13824, 40, 8, 152064, False),
    _qwen25("Qwen/Qwen2.5-32B", 64, 5120, 27648, 40, 8, 152064, False),
    _qwen25("Qwen/Qwen2.5-72B", 80, 8192, 29568, 64, 8, 152064, False),
    _qwen3("Qwen/Qwen3-0.6B", 28, 1024, 3072, 16, 8, True),
    _qwen3("Qwen/Qwen3-1.7B", 28, 2048, 6144, 16, 8, True),
    _qwen3("Qwen/Qwen3-4B", 36, 2560, 9728, 32, 8, True),
    _qwen3("Qwen/Qwen3-8B", 36, 4096, 12288, 32, 8, False),
    _qwen3("Qwen/Qwen3-14B", 40, 5120, 17408, 40, 8, False),
    _qwen3("Qwen/Qwen3-32B", 64, 5120, 25600, 64, 8, False),
    ModelShape(
        "Qwen/Qwen3-30B-A3B", 48, 2048, 6144, 32, 4, 128, 151936, experts=128, experts_per_token=8,
        moe_intermediate=768, qk_norm=True, max_position=40960,
    ),
    ModelShape(
        "Qwen/Qwen3-235B-A22B", 94, 4096, 12288, 64, 4, 128, 151936, experts=128, experts_per_token=8,
        moe_intermediate=1536, qk_norm=True, max_position=40960,
    ),
    ModelShape(
        "Qwen/Qwen3.5-35B-A3B", 40, 2048, 0, 16, 2, 256, 248320, experts=256, experts_per_token=8,
        moe_intermediate=512, shared_intermediate=512, qk_norm=True, max_position=262144, output_gate=True,
        shared_gate=True, linear=LinearAttention(30, 16, 32, 128, 128, 4),
    ),
    _deepseek("deepseek-ai/DeepSeek-V3", 61, 7168, 18432, 128, 129280, 256, 8, 2048, 2048, 3, 1536, "fp8", 163840),
    _deepseek("moonshotai/Kimi-K2-Base", 61, 7168, 18432, 64, 163840, 384, 8, 2048, 2048, 1, 1536, "fp8", 131072),
    _deepseek("moonshotai/Moonlight-16B-A3B", 27, 2048, 11264, 16, 163840, 64, 6, 1408, 2816, 1, 0, "bfloat16", 8192),
    ModelShape(
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 28, 1536, 8960, 12, 2, 128, 151936, qkv_bias=True,
        max_position=131072,
    ),
    _llama("meta-llama/Llama-2-7b-hf", 32, 4096, 11008, 32, 32, 32000, "float16", 4096),
    _llama("meta-llama/Llama-2-13b-hf", 40, 5120, 13824, 40, 40, 32000, "float16", 4096),
    _llama("meta-llama/Llama-2-70b-hf", 80, 8192, 28672, 64, 8, 32000, "float16", 4096),
    _llama("meta-llama/Llama-3.1-8B", 32, 4096, 14336, 32, 8, 128256, "bfloat16", 131072),
    _llama("meta-llama/Llama-3.1-70B", 80, 8192, 28672, 64, 8, 128256, "bfloat16", 131072),
    _llama("meta-llama/Llama-3.1-405B", 126, 16384, 53248, 128, 8, 128256, "bfloat16", 131072),
    _llama("codellama/CodeLlama-34b-hf", 48, 8192, 22016, 64, 8, 32000, "bfloat16", 16384),
    ModelShape(
        "mistralai/Mixtral-8x7B-v0.1", 32, 4096, 14336, 32, 8, 128, 32000, experts=8, experts_per_token=2,
        moe_intermediate=14336, max_position=32768,
    ),
)  # fmt: skip

MODELS: dict[str, ModelShape] = {shape.name: shape for shape in _SHAPES}

# Same layers under other names; fine-tunes share their base's shape.
_ALIASES = {
    "qwen2.5-math-1.5b": "Qwen/Qwen2.5-1.5B",
    "qwen2.5-math-7b": "Qwen/Qwen2.5-7B",
    "qwen2.5-math-72b": "Qwen/Qwen2.5-72B",
    "qwen2.5-coder-7b": "Qwen/Qwen2.5-7B",
    "deepseek-r1-distill-qwen-7b": "Qwen/Qwen2.5-7B",
    "deepseek-r1-distill-qwen-14b": "Qwen/Qwen2.5-14B",
    "deepseek-r1-distill-qwen-32b": "Qwen/Qwen2.5-32B",
    "deepseek-r1-distill-llama-8b": "meta-llama/Llama-3.1-8B",
    "deepseek-r1-distill-llama-70b": "meta-llama/Llama-3.1-70B",
    "deepseek-v3.1": "deepseek-ai/DeepSeek-V3",
    "deepseek-v3-0324": "deepseek-ai/DeepSeek-V3",
    "deepseek-r1": "deepseek-ai/DeepSeek-V3",
    "kimi-k2": "moonshotai/Kimi-K2-Base",
    "moonlight-16b-a3b-instruct": "moonshotai/Moonlight-16B-A3B",
    "qwen3.6-35b-a3b": "Qwen/Qwen3.5-35B-A3B",
    "llama-2-7b": "meta-llama/Llama-2-7b-hf",
    "llama-2-7b-chat": "meta-llama/Llama-2-7b-hf",
    "llama-2-13b": "meta-llama/Llama-2-13b-hf",
    "llama-2-13b-chat": "meta-llama/Llama-2-13b-hf",
    "llama-2-70b": "meta-llama/Llama-2-70b-hf",
    "llama-2-70b-chat": "meta-llama/Llama-2-70b-hf",
    "meta-llama-3-8b": "meta-llama/Llama-3.1-8B",
    "llama-3-8b": "meta-llama/Llama-3.1-8B",
    "meta-llama-3.1-8b": "meta-llama/Llama-3.1-8B",
    "meta-llama-3.1-405b": "meta-llama/Llama-3.1-405B",
    "meta-llama-3.1-70b": "meta-llama/Llama-3.1-70B",
    "llama-3.3-70b": "meta-llama/Llama-3.1-70B",
    "codellama-34b": "codellama/CodeLlama-34b-hf",
    "codellama-34b-instruct": "codellama/CodeLlama-34b-hf",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
}
_SUFFIXES = ("-hf", "-instruct", "-it", "-base", "-v0.1", "-2507", "-instruct", "-thinking")


def _keys(name: str) -> list[str]:
    """The spellings under which a name is looked up: with and without organisation and variant suffixes."""
    key = name.strip().lower().rsplit("/", 1)[-1]
    keys = [key]
    for suffix in _SUFFIXES:
        key = key.removesuffix(suffix)
        keys.append(key)
    return keys


_BY_KEY = {key: shape for shape in reversed(_SHAPES) for key in (*_keys(shape.name), shape.name.lower())}
_BY_KEY |= {alias: MODELS[name] for alias, name in _ALIASES.items()}


def _exists(text: str) -> bool:
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):
        return False


def model_shape(model: str | os.PathLike[str] | ModelShape) -> ModelShape:
    """The shape for a Hugging Face id (organisation and -Instruct optional), or for a path to a `config.json`.

    Raises InputError with the nearest known name, or with everything that is wrong with the file.
    """
    if isinstance(model, ModelShape):
        return model
    if not isinstance(model, str | os.PathLike):
        raise InputError([Problem("model", model, "a model's name or the path of a config.json", "give a text")])
    text = os.fspath(model)
    is_name = isinstance(model, str) and not text.endswith(".json") and text.count("/") <= 1 and "\\" not in text
    if is_name:
        for key in _keys(text):
            if key in _BY_KEY:
                return _BY_KEY[key]
    if not is_name or _exists(text):
        from fleetsim.engine.hf_config import shape_from_config

        return shape_from_config(Path(text))
    near = difflib.get_close_matches(_keys(text)[0], _BY_KEY, n=1)
    hint = f"did you mean {_BY_KEY[near[0]].name}? or " if near else ""
    raise InputError(
        [Problem("model", text, "a built-in model or a path to a config.json", f"{hint}give its config.json")]
    )
