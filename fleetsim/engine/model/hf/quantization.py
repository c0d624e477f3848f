"""In which precision a checkpoint stores each part of its weights, as its quantization_config tells.

Each tool has a spelling of its own: quant_method fp8 (DeepSeek, Qwen), gptq, awq, mxfp4 (gpt-oss), compressed-tensors
(bits and type of groups of layers), ModelOpt (an algorithm, in config.json or in hf_quant_config.json) and Quark. What
each leaves out in 16 bits it lists by the names of modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fleetsim.engine.model.hf.fields import COPY, Fields
from fleetsim.engine.model.precision import Parts
from fleetsim.records import replace

_WIDE = {"bfloat16": "bfloat16", "float16": "float16", "float32": "bfloat16", "half": "float16", "auto": "bfloat16"}
# vLLM's names, model_executor/layers/quantization, and those of ModelOpt's algorithms.
_BY_NAME = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "ptpc_fp8": "fp8", "float-quantized": "fp8", "fp8_pb_wo": "fp8",
    "fp8_per_channel_per_token": "fp8", "fp8_pb_real": "fp8", "nvfp4": "nvfp4", "w4a16_nvfp4": "nvfp4",
    "modelopt_fp4": "nvfp4", "nvfp4-pack-quantized": "nvfp4", "nvfp4_awq": "nvfp4", "mxfp4": "mxfp4",
    "mxfp4-pack-quantized": "mxfp4", "w4a16_awq": "int4", "w4a16": "int4",
}  # fmt: skip
_LISTS = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "exclude")
_SMALL_BY_NAME = re.compile(r"(?i)\b(nv|mx)?fp[48]\b|\bint[48]\b|\bw[48]a(8|16)\b|\bawq\b|\bgptq\b")
_MOST_NAMES = 100_000
# What the names of modules belong to. Norms, routers, indexers and what is not of the language model are no part.
_NO_PART = re.compile(
    r"norm|router|bias|index|embed|vision|visual|mtp|eh_proj|conv1d|gate\W*$|gate\.|kv_[ab]_proj|shared_head"
)
_EXPERT = re.compile(r"(?<!shared_)(?<!shared)experts?\b(?!_gate)")
_MLP = re.compile(r"shared_?experts?|mlp|ffn|feed_forward")
_ATTENTION = re.compile(r"attn|attention|mixer")
_LAYER = re.compile(r"(?:layers|h|blocks)\\?\.(\d+)")
_PARTS = ("attention", "mlp", "expert")


def read_parts(fields: Fields, name: str, layers: int, experts: bool) -> tuple[Parts, str, tuple[str, ...]]:
    """The precision of each part, that of the KV cache, and notes on what cannot be counted.

    Any other quantization than those of `PRECISIONS` is a problem.
    """
    wide = _wide(fields)
    parts = Parts(wide, wide, wide, wide)
    own = fields.get("expert_dtype")
    quant = fields.get("quantization_config") or fields.get("compression_config")
    if quant is None:
        said = _SMALL_BY_NAME.search(name)
        note = f"its name says {said[0]} and its config.json nothing: weights in 16 bits are counted" if said else ""
        return parts, wide, (note,) if note else ()
    if not isinstance(quant, Mapping):
        quant = {"quant_method": quant}
    routed = _named(quant.get("moe_quant_algo")) or ("mxfp4" if own == "fp4" else "")
    kind = _named(quant.get("quant_method")) if routed else _kind(fields, quant)
    if kind is not None:
        parts = _split(parts, kind, {} if routed else quant, layers) if kind else parts
    if routed:  # DeepSeek-V4: experts of their own precision in a checkpoint of another
        parts = replace(parts, expert=routed)
    if not experts:
        parts = replace(parts, expert=parts.mlp)
    return parts, _cache(quant, wide), ()


def _wide(fields: Fields) -> str:
    """The type of what is not quantized."""
    value = fields.get("torch_dtype")
    value = fields.get("dtype") if value is None else value
    if value is None:
        return "bfloat16"
    if isinstance(value, str) and value in _WIDE:
        return _WIDE[value]
    fields.wrong("torch_dtype", value, f"one of {', '.join(sorted(_WIDE))}", COPY)
    return "bfloat16"


def _named(value: object) -> str:
    return _BY_NAME.get(str(value or "").lower(), "")


def _kind(fields: Fields, quant: Mapping[str, Any]) -> str | None:
    """The precision of what is quantized; "mixed" where groups of layers differ; None with a problem."""
    method = str(quant.get("quant_method") or quant.get("quant_algo") or "unnamed").lower()
    groups = [_weights_kind(w) for w, _ in _groups(quant)]
    algorithm = str(quant.get("quant_algo") or "").lower()
    if groups and "" not in groups and len(set(groups)) == 1:
        return groups[0]
    told = all(targets is not None for _, targets in _groups(quant))
    if (groups and "" not in groups and told) or (algorithm == "mixed_precision" and _layered(quant)):
        return "mixed"
    if groups:
        kind = " and ".join(sorted({f"{w.get('type')}{w.get('num_bits')}" for w, _ in _groups(quant)}))
    elif method in ("gptq", "awq", "auto-round", "gptq_marlin", "awq_marlin"):
        bits = quant.get("bits", quant.get("w_bit"))
        if bits == 4 and not isinstance(bits, bool):
            return "int4g32" if quant.get("group_size") == 32 else "int4"
        kind = f"{method} of {bits} bits" if bits is not None else method
    elif method == "quark":
        kind = str(_inner(_inner(quant.get("global_quant_config")).get("weight")).get("dtype"))
        found = {"fp4": "mxfp4", "fp8_e4m3": "fp8"}.get(kind)
        if found:
            return found
    else:
        found = _named(algorithm) or _named(method) or _named(quant.get("format"))
        if found:
            return found
        kind = algorithm or str(quant.get("format") or "") or method
    rule = f"weights of {kind} cannot be counted: only bfloat16, float16, fp8, nvfp4, mxfp4 and int4 can"
    remedy = "give the config.json of the model before quantization, or a measured profile of this one"
    fields.wrong("quantization_config", method, rule, remedy)
    return None


def _inner(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _groups(quant: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], list[str] | None]]:
    """Weights and targets of each group of layers, as compressed-tensors and ModelOpt describe them."""
    found = _inner(quant.get("config_groups")).values()
    rows = [(_inner(g.get("weights")), g.get("targets")) for g in found if isinstance(g, Mapping)]
    return [(w, _texts(targets) if isinstance(targets, list) else None) for w, targets in rows if w]


def _texts(value: list[Any]) -> list[str]:
    return [v for v in value[:_MOST_NAMES] if isinstance(v, str)]


def _weights_kind(weights: Mapping[str, Any]) -> str:
    """The precision of a group's weights; empty where it is none of ours."""
    bits, kind, group = weights.get("num_bits"), weights.get("type"), weights.get("group_size")
    if kind == "float" and bits == 8:
        return "fp8"
    if kind == "float" and bits == 4:
        return "mxfp4" if group == 32 else "nvfp4"
    if kind == "int" and bits == 4:
        return "int4g32" if group == 32 else "int4"
    return ""


def _layered(quant: Mapping[str, Any]) -> Mapping[str, Any]:
    return _inner(quant.get("quantized_layers"))


def _rules(quant: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Precision and the name of a module, of each that is named."""
    layered = _layered(quant)
    if layered:
        for name, how in list(layered.items())[:_MOST_NAMES]:
            yield _named(_inner(how).get("quant_algo")), name
        return
    for weights, targets in _groups(quant):
        for name in targets or ():
            yield _weights_kind(weights), name


def _split(parts: Parts, kind: str, quant: Mapping[str, Any], layers: int) -> Parts:
    """The parts with what the quantization changes of them. parts: as they are without it."""
    if kind == "mixed":
        return _by_name(parts, quant)
    if kind == "mxfp4" and quant.get("quant_method") == "mxfp4":
        return replace(parts, expert="mxfp4")
    left = _left_out(quant, layers)
    return replace(parts, **{part: kind for part in _PARTS if part not in left})


def _by_name(parts: Parts, quant: Mapping[str, Any]) -> Parts:
    """Each part in the precision that most of its named modules have."""
    votes: dict[str, dict[str, int]] = {}
    for kind, name in _rules(quant):
        part = "head" if "lm_head" in name else _part(name)
        if part and kind:
            counts = votes.setdefault(part, {})
            counts[kind] = counts.get(kind, 0) + 1
    chosen = {part: max(counts, key=lambda kind: counts[kind]) for part, counts in votes.items()}
    chosen.pop("head", None)  # it and the embedding are one part here, and the embedding stays in 16 bits
    return replace(parts, **chosen)


def _part(name: str) -> str:
    """The part that a module belongs to; empty for what is no part."""
    if _NO_PART.search(name):
        return ""
    for part, words in (("expert", _EXPERT), ("mlp", _MLP), ("attention", _ATTENTION)):
        if words.search(name):
            return part
    return ""


def _left_out(quant: Mapping[str, Any], layers: int) -> set[str]:
    """Parts that are left in 16 bits in more than half of the layers, by the lists of what is not quantized."""
    names = [n for key in _LISTS if isinstance(quant.get(key), list) for n in _texts(quant[key])]
    seen: dict[str, set[int]] = {part: set() for part in _PARTS}
    for name in names:
        part, layer = _part(name), _LAYER.search(name)
        which = set(range(layers)) if layer is None else {int(layer[1])}
        if part:
            seen[part] |= which
        elif layer is not None and not _NO_PART.search(name):  # a whole layer
            for part in _PARTS:
                seen[part] |= which
    return {part for part, found in seen.items() if 2 * len(found) > layers}


def _cache(quant: Mapping[str, Any], wide: str) -> str:
    """The type of the KV cache that the checkpoint asks for."""
    return "fp8" if quant.get("kv_cache_scheme") or quant.get("kv_cache_quant_algo") else wide
