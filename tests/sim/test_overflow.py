"""Stations with an overflow: workers of another kind behind their own.

- By hand: who goes there, and when: at once, after a wait, at a rate, to a limited number of workers, for an episode.
- Erlang B, M/M/c and M/D/1 (a rate) with a fixed patience, and M/M/(c + m): shares and waits in closed form.
- Call by call against a simulator of its own, in which a call is a row and time a heap.
- Jumps against the loop; books that balance; what it costs.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import Any

import numpy as np
import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.errors import InputError
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from tests.sim.test_stations import TWO_TURNS, erlang_wait, one_batch, open_fleet
from tests.sim.timelines import whole

EXPONENTIAL = {"kind": "gamma", "mean": 1.0, "cv": 1.0}


@pytest.mark.parametrize(
    ("overflow", "finish", "waited_s", "there"),
    [
        # all three ask at 1; one has the worker from 1 to 5, the others go there at once
        ({}, (6, 6, 6), 0, 2),
        # they wait for two seconds first, and are served from 3 to 7
        ({"after_s": 2.0}, (6, 8, 8), 4, 2),
        # the worker is free again before they go there: the second has it from 5 to 9; the third goes there at 6
        ({"after_s": 5.0}, (6, 10, 11), 9, 1),
        # a worker there begins after a second
        ({"start_s": 1.0}, (6, 7, 7), 0, 2),
        # one goes there at 1, the next may at 3
        ({"calls_per_s": 0.5}, (6, 6, 8), 2, 2),
        # the next may at 11: it has the worker at 5
        ({"calls_per_s": 0.1}, (6, 6, 10), 4, 1),
        # one worker there, from 1 to 5: at 5 both are free, and its own is first
        ({"workers": 1}, (6, 6, 10), 4, 1),
        # one there, from 1 to 8; its own is free at 5
        ({"workers": 1, "start_s": 3.0}, (6, 9, 10), 4, 1),
    ],
)
def test_who_goes_there_by_hand(
    overflow: dict[str, Any], finish: tuple[float, ...], waited_s: float, there: int
) -> None:
    run = one_batch([2, 2, 2], TWO_TURNS, tools={"workers": 1, "overflow": {"usd_per_call": 0.5, **overflow}})
    assert whole(np.sort(run.samples["finish_s"])) == finish
    own, beyond = run.stations[-2:]
    assert (own["calls"], beyond["calls"]) == (3 - there, there)
    assert own["waited_s"] + beyond["waited_s"] == pytest.approx(waited_s, abs=0.1)
    told = metrics_of(run)["stations"]["tools"]
    assert told["overflow_share"] == there / 3
    assert told["overflow_usd"] == 0.5 * there


@pytest.mark.parametrize(
    ("own", "overflow", "finish", "waited_s", "there"),
    [
        # all three ask at 1, of which one may begin; the others go there at once, also where a worker is free
        ({}, {}, (6, 6, 6), 0, 2),
        ({"workers": 3}, {}, (6, 6, 6), 0, 2),
        # at 3 both are open, and its own is first; the third has waited for as long, and goes there
        ({}, {"after_s": 2.0}, (6, 8, 8), 4, 1),
        # it waits for another second first; nobody does who begins at 5
        ({}, {"after_s": 3.0}, (6, 8, 9), 5, 1),
        ({}, {"after_s": 5.0}, (6, 8, 10), 6, 0),
        # one goes there at 1, and the third begins at 3 at its own: one there has a second's turn, too
        ({}, {"calls_per_s": 0.5}, (6, 6, 8), 2, 1),
        ({}, {"workers": 1}, (6, 6, 8), 2, 1),
        # the one worker is free at 5
        ({"workers": 1}, {"after_s": 4.5}, (6, 10, 10.5), 8.5, 1),
    ],
)
def test_what_a_rate_lets_wait_goes_there_by_hand(
    own: dict[str, Any], overflow: dict[str, Any], finish: tuple[float, ...], waited_s: float, there: int
) -> None:
    """A call every two seconds."""
    run = one_batch([2, 2, 2], TWO_TURNS, tools={"calls_per_s": 0.5, **own, "overflow": overflow})
    assert np.sort(run.samples["finish_s"]) == pytest.approx(finish, abs=1e-2)
    mine, beyond = run.stations[-2:]
    assert (mine["calls"], beyond["calls"]) == (3 - there, there)
    assert mine["waited_s"] + beyond["waited_s"] == pytest.approx(waited_s, abs=0.1)


@pytest.mark.parametrize("there", [{"workers": 2, "start_s": 1.0}, {"calls_per_s": 0.5}, {}])
def test_without_workers_of_its_own_all_calls_go_there(there: dict[str, Any]) -> None:
    """As at a station that has what the overflow has; after a wait, so much later."""
    turns = {"count": 3, "tool_latency_s": 4.0}
    for after_s in (0.0, 2.0):
        tools = {"workers": 0, "overflow": {"usd_per_call": 0.5, "after_s": after_s, **there}}
        run, alone = one_batch([2, 3, 4], turns, tools=tools), one_batch([2, 3, 4], turns, tools=there)
        later_s = run.samples["finish_s"] - alone.samples["finish_s"]
        assert later_s == pytest.approx(2 * after_s if not there or not after_s else later_s, abs=1e-6)
        assert (later_s >= -1e-6).all()
        told = metrics_of(run)["stations"]["tools"]
        assert (told["overflow_share"], told["busy_fraction"], told["overflow_usd"]) == (1.0, 0.0, 0.5 * 6)


def test_an_episode_keeps_the_worker_that_it_has_there() -> None:
    """Three turns, two calls of 4 s: one rollout keeps the worker from 1 to 11, the other one there for both calls,
    with one start-up of 3 s."""
    tools = {"workers": 1, "fresh_per": "episode", "overflow": {"start_s": 3.0}}
    run = one_batch([3, 3], {"count": 3, "tool_latency_s": 4.0}, tools=tools)
    assert whole(np.sort(run.samples["finish_s"])) == (11, 14)
    assert run.stations[-2:]["calls"].tolist() == [2, 2]


def test_a_call_that_is_late_there_is_made_again_at_the_station() -> None:
    """Its own worker starts for 1 s and serves from 1 to 6, the one there from 1 to 5. The third goes there at 5, is
    timed out at 6.5 and asks the station again: its own worker, free since 6, serves it to 11.5."""
    tools = {"workers": 1, "start_s": 1.0, "timeout_s": 5.5, "tries": 2, "overflow": {"workers": 1}}
    run = one_batch([2, 2, 2], TWO_TURNS, tools=tools)
    assert whole(np.sort(run.samples["finish_s"])) == (6, 7, 12.5)
    assert run.stations[-2:]["late"].tolist() == [0, 1]
    assert run.stations[-2:]["calls"].tolist() == [2, 2]


def overflowed(station: dict[str, Any], rate: float, n: int, seed: int) -> tuple[float, float]:
    """The share of n calls that went to the overflow, and the mean wait of all; they come at random, with exponential
    service of a second in the mean."""
    gaps = np.random.default_rng(500 + seed).exponential(1.0 / rate, n)
    fleet = open_fleet(np.cumsum(gaps), {"tools": station}, EXPONENTIAL, 2, seed)
    fleet.advance(math.inf)
    fleet.add_up(fleet.now)
    own, beyond = fleet.world.stations
    assert own["calls"] + beyond["calls"] == own["served"] + beyond["served"] == n
    assert own["waiting"] == own["serving"] == own["used"] == beyond["serving"] == beyond["used"] == 0
    return float(beyond["calls"]) / n, float(own["waited_s"] + beyond["waited_s"]) / n


def with_patience(c: int, rate: float, patience_s: float) -> float:
    """The share that leaves M/M/c with service of a second unserved, where nobody waits longer: by the density of the
    wait that is offered (Gnedenko and Kovalenko 1968; with no patience it is Erlang B)."""
    at = [rate**k / math.factorial(k) for k in range(c)]
    level, grows = rate * at[-1], rate - c
    below = level * (patience_s if grows == 0 else math.expm1(grows * patience_s) / grows)
    beyond = level * math.exp(grows * patience_s) / c
    return beyond / (sum(at) + below + beyond)


@pytest.mark.parametrize(
    ("workers", "rate", "after_s"), [(4, 3.2, 0.0), (1, 2.0, 0.0), (4, 3.2, 0.5), (3, 4.5, 0.3), (8, 6.0, 0.1)]
)
def test_the_share_that_overflows_is_erlang_b_and_with_a_wait_that_of_a_fixed_patience(
    workers: int, rate: float, after_s: float
) -> None:
    station = {"workers": workers, "overflow": {"after_s": after_s}}
    found = [overflowed(station, rate, 10_000, seed)[0] for seed in range(8)]
    mean, half = np.mean(found), 2.365 * np.std(found, ddof=1) / math.sqrt(len(found))
    assert abs(mean - with_patience(workers, rate, after_s)) < 1.5 * half
    assert half < 0.1 * mean, "else the test says nothing"


def with_patience_at_a_rate(rate: float, calls_per_s: float, patience_s: float) -> float:
    """The same of a queue whose calls begin so far apart, M/D/1: what is ahead of a call that is let in has the law of
    the queue that nobody leaves (Erlang 1909), which with a load above 1 is a measure as well."""
    gap_s = 1.0 / calls_per_s
    ahead = [rate * (patience_s - k * gap_s) for k in range(int(patience_s / gap_s) + 1)]
    within = sum(math.exp(x) * (-x) ** k / math.factorial(k) for k, x in enumerate(ahead))
    return 1.0 - within / (1.0 + rate * gap_s * within)


@pytest.mark.parametrize(("rate", "calls_per_s", "after_s"), [(3.2, 4.0, 0.0), (3.2, 4.0, 0.6), (6.0, 4.0, 0.4)])
def test_the_share_that_a_rate_lets_overflow_is_that_of_m_d_1_with_a_fixed_patience(
    rate: float, calls_per_s: float, after_s: float
) -> None:
    """Without a wait, Erlang B of one server, whatever its law: load / (1 + load). A million workers are no limit."""
    theory = with_patience_at_a_rate(rate, calls_per_s, after_s)
    if not after_s:
        assert theory == pytest.approx(rate / (rate + calls_per_s))
    station = {"calls_per_s": calls_per_s, "overflow": {"after_s": after_s}}
    found = [overflowed(station, rate, 10_000, seed) for seed in range(8)]
    assert overflowed(station | {"workers": 1_000_000}, rate, 10_000, 0) == found[0]
    mean, half = np.mean([share for share, _ in found]), 2.365 * np.std([s for s, _ in found], ddof=1) / math.sqrt(8)
    assert abs(mean - theory) < 1.5 * half
    assert half < 0.1 * mean, "else the test says nothing"


def test_as_many_workers_there_with_one_queue_are_m_m_c() -> None:
    """Two and two that serve alike: the wait of M/M/4."""
    found = [overflowed({"workers": 2, "overflow": {"workers": 2}}, 3.2, 20_000, seed)[1] for seed in range(8)]
    mean, half = np.mean(found), 2.365 * np.std(found, ddof=1) / math.sqrt(len(found))
    assert abs(mean - erlang_wait(4, 0.8)) < 1.5 * half
    assert half < 0.15 * mean


def by_hand(
    came: list[float], needs: list[float], workers: int, start_s: float, timeout_s: float, gap_s: float,
    overflow: dict[str, Any],
) -> tuple[list[float], list[bool]]:  # fmt: skip
    """When each call ends, and whether it went there: whoever is first in the queue goes to the first place that it may
    have, where its turn has come. At each time first what ends, then what comes, then who is given up, then who begins,
    then who goes there."""
    queue, busy, ends = deque[int](), [0, 0], [math.inf] * len(came)
    there, opens_s = [False] * len(came), [0.0, 0.0]
    times = [(t, 1, i) for i, t in enumerate(came)]
    heapq.heapify(times)

    def begin(i: int, t: float, where: int) -> None:
        busy[where], there[i] = busy[where] + 1, bool(where)
        opens_s[where] = t + (1.0 / overflow.get("calls_per_s", math.inf) if where else gap_s)
        own_s = overflow.get("start_s", 0.0) if where else start_s
        ends[i] = min(t + own_s + needs[i], came[i] + timeout_s)
        heapq.heappush(times, (ends[i], 0, i))

    while times:
        t, what, i = heapq.heappop(times)
        if what == 0:
            busy[there[i]] -= 1
            if not there[i] and queue and opens_s[0] <= t:
                begin(queue.popleft(), t, 0)
        elif what == 1:
            queue.append(i)
            heapq.heappush(times, (t + timeout_s, 2, i))
        while queue:  # of what is left, the first one leaves, or is looked at again
            first = queue[0]
            own_s = opens_s[0] if busy[0] < workers else math.inf
            may_s = max(came[first] + overflow.get("after_s", 0.0), opens_s[1])
            if came[first] + timeout_s <= t:
                ends[queue.popleft()] = t
            elif own_s <= t:
                begin(queue.popleft(), t, 0)
            elif busy[1] < overflow.get("workers", math.inf) and may_s <= t:
                begin(queue.popleft(), t, 1)
            else:
                later_s = min((x for x in (own_s, may_s) if x > t), default=math.inf)
                if later_s < math.inf:
                    heapq.heappush(times, (later_s, 3, first))
                break
    return ends, there


@pytest.mark.parametrize("seed", range(24))
def test_call_by_call_it_is_what_a_simulator_of_its_own_does(seed: int) -> None:
    """A call comes when its first turn has its token, and the second turn takes an iteration, or what is left of one
    before: so much later the rollout is through, and no other rollout in another order. The last twelve have a rate of
    their own, every other one without a limit on workers."""
    draw = np.random.default_rng(seed)
    workers, n, timeout_s = int(draw.integers(1, 5)), 600, float(draw.choice([math.inf, 4.0]))
    start_s = float(draw.choice([0.0, 0.21]))
    overflow = {"after_s": float(draw.choice([0.0, 0.4, 1.3])), "start_s": float(draw.choice([0.0, 0.5]))}
    if draw.random() < 0.6:
        overflow["workers"] = int(draw.integers(1, 4))
    if draw.random() < 0.6:
        overflow["calls_per_s"] = float(draw.uniform(0.5, 2.5))
    arrivals = np.cumsum(draw.exponential(1.0 / (1.3 * workers), n))
    station: dict[str, Any] = {"workers": workers, "start_s": start_s, "overflow": overflow, "lost": "truncated"}
    if timeout_s < math.inf:
        station["timeout_s"] = timeout_s
    gap_s = 0.0
    if seed >= 12:
        station["calls_per_s"] = float(draw.uniform(0.6, 1.2) * workers)
        gap_s = 1.0 / station["calls_per_s"]
        if seed % 2:
            del station["workers"]
            workers = n
    fleet = open_fleet(arrivals, {"tools": station}, {"mean": 1.0, "cv": 1.0, "max": 3.0}, 2, seed)
    fleet.advance(math.inf)
    rows = fleet.world.samples[:n]
    ends, there = by_hand(
        rows["first_token_s"].tolist(), fleet.world.tool_s[rows["first_call"]].tolist(), workers, start_s, timeout_s,
        gap_s, overflow,
    )  # fmt: skip
    late = rows["made"] == 1
    after = rows["finish_s"] - np.array(ends)
    assert np.abs(after[late]).max(initial=0.0) < 1e-9
    assert np.all((after[~late] > 0.99e-3) & (after[~late] < 3.01e-3))
    own, beyond = fleet.world.stations
    assert beyond["calls"] == sum(there) > 20
    assert own["calls"] == n - sum(there) > 20
    assert own["late"] + beyond["late"] == late.sum()


@pytest.mark.parametrize("limit", [{"workers": 2}, {"calls_per_s": 6.0}])
def test_jumps_are_the_loop(limit: dict[str, Any]) -> None:
    """A hold of no seconds ends every jump at its next iteration, as in `test_stations.py`."""
    arrivals = np.cumsum(np.random.default_rng(3).exponential(0.05, 80))
    own = {
        **limit, "start_s": 0.05, "timeout_s": 1.2, "failure_share": 0.1, "tries": 2, "lost": "truncated",
        "overflow": {"after_s": 0.2, "workers": 2, "calls_per_s": 4.0, "start_s": 0.1},
    }  # fmt: skip
    tools, ends, rows = {"kind": "lognormal", "mean": 0.3, "cv": 1.0}, [], []
    for step_by_step in (False, True):
        fleet = open_fleet(arrivals, {"tools": own}, tools, "geometric:3", 0, of_turn={"mean": 40, "cv": 1, "max": 90})
        now = 0.0
        while step_by_step and (now < arrivals[-1] or not fleet.quiet()):
            now += 4e-4
            fleet.advance(now)
            fleet.hold(now, now)
        fleet.advance(math.inf)
        ends.append(fleet.world.samples["finish_s"][: len(arrivals)].copy())
        rows.append(fleet.world.stations.copy())
    assert np.abs(ends[0] - ends[1]).max() < 1e-9
    for name in ("calls", "served", "failed", "late", "lost"):
        assert rows[0][name].tolist() == rows[1][name].tolist()
    assert rows[0]["late"].min() > 0
    assert rows[0]["failed"].sum() > 0


AGENTS = {
    "workload.turns": {"count": 3, "tool_latency_s": {"kind": "gamma", "mean": 5.0, "cv": 1.0}},
    "trainer.batch_samples": 64,
    "stations.tools": {"workers": 40, "overflow": {"usd_per_call": 0.25, "worker_price_usd_per_h": 90.0}},
    "run.steps": 30,
}


def test_what_goes_there_is_paid_and_nothing_else_changes() -> None:
    runs = [simulate(with_changes(default_scenario(), changes)) for changes in (
        AGENTS, {**AGENTS, "stations.tools": {"workers": 40, "overflow": {}}},
    )]  # fmt: skip
    paid, free = map(metrics_of, runs)
    assert runs[0].steps["end_s"].tolist() == runs[1].steps["end_s"].tolist()
    there = paid["stations"]["tools"]["overflow_usd"]
    assert paid["cost_per_step"] - free["cost_per_step"] == pytest.approx(there)
    last = runs[0].stations[runs[0].stations["station"] == 1]
    assert last["calls"][-1] > 100
    assert last["used_s"][-1] / last["calls"][-1] == pytest.approx(5.0, rel=0.15)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"overflow": {}}, r"stations\.tools\.workers: calls go to stations\.tools\.overflow when all of these are "
         r"taken, and there is no limit on them; give a number, or a rate \(stations\.tools\.calls_per_s\), or leave "
         r"the overflow out"),
        ({"workers": 4, "timeout_s": 9.0, "overflow": {"after_s": 9.0}},
         r"stations\.tools\.overflow\.after_s: 9.*timed out after 9 s, before it goes there; lower it, or raise "
         r"stations\.tools\.timeout_s"),
        ({"workers": 4, "overflow": {"calls_per_s": 0}}, r"stations\.tools\.overflow\.calls_per_s: 0: must be above 0"),
        ({"workers": 4, "overflow": {"usd": 1}}, r"stations\.tools\.overflow\.usd: 1: unknown key"),
        ({"workers": 0}, r"stations\.tools\.workers: 0: no call would ever be answered.*or an overflow"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        with_changes(default_scenario(), {**AGENTS, "stations.tools": changes})


def test_a_time_out_below_the_shortest_call_there_is_refused() -> None:
    tools = {"workers": 4, "timeout_s": 8.0, "overflow": {"after_s": 2.0, "start_s": 2.5}}
    job = {**AGENTS, "workload.turns.tool_latency_s": 4.0, "stations.tools": tools}
    with pytest.raises(InputError, match=r"stations\.tools\.timeout_s: 8.*the tools of its overflow takes 8\.5 s"):
        simulate(with_changes(default_scenario(), job))
