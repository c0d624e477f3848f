"""The instances of a window, into a scenario: how many, their resizes and their paces."""

from __future__ import annotations

from statistics import median

import numpy as np

from fleetsim import units
from fleetsim.engine.step_time import StepTime
from fleetsim.history.history import History
from fleetsim.replay.implied.observed_load import own_paces
from fleetsim.replay.implied.scenario_draft import ScenarioDraft
from fleetsim.replay.observe.observed import InstanceView, Observed
from fleetsim.replay.observe.pile_ups import piled, usual_load

# A fleet size that lasts fewer grid points is a gap, not a resize.
_LASTING = 4
_MOST_RESIZES = 8


def take_fleet(draft: ScenarioDraft, observed: Observed, history: History) -> tuple[tuple[float, int], ...]:
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
    slow = [1.0 / pace for pace in own_paces(_counted(observed)).values()][:now]
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


def take_piled(draft: ScenarioDraft, observed: Observed, step_time: StepTime) -> None:
    """The pace of instances that show by the work that piles up on them alone: nobody else has their load, so that the
    shape of the engine's iteration times says what they should take there, beside the median instance at its own."""
    here = _counted(observed)[: int(draft.changes.get("fleet.instances", draft.start.fleet.instances))]
    slow = [] if observed.rolling is not None else [view for view in piled(here) if not view.straggler]
    lengths = observed.lengths
    if not slow or lengths is None or draft.set_by_user("fleet.speed_factors"):
        return
    context = (lengths.prompt_mean or 0.0) + 0.5 * lengths.mean
    usual, rate = usual_load(here), median(i.active_tok_s for i in here if i.running is not None)

    def takes(running: float) -> float:
        return float(step_time.each_s(np.array([running]), kv_tokens=np.array([running * context]))[0])

    factors = [1.0 / pace for pace in own_paces(here).values()]
    for place, view in enumerate(here):
        if view in slow and view.active_tok_s > 0:
            load = view.running or 0.0
            factors[place] = (load / view.active_tok_s) / (usual / rate) / (takes(load) / takes(usual))
    factors = [max(1.0, factor) if view in slow else factor for view, factor in zip(here, factors, strict=True)]
    names = ", ".join(str(view.id) for view in slow)
    draft.taken = [line for line in draft.taken if not line.startswith("fleet.speed_factors")]
    draft.take("fleet.speed_factors", factors, f"{names} by the work that piles up, at the engine's shape")
    if not draft.says("fleet.routing"):
        draft.assume("fleet.routing", "round_robin", "round_robin; work piles up, so the router looks at no load")


def _counted(observed: Observed) -> list[InstanceView]:
    """The instances that a scenario's numbers stand for: those that were there for half of the time or more."""
    longest = max(v.present_s for v in observed.instances)
    return [v for v in observed.instances if v.present_s >= 0.5 * longest]


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
