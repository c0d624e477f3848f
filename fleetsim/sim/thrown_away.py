"""What binds where each sync throws away what is in flight: what of it would have been complete, and what still is not.

Of such a run the critical path shows only groups that were complete before a sync. Those that were thrown away count,
too: shorter, or more of them, they would have been complete; and the sooner the sync, the more of them are lost.
"""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.law_numbers import law_of, sizes_of
from fleetsim.policies.samples import IN_FLIGHT
from fleetsim.sim.critical_path import CriticalPath, sent_s
from fleetsim.sim.load import given_up_s
from fleetsim.sim.records import Records
from fleetsim.sim.window import StepWindow


def thrown_s(records: Records, window: StepWindow) -> NDArray[np.float64]:
    """When syncs threw away all that was in flight."""
    sync = records.scenario.sync
    all_of_it = IN_FLIGHT[sync.in_flight].discards and sync.scope == "global"
    thrown = records.discards["time_s"].tolist() if all_of_it else []
    return np.array(sorted({t for t in thrown if window.start_s < t < window.end_s}))


def between_syncs(records: Records, window: StepWindow, path: CriticalPath, cap: float, more: float = 1.0) -> float:
    """Seconds by which as many groups would have been complete sooner between two syncs that throw work away, if no
    response were longer than a cap, or so many times as many were in flight: of what was thrown away, too."""
    samples, groups, thrown = records.samples, records.groups, thrown_s(records, window)
    if not len(thrown):
        return 0.0
    first, began, ends = groups["first"], sent_s(records), np.maximum(samples["finish_s"], given_up_s(records))
    part = np.minimum(cap, samples["target"]) / samples["made"].clip(1)  # of what was made, at that pace
    over = np.maximum.reduceat(np.where(ends >= 0, began + (ends - began) * part, math.inf), first)
    over += statistics.median((path.ready_s - np.maximum.reduceat(ends, first)[path.groups]).tolist() or [0.0])
    gone, saved = records.discards[records.discards["group"] < len(groups)], 0.0
    for begin, end in pairwise(thrown.tolist()):
        ready = slice(*np.searchsorted(path.ready_s, (begin, end)))
        if n := ready.stop - ready.start:
            all_s = np.append(over[path.groups[ready]], over[gone["group"][gone["time_s"] == end]])
            last = max(0, round(n / more) - 1)
            saved += max(0.0, float(path.ready_s[ready.stop - 1] - np.partition(all_s, last)[last]))
    return saved


def thrown_sooner(records: Records, window: StepWindow, path: CriticalPath, saved_s: float) -> float:
    """Seconds of those that a faster trainer saves which are waited for all the same: each sync throws away sooner what
    would have been complete by then, and the next batch waits for as many others."""
    thrown, waited = thrown_s(records, window), np.sort([life.ready for life in path.lives if life.ready >= 0])
    if not len(thrown) or not len(waited):
        return 0.0
    law, ready, lost_s = law_of(records.scenario), path.ready_s, 0.0
    bounded = law.groups_ahead(records.scenario.admission, sizes_of(records.scenario)) is not None
    sooner, syncs = saved_s / len(thrown), [*thrown.tolist(), window.end_s]
    for sync, then in pairwise(syncs):
        begin, end = np.searchsorted(ready, (sync, then))
        ends = waited[np.searchsorted(ready[waited], sync) :][:1]
        if not len(ends) or ends[0] >= end:
            continue
        fewer = begin - np.searchsorted(ready, sync - sooner)
        if bounded:  # they are sent anew beside those that would be in flight: of more of them more are complete
            gone = np.count_nonzero(records.discards["time_s"] == then)
            fewer = round(fewer * (end - ends[0] - 1 + gone) / max(1, end - begin + gone + fewer))
        lost_s += min(sooner, float(ready[min(ends[0] + fewer, len(ready) - 1)] - ready[ends[0]]))
    return lost_s
