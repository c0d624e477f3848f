"""How far generation may run ahead of the trainer, and how often weights are published: what a recipe has, and what a
plan may take instead.

With eta versions ahead and a version every k steps, a sample is trained at most k (eta + 1) - 1 steps after the update
whose weights began it: k = 1 gives eta, and eta = 0 gives batches that share one version.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from fleetsim.config.law_numbers import law_of
from fleetsim.config.scenario import Scenario
from fleetsim.dataclass import dataclass
from fleetsim.policies.admission import MAX_STALENESS
from fleetsim.split.arrangements import steps_per_version

# Budgets in steps that are tried below the largest that is allowed, and steps between two publications.
_BUDGETS = (1, 2, 3, 4, 6, 8, 12, 16)
_CADENCES = (1, 2, 4)
_BATCHES = "admission.batches_ahead"


@dataclass(frozen=True, slots=True, eq=False)
class StalenessBudget:
    """changes: of the scenario. steps: that a sample may be old at most, None = the recipe's law promises no number.
    on_policy: nothing is generated while the trainer works, steps is 0."""

    changes: Mapping[str, Any]
    steps: float | None
    on_policy: bool = False


def own_staleness(scenario: Scenario) -> float | None:
    """Steps that a sample of this recipe may be old at most; None where its law promises no number."""
    law, a, k = law_of(scenario), scenario.admission, steps_per_version(scenario)
    if law.waits_for_trainer:
        return float(k - 1)
    if law.budget == "versions":
        return k * (a.max_staleness + 1) - 1
    return float(a.batches_ahead + k - 1) if law.budget == "batches" else None


def ways_ahead(scenario: Scenario, most_steps: int | None) -> Iterator[StalenessBudget]:
    """On-policy; then every budget and cadence up to the recipe's own staleness, or to `most_steps` where that is more.

    A law that promises no number stays as it is.
    """
    yield StalenessBudget({}, 0.0, on_policy=True)
    own, law = own_staleness(scenario), law_of(scenario)
    if own is None:
        yield StalenessBudget({}, None)
        return
    most = max(own, 0 if most_steps is None else most_steps)
    if own > 0:
        yield StalenessBudget({}, own)
    by_steps = scenario.sync.trigger == "steps"
    for k in _CADENCES if by_steps else (steps_per_version(scenario),):
        for steps in sorted({n for n in (*_BUDGETS, most) if n <= most}):
            changes = _batches(steps, k) if law.budget == "batches" else _versions(steps, k)
            if changes is None:
                continue
            if by_steps:
                changes["sync.every_steps"] = k
            there = _steps(changes, k)
            if steps == there and (there, k) != (own, steps_per_version(scenario)):
                yield StalenessBudget(changes, there)


def _versions(steps: float, k: int) -> dict[str, Any] | None:
    """A window of versions with so much staleness; what a recipe becomes that waits for its trainer (`Arrangement`)."""
    eta = math.floor((steps + 1) / k - 1 + 1e-9)
    return None if eta < 0 or (eta == 0 and k == 1) else {MAX_STALENESS: float(eta)}


def _batches(steps: float, k: int) -> dict[str, Any] | None:
    ahead = math.floor(steps - k + 1 + 1e-9)
    return None if ahead < 1 else {_BATCHES: ahead}


def _steps(changes: Mapping[str, Any], k: int) -> float:
    if _BATCHES in changes:
        return float(changes[_BATCHES] + k - 1)
    return float(k * (changes[MAX_STALENESS] + 1) - 1)
