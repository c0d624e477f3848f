"""ROLL (alibaba/ROLL at 8eb27cc2): RLVR and agentic pipelines.

Names and defaults: roll/configs/base_config.py, roll/configs/worker_config.py, roll/pipeline/rlvr/rlvr_config.py,
roll/pipeline/agentic/agentic_config.py; what they do: roll/distributed/scheduler/generate_scheduler.py,
rollout_scheduler.py and router.py.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from typing import Any

from fleetsim.frameworks import recipe
from fleetsim.frameworks.common import (
    TrainerSpeed,
    engine_limits,
    engine_name,
    entry_point,
    filtering,
    hardware_and_times,
    lengths,
    model,
    transport,
)
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.framework import Framework, Mode
from fleetsim.frameworks.reading import Back, Read, one_line, one_of, times
from fleetsim.frameworks.speculation import frozen, sglang_drafts, vllm_drafts

_RANGE = re.compile(r"\s*(?:list\(\s*)?range\(\s*(\d{1,5})\s*(?:,\s*(\d{1,5})\s*)?(?:,\s*(\d{1,3})\s*)?\)\s*\)?\s*")
_LIST = re.compile(r"\Alist\(\s*(.*)\)\Z")
_MOST_GPUS = 100_000
_LONGEST_LIST = 1000

NOT_MODELLED = {
    "actor_train.use_dynamic_batching_in_train": "micro-batches do not change what is counted: seconds per token do",
    "actor_train.use_sequence_packing": "packing: the trainer's seconds per token say how well it works",
    "actor_infer.strategy_args.strategy_config.enforce_eager": "decoding without CUDA graphs",
    "actor_infer.strategy_args.strategy_config.max_model_len": "only the length caps are kept",
    "critic.device_mapping": "the critic's own GPUs and passes",
    "use_opd": "the teacher's passes of on-policy distillation",
    "user_defined_rollout_loop_cls": "a rollout loop of your own",
    "train_env_manager.group_size_redundancy": "environments beyond the group: --set buffer.group_oversampling=RATIO "
    "with buffer.batch_rule=first_finished",
}


def build(draft: Draft, speed: TrainerSpeed | None) -> None:
    """Fill the draft from ROLL's keys."""
    settings = draft.settings
    agentic = settings.has("train_env_manager", "custom_envs") or settings.runs("agentic")
    ratio = draft.number("async_generation_ratio", default=0.0, most=1e6)
    draft.mode = f"{'agentic' if agentic else 'rlvr'} pipeline, {'asynchronous' if ratio.value else 'synchronous'}"
    draft.preset = "roll-agentic" if agentic else f"roll-rlvr-{'async' if ratio.value else 'sync'}"
    model(draft, "pretrain", "actor_train.model_args.model_name_or_path", remedy="-- pretrain=Qwen/Qwen2.5-7B")
    group = _batch(draft, agentic)
    _lengths(draft)
    _gpus(draft)
    draft.semantics("admission.law", "cumulative_ratio", "all prompts ever begun stay below the cap")
    draft.semantics("buffer.batch_rule", "oldest_version_first", "groups that began at the oldest step are taken first")
    extra_prompts = draft.flag("is_use_additional_prompts", default=False)
    most = draft.count("max_additional_running_prompts", default=16, least=0)

    def extra(want: int) -> dict[str, object]:
        return {extra_prompts.key: True, most.key: want} if want else {extra_prompts.key: False}

    groups = most.value if extra_prompts.value else 0
    draft.put("admission.extra_groups", groups, extra_prompts, most, back=extra, unless=0)
    if ratio.value:
        _async(draft, ratio, agentic)
    else:
        _sync(draft)
    if agentic:
        draft.semantics("fleet.group_placement", "spread", "the router places every environment for itself")
    else:
        draft.semantics("fleet.group_placement", "together", "the router keeps a prompt's responses on one rank")
    draft.semantics("fleet.routing", "least_loaded", "it goes to the rank with the fewest requests")
    running = draft.maybe_count("router_args.max_running_requests", "max_running_requests")
    running = running or Read("max_running_requests", 128, False)
    draft.put("fleet.max_in_flight_samples_per_instance", max(running.value, group.value), running, why="per rank")
    filters = [k for k in settings.found if k.endswith(("query_filter_config.type", "group_filter_cls"))]
    if filters:
        filtering(draft, Read(filters[0], True, True))
        settings.looked_at.update(filters)
    transport(draft, draft.maybe_text("transfer_backend.backend_name"), {})
    # roll/configs/base_config.py, PPOConfig: a penalty switches the reference model on
    penalty = draft.flag("use_kl_loss", default=False).value or draft.number("init_kl_coef", default=0.2).value > 0
    asked = draft.flag("enable_reference", default=settings.has("reference.device_mapping"))
    reference = Read(asked.key, asked.value or penalty, asked.given)
    hardware_and_times(draft, speed, {"old log-probs": True, "reference log-probs": reference.value})
    _recipe(draft, reference)
    draft.leave_out(NOT_MODELLED)


def _recipe(draft: Draft, reference: Read[bool]) -> None:
    """The update, and a reference model on the trainer's GPUs."""
    trained = draft.settings.get("actor_train.device_mapping")
    place = {"reference.device_mapping": trained[1]} if trained is not None else {}
    off = {reference.key: False, "init_kl_coef": 0.0, "use_kl_loss": False}
    recipe.passes(
        draft,
        reference=(reference.value, one_of({True: {reference.key: True, **place}, False: off})),
    )
    known = {"megatron_train": "megatron", "fsdp2_train": "fsdp", "deepspeed_train": "fsdp"}
    recipe.words(draft, "backend", known, "actor_train.strategy_args.strategy_name")
    ranks = {"tp": "tensor_model", "pp": "pipeline_model", "cp": "context", "ep": "expert_model"}
    section = "actor_train.strategy_args.strategy_config"
    recipe.counts(draft, {name: f"{section}.{word}_parallel_size" for name, word in ranks.items()})
    recipe.counts(draft, {"epochs": "ppo_epochs"})


def _batch(draft: Draft, agentic: bool) -> Read[int]:
    batch = draft.count("rollout_batch_size", default=128)
    if agentic:
        group = draft.count("train_env_manager.group_size", default=1)
        draft.put("trainer.batch_samples", batch.value, batch, why="trajectories")
        envs = draft.count("train_env_manager.num_env_groups", default=128)
        most = times(envs, group)
        draft.put("fleet.max_in_flight_samples", most.value, envs, group, why="one per environment", back=most.written)
        turns = draft.maybe_count("max_actions_per_traj", "max_steps_per_traj")
        if turns is None:
            draft.could("workload.turns.count", 1, Read("max_actions_per_traj", 1, False).written, 1)
        else:
            draft.put("workload.turns.count", turns.value, turns, why="every trajectory takes all its turns")
            draft.assume("workload.turns.tool_latency_s", 1.0, "seconds of one environment step")
    else:
        group = draft.count("num_return_sequences_in_group", default=1)
        back = times(batch, group).written
        draft.put(
            "trainer.batch_samples", batch.value * group.value, batch, group, why="prompts x responses", back=back
        )
    draft.put("workload.group_size", group.value, group)
    return group


def _lengths(draft: Draft) -> None:
    prompt = draft.count("prompt_length", default=1024)
    answer = draft.maybe_count("response_length", "actor_infer.generating_args.max_new_tokens")
    whole = draft.maybe_count("sequence_length")
    if answer is None and whole is not None:
        answer = Read(f"{whole.key} {whole.value} - {prompt.key}", max(1, whole.value - prompt.value), True)
    lengths(draft, answer, prompt, "neither response_length nor sequence_length is set", output_key="response_length")


def _gpus(draft: Draft) -> None:
    train, infer = _devices(draft, "actor_train"), _devices(draft, "actor_infer")
    trainer = Read("actor_train.device_mapping", max(1, len(train or ())), train is not None)
    rollout = Read("actor_infer.device_mapping", max(1, len(infer or ())), infer is not None)
    draft.put("trainer.gpus", trainer.value, trainer, why="GPUs in the list", back=_first(trainer.key, 0))
    config = "actor_infer.strategy_args.strategy_config"
    tp = draft.maybe_count(f"{config}.tensor_parallel_size", f"{config}.tp_size", "actor_infer.num_gpus_per_worker")
    tp = tp or Read(f"{config}.tensor_parallel_size", 1, False)
    draft.put("engine.tp", tp.value, tp)
    pp = draft.count(f"{config}.pipeline_parallel_size", default=1)
    draft.put("engine.pp", pp.value, pp, unless=1)
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
    engine_name(draft, engine, {"vllm": "vllm", "sglang": "sglang"})
    share = draft.number(f"{config}.gpu_memory_utilization", f"{config}.mem_fraction_static", default=0.9, most=1.0)
    if share.given:
        draft.put("engine.gpu_memory_utilization", share.value, share)
    else:
        key = "mem_fraction_static" if engine.value == "sglang" else "gpu_memory_utilization"
        draft.could("engine.gpu_memory_utilization", None, Read(f"{config}.{key}", 0.9, False).written)
    if engine.value == "vllm":
        # roll/third_party/vllm/__init__.py: UsageContext.ENGINE_CONTEXT; roll/distributed/strategy/vllm_strategy.py
        # gives the tokens. vLLM 0.8.4 to 0.11.
        entry_point(draft, "async_engine", "vLLM is started from engine arguments")
        tokens = draft.count(f"{config}.max_num_batched_tokens", default=8192)
        draft.put("engine.max_num_batched_tokens", tokens.value, tokens)
        drafts = vllm_drafts(draft, f"{config}.speculative_config.")
    else:
        drafts = sglang_drafts(draft, f"{config}.")
    if drafts:
        frozen(draft, f"{config}: a drafter that ROLL does not train")
    engine_limits(draft, f"{config}.")


def _first(key: str, start: int) -> Back:
    """Back from a number of GPUs: so many, from the first that is given."""
    return lambda want: {key: f"list(range({start},{start + want}))"}


def _devices(draft: Draft, role: str) -> set[int] | None:
    """The GPUs of a role: `list(range(0,16))`, `[0, 1]`, or a sum of such lists."""
    found = draft.settings.get(f"{role}.device_mapping")
    if found is None:
        draft.refuse(f"{role}.device_mapping", None, "is missing: it says which GPUs the role has", "add it")
        return None
    gpus = _gpu_list(found[1])
    if not gpus:
        draft.refuse(
            found[0].key,
            one_line(found[1]),
            "must be a list of GPUs, or text such as list(range(0,8))",
            "write it in one of these forms",
        )
        return None
    return gpus


def _gpu_list(value: Any) -> set[int] | None:
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


def _sync(draft: Draft) -> None:
    draft.semantics("admission.async_ratio", 0.0, "no batch is started ahead")
    draft.semantics("sync.in_flight", "abort_discard", "what is unfinished at a sync is dropped")
    draft.semantics("buffer.wait_for_oldest", True, "the step's prompts are waited for")


def _async(draft: Draft, ratio: Read[float], agentic: bool) -> None:
    draft.put("admission.async_ratio", ratio.value, ratio, back=lambda want: ratio.written(want) if want else None)
    if not agentic:
        draft.semantics("buffer.wait_for_oldest", True, "their unfinished ones are waited for")
    draft.semantics("admission.age_reference", "creation", "age counts from the step at which a prompt began")
    draft.put("admission.max_age", float(math.ceil(ratio.value)), ratio, why="rounded up", back=lambda _: None)
    if agentic:
        draft.semantics("admission.age_action", "drop_and_refill", "older groups leave their queue at the next step")
    else:
        draft.semantics("admission.age_action", "cancel_in_flight", "older ones are dropped, and aborted if unfinished")
    draft.semantics("sync.in_flight", "abort_resume", "aborted responses go on from what they have")


_DEVICES = {"actor_train.device_mapping": "list(range(0,1))", "actor_infer.device_mapping": "list(range(1,2))"}
_START = "python examples/start_{}_pipeline.py --config_path FOLDER --config_name FILE"
FRAMEWORK = Framework(
    build,
    "alibaba/ROLL",
    "yaml",
    (
        Mode("rlvr, synchronous", _START.format("rlvr"), {**_DEVICES, "async_generation_ratio": 0}),
        Mode("rlvr, asynchronous", _START.format("rlvr"), {**_DEVICES, "async_generation_ratio": 1}),
        Mode(
            "agentic, asynchronous",
            _START.format("agentic"),
            {**_DEVICES, "async_generation_ratio": 1, "train_env_manager.num_env_groups": 128},
        ),
    ),
    "actor_train.training_args, actor_train.data_args, rewards, the learning rate",
)
