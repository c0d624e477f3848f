"""Judges: fleets of engines beside the rollout fleet that read what it has made, each a fleet row of its own.

Their engines are the rollout's in all but their coefficients: every function of an engine takes a fleet row, and a
judge's is one. What a judge is asked about a sample, or about a group, stands in the row of the same index in its own
table of groups; its votes are the samples there. A judge may also be at the rollout's engines: its requests are samples
of the rollout's own table, sent like those that lost their instance. What the answers do is `completion.py`'s.

Behind a judge's engines there may be an API, its overflow: a fleet row that holds the same requests once more. There a
request that finds every engine full (`max_num_seqs`) waits in line; the first one goes to the engine that has a place
next, or to the API once it has waited for long enough, there is room and its rate lets it begin.
"""

from __future__ import annotations

import math

from fleetsim.engine.kernel.addresses import fleet_at, float_at, group_at, put_float, put_int32, sample_at
from fleetsim.engine.kernel.dispatch import route_sample, send
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.tables import G_NEW, G_OPEN, GONE, UNSENT
from fleetsim.engine.kernel.trees import timer_push


@compiled
def put_to(judge: int, r: int, t: float) -> None:
    """A request reaches a judge: it goes to one of its instances, whose queue has no end."""
    w = fleet_at(judge, 0)
    send(judge, route_sample(judge, sample_at(w.samples, r).group), r, t)


@compiled
def enter(judge: int, r: int, t: float) -> None:
    """A request goes to a judge, as soon as the limits on its rate let it."""
    w = fleet_at(judge, 0)
    R = sample_at(w.samples, r)
    gap = w.gate_request_s + w.gate_token_s * (R.prompt + R.target)
    if gap == 0.0 and w.reach_s == 0.0:
        put_to(judge, r, t)
        return
    begins = max(t, w.gate_s)
    w.gate_s = begins + gap
    timer_push(w.timer_s, w.timer_key, w.n_timers, begins + w.reach_s, r)
    w.n_timers += 1


@compiled
def stand_in_line(judge: int, r: int, t: float) -> None:
    """A request waits for a place behind all that do; `move_line` looks at it at once."""
    w = fleet_at(judge, 0)
    sample_at(w.samples, r).next = -1
    if w.line_head < 0:
        w.line_head = r
        w.late_s = t
    else:
        sample_at(w.samples, w.line_tail).next = r
    w.line_tail = r


@compiled
def beyond_s(judge: int, t: float) -> float:
    """When, from t on, the first request in line may go to the overflow; infinite: not as things are."""
    w = fleet_at(judge, 0)
    beyond = fleet_at(w.beyond, 0)
    if w.line_head < 0 or beyond.in_flight + beyond.n_timers >= beyond.cap:
        return math.inf
    came_s = group_at(w.groups, sample_at(w.samples, w.line_head).group).submit_s
    return max(t, came_s + w.after_s, beyond.gate_s)


@compiled
def move_line(judge: int, t: float) -> None:
    """Who waits in line goes where there is a place: to an engine, else to the overflow."""
    w = fleet_at(judge, 0)
    while w.line_head >= 0:
        r = w.line_head
        R = sample_at(w.samples, r)
        i = route_sample(judge, R.group)
        if i < 0 and beyond_s(judge, t) > t:
            break
        w.line_head = R.next
        if i >= 0:
            send(judge, i, r, t)
        else:
            R.status = GONE
            sample_at(fleet_at(w.beyond, 0).samples, r).prompt = R.prompt
            enter(w.beyond, r, t)
    w.late_s = beyond_s(judge, t)


@compiled
def ask(judge: int, key: int, tokens: int, t: float) -> None:
    """A judge is asked about a sample or a group of so many tokens: every vote reads them behind its own prompt."""
    w = fleet_at(judge, 0)
    votes = group_at(w.groups, key)
    votes.status = G_OPEN
    votes.submit_s = t
    for r in range(votes.first, votes.first + votes.size):
        R = sample_at(w.samples, r)
        R.prompt = max(1, R.prompt + int(w.reads_share * tokens))
        if w.beyond != 0:
            stand_in_line(judge, r, t)
        else:
            enter(judge, r, t)


@compiled
def ask_judges(fleet: int, reads: int, key: int, tokens: int, t: float) -> int:
    """Asks every judge of samples, or of groups, that was not asked about this one; returns how many that were."""
    judge = fleet_at(fleet, 0).judges
    n = 0
    while judge != 0:
        w = fleet_at(judge, 0)
        if w.reads == reads and key < w.n_groups and group_at(w.groups, key).status == G_NEW:
            ask(judge, key, tokens, t)
            n += 1
        judge = w.next_judge
    return n


@compiled
def ask_own(fleet: int, reads: int, first: int, tokens: int, t: float) -> int:
    """Asks the rollout's own engines about a sample or group of so many tokens, unless they were asked; returns by how
    many requests. first: the first of them, -1 = none."""
    w = fleet_at(fleet, 0)
    if w.own_votes == 0 or w.own_reads != reads or first < 0 or sample_at(w.samples, first).status != GONE:
        return 0
    for r in range(first, first + w.own_votes):
        R = sample_at(w.samples, r)
        R.extra += int(w.own_share * tokens)
        R.status = UNSENT
        put_float(w.reward_s, r, t)
        put_int32(w.requeue, w.n_requeued, r)
        w.n_requeued += 1
    return w.own_votes


@compiled
def next_of_judges(fleet: int) -> float:
    """When the next thing happens at a judge."""
    judge = fleet_at(fleet, 0).judges
    t = math.inf
    while judge != 0:
        w = fleet_at(judge, 0)
        t = min(t, float_at(w.clock, 1), w.late_s)
        if w.n_timers > 0:
            t = min(t, float_at(w.timer_s, 0))
        judge = w.next_judge
    return t
