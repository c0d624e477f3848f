"""open-instruct: what the metrics of its step log mean."""

from __future__ import annotations

from fleetsim.history.run_log_columns import Entry, FrameworkLog
from fleetsim.history.step_logs.shared_notes import COUNT, ONE, PART, POLICY, RATE

OPEN_INSTRUCT = FrameworkLog(
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
    unused=(
        (POLICY, "debug/* val/ratio* val/solve_rate_hist objective/* loss/*"),
        (ONE, "val/sequence_lengths_*solved* batch/*lengths time/group_generation_min"),
        (PART, "time/weight_sync_* time/health_check"),
        (
            "the hand-over's wait for the trainer to take a batch, not the engines'",
            "time/generation_waiting_for_trainer",
        ),
        (RATE, "*actor_tokens_per_second"),
        (COUNT, "val/num_total_tokens"),
    ),
)
