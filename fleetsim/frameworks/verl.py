"""verl (verl-project/verl at 1dda039b9): PPO trainer V1, one-step-off and fully asynchronous recipes.

Names and defaults: verl/trainer/config/ppo_trainer.yaml, rollout/rollout.yaml, data/legacy_data.yaml and
actor/actor.yaml; verl/experimental/one_step_off_policy/config/one_step_off_ppo_trainer.yaml;
verl/experimental/fully_async_policy/config/fully_async_ppo_trainer.yaml and fully_async_rollouter.py;
docs/advance/v1_async_trainer.md.
"""

from __future__ import annotations

import math

from fleetsim.frameworks import common, recipe, roles
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, on_nodes, one_of, switched, times, turned, worded
from fleetsim.frameworks.sides import PATH, adapter, replicas, sglang_drafts, vllm_drafts
from fleetsim.frameworks.verl_forks import BATCH, group_of, project_of, trajectory_of, turns_of, with_verl_names

ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
ENGINE = f"{ROLLOUT}.engine_kwargs.vllm"
# A group of the trainer's defaults goes before the actor's own word.
_ENGINE_KEYS = ("model_engine", f"{ACTOR}.model_engine", f"{ACTOR}.strategy", f"{ACTOR}.fsdp_config.strategy")
TRANSPORTS = {
    **dict.fromkeys(("nccl", "hccl"), "collective_broadcast"),
    **dict.fromkeys(("nixl", "mooncake", "kimi_ckpt_engine"), "rdma_p2p"),
    "delta_sharded": "sparse_delta",
}
NOT_MODELLED = {
    f"{ROLLOUT}.over_sample_rate": "samples beyond the batch that are cut off once enough have finished",
    "async_training.use_dynamic_resource_scheduling": "trainer GPUs are lent by a policy of its own; "
    "--set fleet.placement=colocated_lending comes near it",
}


def build(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Fill the draft from verl's keys."""
    with_verl_names(draft.settings)
    mode = _mode(draft)
    key = "actor_rollout_ref.model.path"
    common.model(draft, key, remedy=f"-- {key}=Qwen/Qwen2.5-7B, or --set engine.model=Qwen/Qwen2.5-7B")
    own, each = group_of(draft), draft.count(f"{ROLLOUT}.n", default=1)
    n = draft.product("workload.group_size", *([each] if own is None else [own, each]))
    _lengths(draft)
    _engine(draft)
    per_instance = _instance_gpus(draft)
    modes = {"sync": _sync, "partial": _partial, "one_step_off": _one_step_off, "fully_async": _fully_async}
    modes.get(mode, _v1_async)(draft, n, per_instance)
    fewest = "the load balancer takes the replica with the fewest requests"
    common.requests(draft, "spread", "each response is a request of its own", "least_loaded", fewest)
    backend = draft.text(f"{ROLLOUT}.checkpoint_engine.backend", default="nccl")
    common.transport(draft, None if backend.value == "naive" else backend, TRANSPORTS)
    # data.*: verl-recipe, prime/prime_ray_trainer.py
    drops = draft.flag("algorithm.filter_groups.enable", "data.filter_accuracy", default=False)
    common.filtering(draft, drops, draft.maybe_number("data.oversample_factor"))
    if draft.settings.get("algorithm.filter_groups.enable") and (gen := draft.maybe_count("data.gen_batch_size")):
        draft.note(str(gen), "dropped groups are refilled one by one here, not a generation batch at a time")
    bypass = draft.flag("algorithm.rollout_correction.bypass_mode", default=mode in ("one_step_off", "fully_async"))
    loss = draft.flag(f"{ACTOR}.use_kl_loss", default=False)
    reference = loss.value or draft.flag("algorithm.use_kl_in_reward", default=False).value
    common.hardware_and_times(
        draft, speed, not bypass.value, reference, with_old=turned(bypass), with_reference=loss.written
    )
    device = draft.maybe_text("trainer.device")
    if device is not None and device.value == "npu":
        why = "an Ascend NPU: a GPU stands in for it; put in what you measured, --instance-tok-s and --trainer-step-s"
        draft.note(str(device), why)
    _put_recipe(draft)
    _put_roles(draft)
    recipe.ranks(draft)
    draft.leave_out(NOT_MODELLED)


def _lengths(draft: Draft) -> None:
    """The turns, the cap of all that a sample generates, and of its prompt. verl's own cap is that of all turns."""
    answer = draft.count("data.max_response_length", f"{ROLLOUT}.response_length", default=512)
    asked = draft.count("data.max_prompt_length", f"{ROLLOUT}.prompt_length", default=512)
    project = project_of(draft.settings)
    turns = None if project is None else turns_of(draft, project)
    if project is None or turns is None:
        _put_turns(draft)
    else:
        roles.put_turns(draft, turns)
        answer = trajectory_of(draft, project, turns, answer)
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
    turns = min((cap for cap in caps if cap is not None and on.value), key=lambda cap: cap.value, default=None)
    loop = draft.maybe_text(f"{ROLLOUT}.agent.agent_loop_config_path", f"{ROLLOUT}.agent.default_agent_loop")
    agent = str(tools or on) if on.value else str(loop) if loop is not None and "single_turn" not in loop.value else ""
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


def _engine(draft: Draft) -> None:
    name = draft.text(f"{ROLLOUT}.name", default="vllm")
    common.engine_name(draft, name, {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"})
    # verl/workers/rollout/vllm_rollout/vllm_async_server.py: the usage context of vLLM's API server
    common.entry_point(draft, "api_server", "vLLM runs as an API server; its limits are verl's own")
    memory = draft.number(f"{ROLLOUT}.gpu_memory_utilization", default=0.5, most=1.0)
    standalone = f"{ROLLOUT}.standalone_gpu_memory_utilization"
    if draft.settings.get(standalone) is not None:
        memory = draft.number(standalone, default=memory.value, most=1.0)
    draft.take("engine.gpu_memory_utilization", memory)
    draft.take("engine.max_num_seqs", draft.count(f"{ROLLOUT}.max_num_seqs", default=256))
    draft.take("engine.max_num_batched_tokens", draft.count(f"{ROLLOUT}.max_num_batched_tokens", default=8192))
    common.eager(draft, f"{ROLLOUT}.enforce_eager")
    common.weights_type(draft, f"{ROLLOUT}.quantization")
    draft.take("engine.prefix_caching", draft.flag(f"{ROLLOUT}.enable_prefix_caching", default=True))
    _put_drafts(draft, sglang=draft.values.get("engine.name") == "sglang")
    # verl/workers/rollout/vllm_rollout/utils.py, `get_vllm_max_lora_rank`
    rank = draft.count("actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora.rank", default=0, least=0)
    merged = draft.flag("actor_rollout_ref.model.lora.merge", default=False)
    roles.adapters(draft, rank)
    adapter(draft, rank, merged=merged)


def _turns(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    gpus = _trainer_gpus(draft)
    draft.parted("fleet.instances", gpus, per_instance)
    draft.semantics("fleet.placement", "colocated", "rollout and training take turns on the same GPUs")
    _rollout_batch(draft, n)


def _sync(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    _turns(draft, n, per_instance)
    common.barrier(draft, "the whole batch is generated, the longest response is waited for")


def _partial(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    """verl-recipe, partial_rollout/prompt_manager.py: of two batches of prompts the first to end are trained."""
    _turns(draft, n, per_instance)
    draft.semantics("admission.law", "barrier", "a batch is generated, then trained")
    draft.semantics("sync.in_flight", "drain", "nothing is in flight while the GPUs train")
    draft.semantics("buffer.batch_rule", "first_finished", "the first prompts to finish make the batch")
    draft.semantics("buffer.oversampling", 2.0, "_PREFETCH_FACTOR: two batches of prompts may be in flight")
    draft.semantics("buffer.leftover", "carry_over", "what is not finished goes on in the next step")
    draft.settings.see("async_training.partial_rollout")


def _one_step_off(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    _trainer_gpus(draft)
    _rollout_gpus(draft, per_instance, "rollout")
    _rollout_batch(draft, n)
    common.one_ahead(draft)


def _fully_async(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    _trainer_gpus(draft)
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
    draft.semantics("sync.trigger", "pulls", "the trainer counts its pulls")
    draft.put("sync.every_pulls", every.value, every)
    threshold = draft.number("async_training.staleness_threshold", default=0.1, most=1e6)
    draft.semantics("admission.law", "per_sync_window", "a share of a sync window's prompts may start beyond it")
    draft.put("admission.staleness_threshold", threshold.value, threshold)
    cap = max(1, math.floor(groups * (1 + threshold.value) * every.value))
    queue = (times(*parts, every), threshold, n)
    draft.put("buffer.capacity_samples", cap * n.value, *queue, why="the message queue")
    draft.semantics("buffer.on_full", "drop_oldest", "the queue drops its oldest sample when it is full")
    draft.semantics("buffer.batch_rule", "fifo", "in the order of completion")
    most = draft.count("async_training.concurrent_samples_per_replica", default=16)
    path, why = "fleet.max_in_flight_samples_per_instance", "prompts per replica x responses"
    draft.product(path, most, n, why=why)
    draft.semantics("fleet.in_flight_unit", "groups", "a task is a prompt with all its responses")
    partial = draft.flag("async_training.partial_rollout", default=True)
    why = ("aborted and sent again with what they have", "generation in flight is waited for")
    draft.either("sync.in_flight", partial, "abort_resume", "drain", why=why)


def _v1_async(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    separate = draft.mode.endswith("separate_async")
    section = f"trainer.v1.{'separate' if separate else 'colocate'}_async"
    batch = _rollout_batch(draft, n)
    if separate:
        _trainer_gpus(draft)
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
        draft.semantics("sync.trigger", "pulls", "weights go out after so many mini-batches")
        draft.put("sync.every_pulls", parts.value, parts)
        switch = draft.flag(f"{section}.hybrid_rollout.enable_switch", default=False)
        back = one_of({"colocated_lending": {switch.key: True}, "disaggregated": {switch.key: False}})
        if not switch.value:
            draft.could("fleet.placement", "disaggregated", back, "disaggregated")
        else:
            draft.preset += "-switch"
            draft.put("fleet.placement", "colocated_lending", switch, back=back)
            ratio = draft.number(f"{section}.hybrid_rollout.switch_threshold_ratio", default=0.4, most=1.0)
            draft.put("fleet.lending.return_at", ratio.value, ratio)
            adaptive = f"{section}.hybrid_rollout.adaptive_switch_threshold"
            if draft.flag(adaptive, default=True).value:
                draft.note(adaptive, "the share stays where it starts")
    else:
        gpus = _trainer_gpus(draft)
        draft.parted("fleet.instances", gpus, per_instance)
        draft.semantics("fleet.placement", "colocated", "rollout and training take turns on the same GPUs")
    warmup = draft.number(f"{section}.num_warmup_batches", default=1.0, most=1e6)
    draft.semantics("admission.law", "version_window", "a batch and the warm-up batches are outstanding")
    draft.put("admission.max_staleness", warmup.value, warmup)
    oldest = "finished groups, those that started first at the head"
    draft.semantics("buffer.batch_rule", "oldest_version_first", oldest)
    draft.semantics("sync.in_flight", "abort_resume", "aborted requests go on from what they have")
    limit = draft.count("trainer.v1.sampler.max_off_policy_threshold", default=8)
    strategy = draft.choice("trainer.v1.sampler.max_off_policy_strategy", default="drop", known=("drop", "wait"))
    words = {"wait": "wait", "drop": "drop_and_refill"}
    draft.put("admission.age_action", words[strategy.value], strategy, back=worded(words, lambda w: {strategy.key: w}))
    why, later = (
        "verl counts a group of the same step as age 1",
        lambda want: limit.written(None if want is None else want + 1),
    )
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
    dp = draft.count(f"{ROLLOUT}.data_parallel_size", default=1)
    if pp.value > 1:  # verl/workers/config/rollout.py, RolloutConfig
        draft.refuse(pp.key, pp.value, "verl's rollout has no pipeline stages", "use tensor parallelism")
    draft.could("engine.pp", 1, one_of({}), 1)
    draft.put("engine.dp", dp.value, dp, why="ranks of an engine, each an instance", unless=1)
    return tp


def _trainer_gpus(draft: Draft) -> Read[int]:
    """GPUs of the trainer, which it puts."""
    nodes = draft.count("trainer.nnodes", default=1)
    per_node = draft.count("trainer.n_gpus_per_node", default=8)
    return draft.take("trainer.gpus", on_nodes(nodes, per_node))


def _rollout_batch(draft: Draft, n: Read[int]) -> Read[int]:
    """Prompts of a batch. It puts the batch, and the optimizer steps where they are mini-batches of it."""
    batch, own = draft.count(*BATCH, default=1024), group_of(draft)
    draft.product("trainer.batch_samples", batch, n, why="prompts x responses")
    if "separate" not in draft.mode:
        mini = draft.count(f"{ACTOR}.ppo_mini_batch_size", default=256)  # it is counted before `rollout.n` repeats
        recipe.optimizer_steps(draft, batch if own is None else times(batch, own), mini, mini.key)
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
        gpus = roles.nodes(draft, "distillation.nnodes", "distillation.n_gpus_per_node", 8)
        (roles.taught if gpus else roles.judged)(draft, "distillation.enabled: teachers", gpus)
    for reward in ("reward.reward_model", "reward_model"):
        if draft.flag(f"{reward}.enable", default=False).value:
            pool = draft.flag(f"{reward}.enable_resource_pool", default=False).value
            gpus = roles.nodes(draft, f"{reward}.nnodes", f"{reward}.n_gpus_per_node", 8) if pool else 0
            roles.judged(draft, f"{reward}.enable: a reward model", gpus)
    # reward.num_workers bounds no calls: each worker scores all its samples at once (verl/experimental/reward_loop).
    sandbox = "reward.sandbox_fusion"
    apart = settings.has(f"{sandbox}.url", "reward_model.sandbox_fusion.url")
    calls = draft.count(f"{sandbox}.max_concurrent", "reward_model.sandbox_fusion.max_concurrent", default=64)
    roles.workers(draft, "reward", [calls if apart else None], calls.key if apart else "")
    settings.see("distillation", "reward", "reward_model", "critic", "actor_rollout_ref.ref")


def _put_recipe(draft: Draft) -> None:
    """The update: verl/workers/config/engine.py, FSDPEngineConfig and McoreEngineConfig."""
    known = {"dp": "fsdp", "megatron": "megatron", "fsdp": "fsdp", "fsdp2": "fsdp"}
    recipe.words(draft, "backend", known, *_ENGINE_KEYS, else_="fsdp")
    named = draft.maybe_text("config_name")  # ppo_megatron_trainer.yaml says its strategy itself
    if "trainer.recipe.backend" not in draft.values and named is not None and "megatron" in named.value:
        draft.put("trainer.recipe.backend", "megatron", named)
    megatron = draft.values.get("trainer.recipe.backend") == "megatron"
    own = draft.text(*_ENGINE_KEYS, default="").value
    own = own if own in ("veomni", "torchtitan", "automodel") else "fsdp_config"
    engine = f"{ACTOR}.{'megatron' if megatron else own}"
    recipe.rows(draft, epochs=f"{ACTOR}.ppo_epochs")
    if megatron:
        recipe.megatron(draft, f"{engine}.")
    else:
        turbo, ulysses = f"{engine}.turbo_config.distributed", "ulysses_sequence_parallel_size"
        context = [f"{section}.{ulysses}" for section in (engine, ACTOR)]
        context += [f"{engine}.ulysses_parallel_size", f"{engine}.context_parallel_size"]
        context += [f"{turbo}.ulysses_parallel_size"]
        experts = f"{engine}.expert_parallel_size {turbo}.expert_parallel_size"
        recipe.rows(draft, cp=" ".join(context), ep=experts)
        if own in ("torchtitan", "automodel"):
            recipe.rows(draft, tp=f"{engine}.tensor_parallel_size", pp=f"{engine}.pipeline_parallel_size")
    host = (f"{ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload", f"{engine}.offload_policy")
    if any(draft.flag(key, default=False).value for key in host):
        recipe.rows(draft, offload=(" ".join(host), {"true": "adam"}))
    else:
        recipe.rows(draft, offload=(f"{engine}.optimizer_offload", {"true": "states"}))
    model = "actor_rollout_ref.model"
    recipe.rows(
        draft,
        recompute=(f"{model}.enable_gradient_checkpointing", True),
        packing=(f"{model}.use_remove_padding", True),
    )
    # verl/trainer/ppo/utils.py, need_critic
    estimator = draft.text("algorithm.adv_estimator", default="gae")
    needed = estimator.value == "gae" and not draft.settings.runs("main_gkd")  # distillation has no advantages
    enabled = draft.flag("critic.enable", default=needed)
    back = switched(estimator.key, "gae", "grpo")
    path = "trainer.recipe.critic"
    if enabled.value:
        draft.put(path, True, enabled if enabled.given else estimator, back=back)
    else:
        draft.could(path, False, back)


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


_V1, _OWN = "python3 -m verl.trainer.main_ppo", "python3 -m verl.experimental"
_FULLY = f"{_OWN}.fully_async_policy.fully_async_main --config-name=fully_async_ppo_trainer"
_ONE_OFF = f"{_OWN}.one_step_off_policy.main_ppo --config-name=one_step_off_ppo_trainer"
FRAMEWORK = common.Framework(
    build,
    "verl-project/verl",
    "overrides",
    (
        *(common.Mode(m, _V1, {"trainer.v1.trainer_mode": m}) for m in ("sync", "colocate_async", "separate_async")),
        common.Mode("one_step_off", _ONE_OFF),
        common.Mode("fully_async", _FULLY, {"data.train_batch_size": 0, "data.gen_batch_size": 1}),
    ),
    "data.train_files, data.val_files, the reward, the learning rate, micro-batches",
)
