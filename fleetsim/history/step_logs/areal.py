"""areal: what the metrics of its step log mean."""

from __future__ import annotations

from fleetsim.history.run_log_columns import Entry, FrameworkLog
from fleetsim.history.step_logs.shared_notes import COUNT, ONE, PART, POLICY

_TRAIN = (
    "timeperf/critic_values",
    "timeperf/ref_logp",
    "timeperf/teacher_logp",
    "timeperf/recompute_logp",
    "timeperf/compute_advantage",
    "timeperf/train_step",
    "timeperf/critic_train_step",
)
_SAVE = ("timeperf/save", "timeperf/checkpoint_for_recover")

AREAL = FrameworkLog(
    "areal",
    "inclusionAI/AReaL 4aef98d: areal/trainer/rl_trainer.py, areal/trainer/ppo/actor.py, areal/utils/stats_tracker.py",
    ("timeperf/rollout", "timeperf/train_step", "timeperf/update_weights"),
    ("global_step", "_step", "step", "Step"),
    (
        Entry(
            "step_s",
            ("timeperf/rollout", *_TRAIN, "timeperf/update_weights", *_SAVE, "timeperf/eval"),
            "sum",
        ),
        Entry("wait_s", ("timeperf/rollout",)),
        Entry("train_s", _TRAIN, "sum"),
        Entry("sync_s", ("timeperf/update_weights",)),
        Entry("checkpoint_s", _SAVE, "sum"),
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
    unused=(
        (
            POLICY,
            "*logits *value *gate* clip* dual_clip* *behave* {}/*error* {}/behave* rs_filtered_fraction",
        ),
        (ONE, "*correct_seq_len"),
        (
            PART,
            "timeperf/rollout_* timeperf/clear_batches timeperf/{}_* sample_staleness_proximal_* "
            "sample_staleness_theta_min unclipped* n_valid_generated_tokens",
        ),
        (COUNT, "v_theta v_proximal accepted rejected"),
    ),
)
