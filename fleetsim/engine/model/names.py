"""Models by name: the shapes of common open models, and the way from a name or a file to a shape."""

from __future__ import annotations

import difflib
import os
from dataclasses import replace
from pathlib import Path

from fleetsim.engine.model.mixers import Attention, LatentAttention
from fleetsim.engine.model.mlps import Dense, Mixture
from fleetsim.engine.model.precision import Parts, usual_parts
from fleetsim.engine.model.shape import Block, ModelShape
from fleetsim.engine.model.states import GatedDelta
from fleetsim.errors import InputError, Problem


def _parts(dtype: str, latent: bool = False) -> Parts:
    """A checkpoint of one precision, its embeddings in 16 bits."""
    return usual_parts(dtype, Parts(), experts=latent, latent=latent)


def _dense(name: str, layers: int, hidden: int, width: int, vocab: int, attention: Attention, tied: bool = False,
           dtype: str = "bfloat16", ctx: int | None = None) -> ModelShape:  # fmt: skip
    block = Block(layers, attention, Dense(width))
    return ModelShape(name, hidden, vocab, (block,), tied, _parts(dtype), max_position=ctx)


def _qwen25(name: str, layers: int, hidden: int, inter: int, heads: int, kv: int, vocab: int, tied: bool) -> ModelShape:
    attention = Attention(heads, kv, 128 if hidden != 896 else 64, bias=True)
    return _dense(name, layers, hidden, inter, vocab, attention, tied, ctx=32768)


def _qwen3(name: str, layers: int, hidden: int, inter: int, heads: int, kv: int, tied: bool) -> ModelShape:
    return _dense(name, layers, hidden, inter, 151936, Attention(heads, kv, 128, qk_norm=True), tied, ctx=40960)


def _llama(name: str, layers: int, hidden: int, inter: int, heads: int, kv: int, vocab: int, dtype: str, ctx: int
           ) -> ModelShape:  # fmt: skip
    return _dense(name, layers, hidden, inter, vocab, Attention(heads, kv, 128), dtype=dtype, ctx=ctx)


def _mixture(name: str, layers: int, hidden: int, vocab: int, attention: Attention, mixture: Mixture, ctx: int
             ) -> ModelShape:  # fmt: skip
    return ModelShape(name, hidden, vocab, (Block(layers, attention, mixture),), max_position=ctx)


def _deepseek(name: str, layers: int, hidden: int, inter: int, heads: int, vocab: int, mixture: Mixture,
              dense: int, q_lora: int, dtype: str, ctx: int) -> ModelShape:  # fmt: skip
    mla = LatentAttention(heads, q_lora, 512, 128, 64, 128)
    blocks = Block(dense, mla, Dense(inter)), Block(layers - dense, mla, mixture)
    return ModelShape(name, hidden, vocab, blocks, parts=_parts(dtype, latent=True), max_position=ctx)


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
    _mixture("Qwen/Qwen3-30B-A3B", 48, 2048, 151936, Attention(32, 4, 128, qk_norm=True), Mixture(128, 8, 768), 40960),
    _mixture(
        "Qwen/Qwen3-235B-A22B", 94, 4096, 151936, Attention(64, 4, 128, qk_norm=True), Mixture(128, 8, 1536), 40960
    ),
    ModelShape(
        "Qwen/Qwen3.5-35B-A3B", 2048, 248320,
        (
            Block(30, GatedDelta(16, 32, 128, 128, 4), Mixture(256, 8, 512, 512, shared_gate=True)),
            Block(10, Attention(16, 2, 256, qk_norm=True, gate=True), Mixture(256, 8, 512, 512, shared_gate=True)),
        ),
        max_position=262144,
    ),
    _deepseek(
        "deepseek-ai/DeepSeek-V3", 61, 7168, 18432, 128, 129280, Mixture(256, 8, 2048, 2048), 3, 1536, "fp8", 163840
    ),
    _deepseek(
        "moonshotai/Kimi-K2-Base", 61, 7168, 18432, 64, 163840, Mixture(384, 8, 2048, 2048), 1, 1536, "fp8", 131072
    ),
    _deepseek(
        "moonshotai/Moonlight-16B-A3B", 27, 2048, 11264, 16, 163840, Mixture(64, 6, 1408, 2816), 1, 0, "bfloat16", 8192
    ),
    _dense(
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 28, 1536, 8960, 151936, Attention(12, 2, 128, bias=True),
        ctx=131072,
    ),
    _llama("meta-llama/Llama-2-7b-hf", 32, 4096, 11008, 32, 32, 32000, "float16", 4096),
    _llama("meta-llama/Llama-2-13b-hf", 40, 5120, 13824, 40, 40, 32000, "float16", 4096),
    _llama("meta-llama/Llama-2-70b-hf", 80, 8192, 28672, 64, 8, 32000, "float16", 4096),
    _llama("meta-llama/Llama-3.1-8B", 32, 4096, 14336, 32, 8, 128256, "bfloat16", 131072),
    _llama("meta-llama/Llama-3.1-70B", 80, 8192, 28672, 64, 8, 128256, "bfloat16", 131072),
    _llama("meta-llama/Llama-3.1-405B", 126, 16384, 53248, 128, 8, 128256, "bfloat16", 131072),
    _llama("codellama/CodeLlama-34b-hf", 48, 8192, 22016, 64, 8, 32000, "bfloat16", 16384),
    _mixture("mistralai/Mixtral-8x7B-v0.1", 32, 4096, 32000, Attention(32, 8, 128), Mixture(8, 2, 14336), 32768),
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
# What the name of a checkpoint tells of its weights, whoever made it.
_STORED = {"-fp8": "fp8", "-fp8-dynamic": "fp8", "-bf16": "bfloat16"}
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

    A name that ends in -FP8 or -BF16 is its model with weights of that type.
    Raises InputError with the nearest known name, or with everything that is wrong with the file.
    """
    if isinstance(model, ModelShape):
        return model
    if not isinstance(model, str | os.PathLike):
        raise InputError([Problem("model", model, "a model's name or the path of a config.json", "give a text")])
    text = os.fspath(model)
    is_name = isinstance(model, str) and not text.endswith(".json") and text.count("/") <= 1 and "\\" not in text
    if is_name:
        for ending, dtype in (("", None), *_STORED.items()):
            if not text.strip().lower().endswith(ending):
                continue
            for key in _keys(text.strip()[: len(text.strip()) - len(ending)]):
                if key in _BY_KEY:
                    found = _BY_KEY[key]
                    return found if dtype is None else replace(found, name=text.strip(), parts=found.stored(dtype))
    if not is_name or _exists(text):
        from fleetsim.engine.model.hf_config import shape_from_config

        return shape_from_config(Path(text))
    near = difflib.get_close_matches(_keys(text)[0], _BY_KEY, n=1)
    hint = f"did you mean {_BY_KEY[near[0]].name}? or " if near else ""
    raise InputError(
        [Problem("model", text, "a built-in model or a path to a config.json", f"{hint}give its config.json")]
    )
