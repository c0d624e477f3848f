"""What an instance does next, decided at an iteration boundary by the scheduler of the engine that it is."""

from __future__ import annotations

from fleetsim.engine.kernel.addresses import fleet_at, instance_at, pool_at, sample_at
from fleetsim.engine.kernel.batch import chunk_of, continue_partial, make_room, run_decodes, run_step, start
from fleetsim.engine.kernel.blocks import context, look_up, publish, take, units, units_of
from fleetsim.engine.kernel.brought import bring_in
from fleetsim.engine.kernel.growth import decode_tokens
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.prompts import plan_prompts
from fleetsim.engine.kernel.sglang import plan_sglang
from fleetsim.engine.kernel.tables import BROUGHT, SGLANG, VLLM
from fleetsim.engine.kernel.tensorrt import plan_tensorrt


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
    while not preempted and budget > 0 and instance.waiting > 0 and instance.running < pool.max_num_seqs:
        s = instance.wait_head
        if sample_at(w.samples, s).side == BROUGHT:
            break
        length = context(fleet, s)
        found, unread = look_up(fleet, i, s)
        if units_of(fleet, length) - units(fleet, found) + unread + w.state_blocks > instance.free:
            break
        chunk = chunk_of(fleet, length - found * size, budget)
        pairs += start(fleet, i, s, instance.t0, chunk, found, unread)
        prefill += chunk
        budget -= chunk
        if instance.partial >= 0:
            break
        publish(fleet, i, s)
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
