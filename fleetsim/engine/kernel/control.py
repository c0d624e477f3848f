"""What a run does to the fleet from outside: hold and resume engines, discard work, recompute caches, kill, revive."""

from __future__ import annotations

from fleetsim.engine.kernel.boundary import ask, at_boundary
from fleetsim.engine.kernel.instance import account, set_next
from fleetsim.engine.kernel.jit import compiled, entry
from fleetsim.engine.kernel.members import show_load
from fleetsim.engine.kernel.memory import fleet_at, float_at, group_at, instance_at, int32_at, put_int32, sample_at
from fleetsim.engine.kernel.tables import (
    ACC_IDLE,
    ACC_OFF,
    ACCOUNTS,
    AWAY,
    CMD_CLOSE,
    CMD_DISCARD,
    CMD_HOLD,
    CMD_KILL,
    CMD_NEW_EPOCH,
    CMD_RECOMPUTE,
    CMD_REOPEN,
    CMD_RESUME,
    CMD_REVIVE,
    CMD_SECONDS,
    CMD_SWITCH_OFF,
    DO_DISCARD,
    DO_KILL,
    DO_RECOMPUTE,
    DOWN,
    G_ABORTED,
    G_OPEN,
    GONE,
    IDLE,
    NOTHING,
    WAKE,
)


@compiled
def hold(fleet: int, t: float, until: float) -> None:
    """Engines stop at their first boundary at or after t and start again at `until` (infinite: when resumed)."""
    w = fleet_at(fleet, 0)
    for i in range(w.n_instances):
        instance = instance_at(w.instances, i)
        instance.hold_until = until
        if instance.kind == WAKE:
            set_next(fleet, i, max(until, t))
        else:
            ask(fleet, i, NOTHING, t)


@compiled
def resume(fleet: int, t: float) -> None:
    """Ends every hold at t."""
    w = fleet_at(fleet, 0)
    for i in range(w.n_instances):
        instance_at(w.instances, i).hold_until = t
        if instance_at(w.instances, i).kind == WAKE:
            set_next(fleet, i, t)


@compiled
def ask_all(fleet: int, todo: int, t: float) -> None:
    """Asks every instance."""
    w = fleet_at(fleet, 0)
    for i in range(w.n_instances):
        ask(fleet, i, todo, t)


@compiled
def new_epoch(fleet: int) -> None:
    """The weights have changed: nothing in a prefix cache may be read by requests that start from now on."""
    w = fleet_at(fleet, 0)
    for i in range(w.n_instances):
        instance_at(w.instances, i).epoch += 1


@compiled
def discard(fleet: int, below: int, t: float) -> int:
    """Aborts every unfinished group with an index below `below`; returns how many groups there were."""
    w = fleet_at(fleet, 0)
    n = 0
    for g in range(min(below, w.next_group + (1 if w.sent > 0 else 0))):
        group = group_at(w.groups, g)
        if group.status != G_OPEN:
            continue
        n += 1
        group.status = G_ABORTED
        w.aborted_groups += 1
        for s in range(group.first, group.first + group.size):
            S = sample_at(w.samples, s)
            if S.status == AWAY and S.instance >= 0:
                w.in_flight -= 1
                instance_at(w.instances, S.instance).load -= 1
            if S.status >= AWAY:
                w.aborted_tokens += S.made
                S.status = GONE
    if w.sent > 0 and group_at(w.groups, w.next_group).status == G_ABORTED:
        w.sent = 0
        w.next_group += 1
    kept = 0
    for j in range(w.n_requeued):
        s = int32_at(w.requeue, j)
        if group_at(w.groups, sample_at(w.samples, s).group).status == G_ABORTED:
            w.aborted_tokens += sample_at(w.samples, s).made
            sample_at(w.samples, s).status = GONE
        else:
            put_int32(w.requeue, kept, s)
            kept += 1
    w.n_requeued = kept
    ask_all(fleet, DO_DISCARD, t)
    return n


@compiled
def kill(fleet: int, i: int, t: float) -> None:
    """Instance i dies at its next boundary; it takes no more work."""
    w = fleet_at(fleet, 0)
    instance_at(w.instances, i).accepting = 0
    show_load(fleet, i)
    ask(fleet, i, DO_KILL, t)


@compiled
def close(fleet: int, i: int) -> None:
    """Instance i takes no more work and finishes what it has (scale-down)."""
    w = fleet_at(fleet, 0)
    instance_at(w.instances, i).accepting = 0
    show_load(fleet, i)


@compiled
def reopen(fleet: int, i: int) -> None:
    """A closed instance that was not given back yet takes work again, with what it has in its cache."""
    w = fleet_at(fleet, 0)
    instance_at(w.instances, i).accepting = 1
    show_load(fleet, i)


@compiled
def switch_off(fleet: int, i: int, t: float) -> None:
    """A closed instance that is empty, or failed, is given back: its GPUs are no longer ours."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.kind == DOWN or (instance.kind == IDLE and instance.load == 0):
        account(fleet, i, ACC_OFF, t)
        instance.kind = DOWN


@compiled
def revive(fleet: int, i: int, t: float) -> None:
    """Instance i is up (again), empty, with a cold cache."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    instance.kind = IDLE
    instance.accepting = 1
    instance.epoch += 1
    account(fleet, i, ACC_IDLE, t)
    show_load(fleet, i)
    at_boundary(fleet, i, t)  # a hold of the whole fleet holds this one too


@compiled
def seconds_of(fleet: int, account_index: int, t: float) -> float:
    """GPU-seconds of all instances in one account until t (instance-seconds, to be exact)."""
    w = fleet_at(fleet, 0)
    total = 0.0
    for i in range(w.n_instances):
        instance = instance_at(w.instances, i)
        total += float_at(w.accounts, i * ACCOUNTS + account_index)
        if instance.account == account_index:
            total += t - instance.since
    return total


@entry("f8(i8, i8, i8, f8, f8)")
def command(fleet: int, what: int, which: int, t: float, value: float) -> float:
    """The one door for a run: does `what` (a CMD_ code) at time t to instance, group bound, account or todo `which`."""
    if what == CMD_HOLD:
        hold(fleet, t, value)
    elif what == CMD_RESUME:
        resume(fleet, t)
    elif what == CMD_RECOMPUTE:
        ask_all(fleet, DO_RECOMPUTE, t)
    elif what == CMD_DISCARD:
        return float(discard(fleet, which, t))
    elif what == CMD_NEW_EPOCH:
        new_epoch(fleet)
    elif what == CMD_KILL:
        kill(fleet, which, t)
    elif what == CMD_CLOSE:
        close(fleet, which)
    elif what == CMD_REOPEN:
        reopen(fleet, which)
    elif what == CMD_SWITCH_OFF:
        switch_off(fleet, which, t)
    elif what == CMD_REVIVE:
        revive(fleet, which, t)
    elif what == CMD_SECONDS:
        return seconds_of(fleet, which, t)
    return 0.0
