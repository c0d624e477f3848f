"""The trainer over a window, and how the two pools look from their rhythm."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fleetsim.history.counters import increments
from fleetsim.history.history import History, Note
from fleetsim.replay.intervals import fleet_total, mean
from fleetsim.replay.observed import From, Pause, Quantity, TrainerView
from fleetsim.replay.rates import total
from fleetsim.replay.steps import Steps, step_growth

OFF = 0.1  # of the time: engines that stand empty for less have been drained for a sync
DRAINED = 0.5  # of the fleet's peak in flight: what is left when a batch runs out, not when a sync aborts it


def trainer_view(history: History, steps: Steps | None, generated: float | None) -> TrainerView:
    """Means per step. generated: output tokens of the window, from which a batch is inferred where nobody counts it."""
    mfu = _mfu(history)
    if steps is None:
        return TrainerView(None, None, None, None, None, None, None, None, mfu)
    step_s = steps.step_s()
    whole = None if step_s is None else Quantity(step_s, steps.source)
    idle = steps.per_second("wait_s")
    span = history.end_s - history.start_s
    ended, aborted = total(history, "finished"), total(history, "finished_abort")
    kept = None if ended is None else ended - (aborted or 0.0)
    return TrainerView(
        step_s=whole,
        wait_s=_phase(steps, "wait_s"),
        train_s=_phase(steps, "train_s"),
        sync_s=_phase(steps, "sync_s"),
        idle_fraction=None if idle is None else Quantity(min(idle, 1.0), steps.columns["wait_s"][1]),
        steps=None if steps.total is None else Quantity(steps.total, steps.source),
        batch_samples=_batch(steps, "samples", kept, step_s, span),
        batch_tokens=_batch(steps, "tokens", generated, step_s, span),
        mfu=mfu,
    )


def placement_of(
    history: History, pauses: tuple[Pause, ...], steps: Steps | None
) -> Literal["colocated", "disaggregated"] | None:
    """How the pools look: colocated if the engines run dry, or sleep, for a tenth of the time or more, in a rhythm;
    disaggregated if they never stand empty. A synchronous trainer with GPUs of its own looks colocated, too: nobody can
    tell from the engines. Of a log: colocated if generating, training and syncing follow one another.
    """
    if history.steps is not None and steps is not None:
        return _placement_of_log(steps) if "wait_s" not in history.steps.columns else None
    if not history.instances:
        return None
    empty = [p for p in pauses if p.empty]
    if not empty:
        return "disaggregated"
    off = sum(p.seconds for p in empty) / (history.end_s - history.start_s)
    if len(empty) < 2 or off < OFF or not _every_step(history, empty):
        return None
    if not _trainer_waits(history, 1.0 - off):
        return "disaggregated"
    return "colocated" if _slept(empty) or _ran_dry(history, empty) else None


def _phase(steps: Steps, name: str) -> Quantity | None:
    value = steps.per_step(name)
    if value is None:
        return None
    source: From = "inferred" if steps.source == "inferred" else steps.columns[name][1]
    return Quantity(value, source)


def _batch(steps: Steps, name: str, made: float | None, step_s: float | None, span: float) -> Quantity | None:
    """Counted, or what the engines made in a step's time: all of it, so thrown away samples are in it."""
    value = steps.per_step(name)
    if value is not None:
        return Quantity(value, steps.columns[name][1])
    return None if not made or step_s is None or span <= 0 else Quantity(made / span * step_s, "inferred")


def _mfu(history: History) -> Quantity | None:
    if "trainer.mfu" not in history.fleet:
        return None
    value = float(mean(history.fleet["trainer.mfu"]))
    if not np.isfinite(value):
        return None
    return Quantity(value / 100 if value > 1 else value, "exported")  # prime-rl exports per cent


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


def _trainer_waits(history: History, on: float) -> bool:
    """Colocated engines work while the trainer waits. Engines that run empty beside a trainer that hardly waits have
    GPUs of their own, too many of them: the staleness window is full."""
    waited = history.fleet.get("trainer.wait_s_total")
    if waited is None:
        return True
    grown = increments(waited, history.step_s)
    known = np.isfinite(grown)
    span = float(known.sum()) * history.step_s
    return span <= 0 or float(grown[known].sum()) / span >= 0.5 * on


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


def _placement_of_log(steps: Steps) -> Literal["colocated"] | None:
    parts = [steps.per_step(name) for name in ("wait_s", "train_s", "sync_s")]
    step_s = steps.step_s()
    if parts[0] is None or parts[1] is None or not step_s:
        return None
    return "colocated" if 0.7 <= sum(p or 0.0 for p in parts) / step_s <= 1.05 else None
