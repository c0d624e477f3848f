"""What engines have beside their own GPUs and weights: prefill engines of their own, adapters, drafts of tokens.

Speculative decoding as the frameworks configure it: `engine.speculation`, and what decides its acceptance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fleetsim.config.speculation import CURVES, STANDS_IN
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, one_line, worded, writes
from fleetsim.json_text import from_json

SIDES, ADAPTERS = "engine.disaggregation", "engine.lora"
# The ranks that vLLM has kernels for (vllm/config/lora.py, `MaxLoRARanks`).
VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def replicas(draft: Draft, section: str, tp: Read[int]) -> Read[int] | None:
    """verl's replica with engines of both kinds: its GPUs; None where one kind does all.

    section: the prefix of the keys. tp: GPUs of a prefill engine, and of the others where they have no own number.
    It puts `engine.tp` as well. Source: verl/workers/config/disaggregation.py, `DisaggregationConfig`.
    """
    apart = draft.flag(f"{section}.enabled", default=False)
    prefill = draft.count(f"{section}.prefill_replicas", default=1)
    decode = draft.count(f"{section}.decode_replicas", default=1)
    both = lambda want: {apart.key: want is not None, **({} if want is None else {prefill.key: want})}  # noqa: E731
    if not apart.value:
        draft.could(f"{SIDES}.prefill", None, both, None)
        return None
    own = draft.maybe_count(f"{section}.decode_tensor_model_parallel_size")
    own = own or Read(f"{section}.decode_tensor_model_parallel_size", tp.value, False)
    draft.put("engine.tp", own.value, own if own.given else tp, back=own.written)
    draft.put(f"{SIDES}.prefill", prefill.value, apart, prefill, back=both)
    draft.put(f"{SIDES}.decode", decode.value, decode)
    same = lambda want: tp.written(own.value if want is None else want)  # noqa: E731 null is as many as decode
    draft.where(tp.value != own.value, f"{SIDES}.prefill_tp", tp.value, tp, back=same)
    gpus = prefill.value * tp.value + decode.value * own.value
    words = f"{prefill} x {tp.value} + {decode} x {own.value}"
    return Read(words, gpus, apart.given or prefill.given or decode.given)


def pooled(draft: Draft, engines: Read[int], prefill: Read[int] | None, key: str, others: Mapping[str, Any]) -> int:
    """Engines of one pool, of which some compute prompts: it puts both sides of an instance and how many there are.

    The pool is as many alike instances as its two numbers have in common. engines: all of them. prefill: those that
    compute prompts, None where every one does all; key: where they stand, others: what they need beside. Returns the
    number of instances.
    """

    def said(instances: int, sides: tuple[int, int]) -> Mapping[str, Any] | None:
        whole = engines.written(instances * sum(sides))
        return None if whole is None else {**others, key: instances * sides[0], **whole}

    if prefill is None:
        draft.could(f"{SIDES}.prefill", None, lambda want: said(engines.value, (want, 1)) if want else None, None)
        return engines.value
    rest = engines.value - prefill.value
    if rest < 1:
        rule = f"must leave engines to decode: {engines}"
        draft.refuse(prefill.key, prefill.value, rule, "lower it, or have more engines")
        return 1
    instances = math.gcd(prefill.value, rest)
    p, d = prefill.value // instances, rest // instances
    why = f"{prefill.value} engines compute prompts, {rest} decode"
    off: Mapping[str, Any] = {name: False for name, on in others.items() if on is True}

    def prompts(want: Any) -> Mapping[str, Any] | None:
        return (off or None) if want is None else said(instances, (want, d))

    draft.put(f"{SIDES}.prefill", p, prefill, engines, why=why, back=prompts)
    draft.put(f"{SIDES}.decode", d, prefill, engines, why=why, back=lambda want: said(instances, (p, want or 1)))
    draft.put("fleet.instances", instances, prefill, engines, why=why, back=lambda want: said(want, (p, d)))
    return instances


def adapter(draft: Draft, rank: Read[int], *, merged: Read[bool] | None = None) -> None:
    """LoRA in the engine: the adapter's rank, as the engine is started for it.

    vLLM's is rounded up to one that it has. merged: the trainer adds the adapter to the weights that it sends, so that
    the engine has none.
    """
    off, of_vllm = merged is not None and merged.value, draft.values.get("engine.name", "vllm") == "vllm"

    def back(want: Any) -> Mapping[str, Any] | None:
        if want is None:
            return {rank.key: 0}
        if of_vllm and want not in VLLM_RANKS:
            return None
        return {rank.key: want, **({} if merged is None else {merged.key: False})}

    if rank.value < 1 or off:
        draft.could(f"{ADAPTERS}.rank", None, back, None)
        return
    started = next((r for r in VLLM_RANKS if r >= rank.value), rank.value) if of_vllm else rank.value
    draft.put(f"{ADAPTERS}.rank", started, rank, why="the engine multiplies the adapter beside its weights", back=back)


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
    trained: Read[bool] | str,
    *,
    switch: Read[bool] | None = None,
    alone: str = "",
    written: str = "",
) -> None:
    """What a section in vLLM's words asks for.

    section: the prefix of its keys, with the dot. trained: whether the drafter is trained along; a text says of one
    that never is. switch: what turns it on. alone: the method where none is named. written: the prefix as it is
    written, where a framework wants a sign before it.
    """
    _opened(draft, section.rstrip("."))
    method = draft.maybe_text(f"{section}method")
    if method is None and not alone:
        draft.could(f"{PATH}.method", None, lambda want: {f"{written or section}method": want}, None)
        return
    method = method or Read(f"{section}method", alone, False)
    word = method.value.lower()
    known = _VLLM.get("mtp" if word.endswith("_mtp") else word)
    k = draft.count(f"{section}num_speculative_tokens", f"{section}num_draft_tokens", default=1)
    model = draft.maybe_text(f"{section}model", f"{section}draft_model_path")
    if method.given:
        draft.could(f"{PATH}.draft_model", None, writes(f"{written or section}model", ""), None)
    k_key = k.key.replace(section, written, 1) if written and not k.given else k.key
    if _put(draft, method, known, Read(k_key, k.value, k.given), model, switch):
        above, key = draft.maybe_count(f"{section}disable_by_batch_size"), f"{written or section}disable_by_batch_size"
        draft.where_said(f"{PATH}.off_above_batch", above, key, unless=None)
    _frozen(draft, trained)


def sglang_drafts(
    draft: Draft, prefix: str, trained: Read[bool] | str, *, defaults: tuple[str, int, int] | None = None
) -> None:
    """What SGLang's arguments ask for.

    prefix: in front of `speculative_algorithm`. trained: as of `vllm_drafts`. defaults: the framework's algorithm,
    steps and draft tokens.
    """
    algorithm = draft.maybe_text(f"{prefix}speculative_algorithm")
    if algorithm is None and defaults is None:
        key = f"{prefix}speculative_algorithm"
        draft.could(f"{PATH}.method", None, worded(_SGLANG, lambda word: {key: word.upper()}), None)
        return
    word, steps_default, tokens_default = defaults or ("", 3, 4)
    algorithm = algorithm or Read(f"{prefix}speculative_algorithm", word, False)
    steps = draft.count(f"{prefix}speculative_num_steps", default=steps_default)
    model = draft.maybe_text(f"{prefix}speculative_draft_model_path")
    known = _SGLANG.get(algorithm.value.lower())
    if known == "mtp" and model is not None:
        known = "eagle3"
    if not _put(draft, algorithm, known, steps, model, None):
        return
    tokens = draft.count(f"{prefix}speculative_num_draft_tokens", default=tokens_default, least=2)
    branches, as_many = tokens.given and tokens.value != steps.value + 1, steps.value + 1
    back = lambda want: tokens.written(want or as_many)  # noqa: E731 null is a line of them
    draft.where(branches, f"{PATH}.num_draft_tokens", tokens.value, tokens, why="a tree", back=back)
    if draft.values[f"{PATH}.method"] == "draft_model":
        draft.could(f"{PATH}.draft_model", None, writes(f"{prefix}speculative_draft_model_path", ""), None)
    draft.settings.get(f"{prefix}speculative_eagle_topk")  # how the tree branches; its size says what it costs
    _frozen(draft, trained)


def _frozen(draft: Draft, trained: Read[bool] | str) -> None:
    """A drafter that is not trained along: nothing says how fast it falls behind the weights."""
    along = isinstance(trained, Read) and trained.value
    if not along and draft.values.get(f"{PATH}.method", "ngram") not in ("ngram", "suffix"):
        why = "a drafter that is not trained is accepted less with each version"
        draft.note(str(trained), f"{why}: --set engine.speculation.decay_per_version=SHARE")


def _put(
    draft: Draft, method: Read[str], known: str | None, k: Read[int], model: Read[str] | None, switch: Read[bool] | None
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
            draft.settings.add(f"{section}.{key}", value)
