"""The instances of a window, into a scenario: how many, their resizes and their paces."""

from __future__ import annotations

import numpy as np

from fleetsim import units
from fleetsim.history.history import History
from fleetsim.replay.implied.observed_load import own_paces
from fleetsim.replay.implied.scenario_draft import Draft
from fleetsim.replay.observe.observed import Observed

# A fleet size that lasts fewer grid points is a gap, not a resize.
_LASTING = 4
_MOST_RESIZES = 8


def take_fleet(draft: Draft, observed: Observed, history: History) -> tuple[tuple[float, int], ...]:
    """Instances, resizes, paces."""
    fleet = observed.fleet
    if fleet is None:
        told = draft.says("fleet.instances")
        (draft.taken if told else draft.assumed).append(
            f"fleet.instances: {draft.start.fleet.instances}, {'as said' if told else 'no engine was read'}"
        )
        return ((observed.start_s, draft.start.fleet.instances),)
    levels = levels_of(history)
    if len(levels) > _MOST_RESIZES or not levels:
        count = max(1, round(fleet.instances))
        levels = ((observed.start_s, count),)
        draft.taken.append(f"fleet.instances: mean of {fleet.instances_min} to {fleet.instances_max}")
    now = levels[-1][1]
    resized = len(levels) - 1
    what = f"{now} at the end" + (f", after {units.plural(resized, 'resize')}" if resized > 0 else "")
    draft.take("fleet.instances", now, what)
    if draft.set_by_user("fleet.instances"):
        now, levels = draft.start.fleet.instances, ((observed.start_s, draft.start.fleet.instances),)
    longest = max(v.present_s for v in observed.instances)
    half = [v for v in observed.instances if v.present_s >= 0.5 * longest]
    slow = [1.0 / pace for pace in own_paces(half).values()][:now]
    if any(f != 1.0 for f in slow) or draft.start.fleet.speed_factors:
        off = units.plural(sum(f != 1.0 for f in slow), "instance")
        draft.take("fleet.speed_factors", slow, f"{off} off the median's pace")
        if draft.start.fleet.straggler_share and not draft.set_by_user("fleet.straggler_share"):
            draft.changes["fleet.straggler_share"] = 0.0
    elif draft.start.fleet.straggler_share and not draft.set_by_user("fleet.straggler_share"):
        draft.take("fleet.straggler_share", 0.0, "all instances keep one pace")
    restarts = sum(v.restarts for v in observed.instances)
    if restarts and draft.start.fleet.failures.mtbf_s is None:
        draft.assumed.append(f"fleet.failures: none; the {restarts} restarts in the window are not simulated")
    return levels


def levels_of(history: History) -> tuple[tuple[float, int], ...]:
    """(start, instances) of every fleet size that lasted."""
    values = history.values.get("generation_tokens")
    if values is None or not values.size:
        return ()
    count = np.isfinite(values).sum(axis=0)
    starts = np.flatnonzero(np.diff(count, prepend=-1))
    ends = np.append(starts[1:], len(count))
    levels: list[tuple[float, int]] = []
    for a, b in zip(starts, ends, strict=True):
        if b - a >= _LASTING and count[a] > 0 and (not levels or levels[-1][1] != count[a]):
            levels.append((float(history.times[a]), int(count[a])))
    return tuple(levels)
