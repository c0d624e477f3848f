"""How much of its waiting a trainer spends beside a batch that stands ready: that part is its own, not rollout's."""

from __future__ import annotations

import numpy as np

from fleetsim.history.history import History
from fleetsim.replay.observe.steps import Steps

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
