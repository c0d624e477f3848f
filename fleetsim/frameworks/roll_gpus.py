"""ROLL's GPUs: the lists of its roles, and the engine on those of the rollout. Sources: `roll.py`."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from fleetsim.frameworks import common
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Back, Read, one_line, times
from fleetsim.frameworks.sides import frozen, sglang_drafts, vllm_drafts

_RANGE = re.compile(r"\s*(?:list\(\s*)?range\(\s*(\d{1,5})\s*(?:,\s*(\d{1,5})\s*)?(?:,\s*(\d{1,3})\s*)?\)\s*\)?\s*")
_LIST = re.compile(r"\Alist\(\s*(.*)\)\Z")
_MOST_GPUS = 100_000
_LONGEST_LIST = 1000


def put_gpus(draft: Draft) -> None:
    """The trainer's GPUs, the instances and their engine."""
    train, infer = _devices(draft, "actor_train"), _devices(draft, "actor_infer")
    trainer = Read("actor_train.device_mapping", max(1, len(train or ())), train is not None)
    rollout = Read("actor_infer.device_mapping", max(1, len(infer or ())), infer is not None)
    draft.put("trainer.gpus", trainer.value, trainer, why="GPUs in the list", back=_first(trainer.key, 0))
    config = "actor_infer.strategy_args.strategy_config"
    tp = draft.maybe_count(f"{config}.tensor_parallel_size", f"{config}.tp_size", "actor_infer.num_gpus_per_worker")
    tp = tp or Read(f"{config}.tensor_parallel_size", 1, False)
    draft.put("engine.tp", tp.value, tp)
    pp = draft.take("engine.pp", draft.count(f"{config}.pipeline_parallel_size", default=1), unless=1)
    each = tp if pp.value == 1 else times(tp, pp)
    shared = (train or set()) & (infer or set())
    place = _first(rollout.key, 0 if shared else trainer.value)
    draft.put(
        "fleet.instances",
        draft.divided("the number of instances", rollout, each),
        rollout,
        each,
        back=lambda want: place(want * each.value),
    )
    draft.put(
        "fleet.placement",
        "colocated" if shared else "disaggregated",
        trainer,
        rollout,
        why="they share GPUs" if shared else "they share no GPU",
        back=lambda want: _first(rollout.key, 0 if want == "colocated" else trainer.value)(rollout.value),
    )
    if shared and infer is not None and shared != infer:
        only = len(infer - shared)
        draft.note(
            f"{only} GPUs of {rollout.key}", "serve rollout only: here all rollout GPUs take turns with training"
        )
    engine = draft.text("actor_infer.strategy_args.strategy_name", default="vllm")
    common.engine_name(draft, engine, {"vllm": "vllm", "sglang": "sglang"})
    share = draft.number(f"{config}.gpu_memory_utilization", f"{config}.mem_fraction_static", default=0.9, most=1.0)
    key = "mem_fraction_static" if engine.value == "sglang" else "gpu_memory_utilization"
    said = share if share.given else Read(f"{config}.{key}", 0.9, False)
    draft.where_said("engine.gpu_memory_utilization", said, said.key)
    if engine.value == "vllm":
        # roll/third_party/vllm/__init__.py: UsageContext.ENGINE_CONTEXT; roll/distributed/strategy/vllm_strategy.py
        # gives the tokens. vLLM 0.8.4 to 0.11.
        common.entry_point(draft, "async_engine", "vLLM is started from engine arguments")
        draft.take("engine.max_num_batched_tokens", draft.count(f"{config}.max_num_batched_tokens", default=8192))
        drafts = vllm_drafts(draft, f"{config}.speculative_config.")
    else:
        drafts = sglang_drafts(draft, f"{config}.")
    cached = f"{config}.enable_prefix_caching"
    draft.where_said("engine.prefix_caching", draft.flag(cached, default=True), cached, now=True, unless=True)
    if drafts:
        frozen(draft, f"{config}: a drafter that ROLL does not train")
    common.engine_limits(draft, f"{config}.")
    common.weights_type(draft, f"{config}.quantization")


def _first(key: str, start: int) -> Back:
    """Back from a number of GPUs: so many, from the first that is given."""
    return lambda want: {key: f"list(range({start},{start + want}))"}


def listed(draft: Draft, role: str) -> set[int] | None:
    """The GPUs of a role that may have none."""
    found = draft.settings.get(f"{role}.device_mapping")
    return None if found is None else gpu_list(found[1])


def _devices(draft: Draft, role: str) -> set[int] | None:
    """The GPUs of a role: `list(range(0,16))`, `[0, 1]`, or a sum of such lists."""
    found = draft.settings.get(f"{role}.device_mapping")
    if found is None:
        draft.refuse(f"{role}.device_mapping", None, "is missing: it says which GPUs the role has", "add it")
        return None
    gpus = gpu_list(found[1])
    if not gpus:
        draft.refuse(
            found[0].key,
            one_line(found[1]),
            "must be a list of GPUs, or text such as list(range(0,8))",
            "write it in one of these forms",
        )
        return None
    return gpus


def gpu_list(value: Any) -> set[int] | None:
    """The GPUs of a list, of its text or of `list(range(...))`; None for what is none of them."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {value}
    if isinstance(value, str) and len(value) < _LONGEST_LIST:
        gpus: set[int] = set()
        for part in re.split(r"(?<=[\])])\s*\+", value):
            match = _RANGE.fullmatch(part)
            if match:
                first, last = (0, int(match[1])) if match[2] is None else (int(match[1]), int(match[2]))
                gpus |= set(range(first, min(last, _MOST_GPUS), max(1, int(match[3] or 1))))
                continue
            try:
                with warnings.catch_warnings(action="ignore"):
                    listed = ast.literal_eval(_LIST.sub(r"\1", part.strip()))
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                return None
            if not isinstance(listed, (list, tuple)) or not all(type(g) is int for g in listed):
                return None
            gpus |= set(listed)
        return gpus
    if isinstance(value, list) and all(type(g) is int for g in value):
        return set(value)
    return None
