"""What the step logs of RL frameworks mean: metric name -> column of `StepLog`, one table per framework.

wait_s: the seconds of a step in which the trainer waits for samples. In a synchronous step on shared GPUs that is the
whole generation; the GPUs work meanwhile, as generators, and generate_s says the same number. All times are seconds and
all lengths tokens in every framework below, so that no entry has a factor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from fleetsim.history.history import Floats
from fleetsim.history.run_log_columns import COLUMNS, Entry, Framework


def _verl_mode(names: Collection[str], values: Mapping[str, Floats]) -> str:
    if any("idle_ratio" in n or n.startswith("fully_async/") or n.endswith("timing_s/param_sync") for n in names):
        return "fully async"
    if "timing_s/sync_rollout_weights" in names or "timing_s/generate_async" in names:
        return "one step off"
    if any(n.startswith("separate_async/") or n == "timing_s/switch_wait" for n in names):
        return "separate async"
    return "synchronous"


def _openrlhf_mode(names: Collection[str], values: Mapping[str, Floats]) -> str:
    """Synchronous: step_total is written as the sum of its parts. Asynchronous: it is a clock's, and parts overlap."""
    parts = [values[n] for n in _OPENRLHF_PARTS if n in values]
    total = values.get("timing/step_total")
    if total is None or not parts:
        return "synchronous"
    off = np.abs(total - np.nansum(np.stack(parts), axis=0))
    off = off[~np.isnan(off)]
    if not off.size or np.median(off) <= 1e-6 * np.nanmedian(total):
        return "synchronous"
    if not set(_OPENRLHF_PARTS) <= set(values):
        return "asynchronous"
    # Without partial rollouts a broadcast waits for the lock that the generation holds: then no time is left to wait
    # for the queue, and a generation takes longer than the training beside it.
    trained = values["timing/make_experience"] + values["timing/ppo_train"]
    left = np.nanmedian(total - trained - values["timing/broadcast"])
    held = np.nanmedian(values["timing/generation"] - trained)
    small = _LITTLE * np.nanmedian(total)
    return "locked" if left <= small < held else "asynchronous"


def _slime_mode(names: Collection[str], values: Mapping[str, Floats]) -> str:
    """Synchronous: the trainer waits for as long as the whole generation takes."""
    if not {_SLIME_WAIT[0], "perf/rollout_time"} <= set(values):
        return "asynchronous"
    wait = np.nanmedian(values[_SLIME_WAIT[0]] - sum(np.nan_to_num(values[n]) for n in _SLIME_WAIT[1:] if n in values))
    return _SYNC if wait >= (1 - _WHOLE) * np.nanmedian(values["perf/rollout_time"]) else "asynchronous"


def _by_name(mark: str) -> Callable[[Collection[str], Mapping[str, Floats]], str]:
    return lambda names, _: "asynchronous" if mark in names else "synchronous"


_SLIME_WAIT = ("perf/train_wait_time", "perf/update_weights_time", "perf/save_model_time")
_LITTLE = 0.02  # of a step
_WHOLE = 0.05  # of a generation: what a wait may be shorter and still be all of it
_OPENRLHF_PARTS = ("timing/make_experience", "timing/ppo_train", "timing/broadcast", "timing/generation")
_SYNC = "synchronous"
_SHARED = (
    "A synchronous step: the whole generation counts as the trainer's wait (on shared GPUs they generate meanwhile)."
)
_VERL_TRAIN = tuple(f"timing_s/{x}" for x in ("old_log_prob", "ref", "values", "adv", "update_critic", "update_actor"))
_VERL_OTHER = tuple(
    f"timing_s/{x}"
    for x in ("switch_to_trainer", "switch_to_rollout", "gen_max", "start_profile", "dump_rollout_generations")
)
_TRL_GENERATE = (
    "profiling/Time taken: GRPOTrainer.vLLM.generate",
    "profiling/Time taken: GRPOTrainer.transformers.generate",
)
_TRL_SYNC = ("profiling/Time taken: GRPOTrainer.sync_weights", "profiling/Time taken: GRPOTrainer._move_model_to_vllm")
_AREAL_TRAIN = (
    "timeperf/critic_values",
    "timeperf/ref_logp",
    "timeperf/teacher_logp",
    "timeperf/recompute_logp",
    "timeperf/compute_advantage",
    "timeperf/train_step",
    "timeperf/critic_train_step",
)
_SKYRL_TRAIN = tuple(
    f"timing/{x}"
    for x in (
        "fwd_logprobs_values_reward",
        "apply_reward_kl_penalty",
        "compute_advantages_and_returns",
        "train_critic_and_policy",
    )
)
_AREAL_SAVE = ("timeperf/save", "timeperf/checkpoint_for_recover")

FRAMEWORKS: tuple[Framework, ...] = (
    Framework(
        "verl",
        "verl-project/verl 1dda039: trainer/ppo/metric_utils.py, trainer/ppo/v1/trainer_base.py, "
        "experimental/fully_async_policy/detach_utils.py, experimental/one_step_off_policy/ray_trainer.py",
        ("timing_s/step", "timing_s/gen", "perf/time_per_step"),
        ("step", "_step", "Step", "training/global_step"),
        (
            Entry("step_s", ("timing_s/step", "perf/time_per_step")),
            Entry("wait_s", ("timing_s/gen", "timing_s/switch_wait"), "sum", modes=("separate async",)),
            Entry("wait_s", ("timing_s/gen", "timing_s/wait_for_enough_samples"), "sum", modes=("fully async",)),
            Entry("wait_s", ("timing_s/gen",), modes=(_SYNC, "one step off")),
            Entry("train_s", _VERL_TRAIN, "sum"),
            Entry(
                "sync_s",
                (
                    "timing_s/update_weights",
                    "timing_s/timing_s/param_sync",
                    "timing_s/param_sync",
                    "timing_s/sync_rollout_weights",
                ),
            ),
            Entry("generate_s", ("timing_s/gen",), modes=(_SYNC,)),
            Entry("generate_s", ("timing_s/generate_async",), modes=("one step off",)),
            Entry("reward_s", ("timing_s/reward",)),
            Entry("checkpoint_s", ("timing_s/save_checkpoint",)),
            Entry("other_s", _VERL_OTHER, "sum"),
            Entry("eval_s", ("timing_s/testing", "timing_s/rollouter/validate_time")),
            Entry("pull_groups", ("fully_async/static/required_samples",)),
            Entry("pulls", ("training/global_step",), "growth", modes=("fully async",)),
            Entry("total_tokens", ("perf/total_num_tokens",)),
            Entry("length_mean", ("response_length/mean",)),
            Entry("length_min", ("response_length/min",)),
            Entry("length_max", ("response_length/max",)),
            Entry("clip_share", ("response_length/clip_ratio",)),
            Entry("aborted_share", ("response/aborted_ratio",)),
            Entry("prompt_mean", ("prompt_length/mean",)),
            Entry("prompt_max", ("prompt_length/max",)),
            Entry("turns_mean", ("num_turns/mean", "training/num_turns/mean")),
            Entry("tool_calls_mean", ("tool_call_counts/mean",)),
            Entry("tool_s_mean", ("timing_s/agent_loop/tool_calls/mean",)),
            Entry("queue_groups", ("dynamic_resource/mq_size", "fully_async/monitor/queue/mq_queue_size")),
            Entry("queue_cap_groups", ("fully_async/static/max_queue_size",)),
            Entry("staleness_steps", ("training/off_policy/trajectory_staleness/mean",)),
            Entry(
                "staleness_max_steps",
                (
                    "training/off_policy/trajectory_staleness_worst/max",
                    "training/off_policy/trajectory_staleness/max",
                ),
            ),
            Entry("stale_samples", ("fully_async/count/stale_trajectory_processed",), "growth"),
            Entry("partial_share", ("fully_async/partial/partial_ratio",)),
            Entry("dropped_groups", ("fully_async/count/dropped_stale_samples",), "growth"),
            Entry("dropped_groups", ("training/off_policy/evicted_samples",)),
            Entry("in_flight_groups", ("fully_async/monitor/active_tasks_size",)),
            Entry("in_flight_cap_groups", ("fully_async/static/max_concurrent_samples",)),
            Entry("window_groups", ("fully_async/count/staleness_samples",)),
            Entry("window_cap_groups", ("fully_async/static/max_required_samples",)),
            Entry("generated_groups", ("fully_async/rollouter/step_generated_samples",)),
            Entry("generated_groups", ("fully_async/count/total_generated_samples",), "growth"),
            Entry("sample_s_mean", ("fully_async/processing_time/avg", "timing_s/agent_loop/generate_sequences/mean")),
            Entry("sample_s_p50", ("fully_async/processing_time/tp50",)),
            Entry("sample_s_p95", ("fully_async/processing_time/tp95",)),
            Entry("sample_s_p99", ("fully_async/processing_time/tp99",)),
            Entry("sample_s_max", ("fully_async/processing_time/max", "timing_s/agent_loop/generate_sequences/max")),
            Entry("trainer_idle", ("fully_async/trainer/idle_ratio", "trainer/idle_ratio")),
            Entry("rollout_idle", ("fully_async/rollouter/idle_ratio", "rollouter/idle_ratio")),
            Entry("rollout_active_s", ("fully_async/rollouter/active_time",)),
            Entry("rollout_window_s", ("fully_async/rollouter/version_time",)),
            Entry("preemptions", ("timing_s/agent_loop/num_preempted/mean",)),
            Entry("mfu", ("perf/mfu/actor",)),
            Entry("memory_gb", ("actor/perf/max_memory_allocated_gb", "perf/max_memory_allocated_gb")),
            Entry("memory_reserved_gb", ("actor/perf/max_memory_reserved_gb", "perf/max_memory_reserved_gb")),
            Entry("host_memory_gb", ("actor/perf/cpu_memory_used_gb", "perf/cpu_memory_used_gb")),
        ),
        mode=_verl_mode,
        notes={
            _SYNC: f"verl, timing_s/gen: {_SHARED}",
            "fully async": "verl, fully async: timing_s/gen is the trainer's wait for its queue; a row adds up the "
            "local steps of one weight version.",
            "one step off": "verl, one step off: timing_s/gen is the rest of the wait for the batch that was begun "
            "a step before.",
            "separate async": "verl, separate pools: timing_s/gen and switch_wait are waits for the replay buffer.",
        },
    ),
    Framework(
        "trl",
        "huggingface/trl f2cd577: trainer/grpo_trainer.py, extras/profiling.py, experimental/async_grpo; "
        "v1.18: trainer/async_grpo_trainer.py",
        ("perf/rollout_wait_s", "completions/mean_length", "completions/clipped_ratio", "weight_sync_time_s"),
        ("train/global_step", "step", "global_step", "_step", "Step"),
        (
            Entry("step_s", ("perf/step_s", "step_time")),
            Entry("wait_s", ("perf/rollout_wait_s",), modes=("asynchronous",)),
            Entry("wait_s", _TRL_GENERATE, "sum", modes=(_SYNC,)),
            Entry("train_s", ("perf/fwd_bwd_s", "perf/optimizer_s"), "sum"),
            Entry("sync_s", ("perf/weight_sync_s", "weight_sync_time_s", *_TRL_SYNC)),
            Entry("generate_s", _TRL_GENERATE, "sum", modes=(_SYNC,)),
            Entry("samples", ("batch/samples_per_step",)),
            Entry("output_tokens", ("batch/trained_tokens_per_step",)),
            Entry("total_tokens", ("batch/forwarded_tokens_per_step",)),
            Entry("total_tokens", ("num_tokens",), "growth"),
            Entry("length_mean", ("completions/mean_length",)),
            Entry("length_min", ("completions/min_length",)),
            Entry("length_max", ("completions/max_length",)),
            Entry("tool_calls_mean", ("tools/call_frequency",)),
            Entry("clip_share", ("completions/clipped_ratio",)),
            Entry("queue_samples", ("sample/rollout_queue_size", "buffer_qsize")),
            Entry("staleness_steps", ("sample/staleness_mean",)),
        ),
        added=(*_TRL_GENERATE, *_TRL_SYNC),
        mode=lambda names, _: "asynchronous" if {"perf/rollout_wait_s", "weight_sync_time_s"} & set(names) else _SYNC,
        notes={
            _SYNC: f"TRL, step_time has the generation in it. {_SHARED}",
            "asynchronous": "TRL, asynchronous: perf/rollout_wait_s is the trainer's wait for the rollout queue.",
        },
    ),
    Framework(
        "open-instruct",
        "allenai/open-instruct e6c3044: open_instruct/grpo_fast.py, data_loader.py, grpo_utils.py",
        ("time/trainer_waiting_for_data", "time/generation_waiting_for_trainer", "val/sequence_lengths"),
        ("training_step", "_step", "step", "Step"),
        (
            Entry("step_s", ("time/total",)),
            Entry("wait_s", ("time/trainer_waiting_for_data",)),
            Entry("train_s", ("time/training",), minus=("time/trainer_waiting_for_data", "time/weight_sync_max")),
            Entry("sync_s", ("time/weight_sync",)),
            Entry("checkpoint_s", ("time/saving",)),
            Entry("samples", ("episode",), "growth"),
            Entry("total_tokens", ("val/num_step_tokens",)),
            Entry("length_mean", ("val/sequence_lengths",)),
            Entry("length_min", ("val/sequence_lengths_min",)),
            Entry("length_max", ("val/sequence_lengths_max",)),
            Entry("groups", ("val/total_reward_groups",)),
            Entry("group_s_mean", ("time/group_generation_mean",)),
            Entry("group_s_max", ("time/group_generation_max",)),
            Entry("mfu", ("learner_mfu",), "percent"),
            Entry("clip_share", ("val/stop_rate",), "rest"),
        ),
        notes={
            "": "open-instruct: time/training has the wait for data in it, and before it the broadcast of the weights "
            "of the step before, for which the same actors are busy; both are taken off. time/weight_sync is a little "
            "more: it ends when the engines go on."
        },
        overlaps=("",),
    ),
    Framework(
        "openrlhf",
        "OpenRLHF/OpenRLHF 3c3be62: trainer/ppo_trainer.py, trainer/ppo_trainer_async.py, utils/logging_utils.py",
        ("timing/make_experience", "timing/ppo_train", "timing/broadcast"),
        ("global_step", "_step", "step", "Step"),
        (
            Entry("step_s", ("timing/step_total",)),
            Entry("wait_s", ("timing/step_total",), minus=_OPENRLHF_PARTS[:3], modes=("asynchronous",)),
            Entry("wait_s", ("timing/generation",), "next", minus=_OPENRLHF_PARTS[:2], modes=("locked",)),
            Entry("wait_s", ("timing/generation",), modes=(_SYNC,)),
            Entry("train_s", _OPENRLHF_PARTS[:2], "sum"),
            Entry("sync_s", ("timing/broadcast",), modes=(_SYNC, "asynchronous")),
            Entry("generate_s", ("timing/generation",)),
            Entry("rollout_active_s", ("timing/generation",), modes=("asynchronous", "locked")),
            Entry("rollout_window_s", ("timing/step_total",), modes=("asynchronous", "locked")),
            Entry("samples", ("rollout/num_samples",)),
            Entry("length_mean", ("rollout/response_length_mean",)),
            Entry("clip_share", ("rollout/truncated_rate",)),
        ),
        mode=_openrlhf_mode,
        notes={
            _SYNC: f"OpenRLHF, timing/generation: {_SHARED}",
            "asynchronous": "OpenRLHF, asynchronous: the wait is what timing/step_total has beyond experience, "
            "training and broadcast (saving and logging are in it).",
            "locked": "OpenRLHF, asynchronous: timing/broadcast waits for the generation of the next batch, which "
            "holds the lock; the wait is what that generation takes longer than experience and training, and the rest "
            "of the step is the sync.",
        },
        overlaps=(_SYNC, "asynchronous", "locked"),
        rests={"locked": "sync_s"},
    ),
    Framework(
        "nemo-rl",
        "NVIDIA-NeMo/RL 7ea279a: nemo_rl/algorithms/grpo.py, nemo_rl/experience/rollouts.py, nemo_rl/utils/logger.py",
        ("timing/train/total_step_time", "timing/train/policy_training", "timing/train/exposed_generation"),
        ("train/global_step", "step", "_step", "Step"),
        (
            Entry("step_s", ("timing/train/total_step_time",)),
            Entry("wait_s", ("timing/train/exposed_generation",), modes=("asynchronous",)),
            Entry("wait_s", ("timing/train/generation",), modes=(_SYNC,)),
            Entry(
                "train_s",
                tuple(
                    f"timing/train/{x}"
                    for x in (
                        "logprob_inference_prep",
                        "policy_and_reference_logprobs",
                        "advantage_calculation",
                        "training_prep",
                        "policy_training",
                    )
                ),
                "sum",
            ),
            Entry("sync_s", ("timing/train/weight_sync", "timing/train/prepare_for_generation/total")),
            Entry("generate_s", ("timing/train/generation",)),
            Entry("reward_s", ("timing/train/reward_calculation",)),
            Entry(
                "other_s",
                tuple(f"timing/train/{x}" for x in ("data_processing", "dynamic_sampling", "offload_before_refit")),
                "sum",
            ),
            Entry("eval_s", ("timing/train/idle/validation", "timing/train/total_validation_time")),
            Entry("prompt_mean", ("train/mean_prompt_length",)),
            Entry("turns_mean", ("train/avg_turns_per_sample", "turns_per_sample/mean")),
            Entry("queue_groups", ("train/buffer_size",)),
            Entry("sample_s_p95", ("train/trajectory_duration_s/p95", "trajectory_duration_s/p95")),
            Entry("sample_s_max", ("train/trajectory_duration_s/max", "trajectory_duration_s/max")),
            Entry("checkpoint_s", ("timing/train/checkpointing",)),
            Entry("samples", ("train/global_valid_seqs",)),
            Entry("output_tokens", ("train/global_valid_toks",)),
            Entry("length_mean", ("train/mean_gen_tokens_per_sample", "gen_tokens_per_sample/mean")),
            Entry("length_max", ("train/max_gen_tokens_per_sample",)),
            Entry("clip_share", ("train/truncation_rate",)),
            Entry("staleness_steps", ("train/avg_trajectory_age",)),
        ),
        mode=_by_name("timing/train/exposed_generation"),
        notes={
            _SYNC: f"NeMo-RL, timing/train/generation: {_SHARED}",
            "asynchronous": "NeMo-RL, asynchronous: exposed_generation is the trainer's wait for its replay buffer. "
            "train/buffer_size counts prompt groups, and the log does not say of how many samples.",
        },
    ),
    Framework(
        "roll",
        "alibaba/ROLL 8eb27cc: pipeline/rlvr/rlvr_pipeline.py, pipeline/agentic/agentic_pipeline.py, "
        "utils/metrics/metrics_manager.py",
        ("time/step_train", "time/step_model_update", "time/step_generate", "time/step_rollout"),
        ("system/step", "_step", "step", "Step"),
        (
            Entry("step_s", ("time/step_total",), "next", modes=("rlvr",)),
            Entry("step_s", ("time/step_total",), modes=("agentic",)),
            Entry("wait_s", ("time/step_generate", "time/step_rollout")),
            Entry(
                "train_s",
                (
                    "time/ref_log_probs_values",
                    "time/step_ref_log_probs_values_reward",
                    "time/old_log_probs",
                    "time/step_old_log_probs_values",
                    "time/step_adv",
                    "time/step_train",
                ),
                "sum",
            ),
            Entry("sync_s", ("time/step_model_update",)),
            Entry(
                "other_s",
                (
                    "time/step_stop_server",
                    "time/step_shrink",
                    "time/step_cal_norm_rewards",
                    "time/step_cal_response_level_mask",
                    "time/step_cal_token_reward",
                    "time/step_compute_data_metrics",
                    "time/step_log",
                ),
                "sum",
            ),
            Entry("eval_s", ("time/val_step", "time/step_val")),
            Entry("groups", ("scheduler/collect_query_count",)),
            Entry("dropped_groups", ("scheduler/query_filter_count",)),
            Entry("staleness_steps", ("scheduler/off_policy_ratio",)),
            Entry("samples", ("system/batch_size",)),
            Entry("length_min", ("token/response_length/min", "tokens/response_length/min")),
            Entry("prompt_mean", ("token/prompt_length/mean", "tokens/prompt_length/mean")),
            Entry("prompt_max", ("token/prompt_length/max", "tokens/prompt_length/max")),
            Entry("length_mean", ("token/response_length/mean", "tokens/response_length/mean")),
            Entry("length_max", ("token/response_length/max", "tokens/response_length/max")),
        ),
        mode=lambda names, _: "rlvr" if "time/step_generate" in names else "agentic",
        notes={
            "rlvr": "ROLL: time/step_generate is the wait for the batch, in a synchronous pipeline the whole "
            "generation; time/step_total tells of the step before and is moved there.",
            "agentic": "ROLL: time/step_rollout is the wait for the batch, in a synchronous pipeline the whole "
            "generation.",
        },
    ),
    Framework(
        "areal",
        "inclusionAI/AReaL 4aef98d: areal/trainer/rl_trainer.py, areal/trainer/ppo/actor.py, "
        "areal/utils/stats_tracker.py",
        ("timeperf/rollout", "timeperf/train_step", "timeperf/update_weights"),
        ("global_step", "_step", "step", "Step"),
        (
            Entry(
                "step_s",
                ("timeperf/rollout", *_AREAL_TRAIN, "timeperf/update_weights", *_AREAL_SAVE, "timeperf/eval"),
                "sum",
            ),
            Entry("wait_s", ("timeperf/rollout",)),
            Entry("train_s", _AREAL_TRAIN, "sum"),
            Entry("sync_s", ("timeperf/update_weights",)),
            Entry("checkpoint_s", _AREAL_SAVE, "sum"),
            Entry("samples", ("ppo_actor/n_seqs",)),
            Entry("output_tokens", ("ppo_actor/n_valid_tokens",)),
            Entry("total_tokens", ("ppo_actor/n_tokens",)),
            Entry("clip_share", ("ppo_actor/no_eos_ratios/avg",)),
            Entry("prompt_mean", ("ppo_actor/prompt_len/avg",)),
            Entry("prompt_max", ("ppo_actor/prompt_len/max",)),
            Entry("staleness_steps", ("version_stats/sample_staleness_theta_avg",)),
            Entry("staleness_max_steps", ("version_stats/sample_staleness_theta_max",)),
            Entry("turns_mean", ("rollout/num_turns/avg", "rollout/num_turns")),
            Entry("eval_s", ("timeperf/eval",)),
        ),
        notes={
            "": "AReaL: timeperf/rollout is the wait for a batch; the log has no total: step_s is the sum of its parts."
        },
        overlaps=("",),
    ),
    Framework(
        "slime",
        "THUDM/slime 624b824: slime/observability/train_metric_utils.py, slime/observability/rollout_metrics.py, "
        "slime/backends/megatron_utils/actor.py",
        ("perf/train_wait_time", "perf/actor_train_time", "perf/wait_time_ratio"),
        ("rollout/step", "step", "_step", "Step"),
        (
            Entry("step_s", ("perf/step_time",)),
            Entry("wait_s", ("perf/rollout_time",), modes=(_SYNC,)),
            Entry("wait_s", _SLIME_WAIT[:1], minus=_SLIME_WAIT[1:], modes=("asynchronous",)),
            Entry("train_s", ("perf/train_time",)),
            Entry("sync_s", ("perf/update_weights_time",)),
            Entry("generate_s", ("perf/rollout_time",)),
            Entry("rollout_active_s", ("perf/rollout_time",), modes=("asynchronous",)),
            Entry("rollout_window_s", ("perf/step_time",), modes=("asynchronous",)),
            Entry("checkpoint_s", ("perf/save_model_time",)),
            Entry("length_mean", ("rollout/response_len/mean",)),
            Entry("length_min", ("rollout/response_len/min",)),
            Entry("length_p50", ("rollout/response_len/median",)),
            Entry("length_max", ("rollout/response_len/max",)),
            Entry("samples", ("train/global_batch_size",)),
            Entry("prefix_hit", ("rollout/prefix_cache_hit_rate",)),
            Entry("tool_s_mean", ("perf/non_generation_time/mean",)),
            Entry("turns_mean", ("multi_turn/multi_turn_metric/round_number_mean",)),
            Entry("clip_share", ("rollout/truncated_ratio",)),
        ),
        mode=_slime_mode,
        notes={
            _SYNC: f"slime, perf/rollout_time: {_SHARED}",
            "asynchronous": "slime: train_wait_time is all the time between two trainings; weight sync and saving, "
            "which lie in it, are taken off.",
        },
    ),
    Framework(
        "prime-rl",
        "PrimeIntellect-ai/prime-rl 559b447: trainer/rl/train.py, orchestrator/orchestrator.py, monitors/file.py",
        ("time/wait_for_batch", "time/forward_backward", "time/wait_for_policy"),
        ("step", "_step", "Step"),
        (
            Entry("step_s", ("time/step",)),
            Entry("wait_s", ("time/wait_for_batch",)),
            Entry("train_s", ("time/forward_backward",)),
            Entry("sync_s", ("time/broadcast_weights",)),
            Entry("checkpoint_s", ("time/save_ckpt",)),
            Entry("samples", ("progress/rollouts",)),
            Entry("output_tokens", ("progress/output_tokens",)),
            Entry("total_tokens", ("progress/tokens",)),
            Entry("staleness_steps", ("off_policy/mean",)),
            Entry("staleness_max_steps", ("off_policy/max",)),
            Entry("dropped_samples", ("off_policy/dropped",)),
            Entry("groups", ("progress/tasks",)),
            Entry("other_s", ("time/load_data", "time/pack"), "sum"),
            Entry("in_flight_samples", ("dispatcher/inflight/train",)),
            Entry("in_flight_cap_samples", ("concurrency/max_inflight",)),
            Entry("running", ("inference/agg/num_requests_running/mean",)),
            Entry("waiting", ("inference/agg/num_requests_waiting/mean",)),
            Entry("kv_use", ("inference/agg/kv_cache_usage_perc/mean",)),
            Entry("prefix_hit", ("inference/agg/prefix_cache_hit_rate/pooled",)),
            Entry("mfu", ("perf/mfu",), "percent"),
            Entry("memory_reserved_gb", ("perf/peak_memory",)),
        ),
        notes={
            "": "prime-rl: time/wait_for_batch is the trainer's wait for the orchestrator's batch. The orchestrator "
            "logs a time/step of its own: keep its rows apart from the trainer's."
        },
    ),
    Framework(
        "skyrl",
        "NovaSky-AI/SkyRL a956457: skyrl/train/trainer.py, fully_async_trainer.py, generators/utils.py",
        ("timing/wait_for_generation_buffer", "timing/fwd_logprobs_values_reward", "generate/avg_num_tokens"),
        ("trainer/global_step", "step", "_step", "Step"),
        (
            Entry("step_s", ("timing/step",)),
            Entry("wait_s", ("timing/wait_for_generation_buffer",), modes=("asynchronous",)),
            Entry("wait_s", ("timing/generate",), modes=(_SYNC,)),
            Entry("train_s", ("timing/run_training",), modes=("asynchronous",)),
            Entry("train_s", _SKYRL_TRAIN, "sum", modes=(_SYNC,)),
            Entry("sync_s", ("timing/sync_weights",)),
            Entry("generate_s", ("timing/generate",), modes=(_SYNC,)),
            Entry("checkpoint_s", ("timing/save_checkpoints", "timing/save_hf_model"), "sum"),
            Entry(
                "other_s",
                (
                    "timing/postprocess_generator_output",
                    "timing/convert_to_training_input",
                    "timing/update_ref_with_policy",
                ),
                "sum",
                modes=(_SYNC,),
            ),
            Entry("other_s", ("timing/convert_to_training_input",), modes=("asynchronous",)),
            Entry("eval_s", ("timing/eval",)),
            Entry("samples", ("generate/batch_num_seq",)),
            Entry("length_mean", ("generate/avg_num_tokens",)),
            Entry("length_min", ("generate/min_num_tokens",)),
            Entry("length_max", ("generate/max_num_tokens",)),
            Entry("length_std", ("generate/std_num_tokens",)),
            Entry("queue_groups", ("async/gen_buffer_qsize_at_wait_start",)),
            Entry("dropped_groups", ("async/num_groups_dropped",)),
            Entry("staleness_steps", ("async/staleness_mean",)),
            Entry("staleness_max_steps", ("async/staleness_max",)),
            Entry("stale_share", ("async/staleness_ratio",)),
            Entry("group_s_mean", ("generate/group_completion_time_mean",)),
            Entry("group_s_p90", ("generate/group_completion_time_p90",)),
            Entry("group_s_max", ("generate/group_completion_time_max",)),
        ),
        mode=_by_name("timing/wait_for_generation_buffer"),
        notes={
            _SYNC: f"SkyRL, timing/generate: {_SHARED}",
            "asynchronous": "SkyRL, fully asynchronous: wait_for_generation_buffer is the trainer's wait for groups; "
            "gen_buffer_qsize_at_wait_start counts groups.",
        },
    ),
    Framework(
        "plain",
        "columns named as in the table above",
        ("step_s", "wait_s", "train_s"),
        ("step", "_step", "Step"),
        tuple(Entry(column, (column,)) for column in COLUMNS if column not in ("step", "time_s")),
    ),
)

BY_NAME = {framework.name: framework for framework in FRAMEWORKS}


def markdown() -> str:
    """The tables, for docs/run_logs.md."""
    lines = ["| column | meaning |", "| --- | --- |", *(f"| `{c}` | {doc} |" for c, doc in COLUMNS.items()), ""]
    for one in FRAMEWORKS:
        lines += [f"### {one.name}", "", f"Source: {one.source}.", ""]
        lines += ["| column | from | when |", "| --- | --- | --- |"]
        lines.append(f"| `step` | {', else '.join(f'`{s}`' for s in one.step)} | |")
        lines += [f"| `{e.column}` | {e} | {', '.join(e.modes)} |" for e in one.entries if one.name != "plain"]
        if one.name == "plain":
            lines.append("| any other | the column of the same name | |")
        lines += ["", *(f"- {text}" for text in (one.notes or {}).values()), ""]
    return "\n".join(lines).rstrip() + "\n"
