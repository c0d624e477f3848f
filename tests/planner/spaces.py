"""Every plan of a small job, for tests that hold bounds and searches against all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from random import Random
from typing import Any

import fleetsim as fs
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError
from fleetsim.plan.choices import LIMITS, ChoiceInputs
from fleetsim.plan.space import Space
from fleetsim.search.arrangements import divided
from fleetsim.search.front import Budget
from fleetsim.search.permissions import allowed
from fleetsim.search.shares import Candidate


def space_of(gpus: int, changes: Mapping[str, Any] | None = None, **options: Any) -> Space:
    """The space of a job on at most so many GPUs."""
    job = fs.load(None, changes or {}, **options)
    asked = ChoiceInputs(divided(job.scenario, job.given), job.given)
    return Space(asked, Budget(gpus))


def plans_of(space: Space, allow: str = "", about: int | None = None) -> list[tuple[Candidate, Scenario]]:
    """All plans that can be, without limits. about: of so many candidates, drawn from all."""
    candidates = list(space.plans(allowed(allow)))
    if about is not None and about < len(candidates):
        candidates = Random(0).sample(candidates, about)
    found = ((c, c.scenario()) for c in candidates)
    return [(c, s) for c, s in found if s is not None]


def with_all_limits(scenario: Scenario, space: Space) -> Iterator[Scenario]:
    """The plan with every combination of limits, none among them."""
    each = [[v.changes for v in choice.values(scenario, space.asked)] for choice in LIMITS]
    for changes in product(*each):
        try:
            yield with_changes(scenario, {k: v for change in changes for k, v in change.items()})
        except InputError:  # limits that do not go together
            continue
