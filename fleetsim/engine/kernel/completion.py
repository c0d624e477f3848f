"""What completes samples and groups: a reward, then the judges, then the buffer.

A judge is a fleet of engines of its own, or asks those of the rollout (`judges.py`). A sample that has its reward is
read by every judge of samples, a group that has all its samples by every judge of groups, by all of them at the same
time.
"""

from __future__ import annotations

from fleetsim.engine.kernel import tables
from fleetsim.engine.kernel.addresses import fleet_at, group_at, int32_at, put_int32, sample_at
from fleetsim.engine.kernel.boundary import leave_instance, lose_rest
from fleetsim.engine.kernel.dispatch import owe
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.judges import ask_judges, ask_own
from fleetsim.engine.kernel.stations import let_go


@compiled
def put_ready(fleet: int, g: int) -> None:
    """A finished group meets the buffer: it goes in, waits at the door, or pushes the oldest out."""
    w = fleet_at(fleet, 0)
    group = group_at(w.groups, g)
    if w.n_ready >= w.ready_cap:
        if w.drop_oldest == 0:
            group.status = tables.G_BLOCKED
            put_int32(w.blocked, w.n_blocked, g)
            w.n_blocked += 1
            return
        oldest_group = int32_at(w.ready, 0)
        oldest = group_at(w.groups, oldest_group)
        oldest.status = tables.G_OVERFLOW
        oldest.left_s = group.ready_s
        for j in range(w.n_ready - 1):
            put_int32(w.ready, j, int32_at(w.ready, j + 1))
        w.n_ready -= 1
        w.credits += w.returns
        owe(fleet, oldest_group)
    group.status = tables.G_READY
    put_int32(w.ready, w.n_ready, g)
    w.n_ready += 1


@compiled
def scored(fleet: int, s: int, t: float) -> None:
    """A sample has its reward: its judges read it, where it has any."""
    w = fleet_at(fleet, 0)
    let_go(fleet, s, t)
    if w.judges != 0 or w.own_votes > 0:
        S = sample_at(w.samples, s)
        tokens = S.prompt + S.extra + S.made
        S.pending = ask_judges(fleet, tables.OF_SAMPLES, s, tokens, t) + ask_own(
            fleet, tables.OF_SAMPLES, S.asks, tokens, t
        )
        if S.pending > 0:
            return
    judged(fleet, s, t)


@compiled
def judged(fleet: int, s: int, t: float) -> None:
    """A sample is done; with the last one that is needed the group has its samples."""
    w = fleet_at(fleet, 0)
    S = sample_at(w.samples, s)
    if w.holds_slot == 1:
        leave_instance(fleet, s)
    S.status = tables.DONE
    group = group_at(w.groups, S.group)
    group.scored += 1
    if group.scored >= group.need:
        all_scored(fleet, S.group, t)


@compiled
def all_scored(fleet: int, g: int, t: float) -> None:
    """A group has all its samples: judges of groups read them, where there are any; the rest is aborted before."""
    w = fleet_at(fleet, 0)
    group = group_at(w.groups, g)
    if (w.judges != 0 or w.own_votes > 0) and group.zero_variance != tables.EVALUATED:  # an evaluation is no group
        if group.need < group.size:
            lose_rest(fleet, g, t)
        tokens = sample_at(w.samples, group.first).prompt
        for s in range(group.first, group.first + group.size):
            S = sample_at(w.samples, s)
            if S.status == tables.DONE:
                tokens += S.extra + S.made
        own = ask_own(fleet, tables.OF_GROUPS, sample_at(w.samples, group.first).asks, tokens, t)
        group.pending = ask_judges(fleet, tables.OF_GROUPS, g, tokens, t) + own
        if group.pending > 0:
            return
    complete(fleet, g, t)


@compiled
def answered(judge: int, r: int, t: float) -> None:
    """A judge has answered a request; with the last vote its sample or group has one answer more.

    An answer that nobody wants any more is thrown away: what was asked is answered.
    """
    of = judge if fleet_at(judge, 0).behind == 0 else fleet_at(judge, 0).behind
    w = fleet_at(of, 0)
    key = sample_at(w.samples, r).group
    votes = group_at(w.groups, key)
    votes.scored += 1
    if votes.scored < votes.size:
        return
    votes.ready_s = t
    one_answer_more(w.asked_by, w.reads, key, t)


@compiled
def one_answer_more(fleet: int, reads: int, key: int, t: float) -> None:
    """A sample or group waits for one answer less."""
    w = fleet_at(fleet, 0)
    if reads == tables.OF_GROUPS:
        group = group_at(w.groups, key)
        if group.status == tables.G_OPEN:
            group.pending -= 1
            if group.pending == 0:
                complete(fleet, key, t)
        return
    S = sample_at(w.samples, key)
    if S.status == tables.SCORING:
        S.pending -= 1
        if S.pending == 0:
            judged(fleet, key, t)


@compiled
def answered_here(fleet: int, r: int, t: float) -> None:
    """The rollout's own engines have answered a request of their judge."""
    w = fleet_at(fleet, 0)
    leave_instance(fleet, r)
    R = sample_at(w.samples, r)
    R.status = tables.DONE
    key = sample_at(w.samples, R.asks).group if w.own_reads == tables.OF_GROUPS else R.asks
    one_answer_more(fleet, w.own_reads, key, t)


@compiled
def complete(fleet: int, g: int, t: float) -> None:
    """A group has all that it needs."""
    w = fleet_at(fleet, 0)
    group = group_at(w.groups, g)
    group.ready_s = t
    if group.zero_variance == tables.EVALUATED:  # nobody trains it: who waits for it is told at once
        w.wake = 0
        return
    w.completed_groups += 1
    if group.need < group.size:
        lose_rest(fleet, g, t)
    if w.counts_open == 1:
        w.credits += 1
    if group.zero_variance == 1:
        group.status = tables.G_FILTERED
        w.credits += w.returns
        owe(fleet, g)
        return
    put_ready(fleet, g)


@compiled
def withhold(fleet: int, g: int, t: float) -> None:
    """A group is not trained: it is aborted, and another one may start."""
    w = fleet_at(fleet, 0)
    group_at(w.groups, g).status = tables.G_ABORTED
    w.aborted_groups += 1
    w.credits += w.returns + w.counts_open
    owe(fleet, g)
    lose_rest(fleet, g, t)


@compiled
def shrink(fleet: int, g: int, t: float) -> None:
    """A group has lost a sample: it needs no more than are left, and is aborted where none are."""
    w = fleet_at(fleet, 0)
    group = group_at(w.groups, g)
    group.dropped += 1
    group.need = min(group.need, group.size - group.dropped)
    if group.need == 0 and group.zero_variance != tables.EVALUATED:
        withhold(fleet, g, t)
    elif group.scored == group.need:
        all_scored(fleet, g, t)
