"""roll: what the metrics of its step log mean."""

from __future__ import annotations

from fleetsim.history.run_log_columns import Entry, FrameworkLog
from fleetsim.history.step_logs.shared_notes import COUNT, ONE, PART, POLICY, RATE

ROLL = FrameworkLog(
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
        "agentic": "ROLL: time/step_rollout is the wait for the batch, in a synchronous pipeline the whole generation.",
    },
    unused=(
        (
            POLICY,
            "actor/* critic/* */right_response/* */error_response/* mask/* *_groups_ratio *correct_ratio* "
            "{}/correct/mean {}/values/* val_correct/*",
        ),
        (
            ONE,
            "{}/*length* rollout/*length* env/* latency/* efficiency/* scheduler/{}/* "
            "tokens/non_prompt_length/* tokens/prompt_length/min",
        ),
        (PART, "time/get_* time/reward_postprocess time/compute_advantage time/{}* system/time/*"),
        (RATE, "system/*tps* throughput/*"),
        (
            COUNT,
            "system/samples system/batch_* scheduler/query_use_count scheduler/group_filter_count "
            "system/state_batch_size/* {}/max {}/mean {}/min",
        ),
        ("of a web server's settings", "nginx*"),
    ),
)
