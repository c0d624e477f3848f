"""Models by name: other names of those in the catalogue, and the way from a name or a file to a shape."""

from __future__ import annotations

import difflib
import os
import re
from functools import lru_cache
from pathlib import Path

from fleetsim.engine.model.catalogue import DENSE, MIXTURES
from fleetsim.engine.model.shape import ModelShape
from fleetsim.errors import InputError, Problem
from fleetsim.records import replace

# Checkpoints with MTP layers, by how their names begin (vLLM 0.32.0, config/speculative.py, and their config.json).
_MTP = (
    "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V4", "moonshotai/Kimi-K3", "zai-org/GLM-4.5", "zai-org/GLM-4.7",
    "zai-org/GLM-5", "Qwen/Qwen3-Next", "Qwen/Qwen3.5", "XiaomiMiMo/MiMo", "MiniMaxAI/MiniMax-M3", "stepfun-ai/Step-3",
    "baidu/ERNIE-4.5", "nvidia/NVIDIA-Nemotron-3-Super", "nvidia/NVIDIA-Nemotron-3-Ultra", "google/gemma-4",
)  # fmt: skip
_SHAPES = tuple(replace(s, mtp=s.name.startswith(_MTP)) for s in (*DENSE, *MIXTURES))
MODELS: dict[str, ModelShape] = {shape.name: shape for shape in _SHAPES}

# Same layers under other names, as fine-tunes have their base's; and the tokens that they read, 0 = as many.
_ALIASES: dict[str, dict[str, int]] = {
    "Qwen/Qwen2.5-0.5B": {"qwen2-0.5b": 131072, "qwen2.5-coder-0.5b": 0},
    "Qwen/Qwen2.5-1.5B": {"qwen2-1.5b": 131072, "qwen2.5-math-1.5b": 4096, "qwen2.5-coder-1.5b": 0},
    "Qwen/Qwen2.5-3B": {"qwen2.5-vl-3b": 128000, "qwen2.5-coder-3b": 0},
    "Qwen/Qwen2.5-7B": {
        "qwen2-7b": 131072, "qwen2.5-math-7b": 4096, "qwen2.5-coder-7b": 0, "qwen2.5-vl-7b": 128000,
        "deepseek-r1-distill-qwen-7b": 131072, "qwen2.5-7b-instruct-1m": 1010000, "openr1-qwen-7b": 131072,
    },
    "Qwen/Qwen2.5-14B": {
        "qwen2.5-coder-14b": 0, "deepseek-r1-distill-qwen-14b": 131072, "qwen2.5-14b-instruct-1m": 1010000,
        "deepcoder-14b-preview": 131072,
    },
    "Qwen/Qwen2.5-32B": {
        "qwq-32b": 131072, "qwen2.5-coder-32b": 0, "qwen2.5-vl-32b": 128000, "deepseek-r1-distill-qwen-32b": 131072,
    },
    "Qwen/Qwen2.5-72B": {"qwen2-72b": 131072, "qwen2.5-math-72b": 4096, "qwen2.5-vl-72b": 128000},
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": {"deepscaler-1.5b-preview": 0},
    "Qwen/Qwen3-1.7B": {"qwen3-vl-2b": 262144},
    "Qwen/Qwen3-4B": {"qwen3-vl-4b": 262144},
    "Qwen/Qwen3-8B": {"qwen3-vl-8b": 262144, "deepseek-r1-0528-qwen3-8b": 131072},
    "Qwen/Qwen3-32B": {"qwen3-vl-32b": 262144},
    "Qwen/Qwen3-30B-A3B": {"qwen3-coder-30b-a3b": 262144, "qwen3-vl-30b-a3b": 262144},
    "Qwen/Qwen3-235B-A22B": {"qwen3-vl-235b-a22b": 262144},
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": {"qwen3-coder-480b-a35b": 0},
    "Qwen/Qwen3-Next-80B-A3B-Instruct": {"qwen3-next-80b-a3b": 0, "qwen3-coder-next": 0},
    "Qwen/Qwen3.5-27B": {"qwen3.6-27b": 0},
    "Qwen/Qwen3.5-35B-A3B": {"qwen3.6-35b-a3b": 0},
    "deepseek-ai/DeepSeek-V2": {"deepseek-v2-chat": 0, "deepseek-v2.5": 0, "deepseek-coder-v2": 0},
    "deepseek-ai/DeepSeek-V2-Lite": {"deepseek-v2-lite-chat": 0, "deepseek-coder-v2-lite": 0},
    "deepseek-ai/DeepSeek-V3": {
        "deepseek-v3.1": 0, "deepseek-v3-0324": 0, "deepseek-r1": 0, "deepseek-r1-0528": 0, "deepseek-r1-zero": 0,
        "deepseek-v3.1-terminus": 0,
    },
    "deepseek-ai/DeepSeek-V3.2": {"deepseek-v3.2-exp": 0, "deepseek-v3.2-speciale": 0},
    "deepseek-ai/deepseek-llm-7b-base": {"deepseek-math-7b": 0, "deepseek-llm-7b-chat": 0, "deepseek-math-7b-rl": 0},
    "moonshotai/Kimi-K2-Base": {"kimi-k2": 0, "kimi-k2-instruct-0905": 262144},
    "moonshotai/Kimi-K2.5": {"kimi-k2-thinking": 0, "kimi-k2.6": 0, "kimi-k2.7-code": 0},
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": {"kimi-linear-48b-a3b": 0},
    "meta-llama/Llama-2-7b-hf": {"llama-2-7b": 0, "llama-2-7b-chat": 0},
    "meta-llama/Llama-2-13b-hf": {"llama-2-13b": 0, "llama-2-13b-chat": 0},
    "meta-llama/Llama-2-70b-hf": {"llama-2-70b": 0, "llama-2-70b-chat": 0},
    "meta-llama/Llama-3.1-8B": {
        "meta-llama-3-8b": 8192, "llama-3-8b": 8192, "meta-llama-3.1-8b": 0, "deepseek-r1-distill-llama-8b": 0,
        "llama-3.1-tulu-3-8b": 0, "llama-3.1-tulu-3.1-8b": 0, "hermes-3-llama-3.1-8b": 0,
    },
    "meta-llama/Llama-3.1-70B": {
        "meta-llama-3-70b": 8192, "llama-3-70b": 8192, "meta-llama-3.1-70b": 0, "llama-3.3-70b": 0,
        "deepseek-r1-distill-llama-70b": 0, "llama-3.1-nemotron-70b": 0, "llama-3.1-tulu-3-70b": 0,
    },
    "meta-llama/Llama-3.1-405B": {"meta-llama-3.1-405b": 0},
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": {"llama-4-scout-17b-16e": 262144, "llama-4-scout": 0},
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": {"llama-4-maverick-17b-128e": 262144, "llama-4-maverick": 0},
    "codellama/CodeLlama-34b-hf": {"codellama-34b": 0, "codellama-34b-instruct": 0},
    "mistralai/Mistral-7B-v0.3": {"mistral-7b-instruct-v0.3": 0},
    "mistralai/Mistral-Nemo-Base-2407": {"mistral-nemo-instruct-2407": 0},
    "mistralai/Mistral-Small-24B-Base-2501": {
        "mistral-small-24b-instruct-2501": 0, "mistral-small-3.1-24b-instruct-2503": 131072,
        "mistral-small-3.2-24b-instruct-2506": 131072, "magistral-small-2506": 40960, "magistral-small-2507": 131072,
        "devstral-small-2505": 131072, "devstral-small-2507": 131072,
    },
    "mistralai/Mistral-Large-Instruct-2411": {"mistral-large-instruct-2407": 0},
    "mistralai/Mixtral-8x7B-v0.1": {"mixtral-8x7b": 0},
    "mistralai/Mixtral-8x22B-v0.1": {"mixtral-8x22b": 0},
    "microsoft/phi-4": {"phi-4-reasoning": 32768, "phi-4-reasoning-plus": 32768},
    "microsoft/Phi-4-mini-instruct": {"phi-4-mini": 0, "phi-4-mini-reasoning": 0},
    "microsoft/Phi-3-mini-4k-instruct": {"phi-3-mini-128k-instruct": 131072, "phi-3.5-mini-instruct": 131072},
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": {"tinyllama-1.1b": 0, "tinyllama-1.1b-chat": 0},
    "XiaomiMiMo/MiMo-7B-Base": {"mimo-7b": 0, "mimo-7b-rl": 0, "mimo-7b-sft": 0},
    "allenai/Olmo-3-7B": {"olmo-3-1025-7b": 0, "olmo-3-7b-think": 0},
    "allenai/Olmo-3-32B": {"olmo-3-1125-32b": 0, "olmo-3-32b-think": 0, "olmo-3.1-32b": 0, "olmo-3.1-32b-think": 0},
    "zai-org/GLM-4-9B-0414": {"glm-z1-9b-0414": 0},
    "google/gemma-3-1b-pt": {"gemma-3-1b": 0},
    "google/gemma-3-4b-pt": {"gemma-3-4b": 0},
    "google/gemma-3-12b-pt": {"gemma-3-12b": 0},
    "google/gemma-3-27b-pt": {"gemma-3-27b": 0},
    "zai-org/GLM-4.5": {"glm-4.6": 202752, "glm-4.7": 202752, "glm-4.7-355b-a32b": 202752},
    "zai-org/GLM-4.5-Air": {"intellect-3": 0, "intellect-3.1": 0},
    "zai-org/GLM-5": {"glm-5.1": 0},
    "zai-org/GLM-5.2": {"glm-5.3": 0},
    "MiniMaxAI/MiniMax-M1-80k": {"minimax-m1": 0, "minimax-m1-40k": 0},
    "MiniMaxAI/MiniMax-M2": {"minimax-m2.1": 0, "minimax-m2.5": 0, "minimax-m2.7": 204800},
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": {"nemotron-nano-9b-v2": 0},
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B": {
        "nemotron-3-nano-30b-a3b": 0, "nemotron-3-nano": 0, "nvidia-nemotron-3.5-lightning-30b-a3b": 1048576,
    },
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B": {"nemotron-3-super-120b-a12b": 0, "nemotron-3-super": 0},
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B": {"nemotron-3-ultra-550b-a55b": 0, "nemotron-3-ultra": 0},
    "tencent/Hunyuan-A13B-Instruct": {"hunyuan-a13b": 0},
    "baidu/ERNIE-4.5-300B-A47B-PT": {"ernie-4.5-300b-a47b": 0},
    "ByteDance-Seed/Seed-OSS-36B-Base": {"seed-oss-36b": 0},
}  # fmt: skip
# What the name of a checkpoint tells of its weights, whoever made it.
_STORED = {
    "-fp8": "fp8", "-fp8-static-pertensor": "fp8", "-fp8-modelopt": "fp8", "-fp8-dynamic": "fp8",
    "-fp8-block": "fp8", "-bf16": "bfloat16", "-nvfp4": "nvfp4", "-fp4": "nvfp4",
    "-mxfp4": "mxfp4", "-awq": "int4", "-gptq": "int4", "-gptq-int4": "int4", "-int4": "int4", "-w4a16": "int4",
    "-quantized.w4a16": "int4", "-int4-rtn": "int4", "-bnb-4bit": "int4", "-unsloth-bnb-4bit": "int4",
}  # fmt: skip
# A name with a word like these is another model than the one that it begins with: a drafter, or layers taken out.
_NO_FINE_TUNE = ("eagle", "draft", "specul", "medusa", "mtp", "prun", "minitron", "gguf", "4bit", "8bit", "bnb")
# A number of parameters, as names write it: "7b", "1.5b", "a3b", "8x7b".
_SIZE = re.compile(r"(?<![a-z0-9.])a?(?:\d+x)?\d+(?:\.\d+)?[bm](?![a-z0-9])")
# So near to a known name, as a share of its letters, another one is a slip.
_SLIP = 0.85
_WORD = re.compile("[a-z]+")
_SUFFIXES = ("-hf", "-instruct", "-it", "-base", "-v0.1", "-2507", "-instruct", "-thinking")
# Releases of a model that read more than it did.
_LONGER = {"-2507": 262144}


def _keys(name: str) -> list[str]:
    """The spellings under which a name is looked up: with and without organisation and variant suffixes."""
    key = name.strip().lower().rsplit("/", 1)[-1]
    keys = [key]
    for suffix in _SUFFIXES:
        key = key.removesuffix(suffix)
        keys.append(key)
    return keys


def _table() -> dict[str, ModelShape]:
    """Every known spelling, in lower case."""
    found = {key: shape for shape in reversed(_SHAPES) for key in (*_keys(shape.name), shape.name.lower())}
    for name, others in _ALIASES.items():
        shape = MODELS[name]
        found |= {key: replace(shape, max_position=ctx) if ctx else shape for key, ctx in others.items()}
    return found


_BY_KEY = _table()


def _named(text: str) -> ModelShape | None:
    """The model of a name: as it stands, or less what it tells of its weights; None for an unknown one."""
    for ending, dtype in (("", None), *_STORED.items()):
        if not text.lower().endswith(ending):
            continue
        keys = _keys(text[: len(text) - len(ending)])
        found = next((_BY_KEY[key] for key in keys if key in _BY_KEY), None)
        if found is None:
            continue
        for release, ctx in _LONGER.items():
            if keys[0].endswith(release) and keys[0] not in _BY_KEY:
                found = replace(found, max_position=ctx)
        return found if dtype is None else replace(found, name=text, parts=found.stored(dtype))
    return None


@lru_cache(maxsize=64)
def _stand_in(text: str) -> ModelShape | None:
    """What an unknown name is taken for, with a note that says so: the model that a fine-tune's name holds, "Qwen3-4B"
    of "my-org/Qwen3-4B-SFT-x"; else one that is as large as the name says.

    None where the name tells of something that is no fine-tune, or of no size.
    """
    full = _keys(text)[0]
    name, dtype = next(((full[: -len(e)], d) for e, d in _STORED.items() if full.endswith(e)), (full, None))
    held = [key for key in _BY_KEY if re.search(rf"(?<![a-z0-9.]){re.escape(key)}(?![a-z0-9.])", name)]
    key = max(held, key=len, default="")
    rest = name.replace(key, " ", 1)
    if any(word in rest for word in _NO_FINE_TUNE) or any(f"{ending}-" in f"{rest}-" for ending in _STORED):
        return None
    if key and _SIZE.search(key) and not _SIZE.search(rest):
        found, why = _BY_KEY[key], "taken as {}, as its name says"
        for release, ctx in _LONGER.items():
            if release in rest:
                found = replace(found, max_position=ctx)
    else:
        like = _as_large(name)
        if like is None:
            return None
        found, why = replace(like, mtp=False, max_position=None), "assumed to have the layers of {}, which is as large"
    note = f"not in the catalogue: {why.format(found.name)}; --model ./FOLDER/ reads its config.json"
    found = replace(found, name=text, notes=(*found.notes, note))
    return found if dtype is None else replace(found, parts=found.stored(dtype))


def _as_large(name: str) -> ModelShape | None:
    """The model whose name says the same size, of several the one that shares most words. None where there is none, or
    where a name is a known one but for a slip."""
    size, words = set(_SIZE.findall(name)), set(_WORD.findall(name))
    if not size or difflib.get_close_matches(name, _BY_KEY, n=1, cutoff=_SLIP):
        return None
    keys = {shape: _keys(shape.name)[0] for shape in _SHAPES}
    alike = [shape for shape, key in keys.items() if set(_SIZE.findall(key)) == size]
    return max(alike, key=lambda shape: len(words.intersection(_WORD.findall(keys[shape]))), default=None)


def _exists(text: str) -> bool:
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):
        return False


def model_shape(model: str | os.PathLike[str] | ModelShape) -> ModelShape:
    """The shape for a Hugging Face id (organisation and -Instruct optional), or for a path to a `config.json` or to the
    folder that holds it.

    A name that ends in -FP8, -NVFP4, -AWQ and the like is its model with weights of that type. A fine-tune that is not
    known is the model that its name holds, and another name a model as large as it says, with a note.
    Raises InputError with the nearest known name, or with everything that is wrong with the file.
    """
    if isinstance(model, ModelShape):
        return model
    if not isinstance(model, (str, os.PathLike)):
        raise InputError([Problem("model", model, "must be a name, or the path of a config.json", "give a text")])
    text = os.fspath(model)
    is_name = isinstance(model, str) and not text.endswith(".json") and text.count("/") <= 1 and "\\" not in text
    found = _named(text.strip()) if is_name else None
    if found is not None:
        return found
    if not is_name or _exists(text):
        from fleetsim.engine.model.hf_config import shape_from_config

        return shape_from_config(Path(text))
    found = _stand_in(text)
    if found is not None:
        return found
    near = difflib.get_close_matches(_keys(text)[0], _BY_KEY, n=1)
    hint = f"did you mean {_BY_KEY[near[0]].name}? or " if near else ""
    rule = "must be a built-in model, a fine-tune named after one, or the path of a config.json or its folder"
    raise InputError([Problem("model", text, rule, f"{hint}give its config.json")])
