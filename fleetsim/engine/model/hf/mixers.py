"""What each layer of a config.json does among the tokens: attention to all or to the last ones, or a state."""

from __future__ import annotations

from typing import Any

from fleetsim.engine.model.hf.fields import Fields
from fleetsim.engine.model.indexer import Indexer
from fleetsim.engine.model.mixers import Attention, CompressedAttention, LatentAttention
from fleetsim.engine.model.shape import Mixer
from fleetsim.engine.model.states import GatedDelta, KimiDelta, LightningAttention, StateMixer
from fleetsim.records import replace

_GATED = ("qwen3_next", "qwen3_5")  # attention with an output gate
_QK_NORM = ("qwen3", "gemma3", "gemma4", "olmo2", "olmo3", "minimax_m", "hunyuan")
# Of so many layers the last one sees everything, where config.json does not say.
_GLOBAL_EVERY = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "llama4": 4, "llama4_text": 4}
_FULL, _NEAR, _STATE = "full", "near", "state"
# The names in `layer_types`. Whether attention is sparse, other keys tell.
_KINDS = {
    "full_attention": _FULL, "attention": _FULL, "global_attention": _FULL, "deepseek_sparse_attention": _FULL,
    "sliding_attention": _NEAR, "chunked_attention": _NEAR, "linear_attention": _STATE,
}  # fmt: skip


def read_mixers(fields: Fields, layers: int, hidden: int) -> list[Mixer]:
    """The mixer of each layer, in order."""
    if fields.get("compress_ratios") is not None:
        return _compressed(fields, layers)
    kinds, window = _kinds(fields, layers)
    full = _full(fields, hidden)
    near = _near(fields, full, window) if _NEAR in kinds else full
    state: Mixer = _state(fields, full) if _STATE in kinds else full
    if all(kind == _STATE for kind in kinds):
        fields.wrong("layer_types", "linear_attention", "at least one layer of full attention", "check the file")
    mixers: list[Mixer] = [{_FULL: full, _NEAR: near, _STATE: state}[kind] for kind in kinds]
    return _sharing(fields, _sparse(fields, mixers))


def _kinds(fields: Fields, layers: int) -> tuple[list[str], int]:
    """What each layer is, and the tokens that the near ones look back."""
    window = _window(fields)
    listed = fields.listed("layer_types", layers)
    pattern = fields.listed("hybrid_layer_pattern", layers)
    types = fields.listed("attn_type_list", layers)
    every = fields.count("full_attention_interval", default=1)
    if listed is not None:
        kinds = _named_kinds(fields, listed)
    elif pattern is not None:
        kinds = [_NEAR if kind else _FULL for kind in pattern]
    elif types is not None:
        kinds = [_FULL if kind else _STATE for kind in types]
    elif fields.get("linear_attn_config") is not None:
        numbers = fields.nested("linear_attn_config").get("kda_layers")
        fields.nested("linear_attn_config").get("full_attn_layers")
        kinds = [_STATE if isinstance(numbers, list) and i + 1 in numbers else _FULL for i in range(layers)]
    elif every > 1:
        kinds = [_FULL if (i + 1) % every == 0 else _STATE for i in range(layers)]
    else:
        kinds = _window_kinds(fields, layers)
    return ([kind if window or kind != _NEAR else _FULL for kind in kinds]), window


def _named_kinds(fields: Fields, names: list[Any]) -> list[str]:
    known = {name: _KINDS.get(name, "") for name in names}
    for name, kind in known.items():
        if not kind:
            fields.wrong("layer_types", name, f"a kind of layer that is known: {', '.join(_KINDS)}")
    return [known[name] or _FULL for name in names]


def _window(fields: Fields) -> int:
    """Tokens that the near layers look back; 0 where all layers see everything."""
    window = fields.count("attention_chunk_size" if _in_chunks(fields) else "sliding_window", default=0, least=0)
    used = fields.flag("use_sliding_window", default=not fields.family.startswith("qwen"))
    return window if used else 0


def _in_chunks(fields: Fields) -> bool:
    """Whether they look back to the last multiple of that instead."""
    return fields.get("attention_chunk_size") is not None and fields.family.startswith("llama4")


def _window_kinds(fields: Fields, layers: int) -> list[str]:
    """Near and full layers where no list tells of them."""
    family = fields.family
    if fields.get("sliding_window_pattern") is not None or family in _GLOBAL_EVERY:
        every = fields.count("sliding_window_pattern", default=_GLOBAL_EVERY.get(family, layers))
        return [_NEAR if (i + 1) % every else _FULL for i in range(layers)]
    first = fields.count("max_window_layers", default=0, least=0)  # of Qwen: those below it see everything
    return [_NEAR if i >= first or not family.startswith("qwen") else _FULL for i in range(layers)]


def _full(fields: Fields, hidden: int) -> Attention | LatentAttention:
    """A layer that sees everything."""
    heads = fields.count("num_attention_heads")
    head_dim = fields.count("global_head_dim", "head_dim", "attention_head_dim", default=0)
    k_is_v = fields.flag("attention_k_eq_v", default=False)
    kv_keys = ("num_global_key_value_heads", "num_key_value_heads") if k_is_v else ("num_key_value_heads",)
    kv_heads = fields.count(*kv_keys, default=heads)
    latent = fields.get("kv_lora_rank") is not None
    if not fields.problems and not latent:
        if head_dim == 0 and hidden % heads:
            fields.wrong("hidden_size", hidden, f"a multiple of num_attention_heads ({heads})", "give head_dim")
        if heads % kv_heads:
            fields.wrong("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads ({heads})", "check both")
    if latent:
        return LatentAttention(
            heads,
            q_lora_rank=fields.count("q_lora_rank", default=0, least=0),
            kv_lora_rank=fields.count("kv_lora_rank"),
            qk_nope_head_dim=fields.count("qk_nope_head_dim"),
            qk_rope_head_dim=fields.count("qk_rope_head_dim"),
            v_head_dim=fields.count("v_head_dim"),
            gate=fields.flag("mla_use_output_gate", default=False),
        )
    head_dim = head_dim or max(1, hidden // heads)
    value = fields.count("v_head_dim", default=0, least=0)
    return Attention(
        heads,
        kv_heads,
        head_dim,
        value_dim=0 if value == head_dim else value,
        bias=fields.flag("attention_bias", "qkv_bias", "use_qkv_bias", default=fields.family.startswith("qwen2")),
        qk_norm=fields.flag("use_qk_norm", default=fields.family.startswith(_QK_NORM)),
        gate=fields.flag("attn_output_gate", "attention_output_gate", default=fields.family.startswith(_GATED)),
        k_is_v=k_is_v,
    )


def _near(fields: Fields, full: Attention | LatentAttention, window: int) -> Mixer:
    """A layer that looks back `window` tokens: as the full ones, but for the keys that tell otherwise."""
    if isinstance(full, LatentAttention):
        return replace(full, window=window)
    heads = fields.count("swa_num_attention_heads", default=full.heads)
    kv_heads = fields.count("swa_num_key_value_heads", "num_key_value_heads", default=full.kv_heads)
    head_dim = fields.count("swa_head_dim", "head_dim", default=full.head_dim)
    value = fields.count("swa_v_head_dim", default=full.value_dim, least=0)
    return replace(
        full, heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_dim=0 if value == head_dim else value,
        window=window, chunked=_in_chunks(fields), k_is_v=False,
    )  # fmt: skip


def _state(fields: Fields, full: Attention | LatentAttention) -> StateMixer:
    """A layer with a state, by the keys of its family."""
    if fields.get("linear_attn_config") is not None:
        inner = fields.nested("linear_attn_config")
        return KimiDelta(
            inner.count("num_heads"),
            inner.count("head_dim"),
            inner.count("short_conv_kernel_size", default=4),
            inner.flag("use_full_rank_gate", default=False),
        )
    if fields.family.startswith("minimax") and isinstance(full, Attention):
        return LightningAttention(full.heads, full.head_dim)
    return GatedDelta(
        key_heads=fields.count("linear_num_key_heads"),
        value_heads=fields.count("linear_num_value_heads"),
        key_head_dim=fields.count("linear_key_head_dim"),
        value_head_dim=fields.count("linear_value_head_dim"),
        conv_kernel=fields.count("linear_conv_kernel_dim", default=4),
    )


def _sparse(fields: Fields, mixers: list[Mixer]) -> list[Mixer]:
    """The same layers with the indexers of sparse attention, where there are some."""
    layers = len(mixers)
    if fields.get("index_topk") is not None:
        rank = fields.count("q_lora_rank", default=0, least=0)
        heads, head_dim = fields.count("index_n_heads"), fields.count("index_head_dim")
        own = Indexer(heads, head_dim, fields.count("index_topk"), rank)
        kinds = fields.listed("indexer_types", layers) or ["full"] * layers
        picks: list[Indexer | None] = [replace(own, shared=kind == "shared") for kind in kinds]
    elif fields.get("sparse_attention_config") is not None:
        inner = fields.nested("sparse_attention_config")
        if not inner.flag("use_sparse_attention", default=True):
            return mixers
        block = inner.count("sparse_topk_blocks") * inner.count("sparse_block_size")
        heads, head_dim = inner.count("sparse_num_index_heads"), inner.count("sparse_index_dim")
        own = Indexer(heads, head_dim, block, element_bytes=2)
        often = inner.listed("sparse_attention_freq", layers) or [1] * layers
        picks = [own if on else None for on in often]
    else:
        return mixers
    return [
        m if isinstance(m, StateMixer | CompressedAttention) else replace(m, indexer=picks[i])
        for i, m in enumerate(mixers)
    ]


def _sharing(fields: Fields, mixers: list[Mixer]) -> list[Mixer]:
    """The same layers, but those that read the keys and values of an earlier layer have none."""
    layers = len(mixers)
    shared = fields.count("num_kv_shared_layers", default=0, least=0)
    factor = fields.count("cla_share_factor", default=1) if fields.flag("use_cla", default=False) else 1
    if not shared and factor == 1:
        return mixers
    return [
        replace(m, kv_shared=i >= layers - shared or i % factor > 0) if isinstance(m, Attention) else m
        for i, m in enumerate(mixers)
    ]


def _compressed(fields: Fields, layers: int) -> list[Mixer]:
    """DeepSeek-V4: a ratio for each layer, and one more for each layer of multi-token prediction."""
    value = fields.get("compress_ratios")
    good = isinstance(value, list) and all(isinstance(v, int) and 0 <= v <= 2**20 for v in value)
    if not good or len(value) < layers:
        fields.wrong("compress_ratios", type(value).__name__, f"a list of at least {layers} integers", "copy it whole")
        value = [0] * layers
    rank = fields.count("q_lora_rank")
    picks = Indexer(
        fields.count("index_n_heads"), fields.count("index_head_dim"), fields.count("index_topk"), rank, False
    )
    base = CompressedAttention(
        heads=fields.count("num_attention_heads"),
        head_dim=fields.count("head_dim"),
        q_rank=rank,
        o_rank=fields.count("o_lora_rank"),
        o_groups=fields.count("o_groups"),
        window=fields.count("sliding_window"),
    )
    smallest = min((ratio for ratio in value if ratio), default=0)
    return [
        replace(base, ratio=ratio, indexer=picks if ratio and ratio == smallest else None) for ratio in value[:layers]
    ]
