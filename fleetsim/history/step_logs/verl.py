"""verl: what the metrics of its step log mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fleetsim.history.history import Floats
from fleetsim.history.run_log_columns import Entry, FrameworkLog
from fleetsim.history.step_logs.shared_notes import ALL_WAIT, ONE, PART, POLICY, RATE, SPLIT, SYNC

_TRAIN = tuple(f"timing_s/{x}" for x in ("old_log_prob", "ref", "values", "adv", "update_critic", "update_actor"))
_OTHER = tuple(
    f"timing_s/{x}"
    for x in ("switch_to_trainer", "switch_to_rollout", "gen_max", "start_profile", "dump_rollout_generations")
)


def _mode(names: Collection[str], values: Mapping[str, Floats]) -> str:
    if any("idle_ratio" in n or n.startswith("fully_async/") or n.endswith("timing_s/param_sync") for n in names):
        return "fully async"
    if "timing_s/sync_rollout_weights" in names or "timing_s/generate_async" in names:
        return "one step off"
    if any(n.startswith("separate_async/") or n == "timing_s/switch_wait" for n in names):
        return "separate async"
    return "synchronous"


VERL = FrameworkLog(
    "verl",
    "verl-project/verl 1dda039: trainer/ppo/metric_utils.py, trainer/ppo/v1/trainer_base.py, "
    "experimental/fully_async_policy/detach_utils.py, experimental/one_step_off_policy/ray_trainer.py",
    ("timing_s/step", "timing_s/gen", "perf/time_per_step"),
    ("step", "_step", "Step", "training/global_step"),
    (
        Entry("step_s", ("timing_s/step", "perf/time_per_step")),
        Entry("wait_s", ("timing_s/gen", "timing_s/switch_wait"), "sum", modes=("separate async",)),
        Entry("wait_s", ("timing_s/gen", "timing_s/wait_for_enough_samples"), "sum", modes=("fully async",)),
        Entry("wait_s", ("timing_s/gen",), modes=(SYNC, "one step off")),
        Entry("train_s", _TRAIN, "sum"),
        Entry(
            "sync_s",
            (
                "timing_s/update_weights",
                "timing_s/timing_s/param_sync",
                "timing_s/param_sync",
                "timing_s/sync_rollout_weights",
            ),
        ),
        Entry("generate_s", ("timing_s/gen",), modes=(SYNC,)),
        Entry("generate_s", ("timing_s/generate_async",), modes=("one step off",)),
        Entry("reward_s", ("timing_s/reward",)),
        Entry("checkpoint_s", ("timing_s/save_checkpoint",)),
        Entry("other_s", _OTHER, "sum"),
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
    mode=_mode,
    notes={
        SYNC: f"verl, timing_s/gen: {ALL_WAIT}",
        "fully async": "verl, fully async: timing_s/gen is the trainer's wait for its queue; a row adds up the "
        "local steps of one weight version.",
        "one step off": "verl, one step off: timing_s/gen is the rest of the wait for the batch that was begun "
        "a step before.",
        "separate async": "verl, separate pools: timing_s/gen and switch_wait are waits for the replay buffer.",
    },
    unused=(
        (POLICY, "actor/* critic/*"),
        (
            PART,
            "*agent_loop/compute_score/* *agent_loop/*/min *agent_loop/*/max *processing_time/min "
            "fully_async/total_wait_time timing_s/compute_score timing_s/param_sync timing_s/stop_profile "
            "dynamic_resource/*utilization dynamic_resource/train_*_time_s */num_turns/m* num_turns/m* "
            "tool_call_counts/m* training/off_policy/trajectory_spans/* *_staleness*/m* *partial_num "
            "*max_partial_span *evicted_samples_staleness/* *processing_time/* agent_loop/* prompt_length/*",
        ),
        (ONE, "*agent_loop/slowest/* response_length_non_aborted/*"),
        ("what is fed to the rollouter and not begun, by a queue of its own", "*pending_queue_size"),
        (
            "groups that a filter or a failed rollout took out, which are refilled",
            "{}/filter_groups/evicted_samples {}/rollout_failure/evicted_samples",
        ),
        (
            "how verl decides to lend GPUs, of which the seconds are read (switch_wait, switch_to_*)",
            "separate_async/* hybrid/*",
        ),
        ("of the setting, not of what happened", "*staleness_threshold"),
        ("of speculative decoding, which no column holds yet", "rollout/spec_*"),
        (RATE, "perf/throughput perf/mfu/actor_infer perf/mfu/critic"),
        (SPLIT, "{}/max {}/mean {}/min"),
    ),
)
