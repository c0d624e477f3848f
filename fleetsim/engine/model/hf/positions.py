"""How many tokens a model was made to read."""

from __future__ import annotations

from collections.abc import Mapping

from fleetsim.engine.model.hf.fields import Fields

_MOST_SCALING = 4096


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
