"""How far generation may run ahead of the trainer, and how often weights are published: what a recipe has, and what a
plan may try instead.

With eta versions ahead and a version every k steps, a sample that is done in time is trained at most k (eta + 1) - 1
steps after the update whose weights began it: k = 1 gives eta, and eta = 0 gives batches that share one version. That
says how far the fleet runs ahead, and which ways are tried. How old samples are when they are trained is another
thing, for no law waits for a long response: a plan holds the age that its own runs show (`Found.age`) against what is
permitted, and rules nothing out by this formula.

A split keeps the cadence and tries ever smaller numbers of versions or batches, until its samples are fresh enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from fleetsim.config.law_numbers import budget_steps, law_of, steps_per_version
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.policies.admission import BATCHES_AHEAD, MAX_STALENESS
from fleetsim.policies.samples import BATCH_RULES
from fleetsim.search.arrangements import Arrangement

# Steps ahead that are tried below the largest that is allowed, and steps between two publications.
_BUDGETS = (1, 2, 3, 4, 6, 8, 12, 16)
_CADENCES = (1, 2, 4)
# Parts of a version: a window of a whole one already trains its longest responses a step later than it says.
_PARTS = (0.25, 0.5)


class StalenessBudget(Struct, frozen=True, eq=False):
    """changes: of the scenario. steps: by which generation may run ahead, None = the recipe's law says no number.
    on_policy: nothing is generated while the trainer works, steps is 0."""

    changes: Mapping[str, Any]
    steps: float | None
    on_policy: bool = False


def steps_ahead(scenario: Scenario) -> float | None:
    """Steps by which generation of this recipe may run ahead; None where no setting that a plan chooses says it."""
    law, a, k = law_of(scenario), scenario.admission, steps_per_version(scenario)
    if law.waits_for_trainer:
        return float(k - 1)
    if law.budget == "versions":
        return k * (a.max_staleness + 1) - 1
    return float(a.batches_ahead + k - 1) if law.budget == "batches" else None


def ways_ahead(scenario: Scenario, most_steps: int | None) -> Iterator[StalenessBudget]:
    """On-policy; then every budget and cadence up to the recipe's own, or to `most_steps` where that is more.

    A law that says no number stays as it is.
    """
    yield StalenessBudget({}, 0.0, on_policy=True)
    own, law = steps_ahead(scenario), law_of(scenario)
    if own is None:
        yield StalenessBudget({}, None)
        return
    most = max(budget_steps(scenario) or 0.0, float(most_steps or 0))
    if 0 < own <= most:
        yield StalenessBudget({}, own)
    by_steps = scenario.sync.trigger == "steps"
    parts = () if law.budget == "batches" else tuple(n for n in _PARTS if n <= most)
    for k in _CADENCES if by_steps else (steps_per_version(scenario),):
        for steps in sorted({n for n in (*_BUDGETS, most) if n <= most}.union(parts if k == 1 else ())):
            changes = _batches(steps, k) if law.budget == "batches" else _versions(steps, k)
            if changes is None:
                continue
            if by_steps:
                changes["sync.every_steps"] = k
            there = _steps(changes, k)
            if steps == there and (there, k) != (own, steps_per_version(scenario)):
                yield StalenessBudget(changes, there)


def _versions(steps: float, k: int) -> dict[str, Any] | None:
    """A window of versions of so many steps; what a recipe becomes that waits for its trainer (`Arrangement`)."""
    eta = steps if steps in _PARTS else math.floor((steps + 1) / k - 1 + 1e-9)
    return None if eta < 0 or (eta == 0 and k == 1) else {MAX_STALENESS: float(eta)}


def _batches(steps: float, k: int) -> dict[str, Any] | None:
    ahead = math.floor(steps - k + 1 + 1e-9)
    return None if ahead < 1 else {BATCHES_AHEAD: ahead}


def _steps(changes: Mapping[str, Any], k: int) -> float:
    if BATCHES_AHEAD in changes:
        return float(changes[BATCHES_AHEAD] + k - 1)
    return float(k * (changes[MAX_STALENESS] + 1) - 1)


# --- What a recipe's law counts, versions or batches: how many of them generation runs ahead.


def numbers_of(job: Scenario, oldest: float | None) -> list[float | None]:
    """How many are tried, the largest first: the recipe's own number, or what may be where that is more. [None] where
    no number says it."""
    if _fixed(job) or oldest is None:
        return [None]
    law, a, k = law_of(job), job.admission, steps_per_version(job)
    if law.budget == "batches":
        most = max(a.batches_ahead, math.floor(oldest - k + 1))
        return [float(n) for n in range(most, 0, -1)]
    own = 0.0 if law.waits_for_trainer else a.max_staleness
    most = max(own, float(math.floor((oldest + 1) / k - 1)), 0.0 if own else 1.0)
    whole = (float(n) for n in range(math.ceil(most) - 1, 0, -1))
    return [most, *whole, *(n for n in sorted(_PARTS, reverse=True) if n < most)]


def numbered(job: Scenario, number: float | None) -> Scenario:
    """The job with so many ahead."""
    if number is None:
        return job
    batches = law_of(job).budget == "batches"
    return with_changes(job, {BATCHES_AHEAD: int(number)} if batches else {MAX_STALENESS: number})


def number_of(job: Scenario, way: Arrangement) -> float | None:
    """How many a way of the job runs ahead; None where it has no number."""
    law, a = law_of(job), way.scenario.admission
    if way.on_policy or _fixed(job):
        return None
    return float(a.batches_ahead - (way.kind == "colocated_async")) if law.budget == "batches" else a.max_staleness


def _fixed(job: Scenario) -> bool:
    """Whether no number says how far the asynchronous ways of a job run ahead."""
    law = law_of(job)
    if law.waits_for_trainer:  # rounds become one batch ahead (`arrangements`)
        return BATCH_RULES[job.buffer.batch_rule].rounds and job.buffer.leftover != "defer"
    return law.budget is None
