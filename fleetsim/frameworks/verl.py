"""verl (verl-project/verl at 1dda039b9): PPO trainer V1, one-step-off and fully asynchronous recipes.

Names and defaults: verl/trainer/config/ppo_trainer.yaml, rollout/rollout.yaml, data/legacy_data.yaml and
actor/actor.yaml; verl/experimental/one_step_off_policy/config/one_step_off_ppo_trainer.yaml;
verl/experimental/fully_async_policy/config/fully_async_ppo_trainer.yaml and fully_async_rollouter.py;
docs/advance/v1_async_trainer.md.
"""

from __future__ import annotations

import math

from fleetsim.frameworks import common, recipe, roles
from fleetsim.frameworks import verl_parts as parts
from fleetsim.frameworks.common import Framework, Mode
from fleetsim.frameworks.draft import Draft
from fleetsim.frameworks.reading import Read, one_of, times
from fleetsim.frameworks.sides import adapter
from fleetsim.frameworks.verl_parts import ACTOR, ROLLOUT, put_instances, rollout_batch, rollout_gpus, trainer_gpus

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
    mode = _mode(draft)
    common.model(
        draft,
        "actor_rollout_ref.model.path",
        remedy="-- actor_rollout_ref.model.path=Qwen/Qwen2.5-7B, or --set engine.model=Qwen/Qwen2.5-7B",
    )
    n = draft.take("workload.group_size", draft.count(f"{ROLLOUT}.n", default=1))
    answer = draft.maybe_count("data.max_response_length", f"{ROLLOUT}.response_length")
    prompt = draft.maybe_count("data.max_prompt_length", f"{ROLLOUT}.prompt_length")
    common.lengths(
        draft,
        answer or Read("data.max_response_length", 512, False),
        prompt or Read("data.max_prompt_length", 512, False),
    )
    _engine(draft)
    per_instance = parts.instance_gpus(draft)
    {"sync": _sync, "one_step_off": _one_step_off, "fully_async": _fully_async}.get(mode, _v1_async)(
        draft, n, per_instance
    )
    draft.semantics("fleet.group_placement", "spread", "each response is a request of its own")
    draft.semantics("fleet.routing", "least_loaded", "the load balancer takes the replica with the fewest requests")
    backend = draft.text(f"{ROLLOUT}.checkpoint_engine.backend", default="nccl")
    common.transport(draft, None if backend.value == "naive" else backend, TRANSPORTS)
    common.filtering(draft, draft.flag("algorithm.filter_groups.enable", default=False))
    if draft.settings.get("algorithm.filter_groups.enable") and (gen := draft.maybe_count("data.gen_batch_size")):
        draft.note(str(gen), "dropped groups are refilled one by one here, not a generation batch at a time")
    bypass = draft.flag("algorithm.rollout_correction.bypass_mode", default=mode in ("one_step_off", "fully_async"))
    loss = draft.flag(f"{ACTOR}.use_kl_loss", default=False)
    reference = loss.value or draft.flag("algorithm.use_kl_in_reward", default=False).value
    common.hardware_and_times(draft, speed, {"old log-probs": not bypass.value, "reference log-probs": reference})
    recipe.passes(
        draft,
        old_log_probs=(not bypass.value, lambda want: bypass.written(not want)),
        reference=(reference, loss.written),
    )
    parts.put_recipe(draft)
    parts.put_roles(draft)
    recipe.ranks(draft)
    draft.leave_out(NOT_MODELLED)


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
    common.engine_name(draft, name, {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"})
    # verl/workers/rollout/vllm_rollout/vllm_async_server.py: the usage context of vLLM's API server
    common.entry_point(draft, "api_server", "vLLM runs as an API server; its limits are verl's own")
    memory = draft.number(f"{ROLLOUT}.gpu_memory_utilization", default=0.5, most=1.0)
    standalone = draft.settings.get(f"{ROLLOUT}.standalone_gpu_memory_utilization")
    if standalone is not None:
        memory = draft.number(f"{ROLLOUT}.standalone_gpu_memory_utilization", default=memory.value, most=1.0)
    draft.put("engine.gpu_memory_utilization", memory.value, memory)
    draft.take("engine.max_num_seqs", draft.count(f"{ROLLOUT}.max_num_seqs", default=256))
    draft.take("engine.max_num_batched_tokens", draft.count(f"{ROLLOUT}.max_num_batched_tokens", default=8192))
    common.weights_type(draft, f"{ROLLOUT}.quantization")
    draft.take("engine.prefix_caching", draft.flag(f"{ROLLOUT}.enable_prefix_caching", default=True))
    parts.put_drafts(draft, sglang=draft.values.get("engine.name") == "sglang")
    # verl/workers/rollout/vllm_rollout/utils.py, `get_vllm_max_lora_rank`
    rank = draft.count("actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora.rank", default=0, least=0)
    merged = draft.flag("actor_rollout_ref.model.lora.merge", default=False)
    roles.adapters(draft, rank)
    adapter(draft, rank, merged=merged, of_vllm=draft.values.get("engine.name") == "vllm")


def _sync(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    gpus = trainer_gpus(draft)
    put_instances(draft, gpus, per_instance)
    draft.semantics("fleet.placement", "colocated", "rollout and training take turns on the same GPUs")
    rollout_batch(draft, n)
    common.barrier(draft, "the whole batch is generated, the longest response is waited for")


def _one_step_off(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    trainer_gpus(draft)
    rollout_gpus(draft, per_instance, "rollout")
    rollout_batch(draft, n)
    draft.semantics("admission.law", "batches_ahead", "the next batch is generated while one is trained")
    draft.semantics("admission.batches_ahead", 1, "exactly one batch ahead")
    draft.semantics("sync.in_flight", "drain", "weights change between two batches, when nothing is in flight")
    draft.semantics("buffer.batch_rule", "fifo", "the batch that was generated before")


def _fully_async(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    trainer_gpus(draft)
    rollout_gpus(draft, per_instance, "rollout")
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
    why = ("aborted and sent again with what they have", "generation in flight is waited for")
    draft.either("sync.in_flight", partial, "abort_resume", "drain", why=why)


def _v1_async(draft: Draft, n: Read[int], per_instance: Read[int]) -> None:
    separate = draft.mode.endswith("separate_async")
    section = f"trainer.v1.{'separate' if separate else 'colocate'}_async"
    batch = rollout_batch(draft, n)
    if separate:
        trainer_gpus(draft)
        rollout_gpus(draft, per_instance, ROLLOUT)
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
        gpus = trainer_gpus(draft)
        put_instances(draft, gpus, per_instance)
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
