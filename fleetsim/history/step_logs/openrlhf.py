"""openrlhf: what the metrics of its step log mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from fleetsim.history.history import Floats
from fleetsim.history.run_log_columns import Entry, FrameworkLog
from fleetsim.history.step_logs.shared_notes import ALL_WAIT, POLICY, SYNC, TEXT

_LITTLE = 0.02  # of a step
_PARTS = ("timing/make_experience", "timing/ppo_train", "timing/broadcast", "timing/generation")


def _mode(names: Collection[str], values: Mapping[str, Floats]) -> str:
    """Synchronous: step_total is written as the sum of its parts. Asynchronous: it is a clock's, and parts overlap."""
    parts = [values[n] for n in _PARTS if n in values]
    total = values.get("timing/step_total")
    if total is None or not parts:
        return "synchronous"
    off = np.abs(total - np.nansum(np.stack(parts), axis=0))
    off = off[~np.isnan(off)]
    if not off.size or np.median(off) <= 1e-6 * np.nanmedian(total):
        return "synchronous"
    if not set(_PARTS) <= set(values):
        return "asynchronous"
    # Without partial rollouts a broadcast waits for the lock that the generation holds: then no time is left to wait
    # for the queue, and a generation takes longer than the training beside it.
    trained = values["timing/make_experience"] + values["timing/ppo_train"]
    left = np.nanmedian(total - trained - values["timing/broadcast"])
    held = np.nanmedian(values["timing/generation"] - trained)
    small = _LITTLE * np.nanmedian(total)
    return "locked" if left <= small < held else "asynchronous"


OPENRLHF = FrameworkLog(
    "openrlhf",
    "OpenRLHF/OpenRLHF 3c3be62: trainer/ppo_trainer.py, trainer/ppo_trainer_async.py, utils/logging_utils.py",
    ("timing/make_experience", "timing/ppo_train", "timing/broadcast"),
    ("global_step", "_step", "step", "Step"),
    (
        Entry("step_s", ("timing/step_total",)),
        Entry("wait_s", ("timing/step_total",), minus=_PARTS[:3], modes=("asynchronous",)),
        Entry("wait_s", ("timing/generation",), "next", minus=_PARTS[:2], modes=("locked",)),
        Entry("wait_s", ("timing/generation",), modes=(SYNC,)),
        Entry("train_s", _PARTS[:2], "sum"),
        Entry("sync_s", ("timing/broadcast",), modes=(SYNC, "asynchronous")),
        Entry("generate_s", ("timing/generation",)),
        Entry("rollout_active_s", ("timing/generation",), modes=("asynchronous", "locked")),
        Entry("rollout_window_s", ("timing/step_total",), modes=("asynchronous", "locked")),
        Entry("samples", ("rollout/num_samples",)),
        Entry("length_mean", ("rollout/response_length_mean",)),
        Entry("clip_share", ("rollout/truncated_rate",)),
    ),
    mode=_mode,
    notes={
        SYNC: f"OpenRLHF, timing/generation: {ALL_WAIT}",
        "asynchronous": "OpenRLHF, asynchronous: the wait is what timing/step_total has beyond experience, "
        "training and broadcast (saving and logging are in it).",
        "locked": "OpenRLHF, asynchronous: timing/broadcast waits for the generation of the next batch, which "
        "holds the lock; the wait is what that generation takes longer than experience and training, and the rest "
        "of the step is the sync.",
    },
    overlaps=(SYNC, "asynchronous", "locked"),
    rests={"locked": "sync_s"},
    unused=((TEXT, "*generated_samples"), (POLICY, "values dynamic_filtering_pass_rate")),
)
