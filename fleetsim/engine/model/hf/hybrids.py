"""Layers that a config.json lists one by one: a mixer or an MLP alone (Nemotron-H), or cut to size (Nemotron NAS)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetsim.engine.model.hf.fields import Fields
from fleetsim.engine.model.hf.mlps import gated_mlp, read_mixture
from fleetsim.engine.model.mixers import Attention
from fleetsim.engine.model.mlps import Dense, Mlp
from fleetsim.engine.model.shape import Mixer
from fleetsim.engine.model.states import Mamba2

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
        return Mamba2(heads, head_dim, state, groups, kernel, state_element=4 if wide else 2), None
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
