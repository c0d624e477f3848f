"""What a recipe allows beyond what it says itself, `--allow fp8,staleness<=2`, and how far ahead rollout then runs.

Rollouts in fewer bits sample from a policy that is not quite the trained one, and older samples are further off-policy:
both change training, and only who owns the recipe can say yes. Speculative decoding keeps the law of the samples, but
it needs a drafter that somebody trains and serves, so it is asked for as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from fleetsim.config.law_numbers import budget_steps, law_of, steps_per_version
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import did_you_mean
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag, text
from fleetsim.policies.admission import BATCHES_AHEAD, MAX_STALENESS
from fleetsim.policies.samples import BATCH_RULES
from fleetsim.records import replace
from fleetsim.search.arrangements import Arrangement

# Name -> what it lets a plan do, in words.
NAMES: Mapping[str, str] = {
    "fp8": "rollout weights and KV cache in fp8",
    "nvfp4": "rollout weights in nvfp4",
    "speculation": "speculative decoding",
}
_STALENESS = re.compile(r"staleness\s*<=\s*(\d+)")
_MOST_STEPS = 1000
EXAMPLE = "fp8,staleness<=2,speculation"


class Allowed(Struct, frozen=True):
    """names: of NAMES. staleness: optimizer steps that 99 % of the trained samples may be old, where somebody said;
    else what the recipe has."""

    names: frozenset[str] = frozenset()
    staleness: int | None = None

    def covers(self, needed: Iterable[str]) -> bool:
        """Whether a choice may be taken that needs these names."""
        return self.names.issuperset(needed)

    def oldest(self, own: float | None) -> float | None:
        """Steps that 99 % of the trained samples may be old: what the recipe promises (`promised_steps`), or what was
        allowed where that is more. None where nobody said a number: nothing is held against it."""
        return own if self.staleness is None else max(own or 0.0, float(self.staleness))

    def also(self, permission: str) -> Allowed:
        """The same with one permission more, as it is written."""
        more = allowed(permission)
        return replace(self, names=self.names | more.names, staleness=more.staleness or self.staleness)

    @property
    def texts(self) -> tuple[str, ...]:
        """As they are written."""
        return (*sorted(self.names), *([] if self.staleness is None else [stale(self.staleness)]))


def stale(steps: int) -> str:
    """The permission for samples that are so many steps old."""
    return f"staleness<={steps}"


def says(permission: str) -> str:
    """What a permission lets a plan do, in words."""
    found = _STALENESS.fullmatch(permission)
    if found is None:
        return NAMES[permission]
    steps = int(found[1])
    return f"samples that are up to {steps} {'step' if steps == 1 else 'steps'} old"


def allowed(written: str | None) -> Allowed:
    """What a text of permissions, separated by commas, allows. Raises InputError with all that is none."""
    names: set[str] = set()
    steps: int | None = None
    problems = []
    for part in (written or "").split(","):
        name = part.strip().lower()
        found = _STALENESS.fullmatch(name)
        if found is not None and int(found[1]) <= _MOST_STEPS:
            steps = max(int(found[1]), steps or 0)
        elif name in NAMES:
            names.add(name)
        elif name:
            rule = f"is no permission: {', '.join(NAMES)} or staleness<=STEPS (at most {_MOST_STEPS:,})"
            remedy = text("{}; for example {}", did_you_mean(name, NAMES), flag("allow", EXAMPLE))
            problems.append(Problem(flag("allow"), part.strip(), rule, remedy))
    if problems:
        raise InputError(problems)
    return Allowed(frozenset(names), steps)


# --- How far generation may run ahead of the trainer, and how often weights are published: what a recipe has, and
# what a plan may try instead.
#
# With eta versions ahead and a version every k steps, a sample that is done in time is trained at most k (eta + 1) -
# 1 steps after the update whose weights began it: k = 1 gives eta, and eta = 0 gives batches that share one version.
# That says how far the fleet runs ahead, and which ways are tried. How old samples are when they are trained is
# another thing, for no law waits for a long response: a plan holds the age that its own runs show (`Found.age`)
# against what is permitted, and rules nothing out by this formula.
#
# A split keeps the cadence and tries ever smaller numbers of versions or batches, until its samples are fresh enough.

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
