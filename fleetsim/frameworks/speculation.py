"""Speculative decoding as engines are asked for it: vLLM's `speculative_config`, SGLang's `speculative_*` arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetsim.config.speculation import CURVES, STANDS_IN
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Back, Read, one_line
from fleetsim.json_text import from_json

PATH = "engine.speculation"
# What the engines' methods are here. vLLM: vllm/config/speculative.py (each model's own MTP is "mtp" as well);
# SGLang: python/sglang/srt/server_args.py, where EAGLE without a draft model runs the model's MTP layer.
_VLLM = {
    "mtp": "mtp",
    "eagle": "eagle3",
    "eagle3": "eagle3",
    "draft_model": "draft_model",
    "ngram": "ngram",
    "ngram_gpu": "ngram",
    "suffix": "suffix",
}
_SGLANG = {"eagle": "mtp", "nextn": "mtp", "eagle3": "eagle3", "standalone": "draft_model", "ngram": "ngram"}
_REMEDY = "--set engine.speculation.acceptance_length=TOKENS, from the engine's log"


def vllm_drafts(
    draft: Draft,
    section: str,
    *,
    switch: Read[bool] | None = None,
    alone: str = "",
    written: str = "",
) -> bool:
    """What a section in vLLM's words asks for; False where it asks for nothing.

    section: the prefix of its keys, with the dot. switch: what turns it on. alone:
    the method where none is named. written: the prefix as it is written, where a framework wants a sign before it.
    """
    _opened(draft, section.rstrip("."))
    method = draft.maybe_text(f"{section}method")
    if method is None and not alone:
        draft.could(f"{PATH}.method", None, lambda want: {f"{written or section}method": want}, None)
        return False
    method = method or Read(f"{section}method", alone, False)
    word = method.value.lower()
    known = _VLLM.get("mtp" if word.endswith("_mtp") else word)
    k = draft.maybe_count(f"{section}num_speculative_tokens", f"{section}num_draft_tokens")
    if k is None:
        k = Read(f"{section}num_speculative_tokens", 1, False)
    model = draft.maybe_text(f"{section}model", f"{section}draft_model_path")
    if method.given:
        draft.could(f"{PATH}.draft_model", None, Read(f"{written or section}model", "", False).written, None)
    if not _put(draft, method, known, Read(_as_written(k, section, written), k.value, k.given), model, switch):
        return True
    above = draft.maybe_count(f"{section}disable_by_batch_size")
    if above is None:
        key = f"{written or section}disable_by_batch_size"
        draft.could(f"{PATH}.off_above_batch", None, Read(key, 0, False).written, None)
    else:
        draft.put(f"{PATH}.off_above_batch", above.value, above)
    return True


def sglang_drafts(draft: Draft, prefix: str, *, defaults: tuple[str, int, int] | None = None) -> bool:
    """What SGLang's arguments ask for; False where they ask for nothing.

    prefix: in front of `speculative_algorithm`. defaults: the framework's algorithm, steps and draft tokens.
    """
    algorithm = draft.maybe_text(f"{prefix}speculative_algorithm")
    if algorithm is None and defaults is None:
        draft.could(f"{PATH}.method", None, _algorithm(f"{prefix}speculative_algorithm"), None)
        return False
    word, steps_default, tokens_default = defaults or ("", 3, 4)
    algorithm = algorithm or Read(f"{prefix}speculative_algorithm", word, False)
    steps = draft.count(f"{prefix}speculative_num_steps", default=steps_default)
    model = draft.maybe_text(f"{prefix}speculative_draft_model_path")
    known = _SGLANG.get(algorithm.value.lower())
    if known == "mtp" and model is not None:
        known = "eagle3"
    if not _put(draft, algorithm, known, steps, model, None):
        return True
    tokens = draft.count(f"{prefix}speculative_num_draft_tokens", default=tokens_default, least=2)
    if tokens.value != steps.value + 1 and tokens.given:
        draft.put(f"{PATH}.num_draft_tokens", tokens.value, tokens, why="a tree")
    else:
        draft.could(f"{PATH}.num_draft_tokens", None, lambda want: tokens.written(want or steps.value + 1))
    if draft.values[f"{PATH}.method"] == "draft_model":
        draft.could(f"{PATH}.draft_model", None, Read(f"{prefix}speculative_draft_model_path", "", False).written, None)
    draft.settings.get(f"{prefix}speculative_eagle_topk")  # how the tree branches; its size says what it costs
    return True


def frozen(draft: Draft, setting: str) -> None:
    """A drafter that is not trained along: nothing says how fast it falls behind the weights."""
    if f"{PATH}.method" in draft.values and draft.values[f"{PATH}.method"] not in ("ngram", "suffix"):
        why = "a drafter that is not trained is accepted less with each version"
        draft.note(setting, f"{why}: --set engine.speculation.decay_per_version=SHARE")


def _put(
    draft: Draft,
    method: Read[str],
    known: str | None,
    k: Read[int],
    model: Read[str] | None,
    switch: Read[bool] | None,
) -> bool:
    """The section's values; False, and a note, where it cannot be simulated."""
    shown = str(method)
    if known is None:
        draft.note(shown, "no method of drafting that is simulated: one token an iteration")
        return False
    if known == "draft_model" and model is None:
        draft.note(shown, "speculative decoding: the draft model is not named")
        return False
    reads = (method,) if switch is None else (switch, method)
    draft.put(f"{PATH}.method", known, *reads, back=method.written if method.value.lower() == known else None)
    draft.put(f"{PATH}.num_speculative_tokens", min(k.value, 64), k)
    if known == "draft_model" and model is not None:
        draft.put(f"{PATH}.draft_model", model.value, model)
    stands_in = STANDS_IN[known]
    if isinstance(stands_in, str) and k.value > len(CURVES[stands_in].lengths):
        stands_in = STANDS_IN["draft_model"]
    field = "curve" if isinstance(stands_in, str) else "acceptance"
    draft.assume(f"{PATH}.{field}", stands_in, "acceptance is in no configuration", _REMEDY)
    return True


def _opened(draft: Draft, section: str) -> None:
    """A section that is given as JSON text (`--speculative_config '{"method": "mtp"}'`) as keys below it."""
    found = draft.settings.get(section)
    if found is None or not isinstance(found[1], str):
        return
    try:
        inner = from_json(found[1])
    except ValueError:
        inner = None
    if not isinstance(inner, dict):
        draft.refuse(found[0].key, one_line(found[1]), "must be a JSON object", 'such as {"method": "mtp"}')
        return
    for key, value in inner.items():
        if draft.settings.get(f"{section}.{key}") is None:
            draft.settings.add(f"{section}.{key}", value, found[0].where)


def _as_written(k: Read[int], section: str, written: str) -> str:
    return k.key.replace(section, written, 1) if written and not k.given else k.key


def _algorithm(key: str) -> Back:
    """SGLang's word for a method; its own MTP layer is EAGLE without a draft model."""

    def back(want: Any) -> Mapping[str, Any] | None:
        word = next((word for word, meant in _SGLANG.items() if meant == want), None)
        return None if word is None else {key: word.upper()}

    return back
