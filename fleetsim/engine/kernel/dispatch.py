"""What is sent, when, and to whom: credits and caps, routers, and arrival at an instance.

Where environments play the groups, each lane of them has a place for every sample of one. The groups that are let in
are dealt out to the lanes evenly: a place that is free takes the next sample of its own lane, and of no other.
"""

from __future__ import annotations

import math

from fleetsim.engine.kernel import tables
from fleetsim.engine.kernel.addresses import (
    fleet_at,
    float_at,
    group_at,
    instance_at,
    int32_at,
    lane_at,
    pool_at,
    put_int32,
    sample_at,
)
from fleetsim.engine.kernel.deadlines import start_clock
from fleetsim.engine.kernel.instance import cut, mark
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.members import set_load, wait_back
from fleetsim.engine.kernel.prefill import prefill_for
from fleetsim.engine.kernel.trees import tree_first


@compiled
def route(fleet: int) -> int:
    """The next instance with room, in turn or the least loaded one; -1 if none has room."""
    w = fleet_at(fleet, 0)
    if w.routing != tables.ROUND_ROBIN:
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
    if w.routing == tables.PREFIX_AFFINITY and g >= 0:
        least = float_at(w.loads, 1)
        first = group_at(w.groups, g).first
        for s in range(first, first + group_at(w.groups, g).size):
            i = sample_at(w.samples, s).instance
            if i >= 0 and least < math.inf and float_at(w.loads, w.half + i) <= least + w.imbalance:
                return i
    return route(fleet)


@compiled
def route_group(fleet: int, g: int) -> int:
    """An instance with room for the whole group (an empty one takes a group that is larger than its cap)."""
    w = fleet_at(fleet, 0)
    for _ in range(w.n_instances):
        i = route(fleet)
        if i < 0:
            return -1
        instance = instance_at(w.instances, i)
        most = w.cap_instance * pool_at(w.pools, instance.pool).weight
        if instance.load == 0 or instance.load + group_at(w.groups, g).size <= most:
            return i
    return -1


@compiled
def await_engine(fleet: int, row: int, s: int, t: float) -> None:
    """A request waits for an engine: it is seen at its first iteration boundary at or after t."""
    w = fleet_at(fleet, 0)
    engine = instance_at(w.instances, row)
    wait_back(fleet, row, s)
    if engine.kind == tables.IDLE:
        mark(fleet, row, t)
        return
    before = engine.loading if w.hosts == 1 else 0  # what these wait for holds up nobody
    if engine.waiting == 1 + before and engine.running < pool_at(w.pools, engine.pool).max_num_seqs:
        cut(fleet, row, t)  # behind a head that does not fit nothing can start: no need to look


@compiled
def enqueue(fleet: int, i: int, s: int, t: float) -> None:
    """A request arrives at an instance: at its prefill engines, where it has any."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    S.instance = i
    if w.prefills == 0:
        await_engine(fleet, i, s, t)
        return
    S.prefill = prefill_for(fleet, i, s)
    S.side = tables.PREFILLING
    await_engine(fleet, S.prefill, s, t)


@compiled
def turn_goal(fleet: int, s: int) -> int:
    """Output tokens after the sample's current turn: as drawn, or the response is spread evenly over its turns."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if S.turn + 1 >= S.turns:
        return S.target
    if w.has_goals == 1:
        return max(S.made + 1, int32_at(w.goals, S.first_call + S.turn))
    return max(S.made + 1, (S.target * (S.turn + 1)) // S.turns)


@compiled
def send(fleet: int, i: int, s: int, t: float) -> None:
    """A sample is submitted to instance i."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    w.in_flight += 1
    if w.n_lanes > 0:
        lane_at(w.lanes, int32_at(w.lane_of, S.group)).free -= 1
    S.sent_s = t
    if S.goal == 0:
        S.goal = turn_goal(fleet, s)
    set_load(fleet, i, tables.MORE)
    start_clock(fleet, s, tables.EPISODE, t)
    start_clock(fleet, s, tables.TURN, t)
    enqueue(fleet, i, s, t)


@compiled
def leave_flight(fleet: int, s: int) -> None:
    """A sample is in flight no more: its place is free."""
    w = fleet_at(fleet, 0)
    w.in_flight -= 1
    if w.n_lanes > 0:
        lane_at(w.lanes, int32_at(w.lane_of, sample_at(w.samples, s).group)).free += 1


@compiled
def owe(fleet: int, g: int) -> None:
    """A group was lost: the step that it was reserved for lacks one, and so does its lane."""
    w = fleet_at(fleet, 0)
    if w.n_lanes > 0:
        lane_at(w.lanes, int32_at(w.lane_of, g)).begun -= 1
        w.begun -= 1
    if w.target_groups > 0:
        put_int32(w.owed, w.n_owed, group_at(w.groups, g).target)
        w.n_owed += 1


@compiled
def reserve(fleet: int, g: int) -> None:
    """A group that starts is reserved for the first target step that lacks one."""
    w = fleet_at(fleet, 0)
    if w.target_groups == 0:
        return
    if w.n_owed > 0:
        at = 0
        for j in range(1, w.n_owed):
            if int32_at(w.owed, j) < int32_at(w.owed, at):
                at = j
        group_at(w.groups, g).target = int32_at(w.owed, at)
        w.n_owed -= 1
        put_int32(w.owed, at, int32_at(w.owed, w.n_owed))
        return
    if w.target_left == 0:
        w.next_target += 1
        w.target_left = w.target_groups
    group_at(w.groups, g).target = w.next_target
    w.target_left -= 1


@compiled
def may_start(fleet: int) -> bool:
    """Whether a group may be sent: it has been begun; or there is credit, or fewer are unfinished than the floor asks,
    and the client has room for one more unfinished group."""
    w = fleet_at(fleet, 0)
    if w.sent > 0:
        return True
    unfinished = w.next_group - w.completed_groups - w.aborted_groups
    return unfinished < w.cap_groups and (w.credits > 0 or unfinished < w.floor)


@compiled
def begin_group(fleet: int, g: int, i: int, t: float) -> None:
    """A sample of the group was sent to instance i; the first one begins it, and uses a credit."""
    w = fleet_at(fleet, 0)
    group = group_at(w.groups, g)
    version = instance_at(w.instances, i).version
    if group.status == tables.G_NEW:
        group.status = tables.G_OPEN
        group.version = version
        group.submit_s = t
        reserve(fleet, g)
        if w.credits > 0:
            w.credits -= 1
    elif version < group.version:
        group.version = version


@compiled
def deal(fleet: int, t: float) -> bool:
    """Fills the free places of every lane. False: more groups must be drawn first.

    A lane may have begun as many groups as all that are let in come to for each, rounded up.
    """
    w = fleet_at(fleet, 0)
    for k in range(1, w.n_lanes + 1):
        lane = lane_at(w.lanes, k)
        while lane.free > 0:
            if lane.left == 0 or group_at(w.groups, lane.group).status != tables.G_OPEN:
                lane.left = 0
                share = (w.begun + max(w.credits, 1) + w.n_lanes - 1) // w.n_lanes
                if not may_start(fleet) or lane.begun >= share:
                    break
                if w.next_group >= w.n_groups:
                    return False
            g = w.next_group if lane.left == 0 else lane.group
            i = route_sample(fleet, g)
            if i < 0:
                return True
            if lane.left == 0:
                lane.group = g
                lane.left = group_at(w.groups, g).size
                lane.begun += 1
                w.begun += 1
                w.next_group += 1
                put_int32(w.lane_of, g, k)
            s = group_at(w.groups, g).first + group_at(w.groups, g).size - lane.left
            lane.left -= 1
            if sample_at(w.samples, s).status == tables.UNSENT:  # it may be complete without it
                send(fleet, i, s, t)
                begin_group(fleet, g, i, t)
    return True


@compiled
def dispatch(fleet: int, t: float) -> bool:
    """Sends what credits and caps allow. False: more groups must be drawn first."""
    w = fleet_at(fleet, 0)
    if w.halted == 1:
        return True
    while w.n_requeued > 0 and w.in_flight < w.cap:
        g = sample_at(w.samples, int32_at(w.requeue, w.n_requeued - 1)).group
        if w.n_blocked > 0 and group_at(w.groups, g).zero_variance < tables.EVALUATED:
            return True
        i = route_sample(fleet, g)
        if i < 0:
            return True
        w.n_requeued -= 1
        send(fleet, i, int32_at(w.requeue, w.n_requeued), t)
    if w.n_blocked > 0:  # a full buffer stops what is trained, not what is evaluated
        return True
    if w.n_lanes > 0:
        return deal(fleet, t)
    while may_start(fleet):
        g = w.next_group
        if g >= w.n_groups:
            return False
        group = group_at(w.groups, g)
        if w.together == 1:
            if w.in_flight > 0 and w.in_flight + group.size > w.cap:
                return True
            # Where instances differ, the least loaded for its weight need not have the most room.
            if w.n_pools == 1 and 0.0 < float_at(w.loads, 1) > w.cap_instance - group.size:
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
        begin_group(fleet, g, i, t)
        if w.together == 1 or w.sent == group.size:
            w.sent = 0
            w.next_group += 1
    return True
