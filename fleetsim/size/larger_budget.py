"""When no fleet holds the targets: the staleness budget with which one would, and the count that it needs.

A trainer that waits although instances are free waits until more groups may start, or for the longest response. Both
waits become shorter when samples may be older. Whether they may is for whoever chose the algorithm to decide; the
planner says what it would buy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fleetsim.config.law_numbers import law_of
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.dataclass import dataclass
from fleetsim.job.trials import Measure, Tell, Trial
from fleetsim.size.second_search import Anew, anew, reachable
from fleetsim.size.targets import Target

_MOST_EXTRA_STEPS = 3


@dataclass(frozen=True, slots=True)
class WayOut(Anew):
    """The same with a staleness budget of `max_staleness` steps."""

    max_staleness: float


def way_out_of(
    scenario: Scenario,
    now: Trial,
    targets: Sequence[Target],
    measure: Measure,
    tell: Tell | None = None,
) -> WayOut | None:
    """The smallest of a few larger budgets with which a fleet holds the targets for no more money than now; else the
    cheapest budget with which a fleet holds them; None where no budget helps.

    Only a version window has such a budget. now: the recommendation as it is, from all runs: a budget is looked at by
    one run, and decided by as many as these.
    """
    if not law_of(scenario).plain_window:
        return None
    found: list[WayOut] = []
    for extra in range(1, _MOST_EXTRA_STEPS + 1):
        budget = float(math.floor(scenario.admission.max_staleness) + extra)
        if tell is not None:
            tell(f"trying a staleness budget of {budget:g} steps")
        changed = with_changes(scenario, wider(scenario, budget))
        solved = anew(changed, now, targets, measure) if reachable(changed, now.instances, targets, measure) else None
        if solved is not None and solved.holds:
            found.append(WayOut(**asdict(solved), max_staleness=budget))
            if solved.saves_usd >= 0.0:
                break
    return min(found, key=lambda w: w.cost_per_step, default=None)


def wider(scenario: Scenario, budget: float) -> dict[str, Any]:
    """The changes for a staleness budget: what starts earlier is older when it is trained, so a limit rises with it."""
    limit = scenario.admission.max_age
    older = {} if limit is None else {"admission.max_age": limit + budget - scenario.admission.max_staleness}
    return {"admission.max_staleness": budget, **older}
