"""Time limits: of a turn, and of an episode, which is a rollout from when it is sent until its last token.

Each is a row of the stations without a worker. All its clocks run for equally long, so those that count stand in the
order in which they end. What becomes of a rollout whose time is over is `landing.py`'s.
"""

from __future__ import annotations

import math

from fleetsim.engine.kernel.addresses import deadline_at, fleet_at, group_at, sample_at, station_at
from fleetsim.engine.kernel.jit import compiled
from fleetsim.engine.kernel.tables import ASKED, COUNTING, EPISODE, OFF, OVER, SERVED, TURN, WAITED


@compiled
def limit_of(fleet: int, what: int) -> int:
    """Row of the stations that limits a turn, or an episode; -1: nothing does."""
    w = fleet_at(fleet, 0)
    return w.turn_limit if what == TURN else w.episode_limit


@compiled
def look_at_deadlines(fleet: int) -> None:
    """When the next time is over."""
    w = fleet_at(fleet, 0)
    w.due_s = math.inf
    for what in (TURN, EPISODE):
        k = limit_of(fleet, what)
        if k >= 0 and station_at(w.stations, k).first_due >= 0:
            w.due_s = min(w.due_s, deadline_at(w.deadlines, station_at(w.stations, k).first_due).at_s)


@compiled
def start_clock(fleet: int, s: int, what: int, t: float) -> None:
    """The time of a sample's turn, or episode, counts from t on, unless it does already."""
    w = fleet_at(fleet, 0)
    k, row = limit_of(fleet, what), 2 * s + what
    if k < 0 or group_at(w.groups, sample_at(w.samples, s).group).zero_variance == ASKED:
        return
    D, station = deadline_at(w.deadlines, row), station_at(w.stations, k)
    if D.state != OFF:
        return
    station.calls += 1
    D.state = COUNTING
    D.at_s = t + station.timeout_s
    D.prev = station.last_due
    D.next = -1
    if station.last_due >= 0:
        deadline_at(w.deadlines, station.last_due).next = row
    else:
        station.first_due = row
    station.last_due = row
    look_at_deadlines(fleet)


@compiled
def leave_order(fleet: int, row: int, t: float) -> None:
    """A clock that counts stops."""
    w = fleet_at(fleet, 0)
    D, station = deadline_at(w.deadlines, row), station_at(w.stations, limit_of(fleet, row % 2))
    station.served_s += t - (D.at_s - station.timeout_s)
    D.state = OFF
    if D.prev >= 0:
        deadline_at(w.deadlines, D.prev).next = D.next
    else:
        station.first_due = D.next
    if D.next >= 0:
        deadline_at(w.deadlines, D.next).prev = D.prev
    else:
        station.last_due = D.prev
    look_at_deadlines(fleet)


@compiled
def stop_clock(fleet: int, s: int, what: int, outcome: int, t: float) -> None:
    """A sample's turn, or episode, has ended, in time where it did with the iteration in which its time was over; or
    nobody asks for its time any more."""
    w = fleet_at(fleet, 0)
    k = limit_of(fleet, what)
    if k < 0:
        return
    D = deadline_at(w.deadlines, 2 * s + what)
    if D.state == COUNTING:
        leave_order(fleet, 2 * s + what, t)
        station_at(w.stations, k).served += outcome == SERVED
    elif D.state == OVER and outcome == SERVED:
        station_at(w.stations, k).late -= 1
        station_at(w.stations, k).served += 1
    D.state = OFF


@compiled
def stop_clocks(fleet: int, s: int, outcome: int, t: float) -> None:
    """The same of both."""
    stop_clock(fleet, s, TURN, outcome, t)
    stop_clock(fleet, s, EPISODE, outcome, t)


@compiled
def time_over(fleet: int, t: float) -> int:
    """The first clock has run out: returns its sample, or -1 where the sample is waited for all the same."""
    w = fleet_at(fleet, 0)
    row = -1
    for what in (TURN, EPISODE):
        k = limit_of(fleet, what)
        first = station_at(w.stations, k).first_due if k >= 0 else -1
        if first >= 0 and deadline_at(w.deadlines, first).at_s == w.due_s:
            row = first
    leave_order(fleet, row, t)
    station = station_at(w.stations, limit_of(fleet, row % 2))
    station.late += 1
    if station.policy == WAITED:
        return -1
    deadline_at(w.deadlines, row).state = OVER
    return row // 2


@compiled
def over_limit(fleet: int, s: int) -> int:
    """Row of the limit whose time is over for a sample; -1: none is."""
    w = fleet_at(fleet, 0)
    for what in (TURN, EPISODE):
        k = limit_of(fleet, what)
        if k >= 0 and deadline_at(w.deadlines, 2 * s + what).state == OVER:
            return k
    return -1


@compiled
def episode_ends(fleet: int, s: int) -> float:
    """When the time of a sample's episode is over, at its tool at the latest; infinite: it is waited for."""
    w = fleet_at(fleet, 0)
    if w.episode_limit < 0 or station_at(w.stations, w.episode_limit).policy == WAITED:
        return math.inf
    D = deadline_at(w.deadlines, 2 * s + EPISODE)
    return D.at_s if D.state == COUNTING else math.inf
