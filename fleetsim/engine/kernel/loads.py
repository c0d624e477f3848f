"""What a request finds on the host, and how it comes back: beside the iterations (vLLM) or within one (SGLang).

vLLM gives the request its blocks and lets it wait, without holding up those behind it; copies come one after the other.
The next iteration after its own has come computes the rest. SGLang copies layer by layer while it computes the batch
that the request is in, which therefore takes no less than the copies.

Blocks that vLLM's waiting requests will need are not given to other requests that come from the host, lest all of
them wait for each other.
"""

from __future__ import annotations

import math

from fleetsim.engine.kernel.addresses import (
    fleet_at,
    float_at,
    group_at,
    instance_at,
    pool_at,
    prefix_at,
    put_float,
    sample_at,
)
from fleetsim.engine.kernel.blocks import context, group_part, hold_found, publish, system_part, take, units, units_of
from fleetsim.engine.kernel.host import make_room_on_host, on_host
from fleetsim.engine.kernel.instance import EPSILON
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.tables import VLLM


@compiled
def group_row(fleet: int, i: int, s: int) -> int:
    """The prefix row of the request's group on instance i that was written last, readable or not; -1: none."""
    w = fleet_at(fleet, 0)
    p = group_at(w.groups, sample_at(w.samples, s).group).prefixes
    while p >= 0 and prefix_at(w.prefixes, p).instance != i:
        p = prefix_at(w.prefixes, p).next
    return p


@compiled
def behind(fleet: int, i: int, s: int, found: int) -> int:
    """Full blocks that the host holds behind the first `found` of the request."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    make_room_on_host(fleet, i)
    system, group = system_part(fleet, s), group_part(fleet, s)
    own = (context(fleet, s) - 1) // w.block_size - system - group
    shared = group_row(fleet, i, s) if group > 0 else -1
    at = 0
    for part, p in ((system, instance_at(w.instances, i).system), (group, shared), (own, S.turn_cache)):
        here = min(part, on_host(fleet, i, p))
        if max(at + here, found) < at + part:
            return max(0, at + here - found)
        at += part
    return max(0, at - found)


@compiled
def begin_load(fleet: int, i: int, s: int, found: int, unread: int, n: int) -> None:
    """The request takes what it found in the cache, and room for n blocks behind it, which come from the host."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    instance = instance_at(w.instances, i)
    hold_found(fleet, i, s)
    take(fleet, i, unread + units(fleet, found + n) - units(fleet, found))
    S.computed = (found + n) * w.block_size
    if found + n >= system_part(fleet, s) + group_part(fleet, s):
        publish(fleet, i, s)
    instance.host_tokens += n * w.block_size
    instance.loading += 1
    instance.reserved += lacks(fleet, s)
    seconds = n * pool_at(w.pools, instance.pool).load_block_s
    if w.scheduler == VLLM:
        instance.link_s = max(instance.link_s, instance.t0) + seconds
        put_float(w.loaded_s, s, instance.link_s)
    else:
        instance.load_s += seconds


@compiled
def lacks(fleet: int, s: int) -> int:
    """Blocks that a request whose cache comes from the host will need beside it."""
    return units_of(fleet, context(fleet, s)) - units_of(fleet, sample_at(fleet_at(fleet, 0).samples, s).computed)


@compiled
def end_load(fleet: int, i: int, s: int) -> None:
    """The request no longer waits with what has come from the host."""
    w = fleet_at(fleet, 0)
    instance_at(w.instances, i).loading -= 1
    instance_at(w.instances, i).reserved -= lacks(fleet, s)


@compiled
def under_way(fleet: int, i: int, s: int) -> bool:
    """Whether blocks of a waiting request are still on their way."""
    w = fleet_at(fleet, 0)
    t = instance_at(w.instances, i).t0
    return float_at(w.loaded_s, s) > t + EPSILON * (1.0 + abs(t))


@compiled
def next_load(fleet: int, i: int) -> float:
    """When blocks of the next waiting request have come from the host; never, where none are on their way."""
    w = fleet_at(fleet, 0)
    left = instance_at(w.instances, i).loading
    s = instance_at(w.instances, i).wait_head
    first = math.inf
    while left > 0:
        S = sample_at(w.samples, s)
        if S.computed > 0:
            left -= 1
            if under_way(fleet, i, s):
                first = min(first, float_at(w.loaded_s, s))
        s = S.next
    return first
