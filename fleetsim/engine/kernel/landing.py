"""What iterations bring: tokens, ends of turns, tools, rewards, finished groups in the buffer."""

from __future__ import annotations

import math

from fleetsim.engine.kernel.addresses import (
    fleet_at,
    float_at,
    group_at,
    instance_at,
    int32_at,
    int64_at,
    line_at,
    put_float,
    put_int32,
    sample_at,
)
from fleetsim.engine.kernel.blocks import context, give_back, remember_turn, take
from fleetsim.engine.kernel.boundary import at_boundary, lose_rest, unwanted
from fleetsim.engine.kernel.dispatch import await_engine, enqueue, owe, turn_goal
from fleetsim.engine.kernel.growth import grown, keep_phase
from fleetsim.engine.kernel.instance import blocks_needed, mark, set_next
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.members import close_decode, ends_of, join_decodes, rebase, set_load, unlink
from fleetsim.engine.kernel.sharing import prompt_done
from fleetsim.engine.kernel.tables import (
    AWAY,
    BROUGHT,
    DECODING,
    DONE,
    FIRST,
    G_BLOCKED,
    G_FILTERED,
    G_OVERFLOW,
    G_READY,
    GONE,
    IDLE,
    JUMP,
    LANDING,
    LESS,
    REBASE,
    SCORING,
    STEP,
    UNSENT,
    VLLM,
)
from fleetsim.engine.kernel.trees import heap_remove, timer_push
from fleetsim.engine.kernel.windows import cross


@compiled
def put_ready(fleet: int, g: int) -> None:
    """A finished group meets the buffer: it goes in, waits at the door, or pushes the oldest out."""
    w = fleet_at(fleet, 0)
    group = group_at(w.groups, g)
    if w.n_ready >= w.ready_cap:
        if w.drop_oldest == 0:
            group.status = G_BLOCKED
            put_int32(w.blocked, w.n_blocked, g)
            w.n_blocked += 1
            return
        oldest_group = int32_at(w.ready, 0)
        oldest = group_at(w.groups, oldest_group)
        oldest.status = G_OVERFLOW
        oldest.left_s = group.ready_s
        for j in range(w.n_ready - 1):
            put_int32(w.ready, j, int32_at(w.ready, j + 1))
        w.n_ready -= 1
        w.credits += w.returns
        owe(fleet, oldest_group)
    group.status = G_READY
    put_int32(w.ready, w.n_ready, g)
    w.n_ready += 1


@compiled
def scored(fleet: int, s: int, t: float) -> None:
    """A sample has its reward; the last one that is needed completes the group, and the rest is aborted."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    S.status = DONE
    group = group_at(w.groups, S.group)
    group.scored += 1
    if group.scored < group.need:
        return
    group.ready_s = t
    w.completed_groups += 1
    if group.need < group.size:
        lose_rest(fleet, S.group, t)
    if w.pool == 1:
        w.credits += 1
    if group.zero_variance == 1:
        group.status = G_FILTERED
        w.credits += w.returns
        owe(fleet, S.group)
        return
    put_ready(fleet, S.group)


@compiled
def replace_first(fleet: int, key: float) -> None:
    """The reward worker that is free first works until `key`."""
    w = fleet_at(fleet, 0)
    n = w.workers
    at = 0
    while True:
        down = 2 * at + 1
        if down >= n:
            break
        if down + 1 < n and float_at(w.worker_s, down + 1) < float_at(w.worker_s, down):
            down += 1
        if float_at(w.worker_s, down) >= key:
            break
        put_float(w.worker_s, at, float_at(w.worker_s, down))
        at = down
    put_float(w.worker_s, at, key)


@compiled
def generated(fleet: int, s: int, t: float) -> None:
    """A sample has its last token: its reward is computed, by one of the workers if they are bounded."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    S.finish_s = t
    w.in_flight -= 1
    set_load(fleet, S.instance, LESS)
    if w.open_loop == 1:
        S.status = DONE
        return
    if unwanted(fleet, s):
        S.status = GONE
        w.aborted_tokens += S.made
        return
    S.status = SCORING
    latency = float_at(w.reward_s, s) if w.has_rewards == 1 else 0.0
    done = t + latency
    if w.workers > 0:
        done = max(t, float_at(w.worker_s, 0)) + latency
        replace_first(fleet, done)
    if done <= t:
        scored(fleet, s, t)
        return
    timer_push(w.timer_s, w.timer_key, w.n_timers, done, s)
    w.n_timers += 1


@compiled
def end_turn(fleet: int, i: int, s: int, t: float) -> None:
    """A request has its last token of this turn: it leaves the engine, for a tool or for good."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    unlink(fleet, i, s)
    over = S.made >= S.target or (w.open_loop == 0 and unwanted(fleet, s))
    if not over:
        remember_turn(fleet, i, s)
    give_back(fleet, i, s)
    if over:
        generated(fleet, s, t)
        return
    S.status = AWAY
    answer_s = float_at(line_at(w.tool_s, s, (w.turns - 1) * 8), S.turn)
    timer_push(w.timer_s, w.timer_key, w.n_timers, t + answer_s, s)
    w.n_timers += 1


@compiled
def come_back(fleet: int, s: int, t: float) -> None:
    """A timer rings: a tool has answered, a reward is known, or a computed prompt has moved."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if S.status == SCORING:
        scored(fleet, s, t)
    elif S.status == AWAY and S.side == BROUGHT and S.instance >= 0:
        await_engine(fleet, S.instance, s, t)
    elif S.status == AWAY and S.side == BROUGHT:  # its instance died while its cache moved
        S.side = DECODING
        S.redo = 1
        S.status = UNSENT
        put_int32(w.requeue, w.n_requeued, s)
        w.n_requeued += 1
    elif S.status == AWAY:
        S.extra += int32_at(line_at(w.tool_tokens, s, (w.turns - 1) * 4), S.turn)
        S.turn += 1
        S.goal = turn_goal(fleet, s)
        if S.instance >= 0:
            enqueue(fleet, S.instance, s, t)
        else:  # its instance died meanwhile
            S.redo = 1
            S.status = UNSENT
            put_int32(w.requeue, w.n_requeued, s)
            w.n_requeued += 1


@compiled
def land(fleet: int, i: int, t: float) -> None:
    """The planned iterations have happened."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    kind = instance.kind
    instance.kind = LANDING  # what is asked of it meanwhile waits for its boundary, at the end of this function
    set_next(fleet, i, math.inf)
    if kind == JUMP or kind == STEP:
        k = instance.k
        tokens = grown(fleet, i, k)
        used = w.kv_blocks - instance.free
        if kind == JUMP:
            take(fleet, i, blocks_needed(fleet, i, tokens))
        instance.block_s += 0.5 * (used + w.kv_blocks - instance.free) * (t - instance.t0)
        keep_phase(fleet, i, k)
        instance.count += tokens
        instance.ratio_count += tokens - k  # SGLang's ratio falls with iterations, whatever they bring
        instance.kv_sum += tokens * instance.decodes
        if w.window > 0:
            instance.near_sum += tokens * instance.near
            cross(fleet, i)
        instance.generated += tokens * instance.decodes
        while instance.heap_n > 0 and (int64_at(ends_of(fleet, i), 0) >> 32) <= instance.count:
            s = heap_remove(ends_of(fleet, i), instance.heap_n, FIRST) & 0xFFFFFFFF
            instance.heap_n -= 1
            close_decode(fleet, i, s)
            end_turn(fleet, i, s, t)
    if kind == STEP:
        s = instance.fresh
        while s >= 0 and s != instance.partial:
            S = sample_at(w.samples, s)
            following = S.next
            S.computed = context(fleet, s)
            if w.scheduler != VLLM:
                prompt_done(fleet, i, s)
            S.made += 1
            instance.generated += 1
            if S.first_token_s < 0.0:
                S.first_token_s = t
                S.first_version = instance.version
            if S.made == S.goal:
                end_turn(fleet, i, s, t)
            else:
                join_decodes(fleet, i, s)
            s = following
        s = instance.partial
        if s >= 0:
            S = sample_at(w.samples, s)
            S.computed += instance.chunk
            if w.scheduler == VLLM and S.made > 0 and S.computed == context(fleet, s) - 1:
                instance.partial = -1  # one token to go after a preemption: that is a decode
                join_decodes(fleet, i, s)
        instance.fresh = -1
        instance.chunk = 0
    if instance.count >= REBASE:
        rebase(fleet, i)
    instance.kind = IDLE
    instance.k = 0
    at_boundary(fleet, i, t)
    if instance.kind == IDLE:
        mark(fleet, i, t)
