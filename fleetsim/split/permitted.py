"""Which ways a recipe permits: how far each lets generation run ahead, and how old its own runs show the samples to be.

The recipe's law says how far generation may run ahead of the trainer, not how long a response takes, so the samples of
a window of four versions may be eight steps old when they are trained. A way is permitted whose runs show an age that
the recipe permits (`budget_steps`), or --allow. Where the best way is too old, the ways are tried again with a smaller
window, in proportion; the other ways that were tried say what a permission would buy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fleetsim.config.law_numbers import law_of, steps_per_version
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.policies.admission import MAX_STALENESS
from fleetsim.policies.samples import BATCH_RULES
from fleetsim.split.arrangements import Arrangement, colocated_async, colocated_sync, split, split_in_turn
from fleetsim.split.permissions import age_of
from fleetsim.split.runs import By, Simulated, WayRuns, badness

# Windows below one version: a whole one already trains its longest responses a step later than it says.
_PARTS = (0.5, 0.25)
_BATCHES = "admission.batches_ahead"
# Permissions that are told, the smallest first.
_MOST_BOUGHT = 3
# By so much must an older way be better than a fresher one to be worth a permission.
_WORTH = 0.01


def explore(ways: WayRuns, counts: Sequence[int], by: By, oldest: float | None) -> None:
    """Simulates each way once, as far ahead as may be, then with smaller windows until the best is fresh enough."""
    job, gpus = ways.job, ways.gpus
    ways.shared([colocated_sync(job, gpus)])
    _tightened(ways, lambda there: ways.shared([colocated_async(there, gpus)]), by, oldest)
    _tightened(ways, lambda there: ways.splits(lambda n: split(there, n, gpus), counts), by, oldest)
    if not any(way.apart for way in permitted(ways.runs, oldest, by)):
        ways.splits(lambda n: split_in_turn(job, n, gpus), counts)


def _tightened(ways: WayRuns, add: Callable[[Scenario], None], by: By, oldest: float | None) -> None:
    """Adds the ways of one kind, of the job with ever smaller windows, until the best of them is fresh enough."""
    # What is on-policy is held against nothing older than one step: that is what a permission would buy.
    target = None if oldest is None else max(oldest, 1.0)
    numbers = _numbers(ways.job, target)
    while numbers:
        before = set(ways.runs)
        add(_numbered(ways.job, numbers[0]))
        new = [way for way in ways.runs if way not in before]
        if not new:
            numbers = numbers[1:]
            continue
        best = min(new, key=lambda way: badness(ways.runs[way][0], by))
        if target is None:
            return
        if age_of(ways.runs[best]) <= target:
            ways.replicate([best])  # one run may show fresher samples than the others
        age = age_of(ways.runs[best]) if best in ways.runs else math.inf
        if age <= target:
            return
        smaller = [n for n in numbers[1:] if n is not None]
        numbers = [n for n in smaller if n <= (numbers[0] or 0.0) * target / age] or smaller[-1:]


def permitted(runs: Simulated, oldest: float | None, by: By) -> Simulated:
    """The ways whose samples are fresh enough; of several windows of one way the best. Empty where none is."""
    found: dict[str, Arrangement] = {}
    for way in runs:
        if oldest is not None and age_of(runs[way]) > oldest:
            continue
        other = found.get(way.label)
        if other is None or badness(runs[way][0], by) < badness(runs[other][0], by):
            found[way.label] = way
    return {way: runs[way] for way in found.values()}


def freshest(runs: Simulated, by: By) -> Simulated:
    """What there is where nothing is fresh enough: the ways of the smallest age."""
    return permitted(runs, min(age_of(found) for found in runs.values()), by)


def worth_a_permission(runs: Simulated, oldest: float | None, least: float, by: By) -> list[tuple[int, Arrangement]]:
    """(steps, way): the best way of each age beyond what is permitted, where it beats all that is fresher.

    least: the badness of what is advised.
    """
    found: list[tuple[int, Arrangement]] = []
    if oldest is None:
        return found
    ages = {way: int(age_of(runs[way])) for way in runs}
    values = {way: sum(badness(run, by) for run in runs[way]) / len(runs[way]) for way in runs}
    for steps in sorted({age for age in ages.values() if age > oldest}):
        best = min((way for way in runs if ages[way] == steps), key=values.__getitem__)
        value = values[best]
        if value < least - _WORTH * abs(least):
            found.append((steps, best))
            least = value
    return found[:_MOST_BOUGHT]


def like(job: Scenario, way: Arrangement, gpus: int) -> Callable[[int], Arrangement]:
    """What makes splits of other counts as far ahead as this one, of the job that it is a way of."""
    if way.kind == "split_sync":
        return lambda instances: split_in_turn(job, instances, gpus)
    there = _numbered(job, number_of(job, way))
    return lambda instances: split(there, instances, gpus)


def number_of(job: Scenario, way: Arrangement) -> float | None:
    """How far ahead a way runs, in what the recipe's law counts: versions or batches; None where it has no number."""
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


def _numbered(job: Scenario, number: float | None) -> Scenario:
    """The job with so many versions or batches ahead."""
    if number is None:
        return job
    batches = law_of(job).budget == "batches"
    return with_changes(job, {_BATCHES: int(number)} if batches else {MAX_STALENESS: number})


def _numbers(job: Scenario, oldest: float | None) -> list[float | None]:
    """How far ahead is tried, the largest first: the recipe's own number, or what may be where that is more."""
    if _fixed(job) or oldest is None:
        return [None]
    law, a, k = law_of(job), job.admission, steps_per_version(job)
    if law.budget == "batches":
        most = max(a.batches_ahead, math.floor(oldest - k + 1))
        return [float(n) for n in range(most, 0, -1)]
    own = 0.0 if law.waits_for_trainer else a.max_staleness
    most = max(own, float(math.floor((oldest + 1) / k - 1)), 0.0 if own else 1.0)
    return [most, *(float(n) for n in range(math.ceil(most) - 1, 0, -1)), *(n for n in _PARTS if n < most)]
