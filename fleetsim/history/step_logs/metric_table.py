"""Which metric of which framework's step log is which column: one table, a row per column.

A row is `column | metrics | modes`; a line that begins with a blank goes on with the one before. Metrics: `a, else b`
(the first that the log has), `a + b` (all that it has), `growth of a` (of a running total), `1 - a`, `a / 100`, `a of
the next row` (it tells of the step before); behind any of them ` - b` (taken off). Modes: only in these; none = all.

wait_s: the seconds of a step in which the trainer waits for samples. In a synchronous step on shared GPUs that is the
whole generation; the GPUs work meanwhile, as generators, and generate_s says the same number. train_s stands only
where a framework times it whole; else it is the sum of its parts (`steps.TRAINING`). All times are seconds and
all lengths tokens in every framework, so that no row has a factor.

`tests/history/test_log_keys.py` holds every key that a framework's code writes against this table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleetsim.history.step_logs.columns import FORMS, Entry

TABLE = """
[verl]
step_s | timing_s/step, else perf/time_per_step
wait_s | timing_s/gen + timing_s/switch_wait | separate async
wait_s | timing_s/gen + timing_s/wait_for_enough_samples | fully async
wait_s | timing_s/gen | synchronous, one step off
logp_s | timing_s/old_log_prob
ref_s | timing_s/ref
values_s | timing_s/values + timing_s/update_critic
advantage_s | timing_s/adv
update_s | timing_s/update_actor
sync_s | timing_s/update_weights, else timing_s/timing_s/param_sync, else timing_s/param_sync,
    else timing_s/sync_rollout_weights
generate_s | timing_s/gen | synchronous
generate_s | timing_s/generate_async | one step off
reward_s | timing_s/reward
checkpoint_s | timing_s/save_checkpoint
other_s | timing_s/switch_to_trainer + timing_s/switch_to_rollout + timing_s/gen_max + timing_s/start_profile
    + timing_s/dump_rollout_generations
eval_s | timing_s/testing, else timing_s/rollouter/validate_time
pull_groups | fully_async/static/required_samples
pulls | growth of training/global_step | fully async
total_tokens | perf/total_num_tokens
length_mean | response_length/mean
length_min | response_length/min
length_max | response_length/max
clip_share | response_length/clip_ratio
aborted_share | response/aborted_ratio
prompt_mean | prompt_length/mean
prompt_max | prompt_length/max
turns_mean | num_turns/mean, else training/num_turns/mean
tool_calls_mean | tool_call_counts/mean
tool_s_mean | timing_s/agent_loop/tool_calls/mean
queue_groups | dynamic_resource/mq_size, else fully_async/monitor/queue/mq_queue_size
queue_cap_groups | fully_async/static/max_queue_size
staleness_steps | training/off_policy/trajectory_staleness/mean
staleness_max_steps | training/off_policy/trajectory_staleness_worst/max,
    else training/off_policy/trajectory_staleness/max
stale_samples | growth of fully_async/count/stale_trajectory_processed
partial_share | fully_async/partial/partial_ratio
dropped_groups | growth of fully_async/count/dropped_stale_samples
dropped_groups | training/off_policy/evicted_samples
in_flight_groups | fully_async/monitor/active_tasks_size
in_flight_cap_groups | fully_async/static/max_concurrent_samples
window_groups | fully_async/count/staleness_samples
window_cap_groups | fully_async/static/max_required_samples
generated_groups | fully_async/rollouter/step_generated_samples
generated_groups | growth of fully_async/count/total_generated_samples
sample_s_mean | timing_s/agent_loop/generate_sequences/mean
sample_s_max | timing_s/agent_loop/generate_sequences/max
group_s_mean | fully_async/processing_time/avg
group_s_p50 | fully_async/processing_time/tp50
group_s_p95 | fully_async/processing_time/tp95
group_s_p99 | fully_async/processing_time/tp99
group_s_max | fully_async/processing_time/max
trainer_idle | fully_async/trainer/idle_ratio, else trainer/idle_ratio
rollout_idle | fully_async/rollouter/idle_ratio, else rollouter/idle_ratio
rollout_active_s | fully_async/rollouter/active_time
rollout_window_s | fully_async/rollouter/version_time
preemptions | timing_s/agent_loop/num_preempted/mean
mfu | perf/mfu/actor
memory_gb | actor/perf/max_memory_allocated_gb, else perf/max_memory_allocated_gb
memory_reserved_gb | actor/perf/max_memory_reserved_gb, else perf/max_memory_reserved_gb
host_memory_gb | actor/perf/cpu_memory_used_gb, else perf/cpu_memory_used_gb
[trl]
step_s | perf/step_s, else step_time
wait_s | perf/rollout_wait_s | asynchronous
wait_s | profiling/Time taken: GRPOTrainer.vLLM.generate
    + profiling/Time taken: GRPOTrainer.transformers.generate | synchronous
update_s | perf/fwd_bwd_s + perf/optimizer_s
sync_s | perf/weight_sync_s, else weight_sync_time_s, else profiling/Time taken: GRPOTrainer.sync_weights,
    else profiling/Time taken: GRPOTrainer._move_model_to_vllm
generate_s | profiling/Time taken: GRPOTrainer.vLLM.generate
    + profiling/Time taken: GRPOTrainer.transformers.generate | synchronous
reward_s | profiling/Time taken: GRPOTrainer._calculate_rewards | synchronous
logps_s | profiling/Time taken: GRPOTrainer._get_per_token_logps_and_entropies | synchronous
samples | batch/samples_per_step
output_tokens | batch/trained_tokens_per_step
total_tokens | batch/forwarded_tokens_per_step
total_tokens | growth of num_tokens
length_mean | completions/mean_length
length_min | completions/min_length
length_max | completions/max_length
tool_calls_mean | tools/call_frequency
clip_share | completions/clipped_ratio
queue_samples | sample/rollout_queue_size, else buffer_qsize
staleness_steps | sample/staleness_mean
[open-instruct]
step_s | time/total
wait_s | time/trainer_waiting_for_data
train_s | time/training - time/trainer_waiting_for_data - time/weight_sync_max
sync_s | time/weight_sync
checkpoint_s | time/saving
samples | growth of episode
total_tokens | val/num_step_tokens
length_mean | val/sequence_lengths
length_min | val/sequence_lengths_min
length_max | val/sequence_lengths_max
groups | val/total_reward_groups
group_s_mean | time/group_generation_mean
group_s_max | time/group_generation_max
mfu | learner_mfu / 100
clip_share | 1 - val/stop_rate
[openrlhf]
step_s | timing/step_total
wait_s | timing/step_total - timing/make_experience - timing/ppo_train - timing/broadcast | asynchronous
wait_s | timing/generation of the next row - timing/make_experience - timing/ppo_train | locked
wait_s | timing/generation | synchronous
experience_s | timing/make_experience
update_s | timing/ppo_train
sync_s | timing/broadcast | synchronous, asynchronous
generate_s | timing/generation | synchronous, locked
rollout_active_s | timing/generation | asynchronous, locked
rollout_window_s | timing/step_total | asynchronous, locked
samples | rollout/num_samples
length_mean | rollout/response_length_mean
clip_share | rollout/truncated_rate
[nemo-rl]
step_s | timing/train/total_step_time
wait_s | timing/train/exposed_generation | asynchronous
wait_s | timing/train/generation | synchronous
logps_s | timing/train/logprob_inference_prep + timing/train/policy_and_reference_logprobs
advantage_s | timing/train/advantage_calculation
update_s | timing/train/training_prep + timing/train/policy_training
sync_s | timing/train/weight_sync, else timing/train/prepare_for_generation/total
generate_s | timing/train/generation
reward_s | timing/train/reward_calculation
other_s | timing/train/data_processing + timing/train/dynamic_sampling + timing/train/offload_before_refit
eval_s | timing/train/idle/validation, else timing/train/total_validation_time
prompt_mean | train/mean_prompt_length
turns_mean | train/avg_turns_per_sample, else turns_per_sample/mean
queue_groups | train/buffer_size
sample_s_p95 | train/trajectory_duration_s/p95, else trajectory_duration_s/p95
sample_s_max | train/trajectory_duration_s/max, else trajectory_duration_s/max
checkpoint_s | timing/train/checkpointing
samples | train/global_valid_seqs
output_tokens | train/global_valid_toks
length_mean | train/mean_gen_tokens_per_sample, else gen_tokens_per_sample/mean
length_max | train/max_gen_tokens_per_sample
clip_share | train/truncation_rate
staleness_steps | train/avg_trajectory_age
[roll]
step_s | time/step_total of the next row | rlvr
step_s | time/step_total | agentic
wait_s | time/step_generate, else time/step_rollout
ref_s | time/ref_log_probs_values, else time/step_ref_log_probs_values_reward
logp_s | time/old_log_probs, else time/step_old_log_probs_values
advantage_s | time/step_adv
update_s | time/step_train
sync_s | time/step_model_update
reward_s | time/step_cal_norm_rewards + time/step_cal_token_reward
other_s | time/step_stop_server + time/step_shrink + time/step_cal_response_level_mask
    + time/step_compute_data_metrics + time/step_log
eval_s | time/val_step, else time/step_val
groups | scheduler/collect_query_count
dropped_groups | scheduler/query_filter_count
staleness_steps | scheduler/off_policy_ratio
sample_s_mean | time/generate/mean
sample_s_max | time/generate/max
tool_s_mean | time/reward/mean
samples | system/batch_size | rlvr
samples | growth of system/samples | agentic
length_min | token/response_length/min, else tokens/response_length/min
prompt_mean | token/prompt_length/mean, else tokens/prompt_length/mean
prompt_max | token/prompt_length/max, else tokens/prompt_length/max
length_mean | token/response_length/mean, else tokens/response_length/mean
length_max | token/response_length/max, else tokens/response_length/max
[areal]
step_s | timeperf/rollout + timeperf/critic_values + timeperf/ref_logp + timeperf/teacher_logp
    + timeperf/recompute_logp + timeperf/compute_advantage + timeperf/train_step + timeperf/critic_train_step
    + timeperf/update_weights + timeperf/save + timeperf/checkpoint_for_recover + timeperf/eval
wait_s | timeperf/rollout
values_s | timeperf/critic_values + timeperf/critic_train_step
ref_s | timeperf/ref_logp + timeperf/teacher_logp
logp_s | timeperf/recompute_logp
advantage_s | timeperf/compute_advantage
update_s | timeperf/train_step
sync_s | timeperf/update_weights
checkpoint_s | timeperf/save + timeperf/checkpoint_for_recover
samples | ppo_actor/n_seqs
output_tokens | ppo_actor/n_valid_tokens
total_tokens | ppo_actor/n_tokens
clip_share | ppo_actor/no_eos_ratios/avg
length_max | ppo_actor/seq_len/max - ppo_actor/prompt_len/avg
prompt_mean | ppo_actor/prompt_len/avg
prompt_max | ppo_actor/prompt_len/max
staleness_steps | version_stats/sample_staleness_theta_avg
staleness_max_steps | version_stats/sample_staleness_theta_max
turns_mean | rollout/num_turns/avg, else rollout/num_turns
eval_s | timeperf/eval
[slime]
step_s | perf/step_time
wait_s | perf/rollout_time | synchronous
wait_s | perf/train_wait_time - perf/update_weights_time - perf/save_model_time | asynchronous
train_s | perf/train_time
ref_s | perf/ref_log_probs_time
logp_s | perf/log_probs_time
sync_s | perf/update_weights_time
handover_s | perf/sleep_time + perf/wake_up_time | synchronous
generate_s | perf/rollout_time
rollout_active_s | perf/rollout_time | asynchronous
rollout_window_s | perf/step_time | asynchronous
checkpoint_s | perf/save_model_time
length_mean | rollout/response_len/mean
length_min | rollout/response_len/min
length_p50 | rollout/response_len/median
length_max | rollout/response_len/max
samples | train/global_batch_size
prefix_hit | rollout/prefix_cache_hit_rate
tool_s_mean | perf/non_generation_time/mean
turns_mean | multi_turn/multi_turn_metric/round_number_mean
clip_share | rollout/truncated_ratio
[prime-rl]
step_s | time/step
wait_s | time/wait_for_batch
update_s | time/forward_backward
sync_s | time/broadcast_weights
checkpoint_s | time/save_ckpt
samples | progress/rollouts
output_tokens | progress/output_tokens
total_tokens | progress/tokens
staleness_steps | off_policy/mean
staleness_max_steps | off_policy/max
dropped_samples | off_policy/dropped
groups | progress/tasks
length_mean | num_output_tokens/mean
length_min | num_output_tokens/min
length_p90 | num_output_tokens/p90
length_max | num_output_tokens/max
prompt_mean | num_input_tokens/mean
turns_mean | num_turns/mean
sample_s_mean | timing/agent/model/mean
sample_s_p90 | timing/agent/model/p90
sample_s_max | timing/agent/model/max
tool_s_mean | timing/agent/harness/mean + timing/scoring/mean
other_s | time/load_data + time/pack
in_flight_samples | dispatcher/inflight/train
in_flight_cap_samples | concurrency/max_inflight
running | inference/agg/num_requests_running/mean
waiting | inference/agg/num_requests_waiting/mean
kv_use | inference/agg/kv_cache_usage_perc/mean
prefix_hit | inference/agg/prefix_cache_hit_rate/pooled
mfu | perf/mfu / 100
memory_reserved_gb | perf/peak_memory
[skyrl]
step_s | timing/step
wait_s | timing/wait_for_generation_buffer | asynchronous
wait_s | timing/generate | synchronous
train_s | timing/run_training | asynchronous
experience_s | timing/fwd_logprobs_values_reward
advantage_s | timing/apply_reward_kl_penalty + timing/compute_advantages_and_returns
update_s | timing/train_critic_and_policy
sync_s | timing/sync_weights
generate_s | timing/generate | synchronous
checkpoint_s | timing/save_checkpoints + timing/save_hf_model
other_s | timing/postprocess_generator_output + timing/convert_to_training_input
    + timing/update_ref_with_policy | synchronous
other_s | timing/convert_to_training_input | asynchronous
eval_s | timing/eval
samples | generate/batch_num_seq
length_mean | generate/avg_assistant_tokens, else generate/avg_num_tokens
length_min | generate/min_assistant_tokens, else generate/min_num_tokens
length_max | generate/max_assistant_tokens, else generate/max_num_tokens
length_std | generate/std_assistant_tokens, else generate/std_num_tokens
queue_groups | async/gen_buffer_qsize_at_wait_start
dropped_groups | async/num_groups_dropped
staleness_steps | async/staleness_mean
staleness_max_steps | async/staleness_max
stale_share | async/staleness_ratio
sample_s_mean | generate/trajectory_time_llm_mean
sample_s_p90 | generate/trajectory_time_llm_p90
sample_s_max | generate/trajectory_time_llm_max
tool_s_mean | generate/trajectory_time_env_mean
group_s_mean | generate/group_completion_time_mean
group_s_p90 | generate/group_completion_time_p90
group_s_max | generate/group_completion_time_max
[tinker]
step_s | time/total - time/run_evaluations_parallel - time/run_evals | synchronous, streamed
wait_s | time/sampling | synchronous
generate_s | time/sampling | synchronous
ref_s | time/kl_vs_base
update_s | time/train_step
advantage_s | time/assemble_training_data
sync_s | time/save_checkpoint
other_s | time/compute_post_kl + time/compute_kl_sample_train
eval_s | time/run_evaluations_parallel, else time/run_evals
samples | env/all/total_episodes
output_tokens | env/all/total_ac_tokens
turns_mean | env/all/turns_per_episode
group_s_mean | time/sampling_time_mean
group_s_max | time/sampling_time_max
staleness_steps | training_client/step - sampling_client/step_mean
staleness_max_steps | training_client/step - sampling_client/step_min
"""


def entries() -> Mapping[str, tuple[Entry, ...]]:
    """Framework -> its rows, in the order of the table."""
    found: dict[str, tuple[Entry, ...]] = {}
    name = ""
    for line in re.sub(r"\n +", " ", TABLE).strip().splitlines():
        if line.startswith("["):
            name = line.strip("[]")
            found[name] = ()
        else:
            found[name] += (_entry(line),)
    return found


def _entry(row: str) -> Entry:
    column, formula, *modes = row.split(" | ")
    only = tuple(modes[0].split(", ")) if modes else ()
    for how, form in FORMS.items():
        before, after = form.split("{}")
        if (found := re.fullmatch(rf"{re.escape(before)}(\S+){re.escape(after)}((?: - \S+)*)", formula)) is not None:
            return Entry(column, (found[1],), how, tuple(found[2].split(" - ")[1:]), only)
    metrics, *minus = formula.split(" - ")
    if " + " in metrics:
        return Entry(column, tuple(metrics.split(" + ")), "sum", tuple(minus), only)
    return Entry(column, tuple(metrics.split(", else ")), "first", tuple(minus), only)
