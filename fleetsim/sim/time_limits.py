"""What time limits cost: rollouts that they lose, and what would let more of them end in time.

Where a limit cuts rollouts, a shorter step may train less: gains are of steps for each batch of whole rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fleetsim.engine.kernel.tables import DONE, RESTARTS
from fleetsim.sim.critical_path import SAME_S, CriticalPath, sent_s
from fleetsim.sim.records import Records
from fleetsim.sim.stations import limits_of
from fleetsim.sim.window import StepWindow
from fleetsim.workload.turns import mean_turns

Floats = NDArray[np.float64]
# Share of whole rollouts below which a run tells of none.
_LEAST = 0.01


def needed(records: Records, tools_s: float) -> Floats:
    """By which part of its time each sample would have been done, at its pace until then; above 1: it is cut. tools_s:
    seconds of a rollout at its tools, in the mean."""
    samples, found = records.samples, np.zeros(len(records.samples))
    if limits := limits_of(records.scenario):
        done, turns = samples["status"] == DONE, mean_turns(records.scenario.workload)
        lived, part = (
            np.where(done, samples["finish_s"] - sent_s(records), 0.0).clip(0.0),
            samples["made"] / samples["target"],
        )
        at_tools = min(1.0, tools_s * np.count_nonzero(done) / max(SAME_S, lived.sum()))
        # the calls lie between the turns: of one that is cut, half a call in the mean
        part += at_tools * (((part * turns - 0.5) / max(SAME_S, turns - 1.0)).clip(0.0, 1.0) - part) * (part < 1.0)
        pace = lived[done].sum() / max(1, samples["made"][done].sum())
        need_s = {"episode": np.where(done, lived / part.clip(SAME_S), samples["target"] * pace)}
        need_s["turn"] = need_s["episode"] * (1.0 - at_tools) / turns
        for name, (limit_s, _) in limits.items():
            found = np.maximum(found, need_s[name] / limit_s)
    return found


def in_whole_rollouts(
    records: Records,
    window: StepWindow,
    path: CriticalPath,
    need: Floats,
    gains: Mapping[str, float],
    of_need: Mapping[str, Floats | float],
    more: float,
) -> dict[str, float]:
    """The gains where a step counts by the whole rollouts that it trains, and that of limits `more` times as long.

    need: as of `needed`. of_need: what a thing makes of it, as a factor."""
    limits, sent, group = limits_of(records.scenario), records.samples["sent_s"], records.samples["group"]
    # of a group of one nothing is left without it
    alone = {"dropped": "withheld"} if records.scenario.workload.group_size == 1 else {}
    policies = {alone.get(policy, policy) for _, policy in limits.values()}
    inside = (sent >= window.start_s) & (sent <= window.end_s)
    if policies != {"withheld"}:  # else what was not trained counts, too
        inside = (records.groups["trained_step"] >= window.first)[group]
    if not inside.any():
        return dict(gains)
    _, group = np.unique(group[inside], return_inverse=True)
    waits = float(window.steps["wait_s"].sum()) / window.span_s

    def of(factor: Floats | float) -> tuple[float, float]:
        """Share that is whole, and how often each is made until it is, or is given up."""
        then = (need * factor)[inside]
        over = then > 1.0
        if policies == {"withheld"}:
            return 1.0, 1.0 / max(_LEAST, 1.0 - float((np.bincount(group, over) > 0).mean()))
        again = RESTARTS * float(over.mean()) / float(np.minimum(then, 1.0).mean()) if "retried" in policies else 0.0
        return max(_LEAST, 1.0 - float(over.mean())), 1.0 + again

    whole, often = of(1.0)

    def gain(saved: float, factor: Floats | float) -> float:
        then, so_often = of(factor)
        return float(1.0 - (1.0 - saved) * (1.0 - waits * (1.0 - so_often / often)) * whole / then)

    # what is cut goes on: on the path, and at engines and tools
    lives_s = sum((min(more, need[x.sample]) - 1.0) * (x.end_s - x.sent_s) for x in path.lives if need[x.sample] > 1.0)
    work = float(np.minimum(need[inside], more).mean() / max(_LEAST, np.minimum(need[inside], 1.0).mean()))
    longer = max(lives_s / window.span_s, waits * (work - 1.0))
    found = {name: gain(gains.get(name, 0.0), of_need.get(name, 1.0)) for name in {**of_need, **gains}}
    return found | {"time_limit": gain(-longer, 1.0 / more)}
