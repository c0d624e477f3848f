"""What a run does to the fleet from outside: hold and resume engines, discard work, recompute caches, kill, revive."""

from __future__ import annotations

import math

from fleetsim.engine.kernel import tables
from fleetsim.engine.kernel.addresses import fleet_at, float_at, group_at, instance_at, line_at
from fleetsim.engine.kernel.boundary import ask, at_boundary, lose_rest
from fleetsim.engine.kernel.dispatch import owe
from fleetsim.engine.kernel.instance import account, cut, set_next
from fleetsim.engine.kernel.jit import compiled, entry
from fleetsim.engine.kernel.members import show_load
from fleetsim.engine.kernel.prefill import prefill_row
from fleetsim.engine.kernel.stations import tally
from fleetsim.engine.kernel.steering import blocks_on


@compiled
def first_of(which: int) -> int:
    """The first instance meant by `which`: itself, or 0 for all."""
    return which if which >= 0 else 0


@compiled
def end_of(fleet: int, which: int) -> int:
    """One past the last instance meant by `which`."""
    return which + 1 if which >= 0 else fleet_at(fleet, 0).n_instances


@compiled
def rows_of(fleet: int, which: int) -> int:
    """How many rows `which` means: an instance and its prefill engines, or all."""
    w = fleet_at(fleet, 0)
    return 1 + w.prefills if which >= 0 else w.n_rows


@compiled
def row_of(fleet: int, which: int, k: int) -> int:
    """The k-th of them."""
    if which < 0:
        return k
    return which if k == 0 else prefill_row(fleet, which) + k - 1


@compiled
def hold(fleet: int, which: int, t: float, until: float) -> None:
    """Engines stop at their first boundary at or after t and start again at `until` (infinite: when resumed)."""
    w = fleet_at(fleet, 0)
    for k in range(rows_of(fleet, which)):
        i = row_of(fleet, which, k)
        instance = instance_at(w.instances, i)
        instance.hold_until = until
        if instance.kind == tables.WAKE:
            set_next(fleet, i, max(until, t))
        else:
            ask(fleet, i, tables.NOTHING, t)


@compiled
def resume(fleet: int, t: float) -> None:
    """Ends every hold at t."""
    w = fleet_at(fleet, 0)
    for i in range(w.n_rows):
        instance_at(w.instances, i).hold_until = t
        if instance_at(w.instances, i).kind == tables.WAKE:
            set_next(fleet, i, t)


@compiled
def recompute(fleet: int, which: int, t: float) -> None:
    """Running requests lose their cache at the next boundary and prefill again."""
    for i in range(first_of(which), end_of(fleet, which)):
        ask(fleet, i, tables.DO_RECOMPUTE, t)


@compiled
def new_epoch(fleet: int, which: int) -> None:
    """The weights have changed: nothing in a prefix cache may be read by requests that start from now on."""
    w = fleet_at(fleet, 0)
    for k in range(rows_of(fleet, which)):
        instance_at(w.instances, row_of(fleet, which, k)).epoch += 1


@compiled
def serve_version(fleet: int, which: int, version: int, t: float) -> None:
    """What starts from now on is made by this weight version; a drafter that it leaves behind is trusted less."""
    w = fleet_at(fleet, 0)
    for i in range(first_of(which), end_of(fleet, which)):
        instance_at(w.instances, i).version = version
        if w.ages > 1:
            cut(fleet, i, t)


@compiled
def discard(fleet: int, first: int, t: float) -> int:
    """Aborts every unfinished group that is doomed, from index `first` on; returns how many groups there were."""
    w = fleet_at(fleet, 0)
    n = 0
    for g in range(first_of(first), w.next_group + (1 if w.sent > 0 else 0)):
        group = group_at(w.groups, g)
        if group.doomed == 0 or group.status != tables.G_OPEN:
            continue
        n += 1
        group.status = tables.G_ABORTED
        w.aborted_groups += 1
        owe(fleet, g)
        lose_rest(fleet, g, t)
    return n


@compiled
def move(fleet: int, i: int, to: int, t: float) -> None:
    """The requests of instance i go to instance `to` at its next boundary, or back to the client (-1)."""
    w = fleet_at(fleet, 0)
    instance_at(w.instances, i).move_to = to
    ask(fleet, i, tables.DO_MOVE, t)


@compiled
def kill(fleet: int, i: int, t: float) -> None:
    """Instance i dies at its next boundary; it takes no more work."""
    w = fleet_at(fleet, 0)
    instance_at(w.instances, i).accepting = 0
    show_load(fleet, i)
    ask(fleet, i, tables.DO_KILL, t)


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
    if instance.kind == tables.DOWN or (
        instance.load == 0 and (instance.kind == tables.IDLE or instance.kind == tables.WAKE)
    ):
        for k in range(rows_of(fleet, i)):
            row = row_of(fleet, i, k)
            account(fleet, row, tables.ACC_OFF, t)
            instance_at(w.instances, row).kind = tables.DOWN
            set_next(fleet, row, math.inf)


@compiled
def start(fleet: int, i: int, t: float) -> None:
    """An instance that was given back has a machine again: its GPUs are ours, and it does not serve yet."""
    for k in range(rows_of(fleet, i)):
        account(fleet, row_of(fleet, i, k), tables.ACC_DOWN, t)


@compiled
def revive(fleet: int, i: int, t: float) -> None:
    """Instance i is up (again), empty, with a cold cache."""
    w = fleet_at(fleet, 0)
    instance_at(w.instances, i).accepting = 1
    for k in range(rows_of(fleet, i)):
        row = row_of(fleet, i, k)
        instance_at(w.instances, row).kind = tables.IDLE
        instance_at(w.instances, row).epoch += 1
        account(fleet, row, tables.ACC_IDLE, t)
    show_load(fleet, i)
    for k in range(rows_of(fleet, i)):
        at_boundary(fleet, row_of(fleet, i, k), t)  # a hold of the whole fleet holds this one too


@compiled
def blocks_used(fleet: int, which: int, t: float) -> int:
    """KV blocks in use at t on instance `which`, or on all together."""
    total = 0
    for i in range(first_of(which), end_of(fleet, which)):
        total += blocks_on(fleet, i, t)
    return total


@compiled
def add_up(fleet: int, t: float) -> None:
    """Writes into the fleet row what all instances come to at t; instance-seconds are of each account."""
    w = fleet_at(fleet, 0)
    w.up = 0
    w.running = 0
    w.waiting = 0
    w.prefilled = 0
    w.hit_tokens = 0
    w.host_tokens = 0
    w.kv_sum = 0
    w.kv_used = 0
    w.generated = 0
    w.preemptions = 0
    w.busy_s = w.paused_s = w.idle_s = w.down_s = w.off_s = 0.0
    for i in range(w.n_rows):
        instance = instance_at(w.instances, i)
        w.running += instance.running
        w.waiting += instance.waiting
        w.prefilled += instance.prefilled
        w.hit_tokens += instance.hit_tokens
        w.host_tokens += instance.host_tokens
        if i < w.n_instances:
            w.up += instance.account != tables.ACC_OFF
            w.kv_sum += instance.kv_sum
            w.generated += instance.generated
            w.preemptions += instance.preemptions
            w.kv_used += blocks_on(fleet, i, t)
            line, since = line_at(w.accounts, i, tables.ACCOUNTS * 8), t - instance.since
            w.busy_s += float_at(line, tables.ACC_BUSY)
            w.busy_s += since if instance.account == tables.ACC_BUSY else 0.0
            w.paused_s += float_at(line, tables.ACC_PAUSED)
            w.paused_s += since if instance.account == tables.ACC_PAUSED else 0.0
            w.idle_s += float_at(line, tables.ACC_IDLE)
            w.idle_s += since if instance.account == tables.ACC_IDLE else 0.0
            w.down_s += float_at(line, tables.ACC_DOWN)
            w.down_s += since if instance.account == tables.ACC_DOWN else 0.0
            w.off_s += float_at(line, tables.ACC_OFF)
            w.off_s += since if instance.account == tables.ACC_OFF else 0.0
    for k in range(w.n_stations):
        tally(fleet, k, t)


@entry("f8(i8, i8, i8, f8, f8)")
def command(fleet: int, what: int, which: int, t: float, value: float) -> float:
    """The one door for a run: does `what` (a CMD_ code) at time t to instance, group bound or todo `which`."""
    if what == tables.CMD_HOLD:
        hold(fleet, which, t, value)
    elif what == tables.CMD_RESUME:
        resume(fleet, t)
    elif what == tables.CMD_RECOMPUTE:
        recompute(fleet, which, t)
    elif what == tables.CMD_DISCARD:
        return float(discard(fleet, which, t))
    elif what == tables.CMD_NEW_EPOCH:
        new_epoch(fleet, which)
    elif what == tables.CMD_VERSION:
        serve_version(fleet, which, int(value), t)
    elif what == tables.CMD_MOVE:
        move(fleet, which, int(value), t)
    elif what == tables.CMD_BLOCKS:
        return float(blocks_used(fleet, which, t))
    elif what == tables.CMD_KILL:
        kill(fleet, which, t)
    elif what == tables.CMD_CLOSE:
        close(fleet, which)
    elif what == tables.CMD_REOPEN:
        reopen(fleet, which)
    elif what == tables.CMD_SWITCH_OFF:
        switch_off(fleet, which, t)
    elif what == tables.CMD_START:
        start(fleet, which, t)
    elif what == tables.CMD_REVIVE:
        revive(fleet, which, t)
    elif what == tables.CMD_TOTALS:
        add_up(fleet, t)
    return 0.0
