"""trl: what the metrics of its step log mean."""

from __future__ import annotations

from fleetsim.history.run_log_columns import Entry, FrameworkLog
from fleetsim.history.step_logs.shared_notes import ALL_WAIT, ONE, PART, POLICY, RATE, SYNC

_GENERATE = (
    "profiling/Time taken: GRPOTrainer.vLLM.generate",
    "profiling/Time taken: GRPOTrainer.transformers.generate",
)
_SYNC = ("profiling/Time taken: GRPOTrainer.sync_weights", "profiling/Time taken: GRPOTrainer._move_model_to_vllm")

TRL = FrameworkLog(
    "trl",
    "huggingface/trl f2cd577: trainer/grpo_trainer.py, extras/profiling.py, experimental/async_grpo; "
    "v1.18: trainer/async_grpo_trainer.py",
    ("perf/rollout_wait_s", "completions/mean_length", "completions/clipped_ratio", "weight_sync_time_s"),
    ("train/global_step", "step", "global_step", "_step", "Step"),
    (
        Entry("step_s", ("perf/step_s", "step_time")),
        Entry("wait_s", ("perf/rollout_wait_s",), modes=("asynchronous",)),
        Entry("wait_s", _GENERATE, "sum", modes=(SYNC,)),
        Entry("train_s", ("perf/fwd_bwd_s", "perf/optimizer_s"), "sum"),
        Entry("sync_s", ("perf/weight_sync_s", "weight_sync_time_s", *_SYNC)),
        Entry("generate_s", _GENERATE, "sum", modes=(SYNC,)),
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
    added=(*_GENERATE, *_SYNC),
    mode=lambda names, _: "asynchronous" if {"perf/rollout_wait_s", "weight_sync_time_s"} & set(names) else SYNC,
    notes={
        SYNC: f"TRL, step_time has the generation in it. {ALL_WAIT}",
        "asynchronous": "TRL, asynchronous: perf/rollout_wait_s is the trainer's wait for the rollout queue.",
    },
    unused=(
        (
            POLICY,
            "*clip_ratio* entropy_coef ratio reward* vespo/* sampling/* frac_reward_zero_std",
        ),
        (ONE, "completions/*_terminated_length tools/failure_frequency"),
        (PART, "forward_time_s scoring_time_ms wait_scoring_ms train_seq_len"),
        (RATE, "training_tok/s generation_tok_per_s"),
        ("the key of a mode, not a metric", "train eval"),
    ),
)
