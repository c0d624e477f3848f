"""ROLL (alibaba/ROLL at 8eb27cc2): RLVR and agentic pipelines.

Names and defaults: roll/configs/base_config.py, roll/configs/worker_config.py, roll/pipeline/rlvr/rlvr_config.py,
roll/pipeline/agentic/agentic_config.py; what they do: roll/distributed/scheduler/generate_scheduler.py,
rollout_scheduler.py and router.py.
"""

from __future__ import annotations

import math
import re
from typing import Any

from fleetsim.frameworks import common, recipe, roles
from fleetsim.frameworks.common import Framework, Mode
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Back, Read, one_of, times
from fleetsim.frameworks.roles import put_turns, trajectory
from fleetsim.frameworks.roll_gpus import gpu_list, listed, put_gpus
from fleetsim.frameworks.settings import RunSettings, normal
from fleetsim.frameworks.sides import adapter

_POINTER = re.compile(r"\$\{([\w.]+)\}")

NOT_MODELLED = {
    "user_defined_rollout_loop_cls": "a rollout loop of your own",
    "train_env_manager.group_size_redundancy": "environments beyond the group: --set buffer.group_oversampling=RATIO "
    "with buffer.batch_rule=first_finished",
}


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from ROLL's keys."""
    settings = draft.settings
    _as_actors(settings)
    agentic = settings.has("train_env_manager", "custom_envs") or settings.runs("agentic")
    ratio = draft.number("async_generation_ratio", default=0.0, most=1e6)
    draft.mode = f"{'agentic' if agentic else 'rlvr'} pipeline, {'asynchronous' if ratio.value else 'synchronous'}"
    draft.preset = "roll-agentic" if agentic else f"roll-rlvr-{'async' if ratio.value else 'sync'}"
    common.model(draft, "pretrain", "actor_train.model_args.model_name_or_path", remedy="-- pretrain=Qwen/Qwen2.5-7B")
    group = _batch(draft, agentic)
    _lengths(draft, _turns(draft) if agentic else None, agentic)
    put_gpus(draft)
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
    # generate_scheduler.py, expand_requests: else a prompt is one request, and has its places until its last response
    single = draft.flag("is_num_return_sequences_expand", default=False)
    if single.given and not (single.value or ratio.value or agentic) and group.value > 1:
        draft.put("fleet.in_flight_unit", "groups", single, why="a prompt's responses are one request")
    filters = [k for k in settings.found if k.endswith(("query_filter_config.type", "group_filter_cls"))]
    filters = [k for k in filters if settings.found[k].value != "no_filter"]
    if filters:
        common.filtering(draft, Read(filters[0], True, True))
        settings.looked_at.update(filters)
    common.transport(draft, draft.maybe_text("transfer_backend.backend_name"), {})
    # roll/configs/base_config.py, PPOConfig: a penalty switches the reference model on
    penalty = draft.flag("use_kl_loss", default=False).value or draft.number("init_kl_coef", default=0.2).value > 0
    asked = draft.flag("enable_reference", default=False)
    reference = Read(asked.key, asked.value or penalty, asked.given)
    made = reference.value or settings.has("teacher")
    common.hardware_and_times(draft, speed, {"old log-probs": True, "reference log-probs": made})
    _recipe(draft, reference)
    _roles(draft, reference.value)
    draft.leave_out(NOT_MODELLED)


def _as_actors(settings: RunSettings) -> None:
    """On-policy distillation's students are the actors (base_config.py, _handle_opd_mapping)."""
    for student, actor in (("student_train", "actor_train"), ("student_infer", "actor_infer")):
        for key in settings.below(student):
            found = settings.found[key]
            settings.add(f"{actor}{key.removeprefix(student)}", found.value, found.where)
        settings.see(student)


def _roles(draft: Draft, reference: bool) -> None:
    """Models beside the actor, and the GPUs that are theirs alone."""
    settings, held = draft.settings, (listed(draft, "actor_train") or set()) | (listed(draft, "actor_infer") or set())
    trained = settings.get("actor_train.device_mapping")
    estimator = draft.text("adv_estimator", default="gae")
    on = {estimator.key: "gae", "critic.device_mapping": trained[1] if trained else "list(range(0,1))"}
    own = len((listed(draft, "critic") or set()) - held)
    made = estimator.value == "gae" and settings.has("critic")
    roles.critic(draft, estimator, made, one_of({True: on, False: {estimator.key: "grpo"}}), own)
    lora = draft.maybe_text("actor_train.model_args.lora_target")
    apart = len((listed(draft, "reference") or set()) - (listed(draft, "actor_train") or set()))
    if reference and apart and lora is None:  # of adapters, the actor without them is the reference
        roles.passed(draft, "reference.device_mapping", apart)
    for key in [k for k in settings.below("teacher") if k.endswith(".device_mapping")]:
        roles.taught(draft, key, len((gpu_list(settings.found[key].value) or set()) - held))
    for section in ("rewards", "reward"):
        for key in settings.below(section):
            value = settings.found[key].value
            if key.endswith(".device_mapping") and value:
                gpus = gpu_list(value) or set()
                roles.judged(draft, f"{key}: {len(gpus)} GPUs that judge", len(gpus - held))
            elif key.endswith(".judge_model_type") and value == "api":
                roles.judged(draft, f"{key} = api")
    pools = [key for key in settings.below("rewards") if key.endswith(".world_size")]
    pools = [key for key in pools if not settings.has(key.replace(".world_size", ".device_mapping"))]
    roles.workers(draft, "reward", [draft.maybe_count(key) for key in pools])
    # traj_env_manager.py: so many steps of an environment at a time, 0 for any number
    roles.workers(draft, "tools", _in_environments(draft, "max_env_step_concurrent", 0))
    if lora is not None:
        roles.adapters(draft, lora)
        rank = draft.count("actor_infer.model_args.lora_rank", "actor_train.model_args.lora_rank", default=8)
        adapter(draft, rank, of_vllm=draft.values.get("engine.name") == "vllm")
    settings.see("critic", "reference", "teacher", "rewards", "reward", "val_env_manager", "validation", "custom_envs")
    settings.see("custom_env", "num_gpus_per_node", "num_nodes", *(k for k in settings.found if "lora_" in k))


def _recipe(draft: Draft, reference: Read[bool]) -> None:
    """The update, and a reference model on the trainer's GPUs."""
    trained = draft.settings.get("actor_train.device_mapping")
    place = {"reference.device_mapping": trained[1]} if trained is not None else {}
    off = {reference.key: False, "init_kl_coef": 0.0, "use_kl_loss": False}
    recipe.passes(draft, reference=(reference.value, one_of({True: {reference.key: True, **place}, False: off})))
    known = {"megatron_train": "megatron", "fsdp2_train": "fsdp", "deepspeed_train": "fsdp"}
    recipe.words(draft, "backend", known, "actor_train.strategy_args.strategy_name")
    section = "actor_train.strategy_args.strategy_config"
    recipe.megatron(draft, f"{section}.")
    recipe.counts(draft, {"epochs": "ppo_epochs"})
    # fsdp2_strategy.py: parameters, gradients and optimizer in host memory
    recipe.words(draft, "offload", {"true": "adam"}, f"{section}.offload_policy")


def _batch(draft: Draft, agentic: bool) -> Read[int]:
    batch = draft.count("rollout_batch_size", default=128)
    if agentic:
        group = draft.count("train_env_manager.group_size", default=1)
        draft.put("trainer.batch_samples", batch.value, batch, why="trajectories")
        envs = draft.count("train_env_manager.num_env_groups", default=128)
        most = times(envs, group)
        draft.put("fleet.max_in_flight_samples", most.value, envs, group, why="one per environment", back=most.written)
    else:
        group = draft.count("num_return_sequences_in_group", default=1)
        back = times(batch, group).written
        draft.put(
            "trainer.batch_samples", batch.value * group.value, batch, group, why="prompts x responses", back=back
        )
    draft.put("workload.group_size", group.value, group)
    return group


def _turns(draft: Draft) -> Read[int] | None:
    """The turns of a trajectory: of the training environments, the most that one of them allows."""
    key = "max_actions_per_traj"
    found = _of_environments(draft, "max_steps") or draft.maybe_count(key, "max_steps_per_traj")
    put_turns(draft, found, key, "train_env_manager: environments")
    return found


def _of_environments(draft: Draft, word: str) -> Read[int] | None:
    """The largest value of a word among the environments that train: `custom_envs`, which may point to a section."""
    return max(_in_environments(draft, word), key=lambda read: read.value, default=None)


def _in_environments(draft: Draft, word: str, least: int = 1) -> list[Read[int]]:
    """A word's values, of each environment that trains."""
    settings, found = draft.settings, []
    tags = settings.get("train_env_manager.tags")
    for tag in tags[1] if tags is not None and isinstance(tags[1], list) else ():
        section, key = f"custom_envs.{tag}", f"custom_envs.{tag}.{word}"
        there = settings.found.get(normal(section))
        pointer = _POINTER.fullmatch(there.value.strip()) if there and isinstance(there.value, str) else None
        if pointer:
            settings.see(section)
        read = draft.maybe_count(f"{pointer[1]}.{word}" if pointer else key, least=least)
        found += [read] if read is not None else []
    return found


def _lengths(draft: Draft, turns: Read[int] | None, agentic: bool) -> None:
    prompt = draft.count("prompt_length", default=1024)
    whole = draft.maybe_count("sequence_length")
    rest = whole if agentic and not prompt.given else None
    if whole is not None and rest is None:
        left = max(1, whole.value - prompt.value)
        rest = Read(f"{whole.key} {whole.value} - {prompt.key}", left, True, _longer(whole, prompt.value))
    if agentic:
        answer = _trajectory(draft, turns, rest)
    else:
        answer = draft.maybe_count("response_length", "actor_infer.generating_args.max_new_tokens") or rest
        if rest is not None and answer is rest:
            answer = Read(rest.key, rest.value, True, Read("response_length", 1, False).written)
    common.lengths(
        draft, answer, prompt, "neither response_length nor sequence_length is set", output_key="response_length"
    )


def _trajectory(draft: Draft, turns: Read[int] | None, rest: Read[int] | None) -> Read[int] | None:
    """traj_env_manager.py, make_decision: a turn generates up to the least of two caps and of what the sequence has
    left. agentic_config.py: the actor's generating arguments go before the environments'."""
    step = _of_environments(draft, "max_tokens_per_step") or draft.maybe_count("max_tokens_per_step")
    where = "actor_infer" if draft.settings.has("actor_infer.generating_args") else "train_env_manager"
    cap = draft.maybe_count(f"{where}.generating_args.max_new_tokens", "response_length")
    own = [read for read in (step, cap) if read is not None]
    if not own and rest is None:
        return None
    turn = min((read for read in (*own, rest) if read is not None), key=lambda read: read.value)

    def back(want: int) -> dict[str, Any]:
        low = [read.key for read in own if read.value < want or read is turn]
        whole = rest.written(want) if rest is not None and rest.value < want else None
        others = [] if whole else [f"{where}.generating_args.max_new_tokens"]
        return {**dict.fromkeys(low or others, want), **(whole or {})}

    turn = Read(turn.key, turn.value, turn.given, back)
    whole_key = "sequence_length"
    return trajectory(turn, turns, rest, whole_key, several=turns is None)


def _longer(whole: Read[int], prompt: int) -> Back:
    """Back from the tokens beside the prompt to those of the whole sequence."""
    return lambda want: whole.written(want + prompt)


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
    takes_words=False,
)
