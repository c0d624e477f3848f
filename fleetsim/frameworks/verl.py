"""verl (verl-project/verl at 1dda039b9): PPO trainer V1, one-step-off and fully asynchronous recipes.

Names and defaults: verl/trainer/config/ppo_trainer.yaml, rollout/rollout.yaml, data/legacy_data.yaml and
actor/actor.yaml; verl/experimental/one_step_off_policy/config/one_step_off_ppo_trainer.yaml;
verl/experimental/fully_async_policy/config/fully_async_ppo_trainer.yaml and fully_async_rollouter.py;
docs/advance/v1_async_trainer.md.
"""

from __future__ import annotations

import math

from fleetsim.frameworks import common, micro_batch, roles, verl_forks
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, on_nodes, one_of, switched, times, turned, worded
from fleetsim.frameworks.sides import PATH, adapter, replicas, sglang_drafts, vllm_drafts
from fleetsim.frameworks.tables import put_rows

ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
ENGINE = f"{ROLLOUT}.engine_kwargs.vllm"
# A group of the trainer's defaults goes before the actor's own word.
_ENGINE_KEYS = ("model_engine", f"{ACTOR}.model_engine", f"{ACTOR}.strategy", f"{ACTOR}.fsdp_config.strategy")
# Whose environments or agents ask for what they want (verl-recipe, atropos; microsoft/agent-lightning at c632d8dd).
_AGENTS = {"atropos": "environments", "agentlightning": "agents of the user's own", "recurrent": "a recurrent agent"}
# What reads samples beside the actor in projects on verl (RL-Factory; rLLM).
_JUDGES = {
    "reward_rollout.if_use_reward_rollout": "a reward model's engines on the rollout's GPUs",
    "rllm.distill.enable": "a teacher on a server of its own",
}
# GPUs of a teacher's or reward model's engine are these together.
_RANKS = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")
TRANSPORTS = {
    **dict.fromkeys(("nccl", "hccl"), "collective_broadcast"),
    **dict.fromkeys(("nixl", "mooncake", "kimi_ckpt_engine"), "rdma_p2p"),
    "delta_sharded": "sparse_delta",
}


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from verl's keys."""
    easy = verl_forks.with_verl_names(draft.settings)
    mode = _mode(draft)
    put_rows(draft, "model")
    own, each = verl_forks.group_of(draft), draft.count(f"{ROLLOUT}.n", default=1)
    n = draft.product("workload.group_size", *([each] if own is None else [own, each]))
    _lengths(draft)
    _engine(draft, easy)
    per_instance = _instance_gpus(draft)
    modes = {"fully_async": _fully_async, "colocate_async": _v1_async, "separate_async": _v1_async}
    modes.get(mode, _turns)(draft, n, per_instance)
    if verl_forks.is_agent_flow(draft.settings):  # rllm/engine: so many workflows, a sample each
        tasks = draft.count("rllm.workflow.n_parallel_tasks", default=256)
        draft.put("fleet.max_in_flight_samples", max(tasks.value, n.value), tasks, why="a workflow has a sample")
        roles.workflow_limited(draft)
    put_rows(draft, "equal parts" if easy else "requests")
    backend = draft.text(f"{ROLLOUT}.checkpoint_engine.backend", default="nccl")
    common.transport(draft, None if backend.value == "naive" else backend, TRANSPORTS)
    # data.*: verl-recipe, prime/prime_ray_trainer.py
    drops = draft.flag("algorithm.filter_groups.enable", "data.filter_accuracy", default=False)
    common.filtering(draft, drops, draft.maybe_number("data.oversample_factor"))
    gen = draft.maybe_count("data.gen_batch_size") if draft.settings.get("algorithm.filter_groups.enable") else None
    if drops.value and gen is not None:
        draft.note(str(gen), "dropped groups are refilled one by one here, not a generation batch at a time")
    usual = mode in ("one_step_off", "fully_async") and not verl_forks.is_agent_flow(draft.settings)
    bypass = draft.flag("algorithm.rollout_correction.bypass_mode", default=usual)
    penalty = draft.number("rllm.algorithm.kl_beta", default=0.0)  # rllm/trainer/verl/utils.py, sync_config
    loss = draft.flag(f"{ACTOR}.use_kl_loss", default=penalty.value > 0)
    always = verl_forks.has_reference(draft)
    made = always or loss.value or draft.flag("algorithm.use_kl_in_reward", default=False).value
    reference = Read(loss.key, made, True, one_of({}) if always else loss.written)
    common.hardware_and_times(draft, speed, turned(bypass), reference)
    device = draft.maybe_text("trainer.device")
    if device is not None and device.value == "npu":
        why = "an Ascend NPU: a GPU stands in for it; put in what you measured, --instance-tok-s and --trainer-step-s"
        draft.note(str(device), why)
    _put_recipe(draft)
    _put_roles(draft)
    common.ranks(draft)


def _lengths(draft: Draft) -> None:
    """The turns, the cap of all that a sample generates, and of its prompt. verl's own cap is that of all turns."""
    answer = draft.count("data.max_response_length", f"{ROLLOUT}.response_length", default=512)
    asked = draft.count("data.max_prompt_length", f"{ROLLOUT}.prompt_length", default=512)
    project = verl_forks.project_of(draft.settings)
    turns = None if project is None else verl_forks.turns_of(draft, project)
    if project is None or turns is None:
        _put_turns(draft)
    else:
        roles.put_turns(draft, turns)
        answer = verl_forks.trajectory_of(draft, project, turns, answer)
    common.lengths(draft, answer, draft.maybe_count("data.max_start_length") or asked)


def _put_turns(draft: Draft) -> None:
    """verl/experimental/agent_loop/tool_agent_loop.py: after its last user turn, which a tool may take, a sample ends
    with one more of the assistant. Tools are given to an agent, whose switch may stand in a file that was not read."""
    section = f"{ROLLOUT}.multi_turn"
    given = [f"{section}.tool_config_path", f"{section}.interaction_config_path", "actor_rollout_ref.env.tool_manager"]
    tools, mode = draft.maybe_text(*given), draft.text(f"{ROLLOUT}.mode", default="")
    tools = tools or (mode if "tool" in mode.value else None)
    on = draft.flag(f"{section}.enable", default=tools is not None)
    caps = [draft.maybe_count(f"{section}.{key}") for key in ("max_assistant_turns", "max_turns")]
    caps.append(roles.turns_of_calls(draft.maybe_count(f"{section}.max_user_turns")))
    loop = draft.maybe_text(f"{ROLLOUT}.agent.agent_loop_config_path", f"{ROLLOUT}.agent.default_agent_loop")
    agent = str(tools or on) if on.value else str(loop) if loop is not None and "single_turn" not in loop.value else ""
    if not agent and verl_forks.is_agent_flow(draft.settings):
        agent = "rLLM: an agent of the user's own"
    for key, who in _AGENTS.items():
        agent = agent or (f"{key}: {who}" if draft.settings.has(key) else "")
    turns = roles.fewest(*caps) if agent else None
    roles.put_turns(draft, turns, f"{section}.max_assistant_turns", agent)


def _mode(draft: Draft) -> str:
    settings = draft.settings
    if settings.runs("recipe.partial_rollout"):
        draft.mode, draft.preset = "recipe.partial_rollout", "verl-sync"
        return "partial"
    if settings.runs("fully_async") or settings.has("async_training"):
        draft.mode, draft.preset = "fully_async_policy", "verl-fully-async"
        return "fully_async"
    if settings.runs("one_step_off") or settings.has("rollout.nnodes"):
        draft.mode, draft.preset = "one_step_off_policy", "verl-one-step-off"
        return "one_step_off"
    known = ("sync", "colocate_async", "separate_async")
    trainer = draft.choice("trainer.v1.trainer_mode", default="sync", known=known)
    draft.mode = f"trainer_mode {trainer.value}"
    draft.preset = {"sync": "verl-sync"}.get(trainer.value, f"verl-v1-{trainer.value.replace('_', '-')}")
    return trainer.value


def _engine(draft: Draft, easy: bool) -> None:
    """easy: EasyR1's processes hold the engines."""
    put_rows(draft, "engine name", f"{ROLLOUT}.")
    put_rows(draft, "processes" if easy else "server")
    memory = draft.number(f"{ROLLOUT}.gpu_memory_utilization", default=0.5, most=1.0)
    standalone = f"{ROLLOUT}.standalone_gpu_memory_utilization"
    if draft.settings.get(standalone) is not None:
        memory = draft.number(standalone, default=memory.value, most=1.0)
    draft.take("engine.gpu_memory_utilization", memory)
    for block in ("engine",) if easy else ("sequences", "engine"):
        put_rows(draft, block, f"{ROLLOUT}.")
    _put_imitated(draft)
    _put_drafts(draft, sglang=draft.values.get("engine.name") == "sglang")
    # verl/workers/rollout/vllm_rollout/utils.py, `get_vllm_max_lora_rank`
    keys = ("actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora.rank")
    rank = max((draft.count(key, default=0, least=0) for key in keys), key=lambda read: read.value)
    merged = draft.flag("actor_rollout_ref.model.lora.merge", default=False)
    roles.adapters(draft, rank)
    adapter(draft, rank, merged=merged)


def _put_imitated(draft: Draft) -> None:
    """Training that imitates four bits, in which vLLM then has the weights (vllm_rollout/vllm_async_server.py)."""
    for section in (f"{ACTOR}.fsdp_config.qat", f"{ACTOR}.megatron.qat"):
        on = draft.flag(f"{section}.enable", default=False)
        if on.value:
            draft.links = [link for link in draft.links if link.path != "engine.dtype"]
            draft.put("engine.dtype", "nvfp4", on, why="the engine has the trainer's weights packed", back=one_of({}))
            micro_batch.imitated(draft, on)
            draft.settings.see(section)


def _turns(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    """Whole batches, on shared GPUs or on GPUs of their own for rollout."""
    gpus = put_rows(draft, "trainer GPUs")["trainer.gpus"]
    if draft.mode == "one_step_off_policy":
        _rollout_gpus(draft, per_instance, "rollout")
    else:
        draft.parted("fleet.instances", gpus, per_instance)
        put_rows(draft, "shared GPUs")
    batch = _rollout_batch(draft, n)
    put_rows(draft, draft.mode)
    if draft.flag("agentlightning.async_rollout.enabled", default=False).value:
        put_rows(draft, "agentlightning")
        key = "agentlightning.async_rollout.async_train_batch_size"
        common.oversampled(draft, draft.maybe_count(key), batch, key)
    if "partial" in draft.mode:
        draft.settings.see("async_training.partial_rollout")


def _fully_async(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    put_rows(draft, "trainer GPUs")
    _rollout_gpus(draft, per_instance, "rollout")
    mini = draft.count(f"{ACTOR}.ppo_mini_batch_size", default=256)
    pulls = draft.count("async_training.require_batches", default=1)
    pulled = draft.maybe_count("async_training.required_samples")  # rLLM's: prompts of a pull, in words of their own
    parts = (mini, pulls) if pulled is None else (pulled,)
    groups = math.prod(part.value for part in parts)
    every = draft.count("async_training.trigger_parameter_sync_step", default=4)
    why = "a step here is what is trained between two synchronizations"
    draft.product("trainer.batch_samples", times(*parts, every), n, why=why)
    draft.put("trainer.minibatches", every.value, every, why="each pull is trained as soon as it is there")
    threshold = put_rows(draft, "fully async")["admission.staleness_threshold"]
    cap = max(1, math.floor(groups * (1 + threshold.value) * every.value))
    queue = (times(*parts, every), threshold, n)
    draft.put("buffer.capacity_samples", cap * n.value, *queue, why="the message queue")
    put_rows(draft, "queue")
    if not verl_forks.is_agent_flow(draft.settings):
        most = draft.count("async_training.concurrent_samples_per_replica", default=16)
        path, why = "fleet.max_in_flight_samples_per_instance", "prompts per replica x responses"
        draft.product(path, most, n, why=why)
    put_rows(draft, "tasks")


def _v1_async(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    separate = draft.mode.endswith("separate_async")
    section = f"trainer.v1.{'separate' if separate else 'colocate'}_async"
    batch = _rollout_batch(draft, n)
    if separate:
        put_rows(draft, "trainer GPUs")
        _rollout_gpus(draft, per_instance, ROLLOUT)
        mini = draft.count(f"{ACTOR}.ppo_mini_batch_size", default=256)
        parts = draft.count(f"{section}.parameter_sync_step", default=4)
        if batch.value != parts.value * mini.value:
            rule = f"must be {parts} x {mini}: separate_async streams that many mini-batches"
            draft.refuse(batch.key, batch.value, rule, f"use {batch.key}={parts.value * mini.value}")

        def streamed(want: int) -> dict[str, int] | None:
            return None if batch.value % want else {parts.key: want, mini.key: batch.value // want}

        why = "each mini-batch is trained once it is complete"
        draft.put("trainer.minibatches", parts.value, parts, why=why, back=streamed)
        put_rows(draft, "separate async", f"{section}.")
        switch = draft.flag(f"{section}.hybrid_rollout.enable_switch", default=False)
        back = one_of({"colocated_lending": {switch.key: True}, "disaggregated": {switch.key: False}})
        apart, lent = "disaggregated", "colocated_lending"
        draft.where(switch.value, "fleet.placement", lent, switch, now=apart, back=back, unless=apart)
        if switch.value:
            draft.preset += "-switch"
            put_rows(draft, "lending", f"{section}.hybrid_rollout.")
            adaptive = f"{section}.hybrid_rollout.adaptive_switch_threshold"
            if draft.flag(adaptive, default=True).value:
                draft.note(adaptive, "the share stays where it starts")
    else:
        gpus = put_rows(draft, "trainer GPUs")["trainer.gpus"]
        draft.parted("fleet.instances", gpus, per_instance)
        put_rows(draft, "shared GPUs")
    put_rows(draft, "v1 async", f"{section}.")
    limit = draft.count("trainer.v1.sampler.max_off_policy_threshold", default=8)
    strategy = draft.choice("trainer.v1.sampler.max_off_policy_strategy", default="drop", known=("drop", "wait"))
    words = {"wait": "wait", "drop": "drop_and_refill"}
    draft.put("admission.age_action", words[strategy.value], strategy, back=worded(words, lambda w: {strategy.key: w}))
    why = "verl counts a group of the same step as age 1"
    later = lambda want: limit.written(None if want is None else want + 1)  # noqa: E731 the same, back
    draft.put("admission.max_age", float(limit.value - 1), limit, why=why, back=later)
    draft.semantics("admission.age_reference", "creation", "age counts from the step that sent the prompt")


def _instance_gpus(draft: Draft) -> Read[int]:
    """GPUs of one instance."""
    tp = draft.count(f"{ROLLOUT}.tensor_model_parallel_size", default=2)
    both = replicas(draft, f"{ROLLOUT}.disaggregation", tp)
    if both is not None:
        return both
    draft.put("engine.tp", tp.value, tp)
    pp = draft.count(f"{ROLLOUT}.pipeline_model_parallel_size", default=1)
    if pp.value > 1:  # verl/workers/config/rollout.py, RolloutConfig
        draft.refuse(pp.key, pp.value, "verl's rollout has no pipeline stages", "use tensor parallelism")
    draft.could("engine.pp", 1, one_of({}), 1)
    put_rows(draft, "engine ranks", f"{ROLLOUT}.")
    return tp


def _rollout_batch(draft: Draft, n: Read[int]) -> Read[int]:
    """Prompts of a batch. It puts the batch, and the optimizer steps where they are mini-batches of it."""
    batch, own = draft.count(*verl_forks.BATCH, default=1024), verl_forks.group_of(draft)
    draft.product("trainer.batch_samples", batch, n, why="prompts x responses")
    if "separate" not in draft.mode:
        mini = draft.count(f"{ACTOR}.ppo_mini_batch_size", default=256)  # it is counted before `rollout.n` repeats
        common.optimizer_steps(draft, batch if own is None else times(batch, own), mini, mini.key)
    return batch


def _rollout_gpus(draft: Draft, per_instance: Read[int], section: str) -> None:
    """Instances on GPUs of their own. section: where their nodes stand."""
    nodes = draft.count(f"{section}.nnodes", default=1)
    per_node = draft.maybe_count(f"{section}.n_gpus_per_node") or draft.count("trainer.n_gpus_per_node", default=8)
    gpus = on_nodes(nodes, per_node, per_node_key=f"{section}.n_gpus_per_node", part=per_instance.value)
    draft.parted("fleet.instances", gpus, per_instance)
    draft.semantics("fleet.placement", "disaggregated", "rollout has GPUs of its own")


def _put_roles(draft: Draft) -> None:
    """Models beside the actor: verl/trainer/config/distillation/distillation.yaml and reward/reward.yaml. Teachers
    answer from engines of their own, a reward model from the trainer's GPUs or a pool of its own."""
    settings = draft.settings
    if draft.flag("distillation.enabled", default=False).value:
        _put_teachers(draft, roles.nodes(draft, "distillation.nnodes", "distillation.n_gpus_per_node", 8))
    for reward in ("reward.reward_model", "reward_model"):
        if draft.flag(f"{reward}.enable", default=False).value:
            pool = draft.flag(f"{reward}.enable_resource_pool", default=False).value
            gpus = roles.nodes(draft, f"{reward}.nnodes", f"{reward}.n_gpus_per_node", 8) if pool else 0
            models = (f"{reward}.model_path", f"{reward}.model.path")
            by = roles.served(draft, models, [f"{reward}.rollout.{key}" for key in _RANKS], 2)
            roles.judged(draft, f"{reward}.enable: a reward model", gpus, by)
    for switch, who in _JUDGES.items():
        if draft.flag(switch, default=False).value:
            roles.judged(draft, f"{switch}: {who}")
        settings.see(switch.rpartition(".")[0])
    # reward.num_workers bounds no calls: each worker scores all its samples at once (verl/experimental/reward_loop).
    sandbox = "reward.sandbox_fusion"
    apart = settings.has(f"{sandbox}.url", "reward_model.sandbox_fusion.url")
    calls = draft.count(f"{sandbox}.max_concurrent", "reward_model.sandbox_fusion.max_concurrent", default=64)
    roles.workers(draft, "reward", [calls if apart else None], calls.key if apart else "")


def _put_teachers(draft: Draft, gpus: int) -> None:
    """verl/workers/config/distillation.py, `_resolve_teacher_models`: one teacher takes the pool; of several each says
    its replicas, and the name that one alone has is none of them."""
    section, one = "distillation.teacher_models", "teacher_model"
    names = dict.fromkeys(key[len(section) + 1 :].partition(".")[0] for key in draft.settings.below(section))
    others = [name for name in names if name != one]
    for name in others or [one]:
        keys = [f"{section}.{name}.inference.{key}" for key in _RANKS]
        by = roles.served(draft, (f"{section}.{name}.model_path",), keys, 2)
        replicas = draft.count(f"{section}.{name}.num_replicas", default=1, least=0).value
        own = min(gpus, replicas * by.ranks) if len(others) > 1 else gpus
        who = f"{section}.{name}" if others else "distillation.enabled: a teacher"
        (roles.taught if own else roles.judged)(draft, who, own, by)


def _put_recipe(draft: Draft) -> None:
    """The update: verl/workers/config/engine.py, FSDPEngineConfig and McoreEngineConfig."""
    named = [
        draft.text("config_name", default=""),
        *(Read("defaults", parent, True) for parent in draft.settings.parents),
    ]
    named = [read for read in named if "megatron" in read.value]  # ppo_megatron_trainer.yaml says its strategy itself
    if named and draft.settings.get(*_ENGINE_KEYS) is None:
        draft.put("trainer.recipe.backend", "megatron", named[0], back=one_of({}))
    else:
        put_rows(draft, "trainer")
    megatron = draft.values.get("trainer.recipe.backend") == "megatron"
    own = draft.text(*_ENGINE_KEYS, default="").value
    turbo = any(draft.text(key, default="").value == "fsdp_turbo" for key in _ENGINE_KEYS)
    own = own if own in ("veomni", "torchtitan", "automodel") else "fsdp_config"
    engine = f"{ACTOR}.{'megatron' if megatron else own}"
    # A resolved configuration has keys that do not hold: FSDP's beside fsdp_turbo's or these beside FSDP's, and of two
    # for sequences the newer, where the older is more than 1 (FSDPActorConfig).
    older, newer = (f"{part}.ulysses_sequence_parallel_size" for part in (ACTOR, engine))
    said = draft.maybe_count(older)
    gone = [f"{engine}.fsdp_size", older, newer] if turbo else [f"{engine}.turbo_config"]
    for key in [*gone, newer if said is not None and said.value > 1 else older]:
        draft.settings.drop(key)
    put_rows(draft, "epochs")
    put_rows(draft, "megatron" if megatron else "fsdp", f"{engine}.")
    rest = {"torchtitan": ("ranks", own), "automodel": ("ranks", own), "veomni": ("mesh", "layers", own)}
    for block in () if megatron else rest.get(own, ("mesh", "layers")):
        put_rows(draft, block, f"{engine}.")
    host = (f"{ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload", f"{engine}.offload_policy")
    on_host = any(draft.flag(key, default=False).value for key in host)
    put_rows(draft, "optimizer on the host" if on_host else "offload", f"{engine}.")
    put_rows(draft, "memory")
    # verl/trainer/ppo/utils.py, need_critic
    estimator = draft.text("algorithm.adv_estimator", default="gae")
    needed = estimator.value == "gae" and not draft.settings.runs("main_gkd")  # distillation has no advantages
    enabled = draft.flag("critic.enable", default=needed)
    if estimator.value == "remax":
        draft.note(str(estimator), "a greedy sample more of each prompt, which is generated and not trained")
    roles.critic(draft, enabled if enabled.given else estimator, enabled.value, switched(estimator.key, "gae", "grpo"))


def _put_drafts(draft: Draft, *, sglang: bool) -> None:
    """Speculative decoding: the model's MTP layer (verl/workers/config/model.py, `MtpConfig`), a draft model that only
    the rollout has, or what is handed to vLLM."""
    model_mtp, own_mtp = "actor_rollout_ref.model.mtp", f"{ROLLOUT}.mtp"
    mtp = own_mtp if draft.settings.has(own_mtp) and not draft.settings.has(model_mtp) else model_mtp
    loaded, used = (draft.flag(f"{mtp}.{key}", default=False) for key in ("enable", "enable_rollout"))
    if loaded.value and used.value:
        trained = draft.flag(f"{mtp}.enable_train", default=False)
        if sglang:
            sglang_drafts(draft, f"{mtp}.", trained, defaults=("EAGLE", 3, 4))
        else:
            vllm_drafts(draft, f"{mtp}.", trained, switch=used, alone="mtp")
        return
    draft.could(f"{PATH}.method", None, one_of({"mtp": {loaded.key: True, used.key: True}}), None)
    own = draft.flag(f"{ROLLOUT}.speculative_decoding.enable", default=False)
    handed = f"{ENGINE}.speculative_config"
    if own.value:
        vllm_drafts(draft, f"{ROLLOUT}.speculative_decoding.", str(own), switch=own, alone="eagle3")
    elif not sglang:
        vllm_drafts(draft, f"{handed}.", handed, written=f"+{handed}.")
