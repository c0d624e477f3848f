"""Read a model's shape from a Hugging Face `config.json`: llama, qwen, mistral, gemma, deepseek and the like."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetsim.engine.model.mixers import Attention, LatentAttention
from fleetsim.engine.model.mlps import Dense, Mixture
from fleetsim.engine.model.precision import Parts, usual_parts
from fleetsim.engine.model.shape import Mixer, ModelShape, blocks_of
from fleetsim.engine.model.states import GatedDelta
from fleetsim.errors import InputError, Problem
from fleetsim.json_text import from_json

_MAX_FILE_BYTES = 4 * 2**20
_NO_GATE = {"gpt_neox", "phi", "starcoder2", "falcon"}
_GATED = ("qwen3_next", "qwen3_5")  # attention with an output gate, a shared expert with a gate
_SSM = {"mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "zamba2", "nemotron_h", "granitemoehybrid", "rwkv"}
_DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "float32": "bfloat16", "half": "float16", "auto": "bfloat16"}
# quant_method and format of checkpoints whose weights are fp8: vLLM's names, model_executor/layers/quantization.
_FP8_METHODS = {"fp8", "fbgemm_fp8", "ptpc_fp8"}
_FP8_FORMATS = {"float-quantized"}
# Of so many layers the last one sees everything, where config.json does not say.
_GLOBAL_EVERY = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "llama4": 4, "llama4_text": 4}
_SMALL_BY_NAME = re.compile(r"(?i)\b(nv|mx)?fp[48]\b|\bint[48]\b|\bw[48]a(8|16)\b|\bawq\b|\bgptq\b")
_MOST_SCALING = 4096
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
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([Problem("model", str(path), "a readable text file", str(error))]) from error
    except ValueError as error:
        raise InputError([Problem("model", str(path), f"valid JSON ({error})", "download it again")]) from error


def _refuse_unsupported(fields: _Fields) -> None:
    """What this roofline would get wrong is refused by name, never read as something else."""
    model_type = fields.config.get("model_type")
    later = "give a measured profile of this model instead"
    if isinstance(model_type, str) and model_type in _SSM:
        fields.wrong("model_type", model_type, "state-space layers are not supported yet", later)


def _quantized(fields: _Fields, name: str) -> tuple[bool, tuple[str, ...]]:
    """Whether the weights are fp8, and what of that cannot be counted; any other quantization is a problem.

    DeepSeek's and Qwen's block-wise fp8, fbgemm and ptpc name it in quant_method; compressed-tensors gives bits and
    type of each group of layers; ModelOpt an algorithm, in a file of its own or in config.json.
    """
    quant = fields.config.get("quantization_config", fields.config.get("compression_config"))
    if quant is None:
        said = _SMALL_BY_NAME.search(name)
        note = f"its name says {said[0]} and its config.json nothing: weights in 16 bits are counted" if said else ""
        return False, (note,) if note else ()
    if not isinstance(quant, Mapping):
        quant = {"quant_method": quant}
    method = str(quant.get("quant_method") or quant.get("quant_algo") or "unnamed")
    kinds = {f"{w.get('type')}{w.get('num_bits')}" for w in _weight_groups(quant)}
    algorithm = str(quant.get("quant_algo") or "").lower()
    if kinds:
        in_fp8, kind = kinds == {"float8"}, " and ".join(sorted(kinds))
    else:
        kind = algorithm or str(quant.get("format") or "") or method
        in_fp8 = algorithm == "fp8" or method in _FP8_METHODS or quant.get("format") in _FP8_FORMATS
    if not in_fp8:
        rule = f"weights of {kind} cannot be counted: only bfloat16, float16 and fp8 can"
        remedy = "give the config.json of the model before quantization, or a measured profile of this one"
        fields.wrong("quantization_config", method, rule, remedy)
        return False, ()
    cache = quant.get("kv_cache_scheme") or quant.get("kv_cache_quant_algo")
    notes = ("its KV cache in fp8 is counted in 16 bits: half as many samples fit",) if cache else ()
    return True, notes


def _weight_groups(quant: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The weights of each group of layers, as compressed-tensors and ModelOpt describe them."""
    groups = quant.get("config_groups")
    found = groups.values() if isinstance(groups, Mapping) else ()
    return [g["weights"] for g in found if isinstance(g, Mapping) and isinstance(g.get("weights"), Mapping)]


def _dtype(fields: _Fields, in_fp8: bool) -> str:
    config = fields.config
    if in_fp8:
        return "fp8"
    value = config.get("torch_dtype", config.get("dtype"))
    if value is None:
        return "bfloat16"
    if isinstance(value, str) and value in _DTYPES:
        return _DTYPES[value]
    fields.wrong("torch_dtype", value, f"one of {', '.join(sorted(_DTYPES))}", "copy the model's own config.json")
    return "bfloat16"


def _max_position(fields: _Fields, family: str) -> int | None:
    """Tokens that the model was made to read, as vLLM derives them: with the scaling of its rotary positions.

    Llama 3's and LongRoPE's limits are scaled already, and so is Gemma 3's; YaRN's is in most files.
    """
    most = fields.count("max_position_embeddings", default=0, least=0)
    rope = fields.config.get("rope_parameters") or fields.config.get("rope_scaling")
    if isinstance(rope, Mapping) and isinstance(rope.get("full_attention"), Mapping):
        rope = rope["full_attention"]
    if not isinstance(rope, Mapping) or not most or family.startswith("gemma3"):
        return most or None
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not 1 <= factor <= _MOST_SCALING:
        return most
    if kind == "yarn":
        first = rope.get("original_max_position_embeddings")
        return max(most, int(factor * first)) if isinstance(first, int) and 0 < first <= 2**31 else most
    return int(factor * most) if kind in ("linear", "dynamic") else most


def _window(fields: _Fields, layers: int, family: str) -> tuple[int, list[bool]]:
    """Tokens that some layers look back, and which layers: all False where all see everything."""
    config = fields.config
    chunk = config.get("attention_chunk_size") is not None
    window = fields.count("attention_chunk_size" if chunk else "sliding_window", default=0, least=0)
    if not window or not fields.flag("use_sliding_window", default=not family.startswith("qwen")):
        return 0, [False] * layers
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        looks = [isinstance(kind, str) and ("sliding" in kind or "chunk" in kind) for kind in kinds[:layers]]
        return window, looks + [False] * (layers - len(looks))
    if config.get("sliding_window_pattern") is not None or family in _GLOBAL_EVERY:
        every = fields.count("sliding_window_pattern", default=_GLOBAL_EVERY.get(family, layers))
        return window, [(i + 1) % every != 0 for i in range(layers)]
    if family.startswith("qwen"):  # the layers below this one see everything
        first = fields.count("max_window_layers", default=0, least=0)
        return window, [i >= first for i in range(layers)]
    return window, [True] * layers


def _dense_layers(fields: _Fields, layers: int) -> list[bool]:
    """Layers of a mixture that keep a dense MLP (Qwen's mlp_only_layers and sparse step, DeepSeek's first k)."""
    only = fields.config.get("mlp_only_layers") or []
    if not isinstance(only, list) or not all(isinstance(i, int) for i in only):
        fields.wrong("mlp_only_layers", only, "a list of layer numbers", "copy the model's own config.json")
        only = []
    step = fields.count("decoder_sparse_step", default=1)
    first = fields.count("first_k_dense_replace", default=0, least=0)
    return [i < first or i in only or (i + 1) % step != 0 for i in range(layers)]


def _latent(fields: _Fields, heads: int) -> LatentAttention | None:
    """DeepSeek's latent attention, where the config has its ranks."""
    if fields.config.get("kv_lora_rank") is None:
        return None
    return LatentAttention(
        heads,
        q_lora_rank=fields.count("q_lora_rank", default=0, least=0),
        kv_lora_rank=fields.count("kv_lora_rank"),
        qk_nope_head_dim=fields.count("qk_nope_head_dim"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim"),
        v_head_dim=fields.count("v_head_dim"),
    )


def _linear_layers(fields: _Fields, layers: int) -> list[bool]:
    """Linear-attention layers: listed, or all but every full_attention_interval-th."""
    kinds = fields.config.get("layer_types")
    if kinds is None:
        every = fields.count("full_attention_interval", default=1)
        return [(i + 1) % every != 0 for i in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers or not all(isinstance(k, str) for k in kinds):
        rule = f"a list of {layers} texts, one per layer"
        fields.wrong("layer_types", kinds if isinstance(kinds, str) else type(kinds).__name__, rule, "copy it whole")
        return [False] * layers
    return ["linear" in k for k in kinds]


def _linear(fields: _Fields) -> GatedDelta:
    """Gated delta-rule layers."""
    return GatedDelta(
        key_heads=fields.count("linear_num_key_heads"),
        value_heads=fields.count("linear_num_value_heads"),
        key_head_dim=fields.count("linear_key_head_dim"),
        value_head_dim=fields.count("linear_value_head_dim"),
        conv_kernel=fields.count("linear_conv_kernel_dim", default=4),
    )


def _mixture(fields: _Fields, experts: int, intermediate: int, family: str) -> Mixture:
    """The mixture of experts."""
    width = fields.count("moe_intermediate_size", default=intermediate or None)
    shared_count = fields.count("n_shared_experts", default=0, least=0)
    shared = fields.count("shared_expert_intermediate_size", default=shared_count * width, least=0)
    per_token = fields.count("num_experts_per_tok")
    if not fields.problems and per_token > experts:
        fields.wrong("num_experts_per_tok", per_token, f"at most the number of experts ({experts})", "check both")
    shared_gate = shared > 0 and family.startswith(("qwen2_moe", *_GATED))
    return Mixture(experts, per_token, width, shared, shared_gate, gated=family not in _NO_GATE)


def shape_from_config(config: str | os.PathLike[str] | Mapping[str, Any], name: str | None = None) -> ModelShape:
    """The shape in a Hugging Face config: a path to config.json, or the mapping read from one.

    `text_config` of a multimodal model is followed. Defaults where a key is absent are transformers' own:
    num_key_value_heads = num_attention_heads, head_dim = hidden_size / num_attention_heads.
    `hf_quant_config.json` beside a config.json, as ModelOpt writes it, tells of the weights too.
    Raises InputError with everything that is wrong at once; state-space layers and quantization other than fp8 are
    refused as not supported yet.
    """
    if isinstance(config, Mapping):
        root: Any = config
        where = name or "config"
    else:
        path = Path(config)
        root, where = _read_json(path), path.name
        beside = path.with_name("hf_quant_config.json")
        if isinstance(root, Mapping) and "quantization_config" not in root and path.name == "config.json":
            written = _read_json(beside) if beside.is_file() else None
            quant = written.get("quantization") if isinstance(written, Mapping) else None
            root = {**root, "quantization_config": quant} if quant is not None else root
        name = name or (path.parent.name if path.name == "config.json" and path.parent.name else path.stem)
    if not isinstance(root, Mapping):
        raise InputError([Problem(where, type(root).__name__, "a JSON object", "give the model's config.json")])
    nested = root.get("text_config")
    if isinstance(nested, Mapping) and "num_hidden_layers" not in root:
        root = {**{k: v for k, v in root.items() if k != "text_config"}, **nested}
        where += ".text_config"
    fields = _Fields(root, where)
    _refuse_unsupported(fields)

    model_type = root.get("model_type")
    family = model_type if isinstance(model_type, str) else ""
    layers = fields.count("num_hidden_layers")
    hidden = fields.count("hidden_size")
    heads = fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", default=heads)
    head_dim = fields.count("head_dim", default=0)
    vocab = fields.count("vocab_size")
    experts = fields.count("num_experts", "num_local_experts", "n_routed_experts", default=0, least=0)
    intermediate = fields.count("intermediate_size", default=0 if experts else None)
    if not fields.problems:
        if head_dim == 0 and hidden % heads:
            fields.wrong("hidden_size", hidden, f"a multiple of num_attention_heads ({heads})", "give head_dim")
        if heads % kv_heads:
            fields.wrong("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads ({heads})", "check both")
    mixture = _mixture(fields, experts, intermediate, family) if experts else None
    only = _dense_layers(fields, layers) if experts else [True] * layers
    linear_layers = _linear_layers(fields, layers)
    if all(linear_layers):
        fields.wrong("layer_types", "linear_attention", "at least one layer of full attention", "check the file")
    linear = _linear(fields) if any(linear_layers) else None
    window, looks_back = _window(fields, layers, family)
    full: Mixer = _latent(fields, heads) or Attention(
        heads,
        kv_heads,
        head_dim or max(1, hidden // heads),
        bias=fields.flag("attention_bias", default=family.startswith("qwen2")),
        qk_norm=family.startswith(("qwen3", "gemma3")),
        gate=fields.flag("attn_output_gate", default=family.startswith(_GATED)),
    )
    near = replace(full, window=window) if isinstance(full, Attention | LatentAttention) else full
    dense = Dense(intermediate, gated=family not in _NO_GATE)
    mixers = [linear if linear and linear_layers[i] else near if looks_back[i] else full for i in range(layers)]
    in_fp8, notes = _quantized(fields, name or "")
    shape = ModelShape(
        name=name or str(root.get("_name_or_path") or "config"),
        hidden=hidden,
        vocab=vocab,
        blocks=blocks_of((m, dense if mixture is None or d else mixture) for m, d in zip(mixers, only, strict=True)),
        tied_embeddings=fields.flag("tie_word_embeddings", default=family.startswith("gemma")),
        parts=usual_parts(_dtype(fields, in_fp8), Parts(), experts=experts > 0, latent=False),
        max_position=_max_position(fields, family),
        notes=notes,
    )
    if fields.problems:
        raise InputError(fields.problems)
    return shape
