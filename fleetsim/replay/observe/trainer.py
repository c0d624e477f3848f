"""The trainer over a window, its queue of finished samples, and how the two pools look from their rhythm."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fleetsim.history.counters import growth, increments
from fleetsim.history.history import Floats, History, Note, StepLog
from fleetsim.replay.observe.interruptions import Pause
from fleetsim.replay.observe.intervals import fleet_total, mean, number, percentile, sums_of, work_of
from fleetsim.replay.observe.observed import Observed, QueueView, Reading, TrainerView
from fleetsim.replay.observe.steps import Steps, step_growth

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
        idle_fraction=None if idle is None else Reading(min(idle, 1.0), steps.columns_from or steps.source),
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
    slept = sum(p.source == "sleep" for p in empty) * 2 >= len(empty)
    return "colocated" if slept or _ran_dry(history, empty) else None


def _phase(steps: Steps, name: str) -> Reading | None:
    value = steps.per_step(name)
    return None if value is None else Reading(value, steps.source)


def _batch(steps: Steps, name: str, made_s: float | None, step_s: float | None) -> Reading | None:
    """Counted, or what the engines made in a step's time: all of it, so thrown away samples are in it."""
    value = _phase(steps, name)
    if value is not None:
        return value
    return None if not made_s or step_s is None else Reading(made_s * step_s, "inferred")


def _mfu(history: History) -> Reading | None:
    if history.steps is not None and (logged := history.steps.mean("mfu")) is not None:
        return Reading(logged, "log")
    value = number(mean(history.fleet.get("trainer.mfu")))
    if value is None:
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
    too many of them: the staleness window is full. So have those whose samples are older than one step."""
    if (percentile(history.fleet.get("queue.oldest_age_steps"), 100) or 0.0) > 1.0:
        return False
    waited, trained = (_share_of_time(history, f"trainer.{name}_total") for name in ("wait_s", "train_s"))
    return (waited is None or waited >= 0.5 * on) and (trained is None or trained + on <= 1.0 + OVERLAP)


def _share_of_time(history: History, name: str) -> float | None:
    """Seconds that a counter of seconds grew by / those in which it was read."""
    values = history.fleet.get(name)
    grown = None if values is None else number(mean(increments(values, history.step_s)))
    return None if grown is None else grown / history.step_s


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


# Of what it grew in all: a queue that grows by less from the third quarter of the window to the last has settled.
SETTLED = 0.1
# A queue that grows by less than this share of what is produced wanders, it does not grow.
GROWS = 0.01


def queue_view(history: History, steps: Steps | None, tok_s: float | None) -> QueueView:
    """The queue over the window. tok_s: output tokens generated per second, by all instances.

    generated_per_trained compares rates over the steps' own time, so that the batch under way at either end of the
    window does not count as waste.
    """
    depth, age, times = _depth(history, steps)
    trained = None if steps is None else steps.per_second("tokens")
    return QueueView(
        depth=number(mean(depth)),
        depth_p95=percentile(depth, 95),
        depth_max=percentile(depth, 100),
        growth_per_h=slope_per_h(times, depth),
        oldest_age_steps=number(mean(age)),
        oldest_age_max_steps=percentile(age, 100),
        dropped_share=_dropped(history),
        generated_per_trained=tok_s / trained if tok_s is not None and trained else None,
        dropped_at_steps=_dropped_at_steps(history),
        came_late=_came_late(history),
    )


def grows(observed: Observed, batch: float) -> tuple[float, float] | None:
    """(samples per hour, share of what is produced) by which a queue grows by a batch or more over the window and by
    more than GROWS of the production; None where it does not, or where it has found a new level since something changed
    (a slower trainer). batch: where the window does not show it."""
    seen, step = observed.trainer.batch_samples, observed.trainer.step_s
    per_h, fleet = observed.queue.growth_per_h, observed.fleet
    if per_h is None or per_h <= 0:
        return None
    produced = None if fleet is None or fleet.finished_s is None else 3600.0 * fleet.finished_s
    if produced is None and seen is not None and step is not None and step.value > 0:
        produced = 3600.0 * seen.value / step.value + per_h
    if produced is None or produced <= 0:
        return None
    if _settled(observed):
        return None
    least = batch if seen is None else seen.value
    share = min(1.0, per_h / produced)
    return (per_h, share) if per_h * observed.span_s / 3600.0 >= least and share > GROWS else None


def _settled(observed: Observed) -> bool:
    depths = [hour.queue for hour in observed.hours if hour.queue is not None]
    if len(depths) < 4:
        return False
    quarter = len(depths) // 4
    first, third, last = (
        sum(part) / quarter for part in (depths[:quarter], depths[-2 * quarter : -quarter], depths[-quarter:])
    )
    return last - third < SETTLED * (last - first)


def slope_per_h(times: Floats | None, values: Floats | None, weights: Floats | None = None) -> float | None:
    """Least-squares slope of what is there, per hour; None below three points."""
    if values is None or times is None:
        return None
    there = np.isfinite(values) & np.isfinite(times)
    if there.sum() < 3:
        return None
    by = np.ones(int(there.sum())) if weights is None else weights[there]
    at = times[there] - np.average(times[there], weights=by)
    return float(np.sum(by * at * values[there]) / np.sum(by * at**2)) * 3600 if np.any(at) else None


def _depth(history: History, steps: Steps | None) -> tuple[Floats | None, Floats | None, Floats | None]:
    """Depth, age of the oldest sample, and their times: exported, or one value per step of a log."""
    if history.steps is not None and steps is not None:
        columns = history.steps.columns
        age = columns.get("staleness_max_steps", columns.get("staleness_steps"))
        return columns.get("queue_samples"), age, steps.end_s
    return history.fleet.get("queue.samples"), history.fleet.get("queue.oldest_age_steps"), history.times


def _dropped_at_steps(history: History) -> float | None:
    if not {"trainer.dropped_samples", "trainer.steps"} <= set(history.fleet):
        return None
    dropped, steps = (
        np.nan_to_num(increments(history.fleet[f"trainer.{name}"], history.step_s))
        for name in ("dropped_samples", "steps")
    )
    evenly = float((steps > 0).mean())
    if not dropped.sum() > 0 or evenly > 0.5:
        return None
    return max(0.0, float(dropped[steps > 0].sum() / dropped.sum()) - evenly) / (1.0 - evenly)


def _came_late(history: History) -> float | None:
    """Where the queue grew between two times at which no engine had a request, and none made a token in between."""
    queued, work = history.fleet.get("queue.samples"), work_of(history)
    if queued is None or work is None:
        return None
    came = np.clip(np.nan_to_num(np.diff(queued)), 0.0, None)
    made = np.nan_to_num(increments(history.values["generation_tokens"], history.step_s)).sum(axis=0)
    late = (work[:-1] == 0) & (work[1:] == 0) & (made <= 0)
    return float(came[late].sum() / came.sum()) if came.any() else None


def _dropped(history: History) -> float | None:
    """Thrown away / (thrown away + trained): every finished sample ends as one of the two. Of a log over its rows that
    say both."""
    log = history.steps
    at, lost_name, used_name = history.fleet, "trainer.dropped_samples", "trainer.trained_samples"
    if log is not None:
        at, lost_name, used_name = log.columns, "dropped_samples", "samples"
    dropped, trained = at.get(lost_name), at.get(used_name)
    if dropped is None or trained is None:
        return None
    lost, used = sums_of(dropped, trained) if log is not None else (float(growth(dropped)), float(growth(trained)))
    return lost / (lost + used) if np.isfinite(lost + used) and lost + used > 0 else None


# Steps whose beginning was seen, to judge by.
FEWEST = 8


def ready_share(history: History, steps: Steps | None) -> float | None:
    """The share of the waiting in which the queue held a batch or more; at least, and None where it cannot be seen.

    A step begins with its wait of w seconds. The time at which the grid first shows the end of the step before lies
    within one interval d of it, so the j-th time from there on (j = 0, 1, ...) lies in the wait with probability
    p = min(max(w / d - j, 0), 1). Where p = 1, what the queue held there counts, and up to the end of that wait, as
    nothing is taken meanwhile. Of other times with p > 0 only what their number tells for sure: of events A (a batch is
    there) and B (the trainer waits), P(A and B) >= P(A) + P(B) - 1.
    """
    queued, batch = history.fleet.get("queue.samples"), None if steps is None else steps.per_step("samples")
    if steps is None or queued is None or batch is None or steps.source != "exported" or "wait_s" not in steps.columns:
        return None
    waited = steps.columns["wait_s"] / np.where(steps.count > 0, steps.count, np.nan) / history.step_s
    began = np.searchsorted(history.times, steps.end_s - steps.elapsed_s + 1e-6) - 1
    known = np.isfinite(waited) & (began >= 0)
    if known.sum() < FEWEST or float(waited[known].sum()) <= 0:
        return None
    # no wait is longer than the window, whatever a counter says
    waited, began = np.minimum(waited[known], float(len(queued))), began[known]
    sure = perhaps = 0.0
    before = np.zeros(len(waited), dtype=bool)
    for j in range(int(waited.max()) + 1):
        p = np.clip(waited - j, 0.0, 1.0)
        held = queued[np.minimum(began + j, len(queued) - 1)]
        full = np.nan_to_num(held) >= batch * (1.0 - 1e-6)
        sure += float(full[p >= 1.0].sum()) + float(p[before & (p < 1.0)].sum())
        before |= full & (p >= 1.0)
        between = (p > 0.0) & (p < 1.0) & ~before
        perhaps += max(0.0, float((full[between] + p[between] - 1.0).sum()))
    return min(1.0, (sure + perhaps) / float(waited.sum()))


def logged_ready_share(history: History) -> float | None:
    """The share of the trainer's waiting in rows at whose both ends the queue held what it takes at once; None where
    the log does not say, or has too few rows. A queue that is full before and after a wait was no reason to wait."""
    if history.steps is None:
        return None
    columns = history.steps.columns
    if not {"queue_groups", "pull_groups", "wait_s"} <= set(columns):
        return None
    queue, need, wait = columns["queue_groups"], columns["pull_groups"], columns["wait_s"]
    full = np.nan_to_num(queue) >= need * (1.0 - 1e-6)
    known = np.isfinite(wait) & np.isfinite(need) & np.r_[False, np.isfinite(queue[:-1])] & np.isfinite(queue)
    waited = float(wait[known].sum())
    if known.sum() < FEWEST or waited <= 0:
        return None
    ready = known & full & np.r_[False, full[:-1]]
    return float(wait[ready].sum()) / waited
