"""skyrl: what the metrics of its step log mean."""

from __future__ import annotations

from fleetsim.history.run_log_columns import Entry, FrameworkLog
from fleetsim.history.step_logs.shared_notes import ALL_WAIT, COUNT, ONE, PART, POLICY, RATE, SYNC, by_name

_TRAIN = tuple(
    f"timing/{x}"
    for x in (
        "fwd_logprobs_values_reward",
        "apply_reward_kl_penalty",
        "compute_advantages_and_returns",
        "train_critic_and_policy",
    )
)

SKYRL = FrameworkLog(
    "skyrl",
    "NovaSky-AI/SkyRL a956457: skyrl/train/trainer.py, fully_async_trainer.py, generators/utils.py",
    ("timing/wait_for_generation_buffer", "timing/fwd_logprobs_values_reward", "generate/avg_num_tokens"),
    ("trainer/global_step", "step", "_step", "Step"),
    (
        Entry("step_s", ("timing/step",)),
        Entry("wait_s", ("timing/wait_for_generation_buffer",), modes=("asynchronous",)),
        Entry("wait_s", ("timing/generate",), modes=(SYNC,)),
        Entry("train_s", ("timing/run_training",), modes=("asynchronous",)),
        Entry("train_s", _TRAIN, "sum", modes=(SYNC,)),
        Entry("sync_s", ("timing/sync_weights",)),
        Entry("generate_s", ("timing/generate",), modes=(SYNC,)),
        Entry("checkpoint_s", ("timing/save_checkpoints", "timing/save_hf_model"), "sum"),
        Entry(
            "other_s",
            (
                "timing/postprocess_generator_output",
                "timing/convert_to_training_input",
                "timing/update_ref_with_policy",
            ),
            "sum",
            modes=(SYNC,),
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
    mode=by_name("timing/wait_for_generation_buffer"),
    notes={
        SYNC: f"SkyRL, timing/generate: {ALL_WAIT}",
        "asynchronous": "SkyRL, fully asynchronous: wait_for_generation_buffer is the trainer's wait for groups; "
        "gen_buffer_qsize_at_wait_start counts groups.",
    },
    unused=(
        (POLICY, "environment/* async/keep_rate"),
        (
            ONE,
            "generate/*assistant_tokens generate/avg_tokens_* generate/tokens_per_turn_* "
            "generate/intra_group_* generate/trajectory_time_*",
        ),
        (
            PART,
            "timing/policy_train timing/critic_train timing/dump_data_batch timing/log_train_results "
            "timing/cleanup_old_checkpoints async/staleness_min",
        ),
        (
            "once, before the first step",
            "timing/init_weight_sync_state timing/load_checkpoints timing/sync_weights_to_inference_engines",
        ),
        (COUNT, "generate/num_seq_* async/staleness_violation_count"),
        (RATE, "trainer/tokens_per_second_per_gpu"),
    ),
)
