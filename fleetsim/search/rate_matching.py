"""Rate matching: the runbook's first-order arithmetic, which needs no simulation.

Two pools must sustain the same token rate. The trainer consumes `batch tokens / step seconds`; an instance supplies
its nameplate rate; the matched fleet covers consumption with supply derated by a headroom. Two signatures follow: too
few instances leave the trainer idle, too many without a cap grow a backlog of stale samples.

    >>> consumed = consume_tok_s(512 * 1536, 20.0)
    >>> consumed, matched_instances(consumed, 4000.0, headroom=0.8)
    (39321.6, 13)
    >>> round(trainer_idle_fraction(consumed, 8, 4000.0), 4)
    0.1862
    >>> round(queue_growth_tok_s(consumed, 15, 4000.0), 1)
    20678.4

Source: runbook "Rollout fleet sizing and rebalancing", `rollout_sizing.py`. Assumes steady state, one rate for every
instance, no pauses, no tail of long responses: what the simulation adds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

from msgspec import Struct

from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError, Problem, StuckError
from fleetsim.job import nameplate
from fleetsim.job.trainer_scaling import next_count, takes_turns
from fleetsim.job.trials import Trials
from fleetsim.policies.samples import AGE_ACTIONS, IN_FLIGHT
from fleetsim.sim.pools import counted_as_first

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


BACKLOG_WINDOW_S = 600.0
# Far above any fleet; beyond it the plan is refused rather than searched.
MOST_INSTANCES = 1_000_000
# 13 instances that cover the demand exactly must not become 14 through the last bit of a division.
_LAST_BIT = 1e-12
# Supplies this close are the same: the count no longer adds to them.
_SAME = 1e-9


def consume_tok_s(batch_tokens: float, trainer_step_s: float) -> float:
    """Output tokens per second that a trainer consumes which never waits."""
    return batch_tokens / trainer_step_s


def matched_instances(consumed_tok_s: float, instance_tok_s: float, headroom: float = 0.8) -> int:
    """Fewest instances whose derated supply covers the consumption: ceil(consumed / (instance * headroom)).

    headroom in (0, 1]; 0.8 is the runbook's starting default, "not a law".
    """
    return max(1, math.ceil(consumed_tok_s / (instance_tok_s * headroom) * (1.0 - _LAST_BIT)))


def trainer_idle_fraction(consumed_tok_s: float, instances: int, instance_tok_s: float) -> float:
    """Share of the cycle that the trainer waits: 1 - step / max(step, time to produce a batch).

    The batch cancels out: it is 1 - supply / consumption, or 0 when the supply suffices.
    """
    return max(0.0, 1.0 - instances * instance_tok_s / consumed_tok_s)


def queue_growth_tok_s(consumed_tok_s: float, instances: int, instance_tok_s: float) -> float:
    """Tokens per second that pile up unconsumed when nothing caps the generation."""
    return max(0.0, instances * instance_tok_s - consumed_tok_s)


class RateRow(Struct, frozen=True):
    """What the arithmetic says of one count: idle trainer below the match, growing backlog above it."""

    instances: int
    instance_tok_s: float
    trainer_idle_fraction: float
    queue_growth_tok_s: float
    backlog_tokens: float


class RateMatching(Struct, frozen=True):
    """The matched fleet. `rows` are the counts around it; `instance_tok_s` is the rate at the matched count.

    covers: whether its derated supply covers the consumption. Where samples in flight are bounded (a barrier, a window)
    no count may; then it is the count from which more instances supply no more.
    backlog_tokens of a row are what has piled up after BACKLOG_WINDOW_S seconds without a cap.
    """

    instances: int
    consume_tok_s: float
    instance_tok_s: float
    headroom: float
    batch_tokens: float
    trainer_step_s: float
    rows: tuple[RateRow, ...]
    covers: bool = True


def match_rates(
    batch_tokens: float, trainer_step_s: float, instance_tok_s: Callable[[int], float], headroom: float
) -> RateMatching:
    """The matched fleet when an instance's rate depends on how many share the work: `instance_tok_s(instances)`.

    Fleet supply must not fall with the count. Rows run from 60 % of the match to two above it. Raises InputError when
    even MOST_INSTANCES do not cover the demand though every one of them adds to the supply.
    """
    consumed = consume_tok_s(batch_tokens, trainer_step_s)

    def covered(n: int) -> bool:
        return matched_instances(consumed, instance_tok_s(n), headroom) <= n

    covers = covered(MOST_INSTANCES)
    supply = (1.0 - _SAME) * MOST_INSTANCES * instance_tok_s(MOST_INSTANCES)
    if not covers and MOST_INSTANCES // 2 * instance_tok_s(MOST_INSTANCES // 2) < supply:
        rule = f"the trainer consumes more than {MOST_INSTANCES:,} instances supply"
        remedy = "check the batch, the lengths and the trainer's seconds per step"
        raise InputError([Problem("trainer", f"{consumed:,.0f} tok/s", rule, remedy)])
    matched = smallest(covered if covers else lambda n: n * instance_tok_s(n) >= supply, 1, MOST_INSTANCES)
    assert matched is not None  # the most hold
    fewest = max(1, math.ceil(0.6 * matched))
    counts = sorted({*range(fewest, min(fewest + 3, matched)), *range(max(fewest, matched - 5), matched + 3)})
    return RateMatching(
        instances=matched,
        consume_tok_s=consumed,
        instance_tok_s=instance_tok_s(matched),
        headroom=headroom,
        batch_tokens=batch_tokens,
        trainer_step_s=trainer_step_s,
        rows=tuple(_row(n, consumed, instance_tok_s(n)) for n in counts),
        covers=covers,
    )


def _row(instances: int, consumed: float, rate: float) -> RateRow:
    growth = queue_growth_tok_s(consumed, instances, rate)
    return RateRow(
        instances=instances,
        instance_tok_s=rate,
        trainer_idle_fraction=trainer_idle_fraction(consumed, instances, rate),
        queue_growth_tok_s=growth,
        backlog_tokens=growth * BACKLOG_WINDOW_S,
    )


def matched(job: Scenario) -> tuple[RateMatching, int]:
    """The rates of a job, matched, and the count that a search starts from: where none covers the demand on paper, that
    of instances that are full; where both take turns on the same GPUs, the job's own. Raises InputError as
    `match_rates`."""
    rate_of = nameplate.nameplate_rate(job)
    tokens = job.trainer.batch_samples * nameplate.mean_output_tokens(job)
    rate = match_rates(tokens, nameplate.trainer_step_s(job), rate_of, job.targets.headroom)
    if takes_turns(job):
        return rate, job.fleet.instances
    full = matched_instances(rate.consume_tok_s, rate_of(1), rate.headroom)
    start = rate.instances if rate.covers else min(full, rate.instances)
    return rate, max(1, start - round(counted_as_first(job)))
