"""slime: what the metrics of its step log mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from fleetsim.history.history import Floats
from fleetsim.history.run_log_columns import Entry, FrameworkLog
from fleetsim.history.step_logs.shared_notes import ALL_WAIT, ONE, PART, RATE, SYNC

_WAIT = ("perf/train_wait_time", "perf/update_weights_time", "perf/save_model_time")
_WHOLE = 0.05  # of a generation: what a wait may be shorter and still be all of it


def _mode(names: Collection[str], values: Mapping[str, Floats]) -> str:
    """Synchronous: the trainer waits for as long as the whole generation takes."""
    if not {_WAIT[0], "perf/rollout_time"} <= set(values):
        return "asynchronous"
    wait = np.nanmedian(values[_WAIT[0]] - sum(np.nan_to_num(values[n]) for n in _WAIT[1:] if n in values))
    return SYNC if wait >= (1 - _WHOLE) * np.nanmedian(values["perf/rollout_time"]) else "asynchronous"


SLIME = FrameworkLog(
    "slime",
    "THUDM/slime 624b824: slime/observability/train_metric_utils.py, slime/observability/rollout_metrics.py, "
    "slime/backends/megatron_utils/actor.py",
    ("perf/train_wait_time", "perf/actor_train_time", "perf/wait_time_ratio"),
    ("rollout/step", "step", "_step", "Step"),
    (
        Entry("step_s", ("perf/step_time",)),
        Entry("wait_s", ("perf/rollout_time",), modes=(SYNC,)),
        Entry("wait_s", _WAIT[:1], minus=_WAIT[1:], modes=("asynchronous",)),
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
    mode=_mode,
    notes={
        SYNC: f"slime, perf/rollout_time: {ALL_WAIT}",
        "asynchronous": "slime: train_wait_time is all the time between two trainings; weight sync and saving, "
        "which lie in it, are taken off.",
    },
    unused=(
        (
            ONE,
            "longest_* raw_response_length/* wo_obs_response_length/* correct_length/* repetition_frac "
            "multi_turn_metric/round_number_m*",
        ),
        (
            PART,
            "perf/{}log_probs_time perf/*log_probs_time perf/actor_train_time perf/data_preprocess_time "
            "perf/ref_model_update_time perf/*_time",
        ),
        (RATE, "*tflops *tok_per_s *tokens_per_gpu_per_sec perf/wait_time_ratio"),
        ("how much of the weights a sparse update sent", "perf/update_weights_*"),
    ),
)
