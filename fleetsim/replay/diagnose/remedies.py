"""What to do about a cause, in the words of the framework whose log it is: one table, a row per cause and framework.

A row is `cause | framework | settings`, several settings with `; ` between them; `*` stands for any other framework.
{p95} is the length that one in twenty responses exceed, {cap} a cap that the window would fill. Settings are named at
the commits of `history/step_logs/frameworks.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

TABLE = """
rollout slow | * | fleetsim size --run LOG
rollout slow | trl | vllm_gpu_memory_utilization=0.6; vllm_tensor_parallel_size=1
KV preemption | * | fleetsim size --run LOG
KV preemption | verl | actor_rollout_ref.rollout.gpu_memory_utilization=0.85; actor_rollout_ref.rollout.max_num_seqs=128
KV preemption | trl | vllm_gpu_memory_utilization=0.6
KV preemption | nemo-rl | policy.generation.vllm_cfg.gpu_memory_utilization=0.85
KV preemption | openrlhf | vllm.gpu_memory_utilization=0.85
KV preemption | skyrl | generator.gpu_memory_utilization=0.85; generator.max_num_seqs=128
straggler | * | fleetsim replay --prometheus URL
long tail | * | fleetsim size --run LOG --set workload.output_tokens.max={p95}
long tail | verl | data.max_response_length={p95}; async_training.partial_rollout=True
long tail | trl | max_completion_length={p95}
long tail | nemo-rl | policy.generation.max_new_tokens={p95}; grpo.async_grpo.in_flight_weight_updates=true
long tail | roll | response_length={p95}; async_generation_ratio=1
long tail | openrlhf | rollout.max_new_tokens={p95}; train.partial_rollout_enable=True
long tail | skyrl | generator.sampling_params.max_generate_length={p95}
long tail | areal | gconfig.max_new_tokens={p95}; rollout.max_head_offpolicyness=2
long tail | slime | --rollout-max-response-len {p95}; --partial-rollout
long tail | prime-rl | orchestrator.max_off_policy_steps=8
long tail | open-instruct | response_length={p95}; inflight_updates=True
staleness window | * | fleetsim size --run LOG
staleness window | verl | async_training.staleness_threshold=1
staleness window | trl | max_staleness=8
staleness window | roll | async_generation_ratio=2
staleness window | nemo-rl | grpo.async_grpo.max_trajectory_age_steps=2
staleness window | areal | rollout.max_head_offpolicyness=4
staleness window | skyrl | trainer.fully_async.max_staleness_steps=8
staleness window | prime-rl | orchestrator.max_off_policy_steps=16
in-flight cap | * | fleetsim size --run LOG
in-flight cap | verl | async_training.concurrent_samples_per_replica={cap}
in-flight cap | trl | max_inflight_tasks={cap}
in-flight cap | areal | rollout.max_concurrent_rollouts={cap}
in-flight cap | prime-rl | orchestrator.concurrency.max_inflight={cap}
in-flight cap | slime | --sglang-server-concurrency {cap}
stale samples dropped | * | fleetsim size --run LOG
stale samples dropped | verl | async_training.staleness_threshold=1
stale samples dropped | trl | queue_maxsize={batch}
stale samples dropped | roll | async_generation_ratio=1
stale samples dropped | prime-rl | orchestrator.concurrency.max_inflight={batch}
stale samples dropped | skyrl | trainer.fully_async.max_staleness_steps=1
stale samples dropped | open-instruct | async_steps=1
ready samples fetched slowly | * | fleetsim replay --from LOG --explain
judge or tool slow | * | fleetsim size --run LOG --set workload.reward.latency_s=1
judge or tool slow | verl | reward_model.launch_reward_fn_async=True
trainer slow | * | fleetsim split --run LOG
trainer slow | verl | actor_rollout_ref.actor.use_dynamic_bsz=True; actor_rollout_ref.model.use_remove_padding=True
trainer slow | trl | use_liger_kernel=True
trainer slow | nemo-rl | policy.sequence_packing.enabled=true
trainer slow | roll | actor_train.use_dynamic_batching_in_train=true
trainer slow | openrlhf | --train.dynamic_batch_enable
trainer slow | slime | --use-dynamic-batch-size
trainer slow | skyrl | trainer.use_sample_packing=true
reference log-probs slow | * | fleetsim replay --from LOG --explain
reference log-probs slow | verl | actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True;
    actor_rollout_ref.ref.fsdp_config.param_offload=False; actor_rollout_ref.actor.use_kl_loss=False
reference log-probs slow | areal | ref.mb_spec.max_tokens_per_mb=32768; actor.kl_ctl=0
reference log-probs slow | slime | --log-probs-max-tokens-per-gpu 32768
log-probs slow | * | fleetsim replay --from LOG --explain
log-probs slow | verl | actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True;
    actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=32768
log-probs slow | trl | beta=0.0
log-probs slow | nemo-rl | policy.sequence_packing.enabled=true
log-probs slow | areal | actor.mb_spec.max_tokens_per_mb=32768
log-probs slow | slime | --log-probs-max-tokens-per-gpu 32768
experience slow | * | fleetsim replay --from LOG --explain
experience slow | openrlhf | algo.kl.init_coef=0
experience slow | skyrl | trainer.algorithm.use_kl_loss=false
reward slow | * | fleetsim size --run LOG --set workload.reward.latency_s=1
reward slow | verl | reward_model.launch_reward_fn_async=True
reward slow | trl | reward_funcs=ASYNC_FUNCTIONS
weight sync slow | * | fleetsim size --run LOG --set sync.pause_s=3
weight sync slow | verl | actor_rollout_ref.rollout.checkpoint_engine.backend=nccl;
    actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=2048
weight sync slow | slime | --update-weight-buffer-size 2147483648
weight sync slow | openrlhf | vllm.sync_backend=nccl
weight sync slow | skyrl | generator.weight_sync_backend=nccl
weight sync slow | areal | actor.weight_update_mode=xccl
weight sync slow | prime-rl | weight_broadcast.type=nccl
hand-over slow | * | fleetsim split --run LOG
evaluation | * | fleetsim replay --from LOG --explain
evaluation | verl | trainer.test_freq={rarer}
evaluation | trl | eval_steps={rarer}
evaluation | nemo-rl | grpo.val_period={rarer}
evaluation | roll | eval_steps={rarer}
evaluation | skyrl | trainer.eval_interval={rarer}
evaluation | slime | --eval-interval {rarer}
checkpoints | * | fleetsim replay --from LOG --explain
checkpoints | verl | trainer.save_freq={rarer}
checkpoints | trl | save_steps={rarer}
checkpoints | nemo-rl | checkpointing.save_period={rarer}
checkpoints | roll | save_steps={rarer}
checkpoints | skyrl | trainer.ckpt_interval={rarer}
checkpoints | slime | --save-interval {rarer}
unexplained time | * | fleetsim replay --from LOG --explain
"""


def remedies() -> Mapping[tuple[str, str], tuple[str, ...]]:
    """(cause, framework) -> what to set or to run."""
    found = {}
    for line in re.sub(r"\n +", " ", TABLE).strip().splitlines():
        cause, framework, settings = line.split(" | ")
        found[cause, framework] = tuple(settings.split("; "))
    return found


def remedy_for(cause: str, framework: str | None, values: Mapping[str, str]) -> tuple[str, ...]:
    """Settings of the framework, with the values in them, or commands; a setting whose value nobody knows is left out.

    values: name of a place in the table -> what stands there. Where no setting is left, the row of any framework.
    """
    table = remedies()
    for name in (framework or "*", "*"):
        rows = [row for row in table.get((cause, name), ()) if set(re.findall(r"{(\w+)}", row)) <= set(values)]
        if rows:
            return tuple(row.format_map(values) for row in rows)
    return ("fleetsim size --run LOG",)


def undo_of(do: tuple[str, ...]) -> tuple[str, ...]:
    """What takes it back: every setting to the value that it has now; a command, or advice in words, names none."""
    rows = [re.match(r"(?:--[\w.-]+)|(?:[+~]*[\w.]+(?==))", row) for row in do if not row.startswith("fleetsim ")]
    keys = [found[0] for found in rows if found]
    if not keys:
        return ("put back what you changed: the command itself changes nothing",)
    return (f"set back to their values of now: {', '.join(keys)}",)
