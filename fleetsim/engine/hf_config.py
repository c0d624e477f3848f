"""Read a model's shape from a Hugging Face `config.json`: llama, qwen2, qwen3, mistral, mixtral, gemma and the like."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetsim.engine.shapes import ModelShape
from fleetsim.errors import InputError, Problem

_MAX_FILE_BYTES = 4 * 2**20
_NO_GATE = {"gpt_neox", "phi", "starcoder2", "falcon"}
_SSM = {"mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "zamba2", "nemotron_h", "granitemoehybrid", "rwkv"}
_DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "float32": "bfloat16", "half": "float16", "auto": "bfloat16"}
_LARGEST = {"num_hidden_layers": 4096, "vocab_size": 2**24, "max_position_embeddings": 2**31}
_LARGEST_OTHER = 2**20


class _Fields:
    """The mapping being read, with every problem met so far."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.config, self.where = config, where
        self.problems: list[Problem] = []

    def wrong(self, key: str, value: object, rule: str, remedy: str) -> None:
        self.problems.append(Problem(f"{self.where}.{key}", value, rule, remedy))

    def count(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """The first of `keys` that is given and not null, as an integer; 1 stands in where that is a problem."""
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            most = _LARGEST.get(key, _LARGEST_OTHER)
            if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
                return value
            self.wrong(key, value, f"an integer from {least} to {most}", "copy the model's own config.json")
            return max(1, least)
        if default is None:
            self.wrong(keys[0], None, "required", "copy the model's own config.json, whole")
            return max(1, least)
        return default

    def flag(self, key: str, default: bool) -> bool:
        value = self.config.get(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.wrong(key, value, "true or false", "copy the model's own config.json")
        return default


def _read_json(path: Path) -> Any:
    """The parsed file; InputError for a directory, a pipe, a huge, unreadable or malformed file."""
    try:
        if path.is_dir():
            raise InputError([Problem("model", str(path), "a file", f"give {path / 'config.json'}")])
        if not path.exists():
            raise InputError([Problem("model", str(path), "an existing file", "check the path")])
        if not path.is_file():
            raise InputError([Problem("model", str(path), "a regular file", "give the config.json itself")])
        size = path.stat().st_size
        if size > _MAX_FILE_BYTES:
            rule = f"at most {_MAX_FILE_BYTES} bytes (it has {size})"
            raise InputError([Problem("model", str(path), rule, "give config.json, not the weights or tokenizer")])
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([Problem("model", str(path), "a readable text file", str(error))]) from error
    except RecursionError as error:
        raise InputError([Problem("model", str(path), "JSON of sane depth", "give a config.json")]) from error
    except ValueError as error:
        raise InputError([Problem("model", str(path), f"valid JSON ({error})", "download it again")]) from error


def _refuse_unsupported(fields: _Fields) -> None:
    """What this roofline would get wrong is refused by name, never read as something else."""
    config, model_type = fields.config, fields.config.get("model_type")
    later = "give a measured profile of this model instead"
    if config.get("kv_lora_rank") is not None:
        rule = "multi-head latent attention (MLA) is not supported yet"
        fields.wrong("kv_lora_rank", config["kv_lora_rank"], rule, later)
    kinds = config.get("layer_types")
    linear = isinstance(kinds, list) and any(isinstance(k, str) and "linear" in k for k in kinds)
    if linear or (isinstance(model_type, str) and model_type in _SSM):
        fields.wrong("model_type", model_type, "linear attention and state-space layers are not supported yet", later)
    quant = config.get("quantization_config")
    method = quant.get("quant_method") if isinstance(quant, Mapping) else quant
    if method is not None and method != "fp8":
        fields.wrong("quantization_config", method, "quantization other than fp8 is not supported yet", later)


def _dtype(fields: _Fields) -> str:
    config = fields.config
    if config.get("quantization_config") is not None:
        return "fp8"
    value = config.get("torch_dtype", config.get("dtype"))
    if value is None:
        return "bfloat16"
    if isinstance(value, str) and value in _DTYPES:
        return _DTYPES[value]
    fields.wrong("torch_dtype", value, f"one of {', '.join(sorted(_DTYPES))}", "copy the model's own config.json")
    return "bfloat16"


def _dense_layers(fields: _Fields, layers: int) -> int:
    """Layers of a mixture that keep a dense MLP (Qwen's mlp_only_layers and sparse step, DeepSeek's first k)."""
    only = fields.config.get("mlp_only_layers") or []
    if not isinstance(only, list) or not all(isinstance(i, int) for i in only):
        fields.wrong("mlp_only_layers", only, "a list of layer numbers", "copy the model's own config.json")
        only = []
    step = fields.count("decoder_sparse_step", default=1)
    first = fields.count("first_k_dense_replace", default=0, least=0)
    dense = set(only)
    return sum(1 for i in range(layers) if i < first or i in dense or (i + 1) % step)


def shape_from_config(config: str | os.PathLike[str] | Mapping[str, Any], name: str | None = None) -> ModelShape:
    """The shape in a Hugging Face config: a path to config.json, or the mapping read from one.

    `text_config` of a multimodal model is followed. Defaults where a key is absent are transformers' own:
    num_key_value_heads = num_attention_heads, head_dim = hidden_size / num_attention_heads.
    Raises InputError with everything that is wrong at once; MLA, linear attention and quantization other than fp8 are
    refused as not supported yet.
    """
    if isinstance(config, Mapping):
        root: Any = config
        where = name or "config"
    else:
        path = Path(config)
        root, where = _read_json(path), path.name
        name = name or (path.parent.name if path.name == "config.json" and path.parent.name else path.stem)
    if not isinstance(root, Mapping):
        raise InputError([Problem(where, type(root).__name__, "a JSON object", "give the model's config.json")])
    nested = root.get("text_config")
    if isinstance(nested, Mapping) and "num_hidden_layers" not in root:
        root = {**{k: v for k, v in root.items() if k != "text_config"}, **nested}
        where += ".text_config"
    fields = _Fields(root, where)
    _refuse_unsupported(fields)

    layers = fields.count("num_hidden_layers")
    hidden = fields.count("hidden_size")
    heads = fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", default=heads)
    head_dim = fields.count("head_dim", default=0)
    vocab = fields.count("vocab_size")
    experts = fields.count("num_experts", "num_local_experts", "n_routed_experts", default=0, least=0)
    intermediate = fields.count("intermediate_size", default=0 if experts else None)
    per_token = moe_width = shared = dense = 0
    if experts:
        per_token = fields.count("num_experts_per_tok")
        moe_width = fields.count("moe_intermediate_size", default=intermediate or None)
        shared_count = fields.count("n_shared_experts", default=0, least=0)
        shared = fields.count("shared_expert_intermediate_size", default=shared_count * moe_width, least=0)
        dense = _dense_layers(fields, layers)
    if not fields.problems:
        if head_dim == 0 and hidden % heads:
            fields.wrong("hidden_size", hidden, f"a multiple of num_attention_heads ({heads})", "give head_dim")
        if heads % kv_heads:
            fields.wrong("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads ({heads})", "check both")
        if per_token > experts:
            fields.wrong("num_experts_per_tok", per_token, f"at most the number of experts ({experts})", "check both")
    model_type = root.get("model_type")
    family = model_type if isinstance(model_type, str) else ""
    shape = ModelShape(
        name=name or str(root.get("_name_or_path") or "config"),
        layers=layers,
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim or max(1, hidden // heads),
        vocab=vocab,
        tied_embeddings=fields.flag("tie_word_embeddings", default=family.startswith("gemma")),
        experts=experts,
        experts_per_token=per_token,
        moe_intermediate=moe_width,
        shared_intermediate=shared,
        dense_layers=dense,
        qkv_bias=fields.flag("attention_bias", default=family.startswith("qwen2")),
        qk_norm=family.startswith(("qwen3", "gemma3")),
        gated_mlp=family not in _NO_GATE,
        dtype=_dtype(fields),
        max_position=fields.count("max_position_embeddings", default=0, least=0) or None,
    )
    if fields.problems:
        raise InputError(fields.problems)
    return shape
