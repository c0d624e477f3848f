"""Stations of workers: tools and rewards whose number, start-up or patience is limited.

A call waits, first come first served, until a worker is free; the worker starts, serves it, and is free again, or stays
with its rollout. A worker that is kept warm needs no start. Where calls begin at a rate at most, a call keeps its
worker until its turn: nobody behind it could have used it. Behind a station's own workers there may be others, its
overflow, a row of its own: the first call that waits goes there once it has waited for long enough, one of them is free
and their rate lets it begin. There a call that waits for its turn has no worker, and may go, too. What the call does to
its sample is `landing.py`'s: nothing here knows a route. A call that was made is answered, also where nobody wants its
rollout any more; one whose episode is over ends with it.
"""

from __future__ import annotations

import math

import numpy as np

from fleetsim.engine.kernel.addresses import fleet_at, float_at, line_at, put_float, station_at, visit_at
from fleetsim.engine.kernel.deadlines import episode_ends
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.tables import CUT, FAILED, IN_SERVICE, LATE, LEVELS, NEEDS, NOWHERE, QUEUED, SERVED
from fleetsim.engine.kernel.trees import timer_push

# A wait that is longer is counted as this long.
LONGEST_S = 1e9


@compiled
def uniform(seed: int, a: int, b: int) -> float:
    """A number between 0 and 1 that belongs to (seed, a, b): no order of events changes it (Steele's mix of 2014)."""
    z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(a) * np.uint64(0xBF58476D1CE4E5B9)
    z += np.uint64(b) * np.uint64(0x94D049BB133111EB)
    for _ in range(2):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (float(z >> np.uint64(11)) + 0.5) / 9007199254740992.0


@compiled
def another_need(fleet: int, line: int, s: int) -> float:
    """Seconds of a call that is made again: of the same law, drawn anew."""
    w = fleet_at(fleet, 0)
    share = uniform(w.chance, 2 * s + 1, visit_at(w.visits, s).calls)
    return float_at(line_at(w.needs, line, NEEDS * 8), int(share * NEEDS))


@compiled
def level_of(n: int) -> int:
    """Where a number is counted: itself below 32, above in a sixteenth of its power of two."""
    shift = 0
    while n >> shift >= 32:
        shift += 1
    return min(n if shift == 0 else 16 * shift + (n >> shift), LEVELS - 1)


@compiled
def count_level(fleet: int, line: int, n: int, by: float) -> None:
    """Adds to what is counted of a number."""
    of = line_at(fleet_at(fleet, 0).levels, line, LEVELS * 8)
    level = level_of(n)
    put_float(of, level, float_at(of, level) + by)


@compiled
def count_wait(fleet: int, k: int, s: float) -> None:
    """Counts a call's wait, in milliseconds."""
    count_level(fleet, 2 * k + 1, int(1000.0 * s) if s < LONGEST_S else int(1000.0 * LONGEST_S), 1.0)


@compiled
def tally(fleet: int, k: int, t: float) -> None:
    """Adds up until t how many calls wait and are served, and how many workers are taken."""
    station = station_at(fleet_at(fleet, 0).stations, k)
    span = t - station.since
    if span == 0.0:  # the end of a call and the next call's beginning
        return
    station.waited_s += station.waiting * span
    station.served_s += station.serving * span
    station.used_s += station.used * span
    count_level(fleet, 2 * k, station.used, span)
    station.since = t


@compiled
def own_s(fleet: int, k: int, t: float) -> float:
    """When, from t on, the first call that waits at station k may have one of its workers; infinite: none is free."""
    station = station_at(fleet_at(fleet, 0).stations, k)
    if station.used >= station.workers:
        return math.inf
    return t if station.overflow == 0 else max(t, station.open_s)


@compiled
def overflow_s(fleet: int, k: int, t: float) -> float:
    """When, from t on, the first call that waits at station k may go to its overflow; infinite: not as things are."""
    w = fleet_at(fleet, 0)
    station = station_at(w.stations, k)
    if station.overflow == 0:
        return math.inf
    beyond = station_at(w.stations, station.overflow)
    if beyond.used >= beyond.workers:
        return math.inf
    return max(t, visit_at(w.visits, station.head).came_s + station.after_s, beyond.open_s)


@compiled
def look_at_heads(fleet: int, t: float) -> None:
    """When the next call leaves a queue: of a station's calls the first one."""
    w = fleet_at(fleet, 0)
    w.late_s = math.inf
    for k in range(w.n_stations):
        station = station_at(w.stations, k)
        if station.head >= 0:
            late_s = visit_at(w.visits, station.head).came_s + station.timeout_s
            w.late_s = min(w.late_s, late_s, own_s(fleet, k, t), overflow_s(fleet, k, t))


@compiled
def first_out(fleet: int, k: int, t: float) -> int:
    """Takes the first call out of those that wait at station k; returns its sample."""
    w = fleet_at(fleet, 0)
    tally(fleet, k, t)
    station = station_at(w.stations, k)
    s = station.head
    station.head = visit_at(w.visits, s).next
    if station.head < 0:
        station.tail = -1
    station.waiting -= 1
    return s


@compiled
def start_of(fleet: int, k: int, t: float) -> float:
    """Seconds until a fresh worker of station k begins: none where a warm one is ready."""
    w = fleet_at(fleet, 0)
    station = station_at(w.stations, k)
    if station.warm == 0:
        return station.start_s
    ready = line_at(w.warm_s, k, max(1, w.most_warm) * 8)
    if float_at(ready, station.warm_next) > t:
        return station.start_s
    put_float(ready, station.warm_next, t + station.start_s)
    station.warm_next = (station.warm_next + 1) % station.warm
    return 0.0


@compiled
def serve(fleet: int, s: int, t: float) -> None:
    """A worker takes the call of a sample; how it will end, and when, is known from here on."""
    w = fleet_at(fleet, 0)
    V = visit_at(w.visits, s)
    station = station_at(w.stations, V.station)
    own_end_s, cut_s = V.came_s + station.timeout_s, episode_ends(fleet, s)
    last_s = max(t, min(own_end_s, cut_s))
    turn_s = max(t, station.open_s)
    begin_s = min(turn_s, last_s)
    station.waited_s += begin_s - t
    station.served_s -= begin_s - t
    count_wait(fleet, V.station, begin_s - V.came_s)
    V.due_s = turn_s
    if turn_s <= last_s:
        station.open_s = turn_s + station.gap_s
        V.due_s += (0.0 if V.holds == 1 else start_of(fleet, V.station, turn_s)) + V.need_s
    V.outcome = SERVED
    if V.due_s > last_s:
        V.due_s = last_s
        V.outcome = LATE if own_end_s <= cut_s else CUT
    elif station.failure_share > 0.0 and uniform(w.chance, 2 * s, V.calls) < station.failure_share:
        V.outcome = FAILED
    V.where = IN_SERVICE
    V.holds = 1
    station.serving += 1


@compiled
def ring(fleet: int, s: int) -> None:
    """A timer for the end of the sample's service."""
    w = fleet_at(fleet, 0)
    timer_push(w.timer_s, w.timer_key, w.n_timers, visit_at(w.visits, s).due_s, s)
    w.n_timers += 1


@compiled
def call(fleet: int, s: int, k: int, need_s: float, t: float) -> bool:
    """A sample asks station k for so many seconds. True: it is served from now on, and its end needs a timer."""
    w = fleet_at(fleet, 0)
    V = visit_at(w.visits, s)
    if V.holds == 0:  # a worker that it has may be of the station's overflow
        V.station = k
    tally(fleet, V.station, t)
    station = station_at(w.stations, V.station)
    V.came_s = t
    V.need_s = need_s
    V.calls += 1
    station.calls += 1
    if V.holds == 1 or (station.head < 0 and own_s(fleet, V.station, t) <= t):
        station.used += 1 - V.holds
        serve(fleet, s, t)
        return True
    V.where = QUEUED
    V.next = -1
    if station.head >= 0:
        visit_at(w.visits, station.tail).next = s
    else:
        station.head = s
    station.tail = s
    station.waiting += 1
    if station.head == s:
        look_at_heads(fleet, t)
    return False


@compiled
def take_first(fleet: int, k: int, to: int, t: float) -> None:
    """The first call that waits at station k has a worker of station `to`, itself or its overflow, from now on."""
    w = fleet_at(fleet, 0)
    s = first_out(fleet, k, t)
    station_at(w.stations, k).calls -= 1
    visit_at(w.visits, s).station = to
    tally(fleet, to, t)
    there = station_at(w.stations, to)
    there.calls += 1
    there.used += 1
    serve(fleet, s, t)
    ring(fleet, s)
    look_at_heads(fleet, t)


@compiled
def let_go(fleet: int, s: int, t: float) -> None:
    """The worker that a sample has, if it has one that serves no call, takes the next one that waits."""
    w = fleet_at(fleet, 0)
    if w.n_stations == 0:
        return
    V = visit_at(w.visits, s)
    if V.holds == 0 or V.where != NOWHERE:
        return
    V.holds = 0
    k = V.station
    station = station_at(w.stations, k)
    tally(fleet, k, t)
    station.used -= 1
    if station.head >= 0 and own_s(fleet, k, t) <= t:
        take_first(fleet, k, k, t)
    elif station.head >= 0 or station.home != k:
        look_at_heads(fleet, t)


@compiled
def end_service(fleet: int, s: int) -> None:
    """The sample's service is over: the worker is free, unless it stays with the rollout; one that failed is gone."""
    w = fleet_at(fleet, 0)
    V = visit_at(w.visits, s)
    tally(fleet, V.station, V.due_s)
    station = station_at(w.stations, V.station)
    station.serving -= 1
    V.where = NOWHERE
    count_end(fleet, s)
    if station.episode == 0 or V.outcome == FAILED:
        let_go(fleet, s, V.due_s)


@compiled
def count_end(fleet: int, s: int) -> None:
    """A call has ended in one of three ways."""
    w = fleet_at(fleet, 0)
    V = visit_at(w.visits, s)
    station = station_at(w.stations, V.station)
    station.served += V.outcome == SERVED
    station.failed += V.outcome == FAILED
    station.late += V.outcome == LATE


@compiled
def take_out(fleet: int, s: int, t: float) -> None:
    """A call that waits, wherever it stands, waits no longer."""
    w = fleet_at(fleet, 0)
    V = visit_at(w.visits, s)
    station = station_at(w.stations, V.station)
    if station.head == s:
        first_out(fleet, V.station, t)
        look_at_heads(fleet, t)
    else:
        tally(fleet, V.station, t)
        before = station.head
        while visit_at(w.visits, before).next != s:
            before = visit_at(w.visits, before).next
        visit_at(w.visits, before).next = V.next
        if station.tail == s:
            station.tail = before
        station.waiting -= 1
    V.where = NOWHERE
    count_wait(fleet, V.station, t - V.came_s)


@compiled
def leave_queue(fleet: int) -> int:
    """At `late_s` a call that waits is timed out: returns its sample; or it has its turn, here or there: -1."""
    w = fleet_at(fleet, 0)
    k, now_s = -1, w.late_s  # the call that leaves gives late_s to the next one
    for other in range(w.n_stations):
        station = station_at(w.stations, other)
        if station.head < 0:
            continue
        if visit_at(w.visits, station.head).came_s + station.timeout_s <= now_s:
            k = other
        elif own_s(fleet, other, now_s) <= now_s:
            take_first(fleet, other, other, now_s)
            return -1
        elif overflow_s(fleet, other, now_s) <= now_s:
            take_first(fleet, other, station.overflow, now_s)
            return -1
    if k < 0:  # a rollout that has a worker of an overflow took the turn
        look_at_heads(fleet, now_s)
        return -1
    s = first_out(fleet, k, now_s)
    look_at_heads(fleet, now_s)
    V = visit_at(w.visits, s)
    V.where = NOWHERE
    V.outcome = LATE
    count_wait(fleet, k, now_s - V.came_s)
    count_end(fleet, s)
    return s
