"""What each layer of a config.json does among the tokens: attention to all or to the last ones, or a state.

Some configs list their layers one by one: a mixer or an MLP alone (Nemotron-H), or cut to size (Nemotron NAS).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetsim.engine.model.hf.fields import Fields
from fleetsim.engine.model.hf.mlps import gated_mlp, read_mixture
from fleetsim.engine.model.indexer import Indexer
from fleetsim.engine.model.mixers import Attention, CompressedAttention, LatentAttention
from fleetsim.engine.model.mlps import Dense, Mlp
from fleetsim.engine.model.shape import Mixer
from fleetsim.engine.model.states import StateMixer, gated_delta, kimi_delta, lightning_attention, mamba2
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
        return kimi_delta(
            inner.count("num_heads"),
            inner.count("head_dim"),
            inner.count("short_conv_kernel_size", default=4),
            inner.flag("use_full_rank_gate", default=False),
        )
    if fields.family.startswith("minimax") and isinstance(full, Attention):
        return lightning_attention(full.heads, full.head_dim)
    return gated_delta(
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


Layer = tuple[Mixer | None, Mlp | None]
_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_MOST_LAYERS = 4096
# Widths of Nemotron NAS are rounded up to a multiple of this (its config class, `_find_multiple`).
_WIDTH_STEP = 256


def listed_layers(fields: Fields, hidden: int) -> list[Layer] | None:
    """The layers, where the config lists each with what it is made of; None for the usual ones."""
    if fields.get("block_configs") is not None:
        return _blocks(fields, hidden)
    pattern, kinds = fields.get("hybrid_override_pattern"), fields.get("layers_block_type")
    if pattern is None and kinds is None:
        return None
    key = "layers_block_type" if kinds is not None else "hybrid_override_pattern"
    named = kinds if kinds is not None else [_LETTERS.get(letter, letter) for letter in str(pattern)]
    good = isinstance(named, list) and 0 < len(named) <= _MOST_LAYERS
    if not good or not all(isinstance(kind, str) and kind in _LETTERS.values() for kind in named):
        fields.wrong(key, pattern if kinds is None else "a list", f"layers of {', '.join(_LETTERS.values())} only")
        return []
    made = {kind: _nemotron(fields, kind) for kind in sorted(set(named))}
    return [made[kind] for kind in named]


def _nemotron(fields: Fields, kind: str) -> Layer:
    """A layer of Nemotron-H: one of the four."""
    if kind == "attention":
        heads = fields.count("num_attention_heads")
        kv_heads = fields.count("num_key_value_heads", default=heads)
        return Attention(heads, kv_heads, fields.count("head_dim", "attention_head_dim")), None
    if kind == "mamba":
        wide = fields.get("mamba_ssm_cache_dtype") == "float32"
        heads, head_dim = fields.count("mamba_num_heads"), fields.count("mamba_head_dim")
        state, groups = fields.count("ssm_state_size"), fields.count("n_groups", default=8)
        kernel = fields.count("conv_kernel", default=4)
        return mamba2(heads, head_dim, state, groups, kernel, state_element=4 if wide else 2), None
    intermediate = fields.count("intermediate_size")
    if kind == "mlp":
        return None, Dense(intermediate, gated_mlp(fields))
    return None, read_mixture(fields, fields.count("n_routed_experts"), intermediate)


def _blocks(fields: Fields, hidden: int) -> list[Layer]:
    """The layers of Nemotron NAS: attention and MLP of each, or nothing in its place."""
    blocks = fields.get("block_configs")
    heads = fields.count("num_attention_heads")
    head_dim = max(1, hidden // heads)
    layers: list[Layer] = []
    for i, block in enumerate(blocks if isinstance(blocks, list) else [None]):
        if not isinstance(block, Mapping) or len(layers) >= _MOST_LAYERS:
            fields.wrong("block_configs", type(block).__name__, "a list of JSON objects, one per layer")
            break
        attention, ffn = _part(fields, block, "attention", i), _part(fields, block, "ffn", i)
        mixer: Mixer | None = None
        if attention.get("no_op") is not True:
            group = attention.get("n_heads_in_group")
            if not isinstance(group, int) or isinstance(group, bool) or group < 1 or heads % group:
                fields.wrong(f"block_configs[{i}].attention.n_heads_in_group", group, f"a divisor of {heads}")
                group = 1
            window = attention.get("window_length")
            mixer = Attention(heads, heads // group, head_dim, window=window if type(window) is int else 0)
        layers.append((mixer, None if ffn.get("no_op") is True else Dense(_ffn_width(fields, ffn, hidden, i))))
    return layers


def _part(fields: Fields, block: Mapping[str, Any], name: str, i: int) -> Mapping[str, Any]:
    part = block.get(name)
    if not isinstance(part, Mapping):
        fields.wrong(f"block_configs[{i}].{name}", type(part).__name__, "a JSON object")
        return {"no_op": True}
    for key in ("replace_with_linear", "sparsify"):
        if part.get(key):
            fields.wrong(f"block_configs[{i}].{name}.{key}", True, "not supported yet", "give a measured profile")
    return part


def _ffn_width(fields: Fields, ffn: Mapping[str, Any], hidden: int, i: int) -> int:
    mult = ffn.get("ffn_mult")
    if not isinstance(mult, int | float) or isinstance(mult, bool) or not 0 < mult <= 64:
        fields.wrong(f"block_configs[{i}].ffn.ffn_mult", mult, "a number in (0, 64]")
        return 1
    return -(-int(2 * mult * hidden / 3) // _WIDTH_STEP) * _WIDTH_STEP
