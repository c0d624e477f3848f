"""prime-rl: what the metrics of its step log mean."""

from __future__ import annotations

from fleetsim.history.run_log_columns import Entry, FrameworkLog
from fleetsim.history.step_logs.shared_notes import COUNT, ONE, OTHERS, PART, RATE, TEXT

PRIME_RL = FrameworkLog(
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
    unused=(
        (PART, "off_policy/in_* dispatcher/off_policy/* watcher/* time/wait_for_policy"),
        (OTHERS, "dispatcher/*/eval"),
        (
            "the event loop's own delay, and how the dispatcher and the curriculum choose",
            "event_loop_lag/* dispatcher/* concurrency/* curriculum/* pool/* batch/*",
        ),
        (
            "the engines' other metrics and single engines: read them from the engines, with --prometheus",
            "inference/*",
        ),
        (ONE, "{}/*"),
        (RATE, "perf/throughput*"),
        (COUNT, "progress/total_* progress/input_tokens"),
        (TEXT, "agent/*"),
    ),
)
