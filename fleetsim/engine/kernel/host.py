"""The host's copies of the KV cache: one more number of each prefix row, and a list of the rows by age.

What is computed is copied to the host's memory at once (vLLM's OffloadingConnector, SGLang's hierarchical cache with
`write_through`), so of all that running requests hold the host has a copy too. Of what no running request reads, each
row of prefixes says how many blocks the host still holds; where room is needed, the row goes first that was read or
written longest ago, its last block first. A row that is read again leaves the list: it counts as what runs.

Copying to the host takes no time here: the link carries both ways at once, and new tokens are few for it. What is
copied back does (`loads.py`). The last block of a running request counts as one even while it is not full.
Source: vllm-project/vllm, vllm/v1/kv_offload/cpu/manager.py and policies/lru.py; vllm/distributed/kv_transfer/
kv_connector/v1/offloading/scheduler.py; sgl-project/sglang, python/sglang/srt/mem_cache/hiradix_cache.py.
"""

from __future__ import annotations

from fleetsim.engine.kernel.addresses import fleet_at, instance_at, pool_at, prefix_at
from fleetsim.engine.kernel.jit import compiled


@compiled
def beyond(fleet: int, i: int) -> int:
    """Blocks that the host of instance i would have to hold beyond those that it can; negative: it has room."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    pool = pool_at(w.pools, instance.pool)
    return instance.host_used + pool.kv_blocks - instance.free - pool.host_blocks


@compiled
def on_host(fleet: int, i: int, p: int) -> int:
    """Blocks of prefix row p, from its first on, that the host of instance i holds: all of what running requests read,
    as long as it has room for that."""
    w = fleet_at(fleet, 0)
    if p < 0:
        return 0
    row = prefix_at(w.prefixes, p)
    if row.instance != i or row.epoch != instance_at(w.instances, i).epoch:
        return 0
    if row.holders > 0:
        return row.blocks if beyond(fleet, i) <= 0 else 0
    return row.host


@compiled
def take_out(fleet: int, i: int, p: int) -> None:
    """Row p leaves the list: it is read, or written anew."""
    w = fleet_at(fleet, 0)
    row = prefix_at(w.prefixes, p)
    instance = instance_at(w.instances, i)
    if row.host > 0 and row.epoch == instance.epoch:  # else it went with its list
        instance.host_used -= row.host
        if row.older >= 0:
            prefix_at(w.prefixes, row.older).newer = row.newer
        else:
            instance.host_oldest = row.newer
        if row.newer >= 0:
            prefix_at(w.prefixes, row.newer).older = row.older
        else:
            instance.host_newest = row.older
    row.host = 0


@compiled
def make_room_on_host(fleet: int, i: int) -> None:
    """The oldest copies go, block by block, until the others and what runs fit."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.host_epoch != instance.epoch:  # the weights have changed: nothing there may be read
        instance.host_epoch = instance.epoch
        instance.host_used = 0
        instance.host_oldest = -1
        instance.host_newest = -1
    while instance.host_oldest >= 0:
        over = beyond(fleet, i)
        if over <= 0:
            break
        p = instance.host_oldest
        row = prefix_at(w.prefixes, p)
        if over >= row.host:
            take_out(fleet, i, p)
        else:
            row.host -= over
            instance.host_used -= over


@compiled
def put(fleet: int, i: int, p: int, n: int) -> None:
    """The first n blocks of row p, which nobody reads any more, are the newest copy on the host."""
    w = fleet_at(fleet, 0)
    if p < 0 or n <= 0:
        return
    make_room_on_host(fleet, i)
    take_out(fleet, i, p)
    row = prefix_at(w.prefixes, p)
    instance = instance_at(w.instances, i)
    if row.epoch != instance.epoch:  # what the engine itself knew of it is of former weights
        row.epoch = instance.epoch
        row.blocks = 0
    row.host = n
    row.older = instance.host_newest
    row.newer = -1
    if row.older >= 0:
        prefix_at(w.prefixes, row.older).newer = p
    else:
        instance.host_oldest = p
    instance.host_newest = p
    instance.host_used += n
    make_room_on_host(fleet, i)
