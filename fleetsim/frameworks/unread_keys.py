"""Settings that no reader asked for, and that hold GPUs, a model, a precision, a turn or a pass: they are named.

A reader that knows a key reads it. What is left is searched by its words: each kind of setting is told as an assumption
about the scenario value that it would change, with the flag that settles it. All other keys are only counted.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from fleetsim.frameworks.draft import SWITCHED_OFF, Draft
from fleetsim.frameworks.reading import one_line
from fleetsim.frameworks.roles import TURNS
from fleetsim.frameworks.settings import normal


class _Kind(Struct, frozen=True):
    """words: of the keys. path, value: what the scenario has instead. said: what its flag takes. small: the value must
    name a type of fewer than 16 bits, or a hybrid."""

    words: str
    path: str
    value: Any
    said: str = "VALUE"
    small: bool = False


# Sections that bear on no step of training.
_ASIDE = re.compile(
    r"(^|[._])(eval|val|valid|validation|test|logger|wandb|monitors?|profiler|tracker\w*|ckpt|checkpoint\w*|tokenizer|"
    r"system_envs|env_vars|data|\w*dataset|cluster|launcher|scheduler|resume|recover|saver|slurm)($|[._])"
)
_SMALL = re.compile(r"fp8|fp4|int4|int8|e4m3|hybrid|awq|gptq|w4a|w8a|bnb|nf4|[48]bit")
_ENGINE = r"(^|\.|actor_)(infer|rollout(?!_ref)|generation|inference|vllm|sglang|server)\w*[._].*"
_TYPE = r"(dtype|precision|quant\w*|\w*_qat|load_in_\dbit|fp[48]\w*(?<!backend))(\.\w+)?$"
# The first kind that a key belongs to says what it holds.
_KINDS = (
    _Kind(r"(^|[._])(max_)?(assistant_|user_|agent_|rollout_|tool_call\w*_|num_)?turns$|max_(tool\w*|actions\w*|llm_calls\w*|iterations)$|"
          r"tool_call_parser$|enable_child_agents$",
          TURNS, 1, "N"),
    _Kind(r"lora\w*\.(rank|dim|r|enabled)$|(?<!q_)(?<!kv_)lora_rank$|(use|enable)_lora$|lora_adapter_path$|peft\.enabled$|use_peft$",
          "trainer.recipe.tune", "full", "lora"),
    _Kind(r"(optim\w*offload|offload_optimizer|full_offload)(\.enabled)?$", "trainer.recipe.offload", "none", "states"),
    _Kind(r"sharding_strategy$", "trainer.recipe.shards", None, "N", small=True),
    _Kind(r"kv_cache_dtype$|fp8_kv_cache$", "engine.kv_dtype", "auto", "fp8", small=True),
    _Kind(_ENGINE + _TYPE, "engine.dtype", "auto", "fp8", small=True),
    _Kind(_TYPE, "trainer.recipe.precision", "bf16", "fp8", small=True),
    _Kind(r"(teacher|distill|opd)\w*([._].*)?(path|name|url|server_ip|n_?gpus\w*|gpus\w*|n?_?nodes|device_mapping|"
          r"enabled)$",
          "trainer.recipe.reference", True, "false"),
    _Kind(r"\bcritic[._].*(path|gpus\w*|nodes|device_mapping)$|use_(value_model|critic\w*)$",
          "trainer.recipe.critic", False, "true"),
    _Kind(r"(judge|reward|verifier|\brm)\w*[._](.*[._])?(model|model_path|model_name\w*|url|base_url|backend)(\.(path|name\w*))?$|"
          r"device_mapping$|(n|num)_?(gpus|nodes)\w*$|gpus_per_node$|\bnnodes$",
          "workload.reward.latency_s", 0.0, "SECONDS"),
)  # fmt: skip
# Settings that every framework has under names of its own: their words, and what is not modelled.
NOTES = {
    r"(max_model_len|context_length)$": "only the length caps are kept",
    rf"{_ENGINE}expert_parallel_size$|sglang[._]((enable_)?ep_moe|ep_size|enable_ep_moe)$":
        "expert parallelism inside an instance",
    r"(test_freq|val_freq|eval_interval|val_period|eval[._](steps|interval)|eval_strategy|local_eval_every)$":
        "evaluation between steps, which shares the engines",
    r"(critic_warmup|num_critic_only_steps)$": "steps that train the critic only",
}  # fmt: skip
_MOST_NAMED, _LONGEST = 4, 300


def name_unread(draft: Draft) -> None:
    """Add an assumption for each kind of setting of which keys were not read, but for values that the user set; and a
    note for what no framework's reader knows to read."""
    found: dict[_Kind, list[str]] = {}
    known = {taken.path for taken in draft.taken} | ({TURNS} & draft.values.keys())
    looked_at = draft.settings.looked_at
    for setting in [s for key, s in draft.settings.found.items() if key not in looked_at and len(key) < _LONGEST]:
        key = normal(setting.key).lower()
        note = next((why for words, why in NOTES.items() if re.search(words, key)), None)
        if note is not None:
            draft.leave_out({setting.key: note})
            continue
        kind = next((kind for kind in _KINDS if re.search(kind.words, key)), None)
        if kind is None or _ASIDE.search(key) or kind.path in known or _is_off(draft, key):
            continue
        value = setting.value
        off = value is not True and (value in SWITCHED_OFF or value in (None, "", "null", {}))
        if not off and (not kind.small or _SMALL.search(f"{key} {value}".lower())):
            found.setdefault(kind, []).append(f"{setting.key} = {one_line(value, 60)}")
    for kind, keys in found.items():
        more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
        why = f"not read: {', '.join(keys[:_MOST_NAMED])}{more}"
        draft.assume(kind.path, draft.values.get(kind.path, kind.value), why, f"--set {kind.path}={kind.said}")


def _is_off(draft: Draft, key: str) -> bool:
    """Whether a section that holds the key is switched off."""
    parts = key.split(".")
    switches = [".".join((*parts[:n], word)) for n in range(1, len(parts)) for word in ("enabled", "enable")]
    found = [draft.settings.found.get(switch) for switch in switches]
    return any(setting is not None and str(setting.value).lower() == "false" for setting in found)
