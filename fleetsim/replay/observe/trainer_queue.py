"""The queue of finished samples that wait for the trainer.

How much of its waiting a trainer spends beside a batch that stands ready: that part is its own, not rollout's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fleetsim.history.counters import growth
from fleetsim.history.history import Floats, History
from fleetsim.replay.observe.intervals import mean, number, percentile
from fleetsim.replay.observe.observed import Observed, QueueView
from fleetsim.replay.observe.steps import Steps

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
        generated_per_trained=tok_s / trained if tok_s is not None and trained and _counted(steps) else None,
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


def slope_per_h(times: Floats | None, values: Floats | None) -> float | None:
    """Least-squares slope of what is there, per hour; None below three points."""
    if values is None or times is None:
        return None
    there = np.isfinite(values) & np.isfinite(times)
    if there.sum() < 3:
        return None
    at = times[there] - times[there].mean()
    return float(np.sum(at * values[there]) / np.sum(at**2)) * 3600 if np.any(at) else None


def _depth(history: History, steps: Steps | None) -> tuple[Floats | None, Floats | None, Floats | None]:
    """Depth, age of the oldest sample, and their times: exported, or one value per step of a log."""
    if history.steps is not None and steps is not None:
        columns = history.steps.columns
        age = columns.get("staleness_max_steps", columns.get("staleness_steps"))
        return columns.get("queue_samples"), age, steps.end_s
    return history.fleet.get("queue.samples"), history.fleet.get("queue.oldest_age_steps"), history.times


def _dropped(history: History) -> float | None:
    """Thrown away / (thrown away + trained): every finished sample ends as one of the two."""
    if history.steps is not None:
        return _logged_dropped(history.steps.columns)
    dropped, trained = (history.fleet.get(f"trainer.{name}_samples") for name in ("dropped", "trained"))
    if dropped is None or trained is None:
        return None
    lost, used = float(growth(dropped)), float(growth(trained))
    return lost / (lost + used) if np.isfinite(lost + used) and lost + used > 0 else None


def _logged_dropped(columns: Mapping[str, Floats]) -> float | None:
    """The same of a run log, over its rows that say both."""
    dropped, trained = columns.get("dropped_samples"), columns.get("samples")
    if dropped is None or trained is None:
        return None
    known = np.isfinite(dropped) & np.isfinite(trained)
    lost, used = float(dropped[known].sum()), float(trained[known].sum())
    return lost / (lost + used) if lost + used > 0 else None


def _counted(steps: Steps | None) -> bool:
    return steps is not None and "tokens" in steps.columns and steps.columns["tokens"][1] != "inferred"


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
    waited = steps.columns["wait_s"][0] / np.where(steps.count > 0, steps.count, np.nan) / history.step_s
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
