"""What engines have beside their own GPUs and weights: prefill engines of their own, and adapters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read

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
    if tp.value != own.value:
        draft.put(f"{SIDES}.prefill_tp", tp.value, tp, back=same)
    else:
        draft.could(f"{SIDES}.prefill_tp", None, same)
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


def adapter(draft: Draft, rank: Read[int], *, merged: Read[bool] | None = None, of_vllm: bool = True) -> None:
    """LoRA in the engine: the adapter's rank, as the engine is started for it.

    merged: the trainer adds the adapter to the weights that it sends, so that the engine has none. of_vllm: the rank is
    rounded up to one that vLLM has.
    """
    off = merged is not None and merged.value

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
