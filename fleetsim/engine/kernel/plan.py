"""What an instance does next, decided at an iteration boundary by the scheduler of the engine that it is.

A request whose prompt was computed elsewhere begins to decode: it takes room for its cache, and no iteration.
"""

from __future__ import annotations

from fleetsim.engine.kernel.addresses import fleet_at, instance_at, pool_at, sample_at
from fleetsim.engine.kernel.batch import chunk_of, continue_partial, make_room, run_decodes, run_step, start
from fleetsim.engine.kernel.blocks import blocks, context, hold_found, look_up, publish, take, units, units_of
from fleetsim.engine.kernel.growth import decode_tokens
from fleetsim.engine.kernel.instance import blocks_now
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.loads import begin_load, behind, under_way
from fleetsim.engine.kernel.members import begin_to_run, join_decodes
from fleetsim.engine.kernel.prompts import plan_prompts
from fleetsim.engine.kernel.sglang import plan_sglang
from fleetsim.engine.kernel.steering import watch_plan
from fleetsim.engine.kernel.tables import BROUGHT, DECODING, SGLANG, TENSORRT, VLLM
from fleetsim.engine.kernel.tensorrt import blocks_at_most, plan_tensorrt, unpromised


@compiled
def plan_vllm(fleet: int, i: int) -> None:
    """Running requests first, then waiting ones, first in first out, out of one token budget.

    Source: vllm-project/vllm, vllm/v1/core/sched/scheduler.py, `Scheduler.schedule`.
    """
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    size = w.block_size
    pool = pool_at(w.pools, instance.pool)
    p = instance.partial
    chunk, need_partial, need, preempted = make_room(fleet, i)
    prefill = chunk
    pairs = continue_partial(fleet, i, chunk, need_partial)
    if instance.fresh >= 0:
        publish(fleet, i, p)
    budget = pool.max_tokens - decode_tokens(fleet, i) - chunk
    take(fleet, i, need)  # the decodes are served first
    s = -1 if preempted and instance.running > 0 else instance.wait_head
    full = False
    left = instance.loading if w.hosts == 1 else 0
    while s >= 0 and budget > 0 and instance.running < pool.max_num_seqs and not (full and left == 0):
        S = sample_at(w.samples, s)
        following = S.next
        if S.side == BROUGHT:
            break
        comes = w.hosts == 1 and S.computed > 0
        if comes:
            left -= 1
            if under_way(fleet, i, s):
                s = following
                continue
        elif full:
            s = following
            continue
        length = context(fleet, s)
        found, unread = (S.computed // size, 0) if comes else look_up(fleet, i, s)
        more = units_of(fleet, length) - units(fleet, found) + unread + w.state_blocks
        if w.hosts == 1 and not comes:
            more += instance.reserved
        if more > instance.free:
            full = True  # what comes from the host holds blocks: it may start all the same
            s = following
            continue
        n = behind(fleet, i, s, found) if w.hosts == 1 and not comes else 0
        if n > 0:
            begin_load(fleet, i, s, found, unread, n)
            if under_way(fleet, i, s):
                s = following
                continue
            found, unread = found + n, 0
        chunk = chunk_of(fleet, length - found * size, budget)
        pairs += start(fleet, i, s, instance.t0, chunk, found, unread)
        prefill += chunk
        budget -= chunk
        if instance.partial >= 0:
            break
        publish(fleet, i, s)
        s = following
    if prefill > 0:
        run_step(fleet, i, instance.t0, instance.decodes, prefill, pairs)
        return
    take(fleet, i, -need)  # a jump takes the blocks of all its iterations when it lands
    run_decodes(fleet, i, instance.t0, preempted)


@compiled
def plan(fleet: int, i: int) -> None:
    """Schedules one iteration at the boundary t0, and as many more as are alike."""
    w = fleet_at(fleet, 0)
    if i >= w.n_instances:
        plan_prompts(fleet, i)
        return
    if w.prefills > 0:
        bring_in(fleet, i)
    if w.scheduler == VLLM:
        plan_vllm(fleet, i)
    elif w.scheduler == SGLANG:
        plan_sglang(fleet, i)
    else:
        plan_tensorrt(fleet, i)
    watch_plan(fleet, i)


# SGLang keeps room for so many tokens of every request that decodes (`--num-reserved-decode-tokens`).
RESERVED_TOKENS = 512


@compiled
def has_room(fleet: int, i: int, s: int, more: int) -> bool:
    """Whether a request that takes `more` blocks now may begin; alone it always may.

    vLLM: beside the next iteration of all. SGLang: beside RESERVED_TOKENS of each (disaggregation/decode.py,
    `DecodePreallocQueue`). TensorRT-LLM: by its capacity policy, as any other request.
    """
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.running == 0:
        return more <= instance.free
    length = context(fleet, s)
    if w.scheduler == TENSORRT and w.no_evict == 1:
        return more - blocks(length, w.block_size) + blocks_at_most(fleet, s) <= unpromised(fleet, i)
    if w.scheduler == SGLANG:
        return (instance.free - more) * w.block_size >= RESERVED_TOKENS * (instance.running + 1)
    next_block = units_of(fleet, length + 1) - units_of(fleet, length)
    return more + next_block + blocks_now(fleet, i) <= instance.free


@compiled
def bring_in(fleet: int, i: int) -> None:
    """Requests that wait with their cache begin to decode, in order, as far as there is room.

    Siblings of one prompt share its blocks in vLLM. The first token was made where the prompt was computed; the client
    gets it now.
    """
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.partial >= 0:
        return  # it stays the last of the running ones until its prompt is computed again
    most = pool_at(w.pools, instance.pool).max_num_seqs
    while instance.waiting > 0 and instance.running < most:
        s = instance.wait_head
        S = sample_at(w.samples, s)
        if S.side != BROUGHT:
            return
        length = context(fleet, s)
        found = 0
        unread = 0
        if w.scheduler == VLLM:
            found, unread = look_up(fleet, i, s)
        more = units_of(fleet, length) - units(fleet, found) + unread + w.state_blocks
        if not has_room(fleet, i, s, more):
            return
        begin_to_run(fleet, i, s)
        if w.scheduler == VLLM:
            hold_found(fleet, i, s)
        take(fleet, i, more)
        S.computed = length
        if w.scheduler == VLLM:
            publish(fleet, i, s)
        S.side = DECODING
        S.redo = 0
        S.made += 1
        instance.generated += 1
        instance.seen += 1
        if S.first_token_s < 0.0:
            S.first_token_s = instance.t0
            S.first_version = instance.version
        join_decodes(fleet, i, s)
