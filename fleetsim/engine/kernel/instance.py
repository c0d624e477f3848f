"""One engine instance in time: its accounts, its next event, and the arithmetic of many decode iterations at once.

Which requests an iteration holds is `plan.py`'s, what planned iterations bring is `landing.py`'s.
"""

from __future__ import annotations

import math

from fleetsim.engine.kernel.addresses import (
    fleet_at,
    float_at,
    instance_at,
    int32_at,
    line_at,
    log_at,
    put_float,
    put_int32,
)
from fleetsim.engine.kernel.growth import grown, iterations_within, set_growth
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.tables import ACCOUNTS, JUMP
from fleetsim.engine.kernel.trees import tree_set

# Two clocks that agree to this share are one: sums of the same seconds in another order differ by rounding only.
EPSILON = 1e-12


@compiled
def account(fleet: int, i: int, to: int, t: float) -> None:
    """Closes the instance's current GPU-second account at t and opens another; logs it where accounts are logged."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    seconds = line_at(w.accounts, i, ACCOUNTS * 8)
    put_float(seconds, instance.account, float_at(seconds, instance.account) + (t - instance.since))
    instance.account = to
    instance.since = t
    if w.cap_log > 0 and i < w.n_instances:
        if w.n_log < w.cap_log:
            row = log_at(w.log, w.n_log)
            row.time_s = t
            row.instance = i
            row.account = to
        w.n_log += 1


@compiled
def set_next(fleet: int, i: int, t: float) -> None:
    """The instance's next event."""
    w = fleet_at(fleet, 0)
    tree_set(w.clock, w.half, i, t)


@compiled
def mark(fleet: int, i: int, t: float) -> None:
    """The instance is at a boundary at time t and wants a plan."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.dirty == 0:
        instance.dirty = 1
        instance.t0 = t
        put_int32(w.dirty, w.n_dirty, i)
        w.n_dirty += 1


@compiled
def residues_of(fleet: int, i: int) -> int:
    """Address of the blocks that the instance's decodes take, counted by the token with which they next need them."""
    w = fleet_at(fleet, 0)
    return line_at(w.residues, i, w.block_size * 4)


@compiled
def blocks_needed(fleet: int, i: int, k: int) -> int:
    """Blocks that all decodes together take for their next k tokens."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    size = w.block_size
    n = (k // size) * instance.growing
    at = (-instance.count) % size  # counts down: divisions take longer than all else here
    for _ in range(k % size):
        n += int32_at(residues_of(fleet, i), at)
        at = at - 1 if at > 0 else size - 1
    return n


@compiled
def blocks_now(fleet: int, i: int) -> int:
    """Blocks that all decodes together take in the next iteration."""
    w = fleet_at(fleet, 0)
    if w.speculates == 1:
        set_growth(fleet, i)
        return blocks_needed(fleet, i, grown(fleet, i, 1))
    return int32_at(residues_of(fleet, i), (-instance_at(w.instances, i).count) % w.block_size)


@compiled
def iterations_that_fit(fleet: int, i: int, most: int) -> int:
    """The largest number of iterations up to `most` whose new blocks are free.

    At least one: where drafts bring a request past its end, the only one that runs goes over the blocks there are.
    """
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    size = w.block_size
    tokens = grown(fleet, i, most)
    # Most often even whole cycles fit: then nothing has to be counted.
    if (tokens // size + 1) * instance.growing <= instance.free:
        return most
    if instance.growing == 0 or blocks_needed(fleet, i, tokens) <= instance.free:
        return most
    cycles = instance.free // instance.growing
    k = cycles * size
    left = instance.free - cycles * instance.growing
    while True:
        crossing = int32_at(residues_of(fleet, i), (-instance.count - k) % size)
        if crossing > left:
            return max(1, iterations_within(fleet, i, k))
        left -= crossing
        k += 1


@compiled
def elapsed(fleet: int, i: int, k: int) -> float:
    """Seconds of the first k iterations of the current jump: k * first + slope * k (k - 1) / 2."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    return k * instance.first_s + instance.slope_s * 0.5 * k * (k - 1.0)


@compiled
def iterations_until(fleet: int, i: int, t: float) -> int:
    """Iterations of the current jump after which its boundary lies at or after t."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    span = t - instance.t0 - EPSILON * (1.0 + abs(t))
    if span <= 0.0:
        return 0
    a = 0.5 * instance.slope_s
    b = instance.first_s - a
    if a > 0.0:
        k = int(2.0 * span / (b + math.sqrt(b * b + 4.0 * a * span)))
    elif b > 0.0:
        k = int(span / b)
    else:
        return instance.k
    k = max(0, min(k - 1, instance.k))
    while k < instance.k and elapsed(fleet, i, k) < span:
        k += 1
    return k


@compiled
def cut(fleet: int, i: int, t: float) -> None:
    """Ends the current jump at its first boundary at or after t. A step of one iteration ends by itself."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.kind == JUMP:
        k = iterations_until(fleet, i, t)
        if k < instance.k:
            instance.k = k
            set_next(fleet, i, instance.t0 + elapsed(fleet, i, k))
