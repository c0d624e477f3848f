"""Read a model's shape from a Hugging Face `config.json`: llama, qwen, mistral, gemma, deepseek and the like."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetsim.engine.model.hf.fields import Fields, read_json
from fleetsim.engine.model.hf.mixers import Layer, listed_layers, read_mixers
from fleetsim.engine.model.hf.mlps import read_mlps
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


_MOST_SCALING = 4096


# Words in the name of a key that may change what a layer holds, reads or multiplies.
_STRUCTURE = re.compile(
    r"attn|attention|window|sliding|chunk|moe|expert|kv_|_kv|head|layer|latent|lora|sparse|index|topk|top_k|ssm|mamba|"
    r"linear|compress|share|mlp|ffn|block|hybrid|state_|conv|dim\b|_dim_|cla\b|per_layer|memory|engram|width|laurel|altup"
)
# Rotary angles, norms, activations, routing rules, capacities of training, multi-token prediction, generation, vision:
# none changes the weights that a token of text is multiplied with, or its cache.
_HARMLESS = re.compile(
    r".*(rope|rotary|norm|dropout|bias_update|aux_loss|token_id|token_index|_capacity|jitter|z_loss|eps|epsilon|beta|"
    r"_scale|scaling|alpha|softcap\w*|logits?|init\w*|mtp|nextn|vision|audio|video|image|img)\w*|"
    r"architectures|auto_map|hidden_act\w*|.*_hidden_act|num_nextn_predict_layers|chunk_size|chunk_size_feed_forward|"
    r"add_cross_attention|cross_attention_hidden_size|output_attentions|output_hidden_states|pruned_heads|tie_\w+|"
    r"top_k|top_p|num_beam\w*|ep_size|n_group|topk_group|topk_method|num_expert_group|use_grouped_topk|num_hash_layers|"
    r"moe_layers?_(router|dtype)|moe_router_\w+|moe_renormalize|shared_moe_mode|moe_shared_expert_overlap|qk_head_dim|"
    r"use_mixed_mlp_moe|use_moe_router_bias|use_bidirectional_attention|use_mamba_kernels|use_conv_bias|use_cache|"
    r"query_pre_attn_scalar|mamba_(proj_bias|hidden_act|ssm_dtype|chunk_size|dt_\w+|expand|d_\w+)|mamba_ssm_cache_dtype|"
    r"time_step_\w+|expand|hc_\w+|index_share_for_mtp_iteration|index_skip_topk_offset|index_topk_freq|indexer_rope\w*|"
    r"index_topk_pattern|attn_res_block_size|latent_moe_use_norm|sliding_window_size|max_window_layers|ignore_index|"
    r"dual_chunk_attention_config|attention_chunk_size|swa_rope_theta|vocab_size_per_layer_input|linear_num_\w+|"
    r"add_\w+_sink_bias|attention_value\w*|attn_implementation|_attn_\w+|no_rope_layer\w*|moe_intermediate_size|"
    r"decoder_sparse_step|intermediate_size\w*|num_global_key_value_heads|num_key_value_heads|head_dim|"
    r"layernorm_\w+|norm_topk_prob|n_groups|conv_kernel|router_\w+|unused_\w+|use_mla|mlp_only_layers|use_\w*flash\w*|"
    r"num_experts_per_tok(en)?|experts_per_token|full_attention_interval|shared_intermediate_size|layer_types|"
    r"sliding_window|mlp_layer_types|moe_layer_freq|first_k_dense_replace|interleave_moe_layer_step|expert_dtype"
)


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
        raise InputError([Problem(where, type(root).__name__, "must be a JSON object", "give the model's config.json")])
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


def max_position(fields: Fields) -> int | None:
    """Tokens that the model was made to read, as vLLM derives them: with the scaling of its rotary positions.

    Llama 3's and LongRoPE's limits are scaled already, and so are Gemma 3's and gpt-oss's; YaRN's is in most files.
    """
    most = fields.count("max_position_embeddings", default=0, least=0)
    rope = fields.get("rope_parameters") or fields.get("rope_scaling")
    if isinstance(rope, Mapping) and isinstance(rope.get("full_attention"), Mapping):
        rope = rope["full_attention"]
    if not isinstance(rope, Mapping) or not most or fields.family.startswith("gemma3"):
        return most or None
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not 1 <= factor <= _MOST_SCALING:
        return most
    if kind == "yarn":
        first = rope.get("original_max_position_embeddings")
        return max(most, int(factor * first)) if isinstance(first, int) and 0 < first <= 2**31 else most
    return int(factor * most) if kind in ("linear", "dynamic") else most


def refuse_unknown(fields: Fields) -> None:
    """A problem for each key that looks like one of attention or mixtures, is set, and was not read."""
    for key, value in fields.config.items():
        if key in fields.used or not value or not isinstance(key, str):
            continue
        if _STRUCTURE.search(key) and not _HARMLESS.fullmatch(key):
            shown = value if isinstance(value, str | int | float) else type(value).__name__
            rule = "a field that is known: it may change the attention or the experts"
            fields.wrong(key, shown, rule, "give a measured profile of this model, or remove the field if it does not")
