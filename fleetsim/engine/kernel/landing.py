"""What iterations bring: tokens, ends of turns, and what follows them: tools and rewards."""

from __future__ import annotations

import math

from fleetsim.engine.kernel import tables
from fleetsim.engine.kernel.addresses import (
    fleet_at,
    float_at,
    group_at,
    instance_at,
    int32_at,
    int64_at,
    pool_at,
    put_int32,
    sample_at,
    station_at,
    visit_at,
)
from fleetsim.engine.kernel.blocks import context, give_back, remember_turn, take
from fleetsim.engine.kernel.boundary import at_boundary, gone, holds_place, leave_instance, lose, unwanted
from fleetsim.engine.kernel.completion import answered, answered_here, scored, shrink, withhold
from fleetsim.engine.kernel.deadlines import episode_ends, over_limit, start_clock, stop_clock, stop_clocks
from fleetsim.engine.kernel.dispatch import await_engine, enqueue, turn_goal
from fleetsim.engine.kernel.growth import grown, keep_phase
from fleetsim.engine.kernel.instance import blocks_needed, mark, set_next
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.members import close_decode, ends_of, join_decodes, rebase, unlink
from fleetsim.engine.kernel.sharing import prompt_done
from fleetsim.engine.kernel.stations import another_need, call, end_service, let_go, ring
from fleetsim.engine.kernel.trees import heap_remove, timer_push
from fleetsim.engine.kernel.windows import cross


@compiled
def generated(fleet: int, s: int, t: float) -> None:
    """A sample has its last token: its reward is computed."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    S.finish_s = t
    stop_clocks(fleet, s, tables.SERVED, t)
    if w.open_loop == 1:
        leave_instance(fleet, s)
        S.status = tables.DONE
        if w.asked_by != 0:
            answered(fleet, s, t)
        return
    if w.own_votes > 0 and group_at(w.groups, S.group).zero_variance == tables.ASKED:
        answered_here(fleet, s, t)
        return
    if unwanted(fleet, s):
        leave_instance(fleet, s)
        gone(fleet, s, t)
        return
    if w.holds_slot == 0:
        leave_instance(fleet, s)
    S.status = tables.SCORING
    latency = float_at(w.reward_s, s) if w.has_rewards == 1 else 0.0
    if w.reward_station >= 0:
        if w.reward_station != w.tool_station:
            let_go(fleet, s, t)  # the worker of its tools is free while it is scored
        if not call(fleet, s, w.reward_station, latency, t):
            return
        V = visit_at(w.visits, s)
        if V.due_s > t or V.outcome != tables.SERVED:
            ring(fleet, s)
        else:
            end_service(fleet, s)
            scored(fleet, s, t)
    elif latency <= 0.0:
        let_go(fleet, s, t)
        scored(fleet, s, t)
    else:
        let_go(fleet, s, t)
        timer_push(w.timer_s, w.timer_key, w.n_timers, t + latency, s)
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
    stop_clock(fleet, s, tables.TURN, tables.SERVED, t)
    S.status = tables.AWAY
    k = over_limit(fleet, s)
    if k >= 0:
        give_up(fleet, s, k, t)
        return
    answer_s = float_at(w.tool_s, S.first_call + S.turn)
    if w.tool_station >= 0:
        if call(fleet, s, w.tool_station, answer_s, t):
            ring(fleet, s)
        return
    timer_push(w.timer_s, w.timer_key, w.n_timers, min(t + answer_s, episode_ends(fleet, s)), s)
    w.n_timers += 1


@compiled
def come_back(fleet: int, s: int, t: float) -> None:
    """A timer rings: a worker has served a call, or what nothing limits is over."""
    w = fleet_at(fleet, 0)
    called = w.n_stations > 0 and visit_at(w.visits, s).where == tables.IN_SERVICE
    if called:
        end_service(fleet, s)
    k = over_limit(fleet, s)
    if k >= 0:
        give_up(fleet, s, k, t)
    elif called:
        end_call(fleet, s, t)
    else:
        go_on(fleet, s, t)


@compiled
def end_call(fleet: int, s: int, t: float) -> None:
    """A call has ended: the sample goes on, or the call is made again; after the last try the rollout is lost."""
    w = fleet_at(fleet, 0)
    S, V = sample_at(w.samples, s), visit_at(w.visits, s)
    station = station_at(w.stations, V.station)
    if S.status == tables.GONE:
        let_go(fleet, s, t)
        return
    if V.outcome == tables.SERVED:
        V.tries = 0
        go_on(fleet, s, t)
        return
    V.tries += 1
    if V.tries < station.tries or station.policy == tables.WAITED:
        line = tables.TOOL_NEEDS if S.status == tables.AWAY else tables.REWARD_NEEDS
        if call(fleet, s, station.home, another_need(fleet, line, s), t):
            ring(fleet, s)
        return
    give_up(fleet, s, V.station, t)


@compiled
def give_up(fleet: int, s: int, k: int, t: float) -> None:
    """A rollout is lost at station k, or by a time limit: its policy says what becomes of it."""
    w = fleet_at(fleet, 0)
    S, V, station = sample_at(w.samples, s), visit_at(w.visits, s), station_at(w.stations, k)
    V.tries = 0
    station.lost += 1
    stop_clocks(fleet, s, tables.CUT, t)
    if station.policy == tables.RETRIED and V.restarts < tables.RESTARTS:
        V.restarts += 1
        if holds_place(fleet, s):
            leave_instance(fleet, s)
        S.finish_s = -1.0
        S.turn_cache = -1
        lose(fleet, s, t)
    elif station.policy == tables.TRUNCATED or station.policy == tables.MASKED:
        S.masked = station.policy == tables.MASKED
        if S.status == tables.AWAY:
            generated(fleet, s, t)
        else:
            scored(fleet, s, t)
    elif station.policy == tables.WITHHELD and group_at(w.groups, S.group).zero_variance != tables.EVALUATED:
        withhold(fleet, S.group, t)
    else:
        if holds_place(fleet, s):
            leave_instance(fleet, s)
        gone(fleet, s, t)
        shrink(fleet, S.group, t)


@compiled
def go_on(fleet: int, s: int, t: float) -> None:
    """A tool has answered, a reward is known, or a computed prompt has moved."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if S.status == tables.SCORING:
        scored(fleet, s, t)
    elif S.status == tables.AWAY and S.side == tables.BROUGHT and S.instance >= 0:
        await_engine(fleet, S.instance, s, t)
    elif S.status == tables.AWAY and S.side == tables.BROUGHT:  # its instance died while its cache moved
        S.side = tables.DECODING
        S.redo = 1
        S.status = tables.UNSENT
        put_int32(w.requeue, w.n_requeued, s)
        w.n_requeued += 1
    elif S.status == tables.AWAY:
        S.extra += int32_at(w.tool_tokens, S.first_call + S.turn)
        S.turn += 1
        S.goal = turn_goal(fleet, s)
        start_clock(fleet, s, tables.TURN, t)
        if S.instance >= 0:
            enqueue(fleet, S.instance, s, t)
        else:  # its instance died meanwhile
            S.redo = 1
            S.status = tables.UNSENT
            put_int32(w.requeue, w.n_requeued, s)
            w.n_requeued += 1


@compiled
def land(fleet: int, i: int, t: float) -> None:
    """The planned iterations have happened."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    kind = instance.kind
    instance.kind = tables.LANDING  # what is asked of it meanwhile waits for its boundary, at the end of this function
    set_next(fleet, i, math.inf)
    if kind == tables.JUMP or kind == tables.STEP:
        k = instance.k
        tokens = grown(fleet, i, k)
        kv_blocks = pool_at(w.pools, instance.pool).kv_blocks
        used = kv_blocks - instance.free
        if kind == tables.JUMP:
            take(fleet, i, blocks_needed(fleet, i, tokens))
        instance.block_s += 0.5 * (used + kv_blocks - instance.free) * (t - instance.t0)
        instance.decode_s += instance.decodes * (t - instance.landed_s)
        instance.landed_s = t
        keep_phase(fleet, i, k)
        instance.count += tokens
        instance.ratio_count += tokens - k  # SGLang's ratio falls with iterations, whatever they bring
        instance.kv_sum += tokens * instance.decodes
        if w.window > 0:
            instance.near_sum += tokens * instance.near
            cross(fleet, i)
        instance.generated += tokens * instance.decodes
        while instance.heap_n > 0 and (int64_at(ends_of(fleet, i), 0) >> 32) <= instance.count:
            s = heap_remove(ends_of(fleet, i), instance.heap_n, tables.FIRST) & 0xFFFFFFFF
            instance.heap_n -= 1
            close_decode(fleet, i, s)
            end_turn(fleet, i, s, t)
    if kind == tables.STEP:
        s = instance.fresh
        while s >= 0 and s != instance.partial:
            S = sample_at(w.samples, s)
            following = S.next
            S.computed = context(fleet, s)
            if w.scheduler != tables.VLLM:
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
            if w.scheduler == tables.VLLM and S.made > 0 and S.computed == context(fleet, s) - 1:
                instance.partial = -1  # one token to go after a preemption: that is a decode
                join_decodes(fleet, i, s)
        instance.fresh = -1
        instance.chunk = 0
    if instance.count >= tables.REBASE:
        rebase(fleet, i)
    instance.kind = tables.IDLE
    instance.k = 0
    at_boundary(fleet, i, t)
    if instance.kind == tables.IDLE:
        mark(fleet, i, t)
