"""nemo-rl: what the metrics of its step log mean."""

from __future__ import annotations

from fleetsim.history.run_log_columns import Entry, FrameworkLog
from fleetsim.history.step_logs.shared_notes import ALL_WAIT, COUNT, ONE, PART, POLICY, RATE, SYNC, TEXT, by_name

NEMO_RL = FrameworkLog(
    "nemo-rl",
    "NVIDIA-NeMo/RL 7ea279a: nemo_rl/algorithms/grpo.py, nemo_rl/experience/rollouts.py, nemo_rl/utils/logger.py",
    ("timing/train/total_step_time", "timing/train/policy_training", "timing/train/exposed_generation"),
    ("train/global_step", "step", "_step", "Step"),
    (
        Entry("step_s", ("timing/train/total_step_time",)),
        Entry("wait_s", ("timing/train/exposed_generation",), modes=("asynchronous",)),
        Entry("wait_s", ("timing/train/generation",), modes=(SYNC,)),
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
    mode=by_name("timing/train/exposed_generation"),
    notes={
        SYNC: f"NeMo-RL, timing/train/generation: {ALL_WAIT}",
        "asynchronous": "NeMo-RL, asynchronous: exposed_generation is the trainer's wait for its replay buffer. "
        "train/buffer_size counts prompt groups, and the log does not say of how many samples.",
    },
    unused=(
        (
            PART,
            "timing/train/idle/* timing/train/mask_sample_filter timing/train/overlong_filter "
            "timing/train/recompute_kv_scales timing/train/{}/* train/teacher_logprob_time "
            "timing/train/prepare_for_generation/transfer_and_update_weights",
        ),
        (RATE, "timing/train/valid_tokens_per_sec_per_gpu"),
        (
            ONE,
            "*max_gen_tokens_per_turn/* *turns_per_sample* train/mean_env_tokens_per_sample "
            "train/mean_length_* train/median_length_* *histogram/* train/max_turns_reached_rate "
            "train/natural_termination_rate train/trajectory_duration_s",
        ),
        (POLICY, "train/invalid_* train/malformed_* train/num_*"),
        (
            COUNT,
            "train/total_num_tokens train/total_turns train/mean_total_tokens_per_sample "
            "train/dynamic_sampling_num_gen_batches",
        ),
        (
            "counts of each worker, and the engines' own metrics, as tables",
            "train/per_worker_token_counts train/generation_logger_metrics",
        ),
        (TEXT, "{}/full_result"),
    ),
)
