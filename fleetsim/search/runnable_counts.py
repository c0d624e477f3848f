"""Counts with which the job does not get stuck: where a search starts, how far it may go, and the one after it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from fleetsim.config.scenario import Scenario
from fleetsim.errors import StuckError
from fleetsim.job.trainer_scaling import next_count
from fleetsim.job.trials import Trials
from fleetsim.policies.samples import AGE_ACTIONS, IN_FLIGHT

# --- The smallest count that holds, or the nearest: gallop, then bisect, asking as rarely as possible.


def smallest(holds: Callable[[int], bool], start: int, most: int, *, stride: int = 1) -> int | None:
    """The smallest n in 1..most with `holds(n)`, which must be false below some count and true from there on.

    Starts at `start` and goes up or down by `stride`, which doubles, until the answer lies between two counts.
    Downwards the first two steps are of one stride, because a small fleet takes longer to simulate than a large one.
    Where `most` fails the answer is None.
    `holds` should remember its answers, because a count may be asked for twice.
    """
    start = min(max(1, start), most)
    if holds(start):
        low, high, step = start, start, stride
        while low > 1 and holds(low):
            high, low, step, stride = low, max(1, low - step), stride, stride * 2
        if low == 1 and holds(1):
            return 1
    else:
        low, high = start, start
        while True:
            if high == most:
                return None
            low, high, stride = high, min(most, high + stride), stride * 2
            if holds(high):
                break
    # low fails, high holds.
    return low + 1 + bisect_left(range(low + 1, high), True, key=holds)


def nearest(holds: Callable[[int], bool], inside: int, wanted: int) -> int:
    """The count nearest to `wanted` that holds, between it and `inside`, which does; by bisection."""
    while abs(wanted - inside) > 1:
        middle = (inside + wanted) // 2
        if holds(middle):
            inside = middle
        else:
            wanted = middle
    return inside


# Replications of the look; what gets stuck in a later one is found by whoever makes it.
_ONCE = 1


def may_stop(scenario: Scenario) -> bool:
    """Whether the job has a limit at which one run may stop for good and another not (`sim/deadlock.py` tells them). A
    law that lets too little start stops every run."""
    in_flight = IN_FLIGHT[scenario.sync.in_flight]
    return (
        scenario.buffer.capacity_samples is not None
        or AGE_ACTIONS[scenario.admission.age_action].limits_age
        or in_flight.drains
        or in_flight.discards
        or scenario.workload.filter.zero_variance_share > 0.0
        or scenario.stations.reward.workers is not None
    )


def look_at_next(trials: Trials, instances: int, replications: int) -> None:
    """Looks at the next larger fleet in each replication, where a run may stop for good: what stops it in one of them
    is known then, though no long run of it was needed."""
    if not trials.simulates or may_stop(trials.scenario):
        trials.looks.at(next_count(trials.scenario, instances), replications)


def nearest_that_runs(trials: Trials, counts: Sequence[int], guess: int) -> int:
    """The index of the count nearest to the one at `guess` that does not get stuck: beside it, then farther away by
    doubling distances. counts: ascending. Raises StuckError when none of them runs."""
    distances = [0, *(sign << i for i in range(len(counts).bit_length()) for sign in (1, -1))]
    beside = (i for d in distances if 0 <= (i := guess + d) < len(counts))
    for i in (*beside, 0, len(counts) - 1):
        if trials.at(counts[i], _ONCE).stuck is None:
            return i
    tried = ", ".join(f"{n:,}" for n in sorted(trials.stuck))
    error = trials.stuck[counts[-1]]
    raise StuckError(f"no fleet can run this job (instances tried: {tried}): {error.what}", error.limits)


def largest_that_runs(trials: Trials, counts: Sequence[int], start: int) -> int:
    """The index of a count that does not get stuck: the largest that is found by halving the way from `start`, which
    does not get stuck either."""
    most = len(counts) - 1
    while trials.at(counts[most], _ONCE).stuck is not None:
        most = (start + most) // 2
    return most
