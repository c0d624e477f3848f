"""The whole fleet through time: events in order, what finishes, what is sent next and where."""

from __future__ import annotations

import math

from fleetsim.engine.kernel.blocks import context, give_back, remember_turn, take
from fleetsim.engine.kernel.control import at_boundary
from fleetsim.engine.kernel.instance import (
    EPSILON,
    blocks_needed,
    close_decode,
    cut,
    ends_of,
    join_decodes,
    plan,
    set_next,
    unlink,
)
from fleetsim.engine.kernel.jit import compiled, entry
from fleetsim.engine.kernel.memory import (
    fleet_at,
    float_at,
    group_at,
    instance_at,
    int32_at,
    int64_at,
    put_float,
    put_int32,
    sample_at,
)
from fleetsim.engine.kernel.tables import (
    AT_LIMIT,
    AWAY,
    BATCH_READY,
    DONE,
    FIRST,
    FLEET_EMPTY,
    G_ABORTED,
    G_BLOCKED,
    G_FILTERED,
    G_NEW,
    G_OPEN,
    G_OVERFLOW,
    G_READY,
    GONE,
    IDLE,
    JUMP,
    LESS,
    MORE,
    NEED_GROUPS,
    NOTHING_MOVES,
    OUT_OF_PATIENCE,
    PREFIX_AFFINITY,
    ROUND_ROBIN,
    SCORING,
    STEP,
    UNSENT,
    WAITING,
)
from fleetsim.engine.kernel.trees import (
    heap_remove,
    timer_pop,
    timer_push,
    tree_first,
    tree_set,
)


@compiled
def mark(fleet: int, i: int, t: float) -> None:
    """The instance is at a boundary at time t and wants a plan."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.dirty == 0:
        instance.dirty = 1
        instance.t0 = t
        put_int32(w.dirty, w.n_dirty, i)
        w.n_dirty += 1


@compiled
def set_load(fleet: int, i: int, change: int) -> None:
    """Samples that the instance has been sent; full or closed instances drop out of the routers' sight."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    instance.load += change
    is_open = instance.accepting == 1 and instance.load < w.cap_instance
    tree_set(w.loads, w.half, i, float(instance.load) if is_open else math.inf)


@compiled
def route(fleet: int) -> int:
    """The next instance with room, in turn or the least loaded one; -1 if none has room."""
    w = fleet_at(fleet, 0)
    if w.routing != ROUND_ROBIN:
        return -1 if float_at(w.loads, 1) == math.inf else tree_first(w.loads, w.half)
    for j in range(w.n_instances):
        i = (w.robin + j) % w.n_instances
        if float_at(w.loads, w.half + i) < math.inf:
            w.robin = (i + 1) % w.n_instances
            return i
    return -1


@compiled
def route_sample(fleet: int, g: int) -> int:
    """The instance for a sample of group g: with prefix affinity one that holds a sibling, if it is not too loaded."""
    w = fleet_at(fleet, 0)
    if w.routing == PREFIX_AFFINITY and g >= 0:
        least = float_at(w.loads, 1)
        first = group_at(w.groups, g).first
        for s in range(first, first + group_at(w.groups, g).size):
            i = sample_at(w.samples, s).instance
            if i >= 0 and least < math.inf and float_at(w.loads, w.half + i) <= least + w.imbalance:
                return i
    return route(fleet)


@compiled
def enqueue(fleet: int, i: int, s: int, t: float) -> None:
    """A request arrives at an instance: it is seen at the first iteration boundary at or after t."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    S = sample_at(w.samples, s)
    S.status = WAITING
    S.instance = i
    S.next = -1
    S.prev = instance.wait_tail
    if instance.wait_tail >= 0:
        sample_at(w.samples, instance.wait_tail).next = s
    else:
        instance.wait_head = s
    instance.wait_tail = s
    instance.waiting += 1
    if instance.kind == IDLE:
        mark(fleet, i, t)
    elif instance.waiting == 1 and instance.running < w.max_num_seqs:
        cut(fleet, i, t)  # behind a head that does not fit nothing can start: no need to look


@compiled
def send(fleet: int, i: int, s: int, t: float) -> None:
    """A sample is submitted to instance i."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    w.in_flight += 1
    if S.goal == 0:
        S.goal = turn_goal(fleet, s)
    set_load(fleet, i, MORE)
    enqueue(fleet, i, s, t)


@compiled
def turn_goal(fleet: int, s: int) -> int:
    """Output tokens after the sample's current turn: the response is spread evenly over its turns."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    turns = w.turns
    if S.turn + 1 >= turns:
        return S.target
    return max(S.made + 1, (S.target * (S.turn + 1)) // turns)


@compiled
def dispatch(fleet: int, t: float) -> bool:
    """Sends what credits and caps allow. False: more groups must be drawn first."""
    w = fleet_at(fleet, 0)
    if w.halted == 1 or w.n_blocked > 0:
        return True
    while w.n_requeued > 0 and w.in_flight < w.cap:
        i = route_sample(fleet, sample_at(w.samples, int32_at(w.requeue, w.n_requeued - 1)).group)
        if i < 0:
            return True
        w.n_requeued -= 1
        send(fleet, i, int32_at(w.requeue, w.n_requeued), t)
    while w.credits > 0 or w.sent > 0:
        g = w.next_group
        if g >= w.n_groups:
            return False
        group = group_at(w.groups, g)
        if w.together == 1:
            if w.in_flight > 0 and w.in_flight + group.size > w.cap:
                return True
            if float_at(w.loads, 1) > 0.0 and float_at(w.loads, 1) + group.size > w.cap_instance:
                return True
            i = route_group(fleet, g)
            if i < 0:
                return True
            for s in range(group.first, group.first + group.size):
                send(fleet, i, s, t)
        else:
            if w.in_flight >= w.cap:
                return True
            s = group.first + w.sent
            i = route_sample(fleet, g)
            if i < 0:
                return True
            send(fleet, i, s, t)
            w.sent += 1
        if group.status == G_NEW:
            group.status = G_OPEN
            group.version = w.version
            group.submit_s = t
            w.credits -= 1
        if w.together == 1 or w.sent == group.size:
            w.sent = 0
            w.next_group += 1
    return True


@compiled
def route_group(fleet: int, g: int) -> int:
    """An instance with room for the whole group (an empty one takes a group that is larger than its cap)."""
    w = fleet_at(fleet, 0)
    for _ in range(w.n_instances):
        i = route(fleet)
        if i < 0:
            return -1
        load = instance_at(w.instances, i).load
        if load == 0 or load + group_at(w.groups, g).size <= w.cap_instance:
            return i
    return -1


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
        oldest = group_at(w.groups, int32_at(w.ready, 0))
        oldest.status = G_OVERFLOW
        oldest.left_s = group.ready_s
        for j in range(w.n_ready - 1):
            put_int32(w.ready, j, int32_at(w.ready, j + 1))
        w.n_ready -= 1
        if w.pool == 0:
            w.credits += 1
    group.status = G_READY
    put_int32(w.ready, w.n_ready, g)
    w.n_ready += 1


@compiled
def scored(fleet: int, s: int, t: float) -> None:
    """A sample has its reward; the last one completes the group."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    S.status = DONE
    group = group_at(w.groups, S.group)
    group.scored += 1
    if group.scored < group.size:
        return
    group.ready_s = t
    w.completed_groups += 1
    if w.pool == 1:
        w.credits += 1
    if group.zero_variance == 1:
        group.status = G_FILTERED
        if w.pool == 0:
            w.credits += 1
        return
    put_ready(fleet, S.group)


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
    if group_at(w.groups, S.group).status == G_ABORTED:
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
def end_turn(fleet: int, i: int, s: int, t: float) -> None:
    """A request has its last token of this turn: it leaves the engine, for a tool or for good."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    unlink(fleet, i, s)
    over = S.made >= S.target or (w.open_loop == 0 and group_at(w.groups, S.group).status == G_ABORTED)
    if not over:
        remember_turn(fleet, i, s)
    give_back(fleet, i, s)
    if over:
        generated(fleet, s, t)
        return
    S.status = AWAY
    timer_push(w.timer_s, w.timer_key, w.n_timers, t + float_at(w.tool_s, s * (w.turns - 1) + S.turn), s)
    w.n_timers += 1


@compiled
def come_back(fleet: int, s: int, t: float) -> None:
    """A timer rings: a tool has answered, or a reward is known."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if S.status == SCORING:
        scored(fleet, s, t)
    elif S.status == AWAY:
        S.extra += int32_at(w.tool_tokens, s * (w.turns - 1) + S.turn)
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
    set_next(fleet, i, math.inf)
    if kind == JUMP or kind == STEP:
        k = instance.k
        if kind == JUMP:
            take(fleet, i, blocks_needed(fleet, i, k))
        instance.count += k
        instance.kv_sum += k * instance.decodes
        instance.generated += k * instance.decodes
        while instance.heap_n > 0 and (int64_at(ends_of(fleet, i), 0) >> 32) == instance.count:
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
            S.made += 1
            instance.generated += 1
            if S.first_token_s < 0.0:
                S.first_token_s = t
            if S.made == S.goal:
                end_turn(fleet, i, s, t)
            else:
                join_decodes(fleet, i, s)
            s = following
        s = instance.partial
        if s >= 0:
            S = sample_at(w.samples, s)
            S.computed += instance.chunk
            if S.made > 0 and S.computed == context(fleet, s) - 1:
                instance.partial = -1  # one token to go after a preemption: that is a decode
                join_decodes(fleet, i, s)
        instance.fresh = -1
        instance.chunk = 0
    instance.kind = IDLE
    instance.k = 0
    at_boundary(fleet, i, t)
    if instance.kind == IDLE:
        mark(fleet, i, t)


@compiled
def arrive(fleet: int, t: float) -> None:
    """Open loop: requests that have arrived by t are routed."""
    w = fleet_at(fleet, 0)
    while w.n_arrived < w.n_arrivals and float_at(w.arrival_s, w.n_arrived) <= t:
        s = int32_at(w.arrival, w.n_arrived)
        at = float_at(w.arrival_s, w.n_arrived)
        w.n_arrived += 1
        send(fleet, route_sample(fleet, sample_at(w.samples, s).group), s, at)


@compiled
def settle(fleet: int) -> bool:
    """Sends what may be sent now and plans every instance that waits for a plan. False: groups are missing."""
    w = fleet_at(fleet, 0)
    enough = dispatch(fleet, w.now) if w.open_loop == 0 else True
    for j in range(w.n_dirty):
        i = int32_at(w.dirty, j)
        instance_at(w.instances, i).dirty = 0
        if instance_at(w.instances, i).kind == IDLE:
            plan(fleet, i)
    w.n_dirty = 0
    return enough


@entry("i8(i8, f8, i8)")
def advance(fleet: int, limit: float, want: int) -> int:
    """Moves the fleet to `limit` seconds, or until `want` groups are in the buffer.

    Returns AT_LIMIT, BATCH_READY, FLEET_EMPTY (asked for by `until_empty`), OUT_OF_PATIENCE (asked for by
    `patience`), NOTHING_MOVES (no event is pending before an infinite limit) or NEED_GROUPS (call again once more
    groups are drawn). Events that lie within rounding of each other happen together: landings first, then timers,
    then arrivals, then what is sent, then plans; equal times go by instance index.
    """
    w = fleet_at(fleet, 0)
    while True:
        if not settle(fleet):
            return NEED_GROUPS
        if w.n_ready >= want:
            return BATCH_READY
        if w.until_empty == 1 and w.in_flight == 0:
            return FLEET_EMPTY
        if w.completed_groups >= w.patience:
            return OUT_OF_PATIENCE
        t = float_at(w.clock, 1)
        if w.n_timers > 0:
            t = min(t, float_at(w.timer_s, 0))
        if w.n_arrived < w.n_arrivals:
            t = min(t, float_at(w.arrival_s, w.n_arrived))
        if t == math.inf and limit == math.inf:
            return NOTHING_MOVES
        if t > limit:
            w.now = max(w.now, limit)
            return AT_LIMIT
        w.now = max(w.now, t)
        horizon = t + EPSILON * (1.0 + abs(t))
        while float_at(w.clock, 1) <= horizon:
            i = tree_first(w.clock, w.half)
            land(fleet, i, float_at(w.clock, 1))
        while w.n_timers > 0 and float_at(w.timer_s, 0) <= horizon:
            s = timer_pop(w.timer_s, w.timer_key, w.n_timers)
            w.n_timers -= 1
            come_back(fleet, s, t)
        if w.n_arrived < w.n_arrivals:
            arrive(fleet, horizon)
