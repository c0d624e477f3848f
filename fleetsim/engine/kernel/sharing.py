"""When a prompt becomes readable for others: in vLLM as soon as it has blocks, elsewhere when it has been computed.

TensorRT-LLM announces a row when its first request starts and lets siblings wait for it. SGLang's requests of one batch
know nothing of each other: each computes the prompt, and all but the first give their copy up afterwards.
"""

from __future__ import annotations

from fleetsim.engine.kernel.addresses import fleet_at, group_at, instance_at, prefix_at, sample_at
from fleetsim.engine.kernel.blocks import alive, group_part, group_prefix, publish, read, system_part
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.tables import TENSORRT


@compiled
def being_computed(fleet: int, i: int, p: int) -> bool:
    """Whether some request is computing prefix row p on instance i right now."""
    w = fleet_at(fleet, 0)
    if p < 0:
        return False
    row = prefix_at(w.prefixes, p)
    return row.instance == i and row.holders > 0 and row.epoch == -1 - instance_at(w.instances, i).epoch


@compiled
def worth_waiting(fleet: int, i: int, s: int) -> bool:
    """Whether the first block that the request lacks is being computed by another one."""
    w = fleet_at(fleet, 0)
    if w.caching == 0:
        return False
    if system_part(fleet, s) > 0:
        p = instance_at(w.instances, i).system
        if not alive(fleet, i, p):
            return being_computed(fleet, i, p)
    if group_part(fleet, s) > 0 and group_prefix(fleet, i, s) < 0:
        p = group_at(w.groups, sample_at(w.samples, s).group).prefixes
        while p >= 0:
            if being_computed(fleet, i, p):
                return True
            p = prefix_at(w.prefixes, p).next
    return False


@compiled
def announce(fleet: int, i: int, s: int) -> None:
    """TensorRT-LLM: what the request will add to the cache is known at once, and readable at the end of its prompt."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    system, shared = S.system, S.shared
    publish(fleet, i, s)
    if system < 0 and S.system >= 0:
        prefix_at(w.prefixes, S.system).epoch = -1 - prefix_at(w.prefixes, S.system).epoch
    if shared < 0 and S.shared >= 0:
        prefix_at(w.prefixes, S.shared).epoch = -1 - prefix_at(w.prefixes, S.shared).epoch


@compiled
def join(fleet: int, i: int, p: int) -> None:
    """A request that computed what row p holds reads the row from now on; its own copy is freed."""
    w = fleet_at(fleet, 0)
    row = prefix_at(w.prefixes, p)
    if row.holders > 0:  # else the row's blocks leave the free list as the copy enters it
        instance_at(w.instances, i).free += row.units
    read(fleet, i, p)


@compiled
def prompt_done(fleet: int, i: int, s: int) -> None:
    """SGLang and TensorRT-LLM: a prompt enters the prefix cache when it has been computed, not when it is planned."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if w.caching == 0:
        return
    if w.scheduler == TENSORRT:
        for p in (S.system, S.shared):
            if p >= 0 and prefix_at(w.prefixes, p).epoch < 0:
                prefix_at(w.prefixes, p).epoch = -1 - prefix_at(w.prefixes, p).epoch
        return
    if instance_at(w.instances, i).planned != instance_at(w.instances, i).epoch:
        return  # the cache was flushed while the prompt was computed
    p = instance_at(w.instances, i).system
    if system_part(fleet, s) > 0 and S.system < 0 and alive(fleet, i, p):
        join(fleet, i, p)
        S.system = p
    if group_part(fleet, s) > 0 and S.shared < 0:
        p = group_prefix(fleet, i, s)
        if p >= 0:
            join(fleet, i, p)
            S.shared = p
    publish(fleet, i, s)
