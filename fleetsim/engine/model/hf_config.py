"""Read a model's shape from a Hugging Face `config.json`: llama, qwen, mistral, gemma, deepseek and the like."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetsim.engine.model.hf.fields import Fields, read_json
from fleetsim.engine.model.hf.hybrids import Layer, listed_layers
from fleetsim.engine.model.hf.keys import refuse_unknown
from fleetsim.engine.model.hf.mixers import read_mixers
from fleetsim.engine.model.hf.mlps import read_mlps
from fleetsim.engine.model.hf.positions import max_position
from fleetsim.engine.model.hf.quantization import read_parts
from fleetsim.engine.model.mlps import Mixture
from fleetsim.engine.model.shape import Attending, ModelShape, blocks_of
from fleetsim.errors import InputError, Problem

_SSM = {"mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "zamba2", "granitemoehybrid", "rwkv", "falcon_h1", "lfm2"}
_FAMILIES = (
    "llama", "qwen", "mistral", "ministral", "mixtral", "pixtral", "gemma", "phi", "deepseek", "kimi", "glm", "olmo",
    "gpt_oss", "gpt_neox", "minimax", "mimo", "ernie", "hunyuan", "nemotron", "step3", "llava", "internvl", "falcon",
    "starcoder2", "granite", "cohere", "exaone", "smollm", "seed_oss", "longcat", "solar", "yi", "apertus", "arcee",
    "bailing", "dots1", "stablelm", "internlm", "baichuan", "ling", "aya", "voxtral",
)  # fmt: skip
_TIED = ("gemma", "cohere", "hunyuan")


def shape_from_config(config: str | os.PathLike[str] | Mapping[str, Any], name: str | None = None) -> ModelShape:
    """The shape in a Hugging Face config: a path to config.json or its folder, or the mapping read from one.

    `text_config` of a multimodal model is followed. Defaults where a key is absent are transformers' own:
    num_key_value_heads = num_attention_heads, head_dim = hidden_size / num_attention_heads.
    `hf_quant_config.json` beside a config.json, as ModelOpt writes it, tells of the weights too.
    Raises InputError with everything that is wrong at once; layers, experts and weights that cannot be expressed are
    refused by the name of the field.
    """
    root, where, name = _root(config, name)
    fields = Fields(root, where)
    if fields.family in _SSM:
        later = "give a measured profile of this model instead"
        fields.wrong("model_type", fields.family, "its state-space layers are not supported yet", later)
    hidden, vocab = fields.count("hidden_size"), fields.count("vocab_size")
    layers = _layers(fields, hidden)
    if not fields.problems and not any(isinstance(mixer, Attending) for mixer, _ in layers):
        fields.wrong("num_hidden_layers", len(layers), "at least one layer of attention")
    experts = any(isinstance(mlp, Mixture) for _, mlp in layers)
    parts, kv_dtype, notes = read_parts(fields, name, len(layers), experts)
    shape = ModelShape(
        name=name or str(root.get("_name_or_path") or "config"),
        hidden=hidden,
        vocab=vocab,
        blocks=blocks_of(layers),
        tied_embeddings=fields.flag("tie_word_embeddings", default=fields.family.startswith(_TIED)),
        parts=parts,
        kv_dtype=kv_dtype,
        max_position=max_position(fields),
        notes=(*notes, *_unknown_family(fields.family)),
        mtp=_predicts_further(fields),
    )
    refuse_unknown(fields)
    if fields.problems:
        raise InputError(fields.problems)
    return shape


# Layers that predict further tokens: the keys that count them, and the kinds of models that have some without a key.
_MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_transformer_layers")
_MTP_FAMILIES = ("qwen3_next", "qwen3_5", "mimo_v2", "step3p", "longcat_flash", "gemma4")


def _predicts_further(fields: Fields) -> bool:
    """Whether the checkpoint has MTP layers. Source: vLLM 0.32.0, config/speculative.py."""
    counts = [fields.get(key) for key in _MTP_LAYERS]
    return any(isinstance(n, int) and n > 0 for n in counts) or fields.family.startswith(_MTP_FAMILIES)


def _unknown_family(family: str) -> tuple[str, ...]:
    """A note where nothing is known of what this kind of model does without a field that says so."""
    if not family or family.startswith(_FAMILIES):
        return ()
    return (f"its model_type {family[:40]} is not known: its layers are read by the fields of its config.json alone",)


def _root(config: str | os.PathLike[str] | Mapping[str, Any], name: str | None) -> tuple[Mapping[str, Any], str, str]:
    """The fields of the language model, where they stand, and the model's name."""
    if isinstance(config, Mapping):
        root: Any = config
        where = name or "config"
    else:
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        root, where = read_json(path), path.name
        beside = path.with_name("hf_quant_config.json")
        if isinstance(root, Mapping) and "quantization_config" not in root and path.name == "config.json":
            written = read_json(beside) if beside.is_file() else None
            quant = written.get("quantization") if isinstance(written, Mapping) else None
            root = {**root, "quantization_config": quant} if quant is not None else root
        folder = path.resolve().parent.name
        name = name or (folder if path.name == "config.json" and folder else path.stem)
    if not isinstance(root, Mapping):
        raise InputError([Problem(where, type(root).__name__, "a JSON object", "give the model's config.json")])
    nested = root.get("text_config", root.get("llm_config"))
    if isinstance(nested, Mapping) and "num_hidden_layers" not in root:
        outer = {k: v for k, v in root.items() if k not in ("text_config", "llm_config") and v is not None}
        root = {**outer, **{k: v for k, v in nested.items() if v is not None or k not in outer}}
        where += ".text_config"
    return root, where, name or ""


def _layers(fields: Fields, hidden: int) -> list[Layer]:
    """What each layer is made of, in order."""
    listed = listed_layers(fields, hidden)
    if listed is not None:
        told = fields.count("num_hidden_layers", default=len(listed))
        if told != len(listed) and not fields.problems:
            fields.wrong("num_hidden_layers", told, f"the {len(listed)} layers that are listed")
        return listed
    count = fields.count("num_hidden_layers")
    mlps = read_mlps(fields, count)
    return list(zip(read_mixers(fields, count, hidden), mlps, strict=True))
