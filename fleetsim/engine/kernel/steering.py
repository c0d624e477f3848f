"""How full the caches are at a moment, and the law that follows them: adaptive concurrency (prime-rl's AIMD).

The law looks at the fullest instance in every `steer_every` seconds, for the whole run. The looks are made here, not
by the run's own processes: there is one for each simulated second, and hardly any of them changes anything.
"""

from __future__ import annotations

from fleetsim.engine.kernel.addresses import fleet_at, instance_at, pool_at
from fleetsim.engine.kernel.growth import grown
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
def may_exceed(fleet: int, i: int, most: int, t: float) -> bool:
    """Whether instance i may have more than `most` blocks in use at t: no, if its jump could not take so many by then,
    were all its iterations as short as the first. That is quicker to see than how many it has."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    used = pool_at(w.pools, instance.pool).kv_blocks - instance.free
    if instance.kind != JUMP:
        return used > most
    k = instance.k
    if instance.first_s > 0.0:
        k = min(k, int((t - instance.t0) / instance.first_s) + 1)
    return used + (grown(fleet, i, k) // w.block_size + 1) * instance.growing > most


@compiled
def fullest(fleet: int, t: float) -> float:
    """Share of its KV blocks in use at t on the fullest instance that is up."""
    w = fleet_at(fleet, 0)
    most = 0.0
    for i in range(w.n_instances):
        instance = instance_at(w.instances, i)
        kv_blocks = pool_at(w.pools, instance.pool).kv_blocks
        if instance.kind != DOWN and may_exceed(fleet, i, int(most * kv_blocks), t):
            most = max(most, blocks_on(fleet, i, t) / kv_blocks)
    return most


@compiled
def steer(fleet: int) -> bool:
    """One look, now: moves the cap of samples in flight. True: the youngest groups are to be cancelled as well.

    The pool grows when it is full, but only after as many samples have finished as it holds. It becomes in flight x
    target / use when an engine is too full; nothing new starts until no more than that are in flight.
    """
    w = fleet_at(fleet, 0)
    w.steer_s += w.steer_every
    use = fullest(fleet, w.now)
    size = w.steer_group
    if use > w.trim_above:
        w.steer_pool = max(float(size), min(w.steer_pool, w.in_flight * w.steer_target / use))
    elif (
        use < w.grow_below
        and (w.completed_groups - w.steer_turned) * size >= w.steer_pool
        and w.in_flight > w.steer_pool - size
    ):
        w.steer_pool = min(w.steer_pool * w.steer_grow, w.steer_most)
        w.steer_turned = w.completed_groups
    w.cap = max(size, int(w.steer_pool))
    return use > w.trim_above and use > w.cancel_above
