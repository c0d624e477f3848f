"""The trainer over a window, and how the two pools look from their rhythm."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fleetsim.history.counters import increments
from fleetsim.history.history import History, Note, StepLog
from fleetsim.replay.observe.interruptions import Pause
from fleetsim.replay.observe.intervals import fleet_total, mean
from fleetsim.replay.observe.logged_rollout import logged_ready_share
from fleetsim.replay.observe.observed import From, Reading, TrainerView
from fleetsim.replay.observe.steps import Steps, step_growth
from fleetsim.replay.observe.trainer_queue import ready_share

OFF = 0.1  # of the time: engines that stand empty for less have been drained for a sync
OVERLAP = 0.1  # of the time: more in which engines work while the trainer computes is no turn
DRAINED = 0.5  # of the fleet's peak in flight: what is left when a batch runs out, not when a sync aborts it


def trainer_view(
    history: History, steps: Steps | None, kept_s: float | None = None, tok_s: float | None = None
) -> TrainerView:
    """Means per step. kept_s, tok_s: samples that ended and were not aborted, and output tokens, per second of the
    engines: from them a batch is inferred where nobody counts it."""
    mfu = _mfu(history)
    if steps is None:
        return TrainerView(None, None, None, None, None, None, None, None, mfu)
    step_s = steps.step_s()
    whole = None if step_s is None else Reading(step_s, steps.source)
    idle = steps.per_second("wait_s")
    return TrainerView(
        step_s=whole,
        wait_s=_phase(steps, "wait_s"),
        train_s=_phase(steps, "train_s"),
        sync_s=_phase(steps, "sync_s"),
        idle_fraction=None if idle is None else Reading(min(idle, 1.0), steps.columns["wait_s"][1]),
        steps=None if steps.total is None else Reading(steps.total, steps.source),
        batch_samples=_batch(steps, "samples", kept_s, step_s),
        batch_tokens=_batch(steps, "tokens", tok_s, step_s),
        mfu=mfu,
        ready_share=ready_share(history, steps) if history.steps is None else logged_ready_share(history),
        other_s=_phase(steps, "other_s"),
        unnamed_s=_phase(steps, "rest_s"),
    )


def placement_of(
    history: History, pauses: tuple[Pause, ...], steps: Steps | None, read_s: float = 0.0
) -> Literal["colocated", "disaggregated"] | None:
    """How the pools look: colocated if the engines run dry, or sleep, for a tenth of the time or more, in a rhythm;
    disaggregated if they never stand empty. A synchronous trainer with GPUs of its own looks colocated, too: nobody can
    tell from the engines. Of a log: colocated if generating, training and syncing follow one another. read_s: seconds
    of the window in which engines were read.
    """
    if history.steps is not None and steps is not None:
        return _placement_of_log(history.steps, steps)
    if not history.instances:
        return None
    empty = [p for p in pauses if p.empty]
    if not empty:
        return "disaggregated"
    off = sum(p.seconds for p in empty) / max(read_s, history.step_s)
    if len(empty) < 2 or off < OFF or not _every_step(history, empty):
        return None
    if not _takes_turns(history, 1.0 - off):
        return "disaggregated"
    return "colocated" if _slept(empty) or _ran_dry(history, empty) else None


def _phase(steps: Steps, name: str) -> Reading | None:
    value = steps.per_step(name)
    if value is None:
        return None
    source: From = "inferred" if steps.source == "inferred" else steps.columns[name][1]
    return Reading(value, source)


def _batch(steps: Steps, name: str, made_s: float | None, step_s: float | None) -> Reading | None:
    """Counted, or what the engines made in a step's time: all of it, so thrown away samples are in it."""
    value = steps.per_step(name)
    if value is not None:
        return Reading(value, steps.columns[name][1])
    return None if not made_s or step_s is None else Reading(made_s * step_s, "inferred")


def _mfu(history: History) -> Reading | None:
    logged = None if history.steps is None else history.steps.columns.get("mfu")
    if logged is not None and np.isfinite(logged).any():
        return Reading(float(np.nanmean(logged)), "log")
    if "trainer.mfu" not in history.fleet:
        return None
    value = float(mean(history.fleet["trainer.mfu"]))
    if not np.isfinite(value):
        return None
    return Reading(value / 100 if value > 1 else value, "exported")  # prime-rl exports per cent


def mfu_notes(history: History) -> tuple[Note, ...]:
    """Says so if the utilization was read as per cent."""
    value = float(mean(history.fleet.get("trainer.mfu")))
    return (Note("other", f"trainer.mfu of {value:.3g} is read as per cent"),) if value > 1 else ()


def _every_step(history: History, empty: list[Pause]) -> bool:
    """One emptiness for every second step or more, where steps are counted: colocated engines stop for each."""
    if "trainer.steps" not in history.fleet:
        return True
    made = step_growth(history.fleet["trainer.steps"], history.step_s)
    return len(empty) >= 0.5 * float(made[np.isfinite(made)].sum())


def _takes_turns(history: History, on: float) -> bool:
    """Colocated engines work, a share `on` of the time, while the trainer waits, and stand empty while it computes.
    Engines that run empty beside a trainer that hardly waits, or that computes while they work, have GPUs of their own,
    too many of them: the staleness window is full."""
    waited, trained = (_share_of_time(history, f"trainer.{name}_total") for name in ("wait_s", "train_s"))
    return (waited is None or waited >= 0.5 * on) and (trained is None or trained + on <= 1.0 + OVERLAP)


def _share_of_time(history: History, name: str) -> float | None:
    """Seconds that a counter of seconds grew by / those in which it was read."""
    values = history.fleet.get(name)
    if values is None:
        return None
    grown = increments(values, history.step_s)
    known = np.isfinite(grown)
    span = float(known.sum()) * history.step_s
    return float(grown[known].sum()) / span if span > 0 else None


def _slept(empty: list[Pause]) -> bool:
    return sum(p.source == "sleep" for p in empty) * 2 >= len(empty)


def _ran_dry(history: History, empty: list[Pause]) -> bool:
    """Before most of them, little was left of what had been in flight: the batch had run out."""
    running = history.values.get("running")
    if running is None:
        return False
    work = fleet_total(running)
    before = [int(np.searchsorted(history.times, p.start_s, side="left")) - 1 for p in empty]
    last = [work[k] for k in before if k >= 0 and np.isfinite(work[k])]
    peak = float(np.nanpercentile(work, 95))
    return bool(last) and float(np.mean(np.array(last) < DRAINED * peak)) >= 0.5


def _placement_of_log(log: StepLog, steps: Steps) -> Literal["colocated"] | None:
    """Of a log with a wait: colocated where the whole generation is that wait, as a synchronous step has it."""
    if "wait_s" in log.columns:
        generate = log.columns.get("generate_s")
        same = generate is not None and np.allclose(generate, log.columns["wait_s"], equal_nan=True)
        return "colocated" if same and np.isfinite(log.columns["wait_s"]).any() else None
    parts = [steps.per_step(name) for name in ("wait_s", "train_s", "sync_s")]
    step_s = steps.step_s()
    if parts[0] is None or parts[1] is None or not step_s:
        return None
    return "colocated" if 0.7 <= sum(p or 0.0 for p in parts) / step_s <= 1.05 else None
