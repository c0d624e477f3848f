"""TensorRT-LLM's scheduler: in-flight batching under a capacity policy.

Like vLLM's, but for three things. Under `guaranteed_no_evict` (the default) a request is admitted only when its
longest possible output fits beside those of all running ones, so nothing is ever preempted; under `max_utilization`
the last started are paused, as in vLLM. A request whose first missing block is just being computed by another one is
passed over, so that it finds the block in the next iteration. A prompt is cut at block boundaries.

Source: NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py (`GuaranteedNoEvictPolicy`,
`MaxUtilizationPolicy`, `PyCapacityScheduler._beneficial_to_skip`, `PyMicroBatchScheduler`). Chunked context is on and
first come, first served.
"""

from __future__ import annotations

from fleetsim.engine.kernel.addresses import fleet_at, instance_at, pool_at, sample_at
from fleetsim.engine.kernel.batch import chunk_of, continue_partial, make_room, run_decodes, run_step, start
from fleetsim.engine.kernel.blocks import blocks, context, look_up, take
from fleetsim.engine.kernel.growth import decode_tokens
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.sharing import announce, worth_waiting
from fleetsim.engine.kernel.tables import BROUGHT


@compiled
def blocks_at_most(fleet: int, s: int) -> int:
    """Blocks of the request when its output is as long as the client allows, and drafts go beyond its end."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    return blocks(S.prompt + S.extra + w.most_output + max(0, w.most_drafts - 2), w.block_size)


@compiled
def unpromised(fleet: int, i: int) -> int:
    """Free blocks that no running request may come to need."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    spare = instance.free
    s = instance.head
    while s >= 0:
        S = sample_at(w.samples, s)
        held = S.computed
        if s != instance.partial:
            held = S.prompt + S.extra + S.goal - (S.end_count - instance.count) - 1
        spare -= blocks_at_most(fleet, s) - blocks(held, w.block_size)
        s = S.next
    return spare


@compiled
def plan_tensorrt(fleet: int, i: int) -> None:
    """Running requests first, then those of the waiting ones that the capacity policy admits, in order."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    size = w.block_size
    pool = pool_at(w.pools, instance.pool)
    admitting = instance.waiting > 0 and instance.running < pool.max_num_seqs
    spare = unpromised(fleet, i) if w.no_evict == 1 and admitting else 0
    chunk, need_partial, need, preempted = make_room(fleet, i)
    prefill = chunk
    pairs = continue_partial(fleet, i, chunk, need_partial)
    budget = pool.max_tokens - decode_tokens(fleet, i) - chunk
    take(fleet, i, need)
    s = instance.wait_head if admitting and not preempted and instance.partial < 0 else -1
    while s >= 0 and budget > 0 and instance.running < pool.max_num_seqs:
        following = sample_at(w.samples, s).next
        if sample_at(w.samples, s).side == BROUGHT:
            break
        if worth_waiting(fleet, i, s):
            s = following
            continue
        length = context(fleet, s)
        found, unread = look_up(fleet, i, s)
        more = unread - found + w.state_blocks
        if w.no_evict == 1:
            more += blocks_at_most(fleet, s)
            if more > spare and instance.running > 0:
                break
            spare -= more
        elif more + blocks(length, size) > instance.free:
            break
        chunk = chunk_of(fleet, length - found * size, budget)
        if chunk == 0:
            break
        pairs += start(fleet, i, s, instance.t0, chunk, found, unread)
        announce(fleet, i, s)
        prefill += chunk
        budget -= chunk
        if instance.partial >= 0:
            break
        s = following
    if prefill > 0:
        run_step(fleet, i, instance.t0, instance.decodes, prefill, pairs)
        return
    take(fleet, i, -need)
    run_decodes(fleet, i, instance.t0, preempted)
