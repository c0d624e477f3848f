"""verl (verl-project/verl at 1dda039b9): PPO trainer V1, one-step-off and fully asynchronous recipes.

Names and defaults: verl/trainer/config/ppo_trainer.yaml, rollout/rollout.yaml, data/legacy_data.yaml and
actor/actor.yaml; verl/experimental/one_step_off_policy/config/one_step_off_ppo_trainer.yaml;
verl/experimental/fully_async_policy/config/fully_async_ppo_trainer.yaml and fully_async_rollouter.py;
docs/advance/v1_async_trainer.md.
"""

from __future__ import annotations

import math

from fleetsim.frameworks import recipe
from fleetsim.frameworks.common import (
    TrainerSpeed,
    barrier,
    engine_name,
    entry_point,
    filtering,
    hardware_and_times,
    lengths,
    model,
    transport,
    weights_type,
)
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.framework import Framework, Mode
from fleetsim.frameworks.reading import Read, on_nodes, one_of, parts_of, times
from fleetsim.frameworks.speculation import PATH, frozen, sglang_drafts, vllm_drafts

ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
ENGINE = f"{ROLLOUT}.engine_kwargs.vllm"

TRANSPORTS = {
    **dict.fromkeys(("nccl", "hccl"), "collective_broadcast"),
    **dict.fromkeys(("nixl", "mooncake", "kimi_ckpt_engine"), "rdma_p2p"),
    "delta_sharded": "sparse_delta",
}
NOT_MODELLED = {
    f"{ACTOR}.use_dynamic_bsz": "micro-batches do not change what is counted: the trainer's seconds per token do",
    f"{ROLLOUT}.over_sample_rate": "samples beyond the batch that are cut off once enough have finished",
    f"{ROLLOUT}.multi_turn.enable": "turns and tool latency: --set workload.turns.count=N "
    "--set workload.turns.tool_latency_s=SECONDS",
    f"{ROLLOUT}.disaggregation.enabled": "prefill and decode on different instances",
    f"{ROLLOUT}.enforce_eager": "decoding without CUDA graphs is slower than what is simulated",
    f"{ROLLOUT}.expert_parallel_size": "expert parallelism inside an instance",
    f"{ROLLOUT}.max_model_len": "only the length caps are kept",
    "actor_rollout_ref.model.lora_rank": "an adapter alone is synchronized: --set sync.pause_s=SECONDS",
    "async_training.use_dynamic_resource_scheduling": "trainer GPUs are lent by a policy of its own; "
    "--set fleet.placement=colocated_lending comes near it",
    "trainer.critic_warmup": "steps that train the critic only",
    "trainer.test_freq": "validation between steps",
    "critic.model.path": "the critic's own passes and update",
    "reward_model.enable": "a reward model's GPUs and latency: --set workload.reward.latency_s=SECONDS",
    "reward.reward_model.enable": "a reward model's GPUs and latency: --set workload.reward.latency_s=SECONDS",
}


def build(draft: Draft, speed: TrainerSpeed | None) -> None:
    """Fill the draft from verl's keys."""
    mode = _mode(draft)
    model(
        draft,
        "actor_rollout_ref.model.path",
        remedy="-- actor_rollout_ref.model.path=Qwen/Qwen2.5-7B, or --set engine.model=Qwen/Qwen2.5-7B",
    )
    n = draft.count(f"{ROLLOUT}.n", default=1)
    draft.put("workload.group_size", n.value, n)
    answer = draft.maybe_count("data.max_response_length", f"{ROLLOUT}.response_length")
    prompt = draft.maybe_count("data.max_prompt_length", f"{ROLLOUT}.prompt_length")
    lengths(
        draft,
        answer or Read("data.max_response_length", 512, False),
        prompt or Read("data.max_prompt_length", 512, False),
    )
    _engine(draft)
    per_instance = _parallel(draft)
    {"sync": _sync, "one_step_off": _one_step_off, "fully_async": _fully_async}.get(mode, _v1_async)(
        draft, n, per_instance
    )
    draft.semantics("fleet.group_placement", "spread", "each response is a request of its own")
    draft.semantics("fleet.routing", "least_loaded", "the load balancer takes the replica with the fewest requests")
    backend = draft.text(f"{ROLLOUT}.checkpoint_engine.backend", default="nccl")
    transport(draft, None if backend.value == "naive" else backend, TRANSPORTS)
    filtering(draft, draft.flag("algorithm.filter_groups.enable", default=False))
    if draft.settings.get("algorithm.filter_groups.enable") and (gen := draft.maybe_count("data.gen_batch_size")):
        draft.note(str(gen), "dropped groups are refilled one by one here, not a generation batch at a time")
    bypass = draft.flag("algorithm.rollout_correction.bypass_mode", default=mode in ("one_step_off", "fully_async"))
    loss = draft.flag(f"{ACTOR}.use_kl_loss", default=False)
    reference = loss.value or draft.flag("algorithm.use_kl_in_reward", default=False).value
    hardware_and_times(draft, speed, {"old log-probs": not bypass.value, "reference log-probs": reference})
    recipe.passes(
        draft,
        old_log_probs=(not bypass.value, lambda want: bypass.written(not want)),
        reference=(reference, loss.written),
    )
    _recipe(draft)
    draft.leave_out(NOT_MODELLED)


def _recipe(draft: Draft) -> None:
    """The update: verl/workers/config/engine.py, FSDPEngineConfig and McoreEngineConfig."""
    recipe.words(
        draft,
        "backend",
        {"dp": "fsdp", "megatron": "megatron", "fsdp": "fsdp", "fsdp2": "fsdp"},
        "model_engine",
        f"{ACTOR}.strategy",
    )
    megatron = draft.values.get("trainer.recipe.backend") == "megatron"
    engine = f"{ACTOR}.{'megatron' if megatron else 'fsdp_config'}"
    recipe.counts(draft, {"epochs": f"{ACTOR}.ppo_epochs"})
    if megatron:
        ranks = {"tp": "tensor_model", "pp": "pipeline_model", "cp": "context", "ep": "expert_model"}
        recipe.counts(draft, {name: f"{engine}.{word}_parallel_size" for name, word in ranks.items()})
    else:
        recipe.counts(
            draft, {"cp": (f"{engine}.ulysses_sequence_parallel_size", f"{ACTOR}.ulysses_sequence_parallel_size")}
        )
    recipe.words(draft, "offload", {"true": "states"}, f"{engine}.optimizer_offload")
    recipe.flags(
        draft,
        {
            "recompute": ("actor_rollout_ref.model.enable_gradient_checkpointing", True),
            "packing": ("actor_rollout_ref.model.use_remove_padding", True),
        },
    )
    estimator = draft.maybe_text("algorithm.adv_estimator")
    back = one_of({True: {"algorithm.adv_estimator": "gae"}, False: {"algorithm.adv_estimator": "grpo"}})
    if estimator is None:
        draft.could("trainer.recipe.critic", None, back)
    else:
        draft.put("trainer.recipe.critic", estimator.value == "gae", estimator, back=back, unless=False)


def _mode(draft: Draft) -> str:
    settings = draft.settings
    if settings.runs("fully_async") or settings.has("async_training"):
        draft.mode, draft.preset = "fully_async_policy", "verl-fully-async"
        return "fully_async"
    if settings.runs("one_step_off") or settings.has("rollout.nnodes"):
        draft.mode, draft.preset = "one_step_off_policy", "verl-one-step-off"
        return "one_step_off"
    trainer = draft.choice(
        "trainer.v1.trainer_mode", default="sync", known=("sync", "colocate_async", "separate_async")
    )
    draft.mode = f"trainer_mode {trainer.value}"
    draft.preset = {"sync": "verl-sync"}.get(trainer.value, f"verl-v1-{trainer.value.replace('_', '-')}")
    return trainer.value


def _engine(draft: Draft) -> None:
    name = draft.text(f"{ROLLOUT}.name", default="vllm")
    engine_name(draft, name, {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"})
    # verl/workers/rollout/vllm_rollout/vllm_async_server.py: the usage context of vLLM's API server
    entry_point(draft, "api_server", "vLLM runs as an API server; its limits are verl's own")
    memory = draft.number(f"{ROLLOUT}.gpu_memory_utilization", default=0.5, most=1.0)
    standalone = draft.settings.get(f"{ROLLOUT}.standalone_gpu_memory_utilization")
    if standalone is not None:
        memory = draft.number(f"{ROLLOUT}.standalone_gpu_memory_utilization", default=memory.value, most=1.0)
    draft.put("engine.gpu_memory_utilization", memory.value, memory)
    seqs = draft.count(f"{ROLLOUT}.max_num_seqs", default=256)
    draft.put("engine.max_num_seqs", seqs.value, seqs)
    tokens = draft.count(f"{ROLLOUT}.max_num_batched_tokens", default=8192)
    draft.put("engine.max_num_batched_tokens", tokens.value, tokens)
    weights_type(draft, f"{ROLLOUT}.quantization")
    prefix = draft.flag(f"{ROLLOUT}.enable_prefix_caching", default=True)
    draft.put("engine.prefix_caching", prefix.value, prefix)
    _drafts(draft, sglang=draft.values.get("engine.name") == "sglang")


def _drafts(draft: Draft, *, sglang: bool) -> None:
    """Speculative decoding: the model's MTP layer (verl/workers/config/model.py, `MtpConfig`), a draft model that only
    the rollout has, or what is handed to vLLM."""
    model_mtp, own_mtp = "actor_rollout_ref.model.mtp", f"{ROLLOUT}.mtp"
    mtp = own_mtp if draft.settings.has(own_mtp) and not draft.settings.has(model_mtp) else model_mtp
    loaded, used = (draft.flag(f"{mtp}.{key}", default=False) for key in ("enable", "enable_rollout"))
    if loaded.value and used.value:
        if sglang:
            sglang_drafts(draft, f"{mtp}.", defaults=("EAGLE", 3, 4))
        else:
            vllm_drafts(draft, f"{mtp}.", switch=used, alone="mtp")
        trained = draft.flag(f"{mtp}.enable_train", default=False)
        if not trained.value:
            frozen(draft, str(trained))
        return
    draft.could(f"{PATH}.method", None, one_of({"mtp": {loaded.key: True, used.key: True}}), None)
    own = draft.flag(f"{ROLLOUT}.speculative_decoding.enable", default=False)
    if own.value and vllm_drafts(draft, f"{ROLLOUT}.speculative_decoding.", switch=own, alone="eagle3"):
        frozen(draft, str(own))
    elif not sglang and vllm_drafts(draft, f"{ENGINE}.speculative_config.", written=f"+{ENGINE}.speculative_config."):
        frozen(draft, f"{ENGINE}.speculative_config")


def _parallel(draft: Draft) -> Read[int]:
    """GPUs of one instance."""
    tp = draft.count(f"{ROLLOUT}.tensor_model_parallel_size", default=2)
    draft.put("engine.tp", tp.value, tp)
    pp = draft.count(f"{ROLLOUT}.pipeline_model_parallel_size", default=1)
    dp = draft.count(f"{ROLLOUT}.data_parallel_size", default=1)
    draft.put("engine.pp", pp.value, pp, unless=1)
    draft.put("engine.dp", dp.value, dp, why="ranks of an engine, each an instance", unless=1)
    return tp if pp.value == 1 else times(tp, pp)


def _trainer_gpus(draft: Draft) -> Read[int]:
    nodes = draft.count("trainer.nnodes", default=1)
    per_node = draft.count("trainer.n_gpus_per_node", default=8)
    gpus = on_nodes(nodes, per_node)
    draft.put("trainer.gpus", gpus.value, gpus)
    return gpus


def _batch(draft: Draft, n: Read[int]) -> Read[int]:
    batch = draft.count("data.train_batch_size", default=1024)
    back = times(batch, n).written
    draft.put("trainer.batch_samples", batch.value * n.value, batch, n, why="prompts x responses", back=back)
    if "separate" not in draft.mode:
        mini = draft.maybe_count(f"{ACTOR}.ppo_mini_batch_size")
        recipe.optimizer_steps(draft, batch, mini, f"{ACTOR}.ppo_mini_batch_size", "their updates count as one step")
    return batch


def _sync(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    gpus = _trainer_gpus(draft)
    _instances(draft, gpus, per_instance)
    draft.semantics("fleet.placement", "colocated", "rollout and training take turns on the same GPUs")
    _batch(draft, n)
    barrier(draft, "the whole batch is generated, the longest response is waited for")


def _instances(draft: Draft, gpus: Read[int], per_instance: Read[int]) -> None:
    value = draft.divided("the number of instances", gpus, per_instance)
    draft.put("fleet.instances", value, gpus, per_instance, back=parts_of(gpus, per_instance))


def _one_step_off(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    _trainer_gpus(draft)
    _rollout_gpus(draft, per_instance, "rollout")
    _batch(draft, n)
    draft.semantics("admission.law", "batches_ahead", "the next batch is generated while one is trained")
    draft.semantics("admission.batches_ahead", 1, "exactly one batch ahead")
    draft.semantics("sync.in_flight", "drain", "weights change between two batches, when nothing is in flight")
    draft.semantics("buffer.batch_rule", "fifo", "the batch that was generated before")


def _rollout_gpus(draft: Draft, per_instance: Read[int], section: str) -> None:
    nodes = draft.count(f"{section}.nnodes", default=1)
    per_node = draft.maybe_count(f"{section}.n_gpus_per_node") or draft.count("trainer.n_gpus_per_node", default=8)
    gpus = on_nodes(nodes, per_node, per_node_key=f"{section}.n_gpus_per_node")
    _instances(draft, gpus, per_instance)
    draft.semantics("fleet.placement", "disaggregated", "rollout has GPUs of its own")


def _fully_async(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    _trainer_gpus(draft)
    _rollout_gpus(draft, per_instance, "rollout")
    mini = draft.count(f"{ACTOR}.ppo_mini_batch_size", default=256)
    pulls = draft.count("async_training.require_batches", default=1)
    groups = mini.value * pulls.value
    every = draft.count("async_training.trigger_parameter_sync_step", default=4)
    draft.put(
        "trainer.batch_samples",
        groups * every.value * n.value,
        times(mini, pulls, every),
        n,
        why="a step here is what is trained between two synchronizations",
        back=times(mini, pulls, every, n).written,
    )
    draft.put("trainer.minibatches", every.value, every, why="each pull is trained as soon as it is there")
    draft.semantics("sync.trigger", "pulls", "the trainer counts its pulls")
    draft.put("sync.every_pulls", every.value, every)
    threshold = draft.number("async_training.staleness_threshold", default=0.1, most=1e6)
    draft.semantics("admission.law", "per_sync_window", "a share of a sync window's prompts may start beyond it")
    draft.put("admission.staleness_threshold", threshold.value, threshold)
    cap = max(1, math.floor(groups * (1 + threshold.value) * every.value))
    draft.put(
        "buffer.capacity_samples", cap * n.value, times(mini, pulls, every), threshold, n, why="the message queue"
    )
    draft.semantics("buffer.on_full", "drop_oldest", "the queue drops its oldest sample when it is full")
    draft.semantics("buffer.batch_rule", "fifo", "in the order of completion")
    most = draft.count("async_training.concurrent_samples_per_replica", default=16)
    draft.put(
        "fleet.max_in_flight_samples_per_instance",
        most.value * n.value,
        most,
        n,
        why="prompts per replica x responses",
        back=times(most, n).written,
    )
    draft.semantics("fleet.in_flight_unit", "groups", "a task is a prompt with all its responses")
    partial = draft.flag("async_training.partial_rollout", default=True)
    draft.put(
        "sync.in_flight",
        "abort_resume" if partial.value else "drain",
        partial,
        why="aborted and sent again with what they have" if partial.value else "generation in flight is waited for",
        back=one_of({"abort_resume": {partial.key: True}, "drain": {partial.key: False}}),
    )


def _v1_async(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    separate = draft.mode.endswith("separate_async")
    section = f"trainer.v1.{'separate' if separate else 'colocate'}_async"
    batch = _batch(draft, n)
    if separate:
        _trainer_gpus(draft)
        _rollout_gpus(draft, per_instance, ROLLOUT)
        mini = draft.count(f"{ACTOR}.ppo_mini_batch_size", default=256)
        parts = draft.count(f"{section}.parameter_sync_step", default=4)
        if batch.value != parts.value * mini.value:
            draft.refuse(
                batch.key,
                batch.value,
                f"must be {parts} x {mini}: separate_async streams that many mini-batches",
                f"use {batch.key}={parts.value * mini.value}",
            )

        def streamed(want: int) -> dict[str, int] | None:
            return None if batch.value % want else {parts.key: want, mini.key: batch.value // want}

        why = "each mini-batch is trained once it is complete"
        draft.put("trainer.minibatches", parts.value, parts, why=why, back=streamed)
        draft.semantics("sync.trigger", "pulls", "weights go out after so many mini-batches")
        draft.put("sync.every_pulls", parts.value, parts)
        _lending(draft, section)
    else:
        gpus = _trainer_gpus(draft)
        _instances(draft, gpus, per_instance)
        draft.semantics("fleet.placement", "colocated", "rollout and training take turns on the same GPUs")
    warmup = draft.number(f"{section}.num_warmup_batches", default=1.0, most=1e6)
    draft.semantics("admission.law", "version_window", "a batch and the warm-up batches are outstanding")
    draft.put("admission.max_staleness", warmup.value, warmup)
    draft.semantics(
        "buffer.batch_rule", "oldest_version_first", "finished groups, those that started first at the head"
    )
    draft.semantics("sync.in_flight", "abort_resume", "aborted requests go on from what they have")
    limit = draft.count("trainer.v1.sampler.max_off_policy_threshold", default=8)
    strategy = draft.choice("trainer.v1.sampler.max_off_policy_strategy", default="drop", known=("drop", "wait"))
    action = "wait" if strategy.value == "wait" else "drop_and_refill"
    words = {"wait": "wait", "drop_and_refill": "drop"}
    draft.put("admission.age_action", action, strategy, back=one_of({a: {strategy.key: w} for a, w in words.items()}))
    draft.put(
        "admission.max_age",
        float(limit.value - 1),
        limit,
        why="verl counts a group of the same step as age 1",
        back=lambda want: None if want is None else limit.written(want + 1),
    )
    draft.semantics("admission.age_reference", "creation", "age counts from the step that sent the prompt")


def _lending(draft: Draft, section: str) -> None:
    switch = draft.flag(f"{section}.hybrid_rollout.enable_switch", default=False)
    back = one_of({"colocated_lending": {switch.key: True}, "disaggregated": {switch.key: False}})
    if not switch.value:
        draft.could("fleet.placement", "disaggregated", back, "disaggregated")
        return
    draft.preset += "-switch"
    draft.put("fleet.placement", "colocated_lending", switch, back=back)
    ratio = draft.number(f"{section}.hybrid_rollout.switch_threshold_ratio", default=0.4, most=1.0)
    draft.put("fleet.lending.return_at", ratio.value, ratio)
    if draft.flag(f"{section}.hybrid_rollout.adaptive_switch_threshold", default=True).value:
        draft.note(f"{section}.hybrid_rollout.adaptive_switch_threshold", "the share stays where it starts")


_V1 = "python3 -m verl.trainer.main_ppo"
FRAMEWORK = Framework(
    build,
    "verl-project/verl",
    "overrides",
    (
        Mode("sync", _V1, {"trainer.v1.trainer_mode": "sync"}),
        Mode("colocate_async", _V1, {"trainer.v1.trainer_mode": "colocate_async"}),
        Mode("separate_async", _V1, {"trainer.v1.trainer_mode": "separate_async"}),
        Mode(
            "one_step_off",
            "python3 -m verl.experimental.one_step_off_policy.main_ppo --config-name=one_step_off_ppo_trainer",
        ),
        Mode(
            "fully_async",
            "python3 -m verl.experimental.fully_async_policy.fully_async_main --config-name=fully_async_ppo_trainer",
            {"data.train_batch_size": 0, "data.gen_batch_size": 1},
        ),
    ),
    "data.train_files, data.val_files, the reward, the learning rate, micro-batches",
)
