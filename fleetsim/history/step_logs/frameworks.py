"""The step logs of RL frameworks: whose a log is, how it counts its steps, and in which of its modes it was written.

What the metrics mean is in `metric_table.py`, which of them nothing reads in `unused.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from fleetsim.history.history import Floats
from fleetsim.history.step_logs.columns import COLUMNS, Entry, FrameworkLog
from fleetsim.history.step_logs.metric_table import entries

SYNC, ASYNC = "synchronous", "asynchronous"
ALL_WAIT = (
    "A synchronous step: the whole generation counts as the trainer's wait (on shared GPUs they generate meanwhile)."
)
_ENTRIES = entries()
_STEPS = ("_step", "step", "Step")  # what trackers call it

Values = Mapping[str, Floats]
"""Metric -> its numbers, a step each."""


def _if_any(mark: str, *others: str) -> Callable[[Collection[str], Values], str]:
    """The mode of a framework that logs these metrics only where it runs asynchronously."""
    return lambda names, _: ASYNC if not {mark, *others}.isdisjoint(names) else SYNC


def _verl_mode(names: Collection[str], values: Values) -> str:
    if any("idle_ratio" in n or n.startswith("fully_async/") or n.endswith("timing_s/param_sync") for n in names):
        return "fully async"
    if "timing_s/sync_rollout_weights" in names or "timing_s/generate_async" in names:
        return "one step off"
    if any(n.startswith("separate_async/") or n == "timing_s/switch_wait" for n in names):
        return "separate async"
    return SYNC


_LITTLE = 0.02  # of a step
_OPENRLHF_PARTS = ("timing/make_experience", "timing/ppo_train", "timing/broadcast", "timing/generation")


def _openrlhf_mode(names: Collection[str], values: Values) -> str:
    """Synchronous: step_total is written as the sum of its parts. Asynchronous: it is a clock's, and parts overlap."""
    parts = [values[n] for n in _OPENRLHF_PARTS if n in values]
    total = values.get("timing/step_total")
    if total is None or not parts:
        return SYNC
    off = np.abs(total - np.nansum(np.stack(parts), axis=0))
    off = off[~np.isnan(off)]
    if not off.size or np.median(off) <= 1e-6 * np.nanmedian(total):
        return SYNC
    if not set(_OPENRLHF_PARTS) <= set(values):
        return ASYNC
    # Without partial rollouts a broadcast waits for the lock that the generation holds: then no time is left to wait
    # for the queue, and a generation takes longer than the training beside it.
    trained = values["timing/make_experience"] + values["timing/ppo_train"]
    left = np.nanmedian(total - trained - values["timing/broadcast"])
    held = np.nanmedian(values["timing/generation"] - trained)
    small = _LITTLE * np.nanmedian(total)
    return "locked" if left <= small < held and _waits_for_lock(values, trained) else ASYNC


def _waits_for_lock(values: Values, trained: Floats) -> bool:
    """Whether the broadcasts take longer where the next generation does."""
    held, broadcast = values["timing/generation"][1:] - trained[:-1], values["timing/broadcast"][:-1]
    known = np.isfinite(held) & np.isfinite(broadcast)
    x, y = held[known], broadcast[known]
    if len(x) < 2 or x.std() == 0 or y.std() == 0:
        return True
    return float(np.corrcoef(x, y)[0, 1]) > 0.5


_WHOLE = 0.05  # of a generation: what a wait may be shorter and still be all of it


def _slime_mode(names: Collection[str], values: Values) -> str:
    """Synchronous: the trainer waits for as long as the whole generation takes."""
    if not {"perf/train_wait_time", "perf/rollout_time"} <= set(values):
        return ASYNC
    others = (values[n] for n in ("perf/update_weights_time", "perf/save_model_time") if n in values)
    wait = np.nanmedian(values["perf/train_wait_time"] - sum(map(np.nan_to_num, others)))
    return SYNC if wait >= (1 - _WHOLE) * np.nanmedian(values["perf/rollout_time"]) else ASYNC


_TRL_TIMERS = "profiling/Time taken: GRPOTrainer."

FRAMEWORKS: tuple[FrameworkLog, ...] = (
    FrameworkLog(
        "verl",
        "verl-project/verl 1dda039: trainer/ppo/metric_utils.py, trainer/ppo/v1/trainer_base.py, "
        "experimental/fully_async_policy/detach_utils.py, experimental/one_step_off_policy/ray_trainer.py",
        marks=("timing_s/step", "timing_s/gen", "perf/time_per_step", "timing/gen", "timing/update_actor"),
        step=("step", "_step", "Step", "training/global_step"),
        entries=_ENTRIES["verl"],
        mode=_verl_mode,
        notes={
            SYNC: f"verl, timing_s/gen: {ALL_WAIT}",
            "fully async": "verl, fully async: timing_s/gen is the trainer's wait for its queue; a row adds up the "
            "local steps of one weight version.",
            "one step off": "verl, one step off: timing_s/gen is the rest of the wait for the batch that was begun "
            "a step before.",
            "separate async": "verl, separate pools: timing_s/gen and switch_wait are waits for the replay buffer.",
        },
        older={"timing_s/": "timing/"},  # volcengine/verl until 2856be47d (2025-01-02), which has no seconds of a step
        tools_in_length=True,
    ),
    FrameworkLog(
        "trl",
        "huggingface/trl f2cd577: trainer/grpo_trainer.py, extras/profiling.py, experimental/async_grpo; "
        "v1.18: trainer/async_grpo_trainer.py",
        marks=("perf/rollout_wait_s", "completions/mean_length", "completions/clipped_ratio", "weight_sync_time_s"),
        step=("train/global_step", "step", "global_step", "_step", "Step"),
        entries=_ENTRIES["trl"],
        added=tuple(
            _TRL_TIMERS + timer
            for timer in (
                *("vLLM.generate", "transformers.generate", "sync_weights", "_move_model_to_vllm"),
                *("_calculate_rewards", "_get_per_token_logps_and_entropies"),
            )
        ),
        mode=_if_any("perf/rollout_wait_s", "weight_sync_time_s"),
        notes={
            SYNC: f"TRL, step_time has the generation in it. {ALL_WAIT}",
            ASYNC: "TRL, asynchronous: perf/rollout_wait_s is the trainer's wait for the rollout queue.",
        },
        rests={SYNC: "update_s"},
    ),
    FrameworkLog(
        "open-instruct",
        "allenai/open-instruct e6c3044: open_instruct/grpo_fast.py, data_loader.py, grpo_utils.py",
        marks=("time/trainer_waiting_for_data", "time/generation_waiting_for_trainer", "val/sequence_lengths"),
        step=("training_step", *_STEPS),
        entries=_ENTRIES["open-instruct"],
        notes={
            "": "open-instruct: time/training has the wait for data in it, and before it the broadcast of the weights "
            "of the step before, for which the same actors are busy; both are taken off. time/weight_sync is a little "
            "more: it ends when the engines go on."
        },
        overlaps=("",),
    ),
    FrameworkLog(
        "openrlhf",
        "OpenRLHF/OpenRLHF 3c3be62: trainer/ppo_trainer.py, trainer/ppo_trainer_async.py, utils/logging_utils.py",
        marks=("timing/make_experience", "timing/ppo_train", "timing/broadcast"),
        step=("global_step", *_STEPS),
        entries=_ENTRIES["openrlhf"],
        mode=_openrlhf_mode,
        notes={
            SYNC: f"OpenRLHF, timing/generation: {ALL_WAIT}",
            ASYNC: "OpenRLHF, asynchronous: the wait is what timing/step_total has beyond experience, "
            "training and broadcast (saving and logging are in it).",
            "locked": "OpenRLHF, asynchronous: timing/broadcast waits for the generation of the next batch, which "
            "holds the lock; the wait is what that generation takes longer than experience and training, and the rest "
            "of the step is the sync.",
        },
        overlaps=(SYNC, ASYNC, "locked"),
        rests={"locked": "sync_s"},
    ),
    FrameworkLog(
        "nemo-rl",
        "NVIDIA-NeMo/RL 7ea279a: nemo_rl/algorithms/grpo.py, nemo_rl/experience/rollouts.py, nemo_rl/utils/logger.py",
        marks=("timing/train/total_step_time", "timing/train/policy_training", "timing/train/exposed_generation"),
        step=("train/global_step", "step", "_step", "Step"),
        entries=_ENTRIES["nemo-rl"],
        mode=_if_any("timing/train/exposed_generation"),
        notes={
            SYNC: f"NeMo-RL, timing/train/generation: {ALL_WAIT}",
            ASYNC: "NeMo-RL, asynchronous: exposed_generation is the trainer's wait for its replay buffer. "
            "train/buffer_size counts prompt groups, and the log does not say of how many samples.",
        },
    ),
    FrameworkLog(
        "roll",
        "alibaba/ROLL 8eb27cc: pipeline/rlvr/rlvr_pipeline.py, pipeline/agentic/agentic_pipeline.py, "
        "utils/metrics/metrics_manager.py",
        marks=("time/step_train", "time/step_model_update", "time/step_generate", "time/step_rollout"),
        step=("system/step", *_STEPS),
        entries=_ENTRIES["roll"],
        mode=lambda names, _: "rlvr" if "time/step_generate" in names else "agentic",
        notes={
            "rlvr": "ROLL: time/step_generate is the wait for the batch, in a synchronous pipeline the whole "
            "generation; time/step_total tells of the step before and is moved there.",
            "agentic": "ROLL: time/step_rollout is the wait for the batch, in a synchronous pipeline the whole "
            "generation.",
        },
    ),
    FrameworkLog(
        "areal",
        "inclusionAI/AReaL 4aef98d: areal/trainer/rl_trainer.py, areal/trainer/ppo/actor.py, "
        "areal/utils/stats_tracker.py",
        marks=("timeperf/rollout", "timeperf/train_step", "timeperf/update_weights"),
        step=("global_step", *_STEPS),
        entries=_ENTRIES["areal"],
        notes={
            "": "AReaL: timeperf/rollout is the wait for a batch; the log has no total: step_s is the sum of its parts."
        },
        overlaps=("",),
    ),
    FrameworkLog(
        "slime",
        "THUDM/slime 624b824: slime/observability/train_metric_utils.py, slime/observability/rollout_metrics.py, "
        "slime/backends/megatron_utils/actor.py",
        marks=("perf/train_wait_time", "perf/actor_train_time", "perf/wait_time_ratio"),
        step=("rollout/step", "step", "_step", "Step"),
        entries=_ENTRIES["slime"],
        mode=_slime_mode,
        notes={
            SYNC: f"slime, perf/rollout_time: {ALL_WAIT}",
            ASYNC: "slime: train_wait_time is all the time between two trainings; weight sync and saving, "
            "which lie in it, are taken off.",
        },
    ),
    FrameworkLog(
        "prime-rl",
        "PrimeIntellect-ai/prime-rl 559b447: trainer/rl/train.py, orchestrator/orchestrator.py, monitors/file.py",
        marks=("time/wait_for_batch", "time/forward_backward", "time/wait_for_policy"),
        step=("step", "_step", "Step"),
        entries=_ENTRIES["prime-rl"],
        notes={
            "": "prime-rl: time/wait_for_batch is the trainer's wait for the orchestrator's batch. The orchestrator "
            "logs a time/step of its own: keep its rows apart from the trainer's."
        },
        rests={"": "update_s"},
    ),
    FrameworkLog(
        "skyrl",
        "NovaSky-AI/SkyRL a956457: skyrl/train/trainer.py, fully_async_trainer.py, generators/utils.py",
        marks=("timing/wait_for_generation_buffer", "timing/fwd_logprobs_values_reward", "generate/avg_num_tokens"),
        step=("trainer/global_step", "step", "_step", "Step"),
        entries=_ENTRIES["skyrl"],
        mode=_if_any("timing/wait_for_generation_buffer"),
        notes={
            SYNC: f"SkyRL, timing/generate: {ALL_WAIT}",
            ASYNC: "SkyRL, fully asynchronous: wait_for_generation_buffer is the trainer's wait for groups; "
            "gen_buffer_qsize_at_wait_start counts groups.",
        },
    ),
    FrameworkLog(
        "tinker",
        "thinking-machines-lab/tinker-cookbook 9dfcc3a: tinker_cookbook/rl/train.py, metric_util.py, metrics.py, "
        "utils/trace.py",
        marks=("time/sampling", "env/all/total_ac_tokens", "training_client/step", "env/all/turns_per_episode"),
        step=("step", "progress/batch", "training_client/step", "_step", "Step"),
        entries=_ENTRIES["tinker"],
        mode=lambda names, _: (
            ASYNC if "training_client/step" in names else SYNC if "time/sampling" in names else "streamed"
        ),
        notes={
            SYNC: f"Tinker, time/sampling: {ALL_WAIT}",
            "streamed": "Tinker, streamed: sampling goes on while parts are trained, and no metric times the wait.",
            ASYNC: "Tinker, asynchronous: the log times the training of a batch alone; how long it waited for groups "
            "and how long a step took stand nowhere.",
        },
        overlaps=("streamed", ASYNC),
    ),
    FrameworkLog(
        "plain",
        "columns named as in the table above",
        marks=("step_s", "wait_s", "train_s"),
        step=("step", "_step", "Step"),
        entries=tuple(Entry(column, (column,)) for column in COLUMNS if column not in ("step", "time_s")),
    ),
)

BY_NAME = {framework.name: framework for framework in FRAMEWORKS}
