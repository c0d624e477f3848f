"""What was asked of an instance between two iterations happens at its next boundary.

As in vLLM, where pause and abort are handled between iterations: work is discarded, caches are recomputed, an instance
dies, a hold begins.
"""

from __future__ import annotations

import math

from fleetsim.engine.kernel import tables
from fleetsim.engine.kernel.addresses import (
    fetch_prefix,
    fetch_sample,
    fleet_at,
    group_at,
    instance_at,
    int32_at,
    int64_at,
    put_int32,
    sample_at,
    station_at,
    visit_at,
)
from fleetsim.engine.kernel.blocks import give_back
from fleetsim.engine.kernel.deadlines import over_limit, stop_clocks, time_over
from fleetsim.engine.kernel.dispatch import enqueue, leave_flight
from fleetsim.engine.kernel.instance import account, cut, set_next
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.loads import end_load
from fleetsim.engine.kernel.members import ends_of, evict, leave_decodes, set_load, show_load, unlink, unwait
from fleetsim.engine.kernel.prefill import next_prefilling, prefill_row, withdraw
from fleetsim.engine.kernel.stations import let_go, take_out
from fleetsim.engine.kernel.trees import timer_push


@compiled
def drop_load(fleet: int, i: int, s: int) -> None:
    """A waiting request gives back what has come for it from the host, if anything has."""
    if sample_at(fleet_at(fleet, 0).samples, s).computed > 0:
        end_load(fleet, i, s)
        give_back(fleet, i, s)


@compiled
def leave_engine(fleet: int, i: int, s: int) -> None:
    """Takes a request out of the engine, wherever it stands; its place there is still taken."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if S.status == tables.RUNNING:
        if instance_at(w.instances, i).partial == s:
            instance_at(w.instances, i).partial = -1
        else:
            leave_decodes(fleet, i, s)
        unlink(fleet, i, s)
        give_back(fleet, i, s)
    else:
        unwait(fleet, i, s)
        drop_load(fleet, i, s)


@compiled
def remove(fleet: int, i: int, s: int) -> None:
    """Takes a request out of the instance."""
    leave_engine(fleet, i, s)
    leave_flight(fleet, s)
    instance_at(fleet_at(fleet, 0).instances, i).load -= 1


@compiled
def leave_instance(fleet: int, s: int) -> None:
    """An instance has one sample less, unless this one was taken from it already."""
    w = fleet_at(fleet, 0)
    if sample_at(w.samples, s).instance >= 0:
        leave_flight(fleet, s)
        set_load(fleet, sample_at(w.samples, s).instance, tables.LESS)


@compiled
def unwanted(fleet: int, s: int) -> bool:
    """Whether a sample's group was aborted, or is complete without it."""
    w = fleet_at(fleet, 0)
    group = group_at(w.groups, sample_at(w.samples, s).group)
    return group.status == tables.G_ABORTED or group.scored >= group.need


@compiled
def gone(fleet: int, s: int, t: float) -> None:
    """A sample is thrown away, with its tokens."""
    w = fleet_at(fleet, 0)
    w.aborted_tokens += sample_at(w.samples, s).made
    sample_at(w.samples, s).status = tables.GONE
    stop_clocks(fleet, s, tables.CUT, t)
    let_go(fleet, s, t)


@compiled
def holds_place(fleet: int, s: int) -> bool:
    """Whether a sample that no engine has takes room on its instance all the same: at a tool, or until it is scored."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    return S.instance >= 0 and (S.status == tables.AWAY or (S.status == tables.SCORING and w.holds_slot == 1))


@compiled
def set_aside(fleet: int, s: int, t: float) -> None:
    """A sample whose time is over and that no engine has is given up at once (`come_back`)."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    S.status = tables.AWAY
    S.side = tables.DECODING
    timer_push(w.timer_s, w.timer_key, w.n_timers, t, s)
    w.n_timers += 1


@compiled
def run_out(fleet: int, t: float) -> None:
    """The time of a sample is over: it stops where it is, computing at its engine's next boundary."""
    w = fleet_at(fleet, 0)
    s = time_over(fleet, t)
    if s < 0:
        return
    S = sample_at(w.samples, s)
    if S.status == tables.AWAY:
        if w.n_stations > 0 and visit_at(w.visits, s).where == tables.QUEUED:
            take_out(fleet, s, t)
            set_aside(fleet, s, t)
        return  # else its call ends now (`episode_ends`), or its cache is about to come
    if S.status == tables.UNSENT:
        drop_requeued(fleet, s)
    elif S.side == tables.PREFILLING:
        withdraw(fleet, s)
    else:
        ask(fleet, S.instance, tables.DO_DISCARD, t)
        return
    set_aside(fleet, s, t)


@compiled
def discard_here(fleet: int, i: int, t: float) -> None:
    """Removes every request that nobody wants any more, or whose time is over."""
    w = fleet_at(fleet, 0)
    for head in (instance_at(w.instances, i).head, instance_at(w.instances, i).wait_head):
        s = head
        while s >= 0:
            following = sample_at(w.samples, s).next
            if unwanted(fleet, s):
                remove(fleet, i, s)
                gone(fleet, s, t)
            elif over_limit(fleet, s) >= 0:
                leave_engine(fleet, i, s)
                set_aside(fleet, s, t)
            s = following


@compiled
def fetch_decodes(fleet: int, i: int) -> None:
    """Fetches the decodes of an instance, and then the prompts that they read: all of them are needed now."""
    w = fleet_at(fleet, 0)
    n, ends = instance_at(w.instances, i).heap_n, ends_of(fleet, i)
    for at in range(n):
        fetch_sample(w.samples, int64_at(ends, at) & 0xFFFFFFFF)
    for at in range(n):
        fetch_prefix(w.prefixes, sample_at(w.samples, int64_at(ends, at) & 0xFFFFFFFF).shared)


@compiled
def recompute_here(fleet: int, i: int) -> None:
    """Every running request loses its cache, keeps its tokens, and prefills again in its old order."""
    w = fleet_at(fleet, 0)
    s = instance_at(w.instances, i).wait_head
    while instance_at(w.instances, i).loading > 0:
        drop_load(fleet, i, s)
        s = sample_at(w.samples, s).next
    fetch_decodes(fleet, i)
    instance_at(w.instances, i).heap_n = 0  # all of them leave it: none has to be looked for
    while instance_at(w.instances, i).tail >= 0:
        evict(fleet, i, instance_at(w.instances, i).tail)


@compiled
def lose(fleet: int, s: int, t: float) -> None:
    """A sample starts again from its prompt, at the front of the queue."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    w.lost_tokens += S.made
    S.made = 0
    S.goal = 0
    S.turn = 0
    if group_at(w.groups, S.group).zero_variance < tables.EVALUATED:  # there it is the prompt's own part
        S.extra = 0
    S.redo = 0
    S.side = tables.DECODING
    S.instance = -1
    S.status = tables.UNSENT
    S.first_token_s = -1.0
    put_int32(w.requeue, w.n_requeued, s)
    w.n_requeued += 1
    stop_clocks(fleet, s, tables.CUT, t)
    let_go(fleet, s, t)


@compiled
def to_client(fleet: int, s: int) -> None:
    """A request goes back to the client with its tokens and without its cache; it will be sent again."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    instance_at(w.instances, S.instance).load -= 1
    leave_flight(fleet, s)
    S.instance = -1
    if S.status < tables.AWAY:
        S.side = tables.DECODING
        S.status = tables.UNSENT
        put_int32(w.requeue, w.n_requeued, s)
        w.n_requeued += 1


@compiled
def away_from(fleet: int, i: int, to: int, t: float) -> None:
    """The samples that hold a place on instance i (`holds_place`) come back to instance `to`, or to the client (-1)."""
    w = fleet_at(fleet, 0)
    if instance_at(w.instances, i).load == 0:
        return
    for j in range(w.n_timers):
        one_away_from(fleet, int64_at(w.timer_key, j), i, to, t)
    for k in range(w.n_stations):  # what waits for a worker has no timer
        s = station_at(w.stations, k).head
        while s >= 0:
            one_away_from(fleet, s, i, to, t)
            s = visit_at(w.visits, s).next
    if w.holds_slot == 1 and w.judges != 0:  # nor has what a judge reads
        for s in range(w.n_samples):
            one_away_from(fleet, s, i, to, t)


@compiled
def one_away_from(fleet: int, s: int, i: int, to: int, t: float) -> None:
    """The same of one sample, if it is one of them."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if S.instance != i or not holds_place(fleet, s):
        return
    if to < 0:
        to_client(fleet, s)
        return
    S.instance = to
    S.sent_s = t
    instance_at(w.instances, i).load -= 1
    instance_at(w.instances, to).load += 1


@compiled
def kill_here(fleet: int, i: int, t: float) -> None:
    """The instance is gone: its work goes back to the queue, samples away at a tool lose their cache only."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    while instance.wait_tail >= 0:
        s = instance.wait_tail
        remove(fleet, i, s)
        lose(fleet, s, t)
    while instance.tail >= 0:
        s = instance.tail
        remove(fleet, i, s)
        lose(fleet, s, t)
    away_from(fleet, i, tables.ALL, t)
    instance.kind = tables.DOWN
    instance.epoch += 1
    account(fleet, i, tables.ACC_DOWN, t)
    for row in range(prefill_row(fleet, i), prefill_row(fleet, i) + w.prefills):
        s = next_prefilling(fleet, row)
        while s >= 0:
            withdraw(fleet, s)
            leave_flight(fleet, s)
            instance.load -= 1
            lose(fleet, s, t)
            s = next_prefilling(fleet, row)
        instance_at(w.instances, row).kind = tables.DOWN
        instance_at(w.instances, row).epoch += 1
        account(fleet, row, tables.ACC_DOWN, t)
        set_next(fleet, row, math.inf)


@compiled
def move_here(fleet: int, i: int, t: float) -> None:
    """Every request of the instance moves to another one, or back to the client, and prefills again."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    to = instance.move_to
    recompute_here(fleet, i)
    if to < 0:
        while instance.wait_tail >= 0:
            s = instance.wait_tail
            unwait(fleet, i, s)
            to_client(fleet, s)
    else:
        while instance.wait_head >= 0:
            s = instance.wait_head
            unwait(fleet, i, s)
            instance.load -= 1
            instance_at(w.instances, to).load += 1
            sample_at(w.samples, s).sent_s = t
            enqueue(fleet, to, s, t)
    away_from(fleet, i, to, t)
    for row in range(prefill_row(fleet, i), prefill_row(fleet, i) + w.prefills):
        s = next_prefilling(fleet, row)
        while s >= 0:
            withdraw(fleet, s)
            if to < 0:
                to_client(fleet, s)
            else:
                instance.load -= 1
                instance_at(w.instances, to).load += 1
                sample_at(w.samples, s).sent_s = t
                enqueue(fleet, to, s, t)
            s = next_prefilling(fleet, row)
    show_load(fleet, i)
    if to >= 0:
        show_load(fleet, to)


@compiled
def at_boundary(fleet: int, i: int, t: float) -> None:
    """What was asked for since the last boundary, then a hold if one is on."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    todo = instance.todo
    instance.todo = 0
    if todo & tables.DO_DISCARD:
        discard_here(fleet, i, t)
        show_load(fleet, i)
    if todo & tables.DO_KILL:
        kill_here(fleet, i, t)
        return
    if todo & tables.DO_RECOMPUTE:
        recompute_here(fleet, i)
        instance.epoch += w.hosts  # nor may the host give it back to them
    if todo & tables.DO_MOVE:
        move_here(fleet, i, t)
    if instance.hold_until > t:
        instance.kind = tables.WAKE
        account(fleet, i, tables.ACC_PAUSED, t)
        set_next(fleet, i, instance.hold_until)


@compiled
def ask(fleet: int, i: int, todo: int, t: float) -> None:
    """Asks instance i to do something at its first boundary at or after t."""
    w = fleet_at(fleet, 0)
    instance = instance_at(w.instances, i)
    if instance.kind == tables.DOWN:
        return
    instance.todo |= todo
    if instance.kind == tables.JUMP:
        cut(fleet, i, t)
    elif instance.kind == tables.WAKE:
        if todo & tables.DO_KILL:
            set_next(fleet, i, t)
        else:
            hold = instance.hold_until
            instance.hold_until = 0.0
            at_boundary(fleet, i, t)
            instance.hold_until = hold
    elif instance.kind != tables.STEP and instance.kind != tables.LANDING:
        at_boundary(fleet, i, t)


@compiled
def drop_requeued(fleet: int, s: int) -> None:
    """Takes a sample out of the queue of those that lost their instance."""
    w = fleet_at(fleet, 0)
    kept = 0
    for j in range(w.n_requeued):
        other = int32_at(w.requeue, j)
        if other != s:
            put_int32(w.requeue, kept, other)
            kept += 1
    w.n_requeued = kept


@compiled
def lose_rest(fleet: int, g: int, t: float) -> None:
    """What is unfinished of a group that is aborted, or complete without it, goes: where it computes, at a boundary."""
    w = fleet_at(fleet, 0)
    group = group_at(w.groups, g)
    for s in range(group.first, group.first + group.size):
        S = sample_at(w.samples, s)
        if holds_place(fleet, s):
            leave_instance(fleet, s)
        if (
            S.status >= tables.AWAY
            and S.status != tables.GONE
            and (S.status != tables.DONE or group.status == tables.G_ABORTED)
        ):
            gone(fleet, s, t)
        elif S.status == tables.UNSENT:
            drop_requeued(fleet, s)
            gone(fleet, s, t)
        elif S.side == tables.PREFILLING:
            withdraw(fleet, s)
            leave_instance(fleet, s)
            gone(fleet, s, t)
        elif S.instance >= 0 and S.status != tables.DONE and S.status != tables.GONE:
            ask(fleet, S.instance, tables.DO_DISCARD, t)
    if w.sent > 0 and w.next_group == g:
        w.sent = 0
        w.next_group += 1
