"""The whole fleet through time: events in order."""

from __future__ import annotations

import math

from fleetsim.engine.kernel import tables
from fleetsim.engine.kernel.addresses import fleet_at, float_at, instance_at, int32_at, sample_at
from fleetsim.engine.kernel.boundary import run_out
from fleetsim.engine.kernel.dispatch import dispatch, route_sample, send
from fleetsim.engine.kernel.instance import EPSILON
from fleetsim.engine.kernel.jit import compiled, entry
from fleetsim.engine.kernel.judges import move_line, next_of_judges, put_to
from fleetsim.engine.kernel.landing import come_back, end_call, land
from fleetsim.engine.kernel.plan import plan
from fleetsim.engine.kernel.prompts import land_prompts
from fleetsim.engine.kernel.stations import leave_queue
from fleetsim.engine.kernel.steering import steer
from fleetsim.engine.kernel.trees import timer_pop, timers_meet, tree_first


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
    """Sends what may be sent now and plans every instance that waits for a plan. False: groups are missing.

    Where they are, nothing is planned yet: an instance that began with part of what it is sent at one time would make
    another run of every other draw.
    """
    w = fleet_at(fleet, 0)
    if w.open_loop == 0 and not dispatch(fleet, w.now):
        return False
    plan_marked(fleet)
    judge = w.judges
    while judge != 0:
        plan_marked(judge)
        judge = fleet_at(judge, 0).next_judge
    return True


@compiled
def plan_marked(fleet: int) -> None:
    """Plans every instance that waits for a plan."""
    w = fleet_at(fleet, 0)
    for j in range(w.n_dirty):
        i = int32_at(w.dirty, j)
        instance_at(w.instances, i).dirty = 0
        if instance_at(w.instances, i).kind == tables.IDLE:
            plan(fleet, i)
    w.n_dirty = 0


@compiled
def land_all(fleet: int, horizon: float) -> None:
    """Every iteration that ends up to the horizon has happened."""
    w = fleet_at(fleet, 0)
    while float_at(w.clock, 1) <= horizon:
        i = tree_first(w.clock, w.half)
        if i < w.n_instances:
            land(fleet, i, float_at(w.clock, 1))
        else:
            land_prompts(fleet, i, float_at(w.clock, 1))


@compiled
def move_judge(judge: int, now: float, horizon: float) -> None:
    """What happens at a judge up to the horizon: iterations end, requests and prompts arrive, the line moves."""
    w = fleet_at(judge, 0)
    w.now = now
    land_all(judge, horizon)
    while w.n_timers > 0 and float_at(w.timer_s, 0) <= horizon:
        r = timer_pop(w.timer_s, w.timer_key, w.n_timers)
        w.n_timers -= 1
        if sample_at(w.samples, r).status == tables.UNSENT:
            put_to(judge, r, now)
        else:
            come_back(judge, r, now)
    if w.beyond != 0:
        move_line(judge, now)


@compiled
def some_drained(fleet: int) -> bool:
    """Whether an instance that is drained has nothing left."""
    w = fleet_at(fleet, 0)
    for i in range(w.n_instances):
        instance = instance_at(w.instances, i)
        if (
            instance.draining == 1
            and instance.load == 0
            and instance.kind != tables.JUMP
            and instance.kind != tables.STEP
        ):
            return True
    return False


@entry("i8(i8, f8, i8)")
def advance(fleet: int, limit: float, want: int) -> int:
    """Moves the fleet to `limit` seconds, or until `want` groups are in the buffer.

    Returns AT_LIMIT, BATCH_READY (or woken by `wake`), EMPTY (the fleet, asked for by `until_empty`, or an instance
    that is `draining`), OUT_OF_PATIENCE (asked for by `patience`), NOTHING_MOVES (no event is pending before an
    infinite limit), NEED_GROUPS (call again once more groups are drawn), LOG_FULL (call again once the log is
    emptied: where it returns, nothing of the next pass has been done) or TOO_FULL (the law that follows the caches
    wants groups cancelled). Events that lie within rounding of each other happen together: landings first, then times
    that are over, timers, calls that leave a queue, judges, arrivals, what is sent, plans; equal times go by instance
    index, those of timers by sample. A look of that law comes behind all at its time, also outside at `limit`.
    """
    w = fleet_at(fleet, 0)
    while True:
        if w.n_log > w.most_log:
            return tables.LOG_FULL
        if not settle(fleet):
            return tables.NEED_GROUPS
        if w.n_ready >= want:
            return tables.BATCH_READY
        if w.until_empty == 1 and w.in_flight == 0:
            return tables.EMPTY
        if w.n_draining > 0 and some_drained(fleet):
            return tables.EMPTY
        if w.completed_groups + w.aborted_groups >= w.wake:
            return tables.BATCH_READY
        if w.completed_groups + w.aborted_groups >= w.patience:
            return tables.OUT_OF_PATIENCE
        t = min(float_at(w.clock, 1), w.late_s, w.due_s)
        if w.n_timers > 0:
            t = min(t, float_at(w.timer_s, 0))
        if w.n_arrived < w.n_arrivals:
            t = min(t, float_at(w.arrival_s, w.n_arrived))
        if w.judges != 0:
            t = min(t, next_of_judges(fleet))
        if t == math.inf and limit == math.inf:
            return tables.NOTHING_MOVES
        if w.steer_every > 0.0 and w.steer_s < min(t, limit):
            w.now = max(w.now, w.steer_s)
            if steer(fleet):
                return tables.TOO_FULL
            continue
        if t > limit:
            w.now = max(w.now, limit)
            return tables.AT_LIMIT
        w.now = max(w.now, t)
        horizon = t + EPSILON * (1.0 + abs(t))
        land_all(fleet, horizon)
        while w.due_s <= horizon:
            run_out(fleet, t)
        timers_meet(w.timer_s, w.timer_key, w.n_timers, horizon)
        while w.n_timers > 0 and float_at(w.timer_s, 0) <= horizon:
            s = timer_pop(w.timer_s, w.timer_key, w.n_timers)
            w.n_timers -= 1
            come_back(fleet, s, t)
        while w.late_s <= horizon:
            s = leave_queue(fleet)
            if s >= 0:
                end_call(fleet, s, t)
        judge = w.judges
        while judge != 0:
            move_judge(judge, t, horizon)
            judge = fleet_at(judge, 0).next_judge
        if w.n_arrived < w.n_arrivals:
            arrive(fleet, horizon)
