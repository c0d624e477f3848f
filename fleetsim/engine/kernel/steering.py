"""How full the caches are at a moment, and the law that follows them: adaptive concurrency (prime-rl's AIMD).

The law looks at the fullest instance in every `steer_every` seconds, for the whole run. The looks are made here, not
by the run's own processes: there is one for each simulated second, and hardly any of them changes anything. So no look
goes through the instances before one of them may be too full (`calm_s`), nor while one is known to be full enough that
the pool does not grow (`some_full`).
"""

from __future__ import annotations

import math

from fleetsim.engine.kernel.addresses import fleet_at, instance_at, pool_at
from fleetsim.engine.kernel.growth import grown, iterations_for
from fleetsim.engine.kernel.instance import EPSILON, blocks_needed, elapsed, iterations_until
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.tables import ACC_OFF, DOWN, JUMP


@compiled
def blocks_on(fleet: int, i: int, t: float) -> int:
    """KV blocks in use at t on instance i; none if it is off.

    A jump takes its blocks when it lands; those of the iterations that it has done by t are counted here.
    """
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.account == ACC_OFF:
        return 0
    used = pool_at(w.pools, instance.pool).kv_blocks - instance.free
    if instance.kind == JUMP:
        k = iterations_until(fleet, i, t)
        if k > 0 and instance.t0 + elapsed(fleet, i, k) > t + EPSILON * (1.0 + abs(t)):
            k -= 1
        used += blocks_needed(fleet, i, grown(fleet, i, k))
    return used


@compiled
def calm_until(fleet: int, i: int) -> float:
    """When instance i may first have more blocks in use than those at which the pool is trimmed, as far as its plan
    goes: with as many more as its decodes take at most, a whole block of each ahead."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    kv_blocks = pool_at(w.pools, instance.pool).kv_blocks
    left = int(w.trim_above * kv_blocks * (1.0 - EPSILON)) - (kv_blocks - instance.free)
    if instance.kind == DOWN:
        return math.inf
    if left < 0:
        return 0.0
    if instance.kind != JUMP or (grown(fleet, i, instance.k) // w.block_size + 1) * instance.growing <= left:
        return math.inf
    k = iterations_for(fleet, i, left // instance.growing * w.block_size)
    return instance.t0 + elapsed(fleet, i, max(0, k - 1))


@compiled
def watch_plan(fleet: int, i: int) -> None:
    """An instance has been planned: no look may miss that it becomes too full."""
    w = fleet_at(fleet, 0)
    if w.steer_every > 0.0 and w.calm_s > 0.0:
        w.calm_s = min(w.calm_s, calm_until(fleet, i))


@compiled
def use_of(fleet: int, i: int, t: float) -> float:
    """Share of its KV blocks in use at t on instance i; 0 if it is down."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    return 0.0 if instance.kind == DOWN else blocks_on(fleet, i, t) / pool_at(w.pools, instance.pool).kv_blocks


@compiled
def fullest(fleet: int, t: float) -> float:
    """Share of its KV blocks in use at t on the fullest instance that is up."""
    w = fleet_at(fleet, 0)
    most = 0.0
    w.calm_s = math.inf
    for i in range(w.n_instances):
        most = max(most, use_of(fleet, i, t))
        w.calm_s = min(w.calm_s, calm_until(fleet, i))
    return most


@compiled
def some_full(fleet: int, t: float) -> bool:
    """Whether any instance is too full at t for the pool to grow: first the one that was so at the last look."""
    w = fleet_at(fleet, 0)
    for _ in range(w.n_instances):
        if use_of(fleet, w.full, t) >= w.grow_below:
            return True
        w.full = (w.full + 1) % w.n_instances
    return False


@compiled
def steer(fleet: int) -> bool:
    """One look, now: moves the cap of samples in flight. True: the youngest groups are to be cancelled as well.

    The pool grows when it is full, but only after as many samples have finished as it holds. It becomes in flight x
    target / use when an engine is too full; nothing new starts until no more than that are in flight.
    """
    w = fleet_at(fleet, 0)
    w.steer_s += w.steer_every
    size = w.steer_group
    wanted = (w.completed_groups - w.steer_turned) * size >= w.steer_pool and w.in_flight > w.steer_pool - size
    use = fullest(fleet, w.now) if w.now >= w.calm_s else 0.0
    if use > w.trim_above:
        w.steer_pool = max(float(size), min(w.steer_pool, w.in_flight * w.steer_target / use))
    elif wanted and not some_full(fleet, w.now):
        w.steer_pool = min(w.steer_pool * w.steer_grow, w.steer_most)
        w.steer_turned = w.completed_groups
    w.cap = max(size, int(w.steer_pool))
    return use > w.trim_above and use > w.cancel_above
