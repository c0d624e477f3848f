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

from fleetsim.frameworks import common, roles
from fleetsim.frameworks.draft import Draft, ServedModel
from fleetsim.frameworks.reading import Back, Read, never, one_line, one_of, times, writes
from fleetsim.frameworks.settings import normal
from fleetsim.frameworks.sides import adapter, sglang_drafts, vllm_drafts
from fleetsim.frameworks.tables import put_rows
from fleetsim.records import replace

_POINTER = re.compile(r"\$\{([\w.]+)\}")

_MOST_GPUS = 100_000
_LONGEST_LIST = 1000


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from ROLL's keys."""
    settings = draft.settings
    # On-policy distillation's students are the actors (base_config.py, _handle_opd_mapping).
    for student, actor in (("student_train", "actor_train"), ("student_infer", "actor_infer")):
        for key in settings.below(student):
            settings.add(f"{actor}{key.removeprefix(student)}", settings.found[key].value)
        settings.see(student)
    agentic = settings.has("train_env_manager", "custom_envs") or settings.runs("agentic")
    ratio = draft.number("async_generation_ratio", default=0.0, most=1e6)
    draft.mode = f"{'agentic' if agentic else 'rlvr'} pipeline, {'asynchronous' if ratio.value else 'synchronous'}"
    draft.preset = "roll-agentic" if agentic else f"roll-rlvr-{'async' if ratio.value else 'sync'}"
    put_rows(draft, "model")
    group = _batch(draft, agentic, ahead=ratio.value > 0)
    _lengths(draft, _turns(draft) if agentic else None, agentic)
    _gpus(draft)
    put_rows(draft, "order")
    extra_prompts = draft.flag("is_use_additional_prompts", default=False)
    most = draft.count("max_additional_running_prompts", default=16, least=0)

    extra = lambda want: {extra_prompts.key: bool(want), **({most.key: want} if want else {})}  # noqa: E731

    groups = most.value if extra_prompts.value else 0
    draft.put("admission.extra_groups", groups, extra_prompts, most, back=extra, unless=0)
    if ratio.value:
        _async(draft, ratio, agentic)
    else:
        put_rows(draft, "synchronous")
    put_rows(draft, "environments" if agentic else "prompts")
    running = draft.maybe_count("router_args.max_running_requests", "max_running_requests")
    running = running or Read("max_running_requests", 128, False)
    draft.put("fleet.max_in_flight_samples_per_instance", max(running.value, group.value), running, why="per rank")
    # generate_scheduler.py, expand_requests: else a prompt is one request, and has its places until its last response
    single = draft.flag("is_num_return_sequences_expand", default=False)
    if single.given and not (single.value or ratio.value or agentic) and group.value > 1:
        draft.put("fleet.in_flight_unit", "groups", single, why="a prompt's responses are one request")
    ends = ("query_filter_config.type", "group_filter_cls")
    filters = [k for k, found in settings.found.items() if k.endswith(ends) and found.value != "no_filter"]
    if filters:
        common.filtering(draft, Read(filters[0], True, True))
        settings.looked_at.update(filters)
    common.transport(draft, draft.maybe_text("transfer_backend.backend_name"), {})
    # roll/configs/base_config.py, PPOConfig: a penalty switches the reference model on
    penalty = draft.flag("use_kl_loss", default=False).value or draft.number("init_kl_coef", default=0.2).value > 0
    asked = draft.flag("enable_reference", default=False)
    # _handle_opd_mapping: of a distillation the teachers are the references
    taught, used = settings.has("teacher"), _held(draft)
    places = [gpu_list(settings.found[key].value) for key in settings.below("teacher") if key.endswith("_mapping")]
    reference = Read(asked.key, (asked.value or penalty) and not taught, asked.given)
    trained = settings.get("actor_train.device_mapping")
    place = {} if trained is None else {"reference.device_mapping": trained[1]}
    off = {reference.key: False, "init_kl_coef": 0.0, "use_kl_loss": False}
    back = one_of({True: {reference.key: True, **place}, False: off})
    strategy = draft.text("actor_train.strategy_args.strategy_name", default="megatron_train").value
    layout = "megatron" if strategy.startswith("megatron") else "fsdp2_train"
    for block in ("trainer", layout, "memory"):
        put_rows(draft, block, "actor_train.strategy_args.strategy_config.")
    read = taught and any(not (gpus or set()) - used for gpus in places)
    common.hardware_and_times(
        draft, speed, _own_pass(draft, group, strategy), replace(reference, back=back), taught=read
    )
    _roles(draft, reference.value)


def _own_pass(draft: Draft, group: Read[int], strategy: str) -> Read[bool]:
    """The optimizer steps of an epoch, and whether the policy passes before them (base_config.py,
    `set_old_logprobs_status`): where one step trains it all, its own log-probs are those of before."""
    words = ("per_device_train_batch_size", "gradient_accumulation_steps")
    keys = [f"actor_train.training_args.{word}" for word in words]
    each, accumulated = draft.count(keys[0], default=8), draft.count(keys[1], default=1)
    split = math.prod(draft.values.get(f"trainer.recipe.{name}") or 1 for name in ("tp", "pp", "cp"))
    samples, step = draft.count("rollout_batch_size", default=128), times(each, accumulated)
    whole = samples.value if draft.mode.startswith("agentic") else times(samples, group).value
    own = whole // max(1, draft.values["trainer.gpus"] // split)  # of a data-parallel rank

    def parted(want: int) -> dict[str, int] | None:
        return None if own % (want * each.value) else {accumulated.key: own // want // each.value}

    steps, why = max(1, own // step.value), "their updates count as one step"
    draft.put("trainer.recipe.optimizer_steps", steps, samples, step, why=why, back=parted, unless=1)
    counted = steps if strategy in ("megatron_train", "fsdp2_train") else whole // step.value
    asked, off = draft.flag("enable_old_logprobs_recompute", default=False), "force_disable_old_logprobs_recompute"
    if draft.flag(off, default=False).value:
        return Read(off, False, True, one_of({True: {off: False, asked.key: True}}))
    by_step = draft.text("adv_estimator", default="gae").value in ("step_reinforce", "gigpo")
    needed = by_step or counted > 1 or draft.number("init_kl_coef", default=0.2).value > 0
    return Read(asked.key, needed or asked.value, True, one_of({True: {asked.key: True}, False: {off: True}}))


def _roles(draft: Draft, reference: bool) -> None:
    """Models beside the actor, and the GPUs that are theirs alone."""
    settings, held = draft.settings, _held(draft)
    trained = settings.get("actor_train.device_mapping")
    estimator = draft.text("adv_estimator", default="gae")
    on = {estimator.key: "gae", "critic.device_mapping": trained[1] if trained else "list(range(0,1))"}
    own = len(_listed(draft, "critic") - held)
    made = estimator.value == "gae" and settings.has("critic")
    roles.critic(draft, estimator, made, one_of({True: on, False: {estimator.key: "grpo"}}), own)
    lora = draft.maybe_text("actor_train.model_args.lora_target")
    places = _listed(draft, "reference")
    if reference and places - _listed(draft, "actor_train") and lora is None:  # else the actor itself is the reference
        roles.passed(draft, "reference.device_mapping", len(places - held))
    for section in ("teacher", "rewards", "reward", "reward_model"):
        for key in settings.below(section):
            found = settings.get(key)
            if found is not None and key.endswith(".device_mapping") and found[1]:
                gpus = (gpu_list(found[1]) or set()) - held
                reads = roles.taught if section == "teacher" else roles.judged
                reads(draft, key, len(gpus), _served(draft, key.removesuffix(".device_mapping")))
                held |= gpus  # one who shares GPUs has no more
            elif found is not None and key.endswith(".judge_model_type") and found[1] == "api":
                roles.judged(draft, f"{key} = api")
    pools = [key for key in settings.below("rewards") if key.endswith(".world_size")]
    pools = [key for key in pools if not settings.has(key.replace(".world_size", ".device_mapping"))]
    roles.workers(draft, "reward", [draft.maybe_count(key) for key in pools])
    # traj_env_manager.py: so many steps of an environment at a time, 0 for any number
    roles.workers(draft, "tools", _in_environments(draft, "max_env_step_concurrent", 0))
    if lora is not None:
        roles.adapters(draft, lora)
        rank = draft.count("actor_infer.model_args.lora_rank", "actor_train.model_args.lora_rank", default=8)
        adapter(draft, rank)
    settings.see(*(k for k in settings.found if "lora_" in k))


def _served(draft: Draft, role: str) -> ServedModel:
    """The engines of a teacher or a judge."""
    layout = f"{role}.strategy_args.strategy_config"
    split = [f"{layout}.{kind}_parallel_size" for kind in ("tensor_model", "pipeline_model", "context", "tensor")]
    return roles.served(draft, (f"{role}.model_args.model_name_or_path",), [*split, f"{role}.num_gpus_per_worker"], 1)


def _batch(draft: Draft, agentic: bool, *, ahead: bool) -> Read[int]:
    batch = draft.count("rollout_batch_size", default=128)
    if agentic:
        group = draft.count("train_env_manager.group_size", default=1)
        draft.put("trainer.batch_samples", batch.value, batch, why="trajectories")
        envs = draft.count("train_env_manager.num_env_groups", default=128)
        places = draft.product("fleet.max_in_flight_samples", envs, group, why="one per environment")
        _games(draft, batch, places, ahead)
    else:
        group = draft.count("num_return_sequences_in_group", default=1)
        draft.product("trainer.batch_samples", batch, group, why="prompts x responses")
    return draft.take("workload.group_size", group)


def _games(draft: Draft, batch: Read[int], places: Read[int], ahead: bool) -> None:
    """rollout_scheduler.py, GroupQueue: each group of environments has `max_traj_per_env` games a step of its own, and
    takes over no other's. agentic_config.py: those of a batch, rounded up; only a synchronous pipeline may set more.
    Where there are more, a batch takes one of each group in turn, round after round and from step to step, and what is
    left is too old at the next step: that is nearer to places that take any game than to the first to end
    (tests/sim/test_environments.py)."""
    asked = draft.maybe_count("train_env_manager.max_traj_per_env", least=-1)
    each, over = divmod(batch.value, places.value)
    if not over and (ahead or asked is None or asked.value <= each):
        why = "a group of environments plays its own share of a step"
        draft.put("fleet.in_flight_unit", "environments", batch, places, why=why)
    elif over:
        more = (each + 1) * places.value - batch.value
        draft.note(batch.key, f"{more:,} more are played than a batch takes, and too old for the next one: not so here")


def _turns(draft: Draft) -> Read[int] | None:
    """The turns of a trajectory: of the training environments, the most that one of them allows."""
    key = "max_actions_per_traj"
    found = _of_environments(draft, "max_steps") or draft.maybe_count(key, "max_steps_per_traj")
    roles.put_turns(draft, found, key, "train_env_manager: environments")
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
        longer = lambda want: whole.written(want + prompt.value)  # noqa: E731 the prompt stands beside it
        rest = Read(f"{whole.key} {whole.value} - {prompt.key}", left, True, longer)
    if agentic:
        answer = _trajectory(draft, turns, rest)
    else:
        answer = draft.maybe_count("response_length", "actor_infer.generating_args.max_new_tokens") or rest
        if rest is not None and answer is rest:
            answer = Read(rest.key, rest.value, True, writes("response_length"))
    missing = "neither response_length nor sequence_length is set"
    common.lengths(draft, answer, prompt, missing, output_key="response_length")


def _trajectory(draft: Draft, turns: Read[int] | None, rest: Read[int] | None) -> Read[int] | None:
    """traj_env_manager.py, make_decision: a turn generates up to the least of two caps and of what the sequence has
    left. agentic_config.py: the actor's generating arguments go before the environments'."""
    step = _of_environments(draft, "max_tokens_per_step") or draft.maybe_count("max_tokens_per_step")
    where = "actor_infer" if draft.settings.has("actor_infer.generating_args") else "train_env_manager"
    cap = draft.maybe_count(f"{where}.generating_args.max_new_tokens", "response_length")
    own, turn = [read for read in (step, cap) if read is not None], roles.fewest(step, cap, rest)
    if turn is None:
        return None

    def back(want: int) -> dict[str, Any]:
        low = [read.key for read in own if read.value < want or read is turn]
        whole = rest.written(want) if rest is not None and rest.value < want else None
        others = [] if whole else [f"{where}.generating_args.max_new_tokens"]
        return {**dict.fromkeys(low or others, want), **(whole or {})}

    turn = Read(turn.key, turn.value, turn.given, back)
    return roles.trajectory(draft, turn, turns, rest, "sequence_length", several=turns is None)


def _async(draft: Draft, ratio: Read[float], agentic: bool) -> None:
    draft.put("admission.async_ratio", ratio.value, ratio, back=lambda want: ratio.written(want) if want else None)
    put_rows(draft, "environments' age" if agentic else "prompts' age")
    draft.put("admission.max_age", float(math.ceil(ratio.value)), ratio, why="rounded up", back=never)
    put_rows(draft, "older environments" if agentic else "older prompts")


def _gpus(draft: Draft) -> None:
    """The trainer's GPUs, the instances and their engine."""
    train, infer = _devices(draft, "actor_train"), _devices(draft, "actor_infer")
    trainer = Read("actor_train.device_mapping", max(1, len(train or ())), train is not None)
    rollout = Read("actor_infer.device_mapping", max(1, len(infer or ())), infer is not None)
    draft.put("trainer.gpus", trainer.value, trainer, why="GPUs in the list", back=_from(trainer.key, 0))
    config = "actor_infer.strategy_args.strategy_config"
    tp, pp = put_rows(draft, "ranks", f"{config}.").values()
    each = tp if pp.value == 1 else times(tp, pp)
    shared = (train or set()) & (infer or set())
    place = _from(rollout.key, 0 if shared else trainer.value)
    instances = draft.divided("the number of instances", rollout, each)
    draft.put("fleet.instances", instances, rollout, each, back=lambda want: place(want * each.value))
    kind, why = ("colocated", "they share GPUs") if shared else ("disaggregated", "they share no GPU")
    begins = lambda want: _from(rollout.key, 0 if want == "colocated" else trainer.value)(rollout.value)  # noqa: E731
    draft.put("fleet.placement", kind, trainer, rollout, why=why, back=begins)
    if shared and infer is not None and shared != infer:
        only = len(infer - shared)
        only_rollout = "serve rollout only: here all rollout GPUs take turns with training"
        draft.note(f"{only} GPUs of {rollout.key}", only_rollout)
    engine = draft.text("actor_infer.strategy_args.strategy_name", default="vllm")
    common.engine_name(draft, engine, {"vllm": "vllm", "sglang": "sglang"})
    names = ("mem_fraction_static", "gpu_memory_utilization")[:: 1 if engine.value == "sglang" else -1]
    share = draft.number(*(f"{config}.{name}" for name in names), default=0.9, most=1.0)
    draft.where_said("engine.gpu_memory_utilization", share)
    put_rows(draft, "graphs of sglang" if engine.value == "sglang" else "graphs", f"{config}.")
    untrained = f"{config}: a drafter that ROLL does not train"
    if engine.value == "vllm":
        put_rows(draft, "vllm", f"{config}.")
        vllm_drafts(draft, f"{config}.speculative_config.", untrained)
    else:
        sglang_drafts(draft, f"{config}.", untrained)
    put_rows(draft, "engine", f"{config}.")


def _from(key: str, start: int) -> Back:
    """Back from a number of GPUs: so many, from the first that is given."""
    return lambda want: {key: f"list(range({start},{start + want}))"}


def _held(draft: Draft) -> set[int]:
    """The GPUs that train or generate."""
    return _listed(draft, "actor_train") | _listed(draft, "actor_infer")


def _listed(draft: Draft, role: str) -> set[int]:
    """The GPUs of a role that may have none."""
    found = draft.settings.get(f"{role}.device_mapping")
    return (found and gpu_list(found[1])) or set()


def _devices(draft: Draft, role: str) -> set[int] | None:
    """The GPUs of a role: `list(range(0,16))`, `[0, 1]`, or a sum of such lists."""
    found = draft.settings.get(f"{role}.device_mapping")
    if found is None:
        draft.refuse(f"{role}.device_mapping", None, "is missing: it says which GPUs the role has", "add it")
        return None
    gpus = gpu_list(found[1])
    if not gpus:
        rule = "must be a list of GPUs, or text such as list(range(0,8))"
        draft.refuse(found[0].key, one_line(found[1]), rule, "write it in one of these forms")
    return gpus or None


def gpu_list(value: Any) -> set[int] | None:
    """The GPUs of a list, of its text, of `list(range(...))` or of a sum of such; None for what is none of them."""
    if isinstance(value, str) and len(value) < _LONGEST_LIST:
        try:
            with warnings.catch_warnings(action="ignore"):
                value = [*_listed_gpus(ast.parse(value.strip(), mode="eval").body)]
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return None
    gpus = [value] if type(value) is int else value
    return set(gpus) if isinstance(gpus, list) and all(type(gpu) is int for gpu in gpus) else None


def _listed_gpus(node: ast.expr) -> Any:
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [*_listed_gpus(left), *_listed_gpus(right)]
        case ast.Call(func=ast.Name(id="list"), args=[inner]):
            return _listed_gpus(inner)
        case ast.Call(func=ast.Name(id="range"), args=ends):
            return range(*map(ast.literal_eval, ends))[:_MOST_GPUS]
    return ast.literal_eval(node)
