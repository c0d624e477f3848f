"""Stations of workers: timelines by hand, queueing theory, jumps against the loop, and books that balance.

- By hand: every law of a station (queue, start-up, an episode's worker, time-outs in the queue and in service, tries,
  the three policies) in a run small enough to follow with a pencil.
- M/M/c (Erlang C) and a Jackson network: the queue must give the waits that theory gives, within the interval of
  independent seeds; a queue that served in another order or lost a call would not.
- Conservation: calls made = served + failed + late + those still there; busy time = what the samples show.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fleetsim.config import Scenario, default_scenario, dump_scenario, scenario_from_mapping, with_changes
from fleetsim.config.load import load_scenario
from fleetsim.config.scenario import unread_notes
from fleetsim.config.yaml_text import from_yaml
from fleetsim.engine import EngineLimits, LinearStepTime, StepTime
from fleetsim.engine.kernel import tables as t
from fleetsim.errors import InputError, StuckError
from fleetsim.sim.fleet import Fleet
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.stations import quantile_of
from tests.sim.random_scenarios import scenarios
from tests.sim.timelines import play, whole

TWO_TURNS = {"count": 2, "tool_latency_s": 4.0}


def one_batch(lengths: list[int], turns: dict[str, Any], **stations: Any) -> Records:
    """Two steps of as many samples as lengths, each its own group, all sent at 0 to a roomy engine."""
    return play(
        [*lengths, *lengths],  # type: ignore[list-item]
        workload__turns=turns,
        admission__law="barrier",
        trainer__batch_samples=len(lengths),
        run__steps=1,
        **{f"stations__{name}": value for name, value in stations.items()},
    )


def test_without_a_limit_every_call_is_served_at_once() -> None:
    """2 s: one second, four of the tool, one second."""
    assert whole(one_batch([2, 2, 2], TWO_TURNS).samples["finish_s"]) == (6, 6, 6)


@pytest.mark.parametrize(
    ("tools", "finish", "counts"),
    [
        # all three ask at 1 s; a worker serves from 1 to 5, 5 to 9, 9 to 13; then one more second of tokens
        ({"workers": 1}, (6, 10, 14), {"calls": 3, "served": 3, "used_s": 12, "waited_s": 12}),
        ({"workers": 2}, (6, 6, 10), {"calls": 3, "served": 3, "used_s": 12, "waited_s": 4}),
        # a fresh worker for each call takes two seconds more
        ({"workers": 1, "start_s": 2.0}, (8, 14, 20), {"used_s": 18, "waited_s": 18}),
        ({"start_s": 2.0}, (8, 8, 8), {"used_s": 18, "waited_s": 0}),
        # a rollout keeps it until its reward: 1 to 6, 6 to 11, 11 to 16
        ({"workers": 1, "fresh_per": "episode"}, (6, 11, 16), {"used_s": 15, "waited_s": 15, "served_s": 12}),
    ],
)
def test_queues_and_start_up_by_hand(
    tools: dict[str, Any], finish: tuple[float, ...], counts: dict[str, float]
) -> None:
    run = one_batch([2, 2, 2], TWO_TURNS, tools=tools)
    assert whole(run.samples["finish_s"]) == finish
    last = run.stations[-1]
    assert {name: round(float(last[name]), 1) for name in counts} == pytest.approx(counts, abs=0.2)


def test_an_episode_starts_its_worker_once() -> None:
    """Three turns: second 1, start-up 3 and tool 4, second 1, tool 4, second 1; with fresh workers start-up twice."""
    turns = {"count": 3, "tool_latency_s": 4.0}
    for per, finish in (("episode", 14), ("call", 17)):
        run = one_batch([3], turns, tools={"start_s": 3.0, "fresh_per": per})
        assert whole(run.samples["finish_s"]) == (finish,)


@pytest.mark.parametrize(
    ("policy", "finish", "made"),
    [
        # one worker, calls of 4 s time out after 6: the first is served from 1 to 5; the second begins at 5 and is
        # timed out in service at 7; the third, still waiting, at 7 too
        ("dropped", (6, -1, -1), (200, 100, 100)),
        ("truncated", (6, 7, 7), (200, 100, 100)),
        # start again at 7: they ask at 8, one is served to 12, the other timed out at 14 in service, asks again at 15
        ("retried", (6, 13, 20), (200, 200, 200)),
    ],
)
def test_time_outs_in_the_queue_and_in_service(policy: str, finish: tuple[float, ...], made: tuple[int, ...]) -> None:
    run = one_batch([2, 2, 2], TWO_TURNS, tools={"workers": 1, "timeout_s": 6.0, "lost": policy})
    rows = run.samples[:3]  # a group that lost its only sample is replaced by another one
    # of samples that start again, which one is served first is the requeue's to say
    assert whole(np.sort(rows["finish_s"])) == whole(sorted(finish))
    assert sorted(rows["made"].tolist()) == sorted(made)
    if policy == "dropped":
        assert rows["status"].tolist() == [t.DONE, t.GONE, t.GONE]
        # waits of 0, 4 and 6 s, the last one given up: levels of so many milliseconds
        seen = np.flatnonzero(run.stations["waits"][run.stations["station"] == 0].sum(axis=0))
        # below 32 the number itself, above in a sixteenth of its power of two: 4,000 / 2**7 = 31, 6,000 / 2**8 = 23
        assert np.abs(seen[:3] - [0, 16 * 7 + 31, 16 * 8 + 23]).max() <= 1
    else:
        assert np.all(rows["status"] == t.DONE)


def test_a_call_that_is_given_up_has_waited_until_then() -> None:
    """The first rollout keeps the one worker from 1 to 11; the second asks at 1 and is given up at 7, the last one."""
    tools = {"workers": 1, "fresh_per": "episode", "timeout_s": 6.0, "lost": "truncated"}
    run = one_batch([3, 3], {"count": 3, "tool_latency_s": 4.0}, tools=tools)
    assert whole(np.sort(run.samples["finish_s"])) == (7, 11)
    waits = run.stations["waits"][run.stations["station"] == 0].sum(axis=0)
    assert quantile_of(waits, 0.99) == pytest.approx(6000.0, rel=1 / 16)
    assert waits.tolist().count(0.0) == len(waits) - 2
    assert waits[0] == 2


def test_a_group_is_trained_without_its_dropped_samples() -> None:
    """A group of four on one worker, calls of 4 s that time out after 6: one is served, three are dropped."""
    run = play(
        [2],
        workload__turns=TWO_TURNS,
        workload__group_size=4,
        admission__law="barrier",
        trainer__batch_samples=4,
        run__steps=2,
        stations__tools={"workers": 1, "timeout_s": 6.0},
    )
    assert run.steps["samples"].tolist() == [1, 1]
    assert run.steps["output_tokens"].tolist() == [200, 200]
    assert whole(run.groups["ready_s"][:1]) == (7,), "when the last of the others was given up"
    assert metrics_of(run)["samples_lost"]["all"] == 0.75


def test_failed_calls_are_made_again_and_then_lost() -> None:
    """Of calls that fail with p, a rollout is lost with p^tries; each try takes a service."""
    p, tries, n = 0.3, 2, 4000
    run = one_batch([2] * n, TWO_TURNS, tools={"failure_share": p, "tries": tries, "lost": "truncated"})
    last = run.stations[-1]
    assert last["calls"] == last["served"] + last["failed"]
    for found, share, of in ((last["failed"], p, last["calls"]), (last["lost"], p**tries, n)):
        assert abs(found / of - share) < 4 * math.sqrt(share * (1 - share) / of)
    assert last["served"] + last["lost"] == n


def test_rewards_in_the_sandboxes_of_the_tools() -> None:
    """One worker for a tool call of 4 s and a score of 3 s: kept for the episode, it scores from 6 to 9, and so on."""
    run = one_batch([2, 2], TWO_TURNS, tools={"workers": 1, "fresh_per": "episode"}, reward={"at": "tools"})
    assert whole(run.samples["finish_s"]) == (6, 11)
    slow = with_changes(run.scenario, {"workload.reward.latency_s": 3.0})
    again = simulate(slow, engine=(LinearStepTime(0.01), EngineLimits(64, 65_536, 1 << 30)))
    wait = again.groups["ready_s"] - again.samples["finish_s"]
    assert np.all(wait > 2.9)
    first, second = np.sort(again.samples["finish_s"])[:2]
    assert second - first > 3.0, "the second rollout gets the worker when the first one is scored"


def erlang_wait(c: int, load: float) -> float:
    """Mean wait in M/M/c over the mean service, load of each server."""
    a = c * load
    terms = [a**k / math.factorial(k) for k in range(c)]
    last = a**c / math.factorial(c) / (1 - load)
    return last / (sum(terms) + last) / (c - a)


def open_fleet(
    arrivals: np.ndarray[Any, Any],
    stations: dict[str, Any],
    tools: Any,
    turns: Any,
    seed: int,
    tokens: int | None = None,
    of_turn: Any = None,
    step_time: StepTime | None = None,
) -> Fleet:
    """Requests that arrive by themselves at an engine, by default one that makes a token in a millisecond."""
    scenario = with_changes(
        default_scenario(),
        {
            "workload.group_size": 1,
            "workload.prompt_tokens": 1,
            "workload.output_tokens": tokens or (turns if of_turn is None else 1),
            "workload.turns": {"count": turns, "tool_latency_s": tools, "output_tokens": of_turn},
            "trainer.batch_samples": 1,
            "fleet.instances": 1,
            "run.seed": seed,
            "stations": stations,
        },
    )
    limits = EngineLimits(1 << 14, 1 << 15, 1 << 26)
    fleet = Fleet(scenario, step_time or LinearStepTime(1e-3), limits, 0)
    while fleet.get("n_samples") < len(arrivals):
        fleet.draws.more()
    world = fleet.world
    world.arrival_s, world.arrival = arrivals, np.arange(len(arrivals), dtype=np.int32)
    world.set(open_loop=1, n_arrivals=len(arrivals))
    world.bind()
    return fleet


@pytest.mark.parametrize(("workers", "load"), [(1, 0.6), (4, 0.8)])
def test_a_station_is_m_m_c(workers: int, load: float) -> None:
    """Poisson calls, exponential service: the mean wait of Erlang C. A gamma law with cv 1 is the exponential one."""
    service, n, waits = 1.0, 20_000, []
    for seed in range(8):
        gaps = np.random.default_rng(seed).exponential(service / (workers * load), n)
        tools = {"kind": "gamma", "mean": service, "cv": 1.0}
        fleet = open_fleet(np.cumsum(gaps), {"tools": {"workers": workers}}, tools, 2, seed)
        fleet.advance(math.inf)
        fleet.add_up(fleet.now)
        row = fleet.world.stations[0]
        assert row["calls"] == row["served"] == n
        assert row["waiting"] == row["serving"] == row["used"] == 0
        waits.append(float(row["waited_s"]) / n)
    mean, half = np.mean(waits), 2.365 * np.std(waits, ddof=1) / math.sqrt(len(waits))
    assert abs(mean - erlang_wait(workers, load) * service) < 1.5 * half
    assert half < 0.15 * mean, "else the test says nothing"


def test_failed_calls_that_come_back_are_a_jackson_network() -> None:
    """A call fails with p and goes back to the queue at once: the station sees lambda / (1 - p), M/M/c of that load.

    Each visit is exponential and independent, so the mean number there is that of M/M/c at that rate (Jackson 1957).
    """
    workers, p, service, rate, n, found = 3, 0.25, 1.0, 1.8, 20_000, []
    load = rate / (1 - p) * service / workers
    for seed in range(8):
        gaps = np.random.default_rng(100 + seed).exponential(1.0 / rate, n)
        tools = {"kind": "gamma", "mean": service, "cv": 1.0}
        stations = {"tools": {"workers": workers, "failure_share": p, "tries": 1000}}
        fleet = open_fleet(np.cumsum(gaps), stations, tools, 2, seed)
        fleet.advance(math.inf)
        fleet.add_up(fleet.now)
        row = fleet.world.stations[0]
        assert row["calls"] == row["served"] + row["failed"]
        found.append(float(row["waited_s"] / row["calls"]))
    mean, half = np.mean(found), 2.365 * np.std(found, ddof=1) / math.sqrt(len(found))
    assert abs(mean - erlang_wait(workers, load) * service) < 1.5 * half
    assert half < 0.15 * mean


def test_geometric_turns_at_an_engine_and_its_tools_are_a_jackson_network() -> None:
    """A rollout goes on with 1 - 1/v after each turn: of rate r the engine sees v r turns, the tools (v - 1) r calls.

    An engine whose iteration takes so long for each request shares its time among them: its turns are those of
    M/G/1-PS, S / (1 - load) long whatever the law of their tokens; tools are M/M/c (Baskett, Chandy, Muntz, Palacios
    1975).
    """
    rate, visits, tokens, second_each, workers, n = 0.9, 3.0, 100.0, 2.5e-3, 3, 6_000
    served, load, of_tools = tokens * second_each, rate * visits * tokens * second_each, rate * (visits - 1) / workers
    theory = served / (1 - load), 1.0 + erlang_wait(workers, of_tools)
    found = []
    for seed in range(6):
        gaps = np.random.default_rng(300 + seed).exponential(1.0 / rate, n)
        exponential = {"kind": "gamma", "mean": 1.0, "cv": 1.0}
        fleet = open_fleet(
            np.cumsum(gaps), {"tools": {"workers": workers}}, exponential, "geometric:3", seed,
            of_turn={"kind": "lognormal", "mean": tokens, "cv": 1.0}, step_time=LinearStepTime(0.0, second_each),
        )  # fmt: skip
        fleet.advance(math.inf)
        fleet.add_up(fleet.now)
        row, samples = fleet.world.stations[0], fleet.world.samples[:n]
        calls = int(row["calls"])
        assert calls == row["served"] == (samples["turns"] - 1).sum()
        assert abs(samples["turns"].mean() - visits) < 4 * math.sqrt(6 / n)  # its variance is v (v - 1)
        away = float(row["waited_s"] + row["served_s"])
        stay = float((samples["finish_s"] - samples["sent_s"]).sum()) - away
        found.append((stay / (calls + n), away / calls))
    for mean, half, exact in zip(
        np.mean(found, axis=0), 2.571 * np.std(found, axis=0, ddof=1) / math.sqrt(len(found)), theory, strict=True
    ):
        assert abs(mean - exact) < 1.5 * half
        assert half < 0.15 * exact, "else the test says nothing"


def poisson_calls(station: dict[str, Any], tools: Any, rate: float, n: int, seed: int) -> Any:
    """The station's row after n calls that come at a rate, and its levels: workers in use, waits in milliseconds."""
    gaps = np.random.default_rng(200 + seed).exponential(1.0 / rate, n)
    fleet = open_fleet(np.cumsum(gaps), {"tools": station}, tools, 2, seed)
    fleet.advance(math.inf)
    fleet.add_up(fleet.now)
    return fleet.world.stations[0], fleet.world.levels


def test_a_warm_pool_is_erlang_b() -> None:
    """A call finds no warm worker where all m were taken in the last start_s: calls that come at random are lost so in
    M/G/m/m (Erlang 1917; the law of the service does not matter). A cold start takes start_s more."""
    warm, start_s, rate, n, found = 3, 2.0, 1.2, 8_000, []
    load, blocked = rate * start_s, 1.0
    for m in range(1, warm + 1):
        blocked = load * blocked / (m + load * blocked)
    for seed in range(5):
        row, _ = poisson_calls({"warm": warm, "start_s": start_s}, 1.0, rate, n, seed)
        found.append((float(row["served_s"]) / n - 1.0) / start_s)
    half = 2.776 * np.std(found, ddof=1) / math.sqrt(len(found))
    assert abs(np.mean(found) - blocked) < 1.5 * half
    assert half < 0.1 * blocked


def test_a_rate_limit_is_m_d_1() -> None:
    """Calls that begin a second apart at least wait as in M/D/1 (Pollaczek and Khinchine), whatever serves them."""
    rate, n, waits = 0.7, 8_000, []
    for seed in range(5):
        row, levels = poisson_calls({"calls_per_s": 1.0}, 3.0, rate, n, seed)
        waits.append(float(row["waited_s"]) / n)
        assert row["served_s"] == pytest.approx(3.0 * n)
        # nobody waits in 1 - rate of the cases: an arrival finds the server of rate idle
        assert levels[1][0] / n == pytest.approx(1.0 - rate, abs=0.04)
    half = 2.776 * np.std(waits, ddof=1) / math.sqrt(len(waits))
    assert abs(np.mean(waits) - rate / (2.0 * (1.0 - rate))) < 1.5 * half
    assert half < 0.15 * np.mean(waits)


def test_levels_are_poisson_and_waits_exponential() -> None:
    """Without a limit the workers in use are Poisson (M/G/inf); with one server a wait is above t with the chance
    load e^-(1 - load)t (M/M/1)."""
    exponential = {"kind": "gamma", "mean": 1.0, "cv": 1.0}
    _, levels = poisson_calls({"workers": 1_000_000}, exponential, 9.0, 20_000, 0)
    share = np.cumsum(levels[0]) / levels[0].sum()
    poisson = np.cumsum([math.exp(-9.0) * 9.0**k / math.factorial(k) for k in range(20)])
    assert np.abs(share[:20] - poisson).max() < 0.03
    assert quantile_of(levels[0], 0.99) == pytest.approx(17, abs=1)
    _, levels = poisson_calls({"workers": 1}, exponential, 0.5, 20_000, 0)
    for q in (0.9, 0.99):
        assert quantile_of(levels[1], q) / 1000.0 == pytest.approx(math.log(0.5 / (1.0 - q)) / 0.5, rel=0.15)
    assert quantile_of(levels[1], 0.4) == 0.0, "half of the calls find it free"


@pytest.mark.parametrize(
    ("tools", "finish"),
    [
        # asked at 1 s all three; they begin at 1, 3 and 5, take 4 s, and one more second of tokens
        ({"calls_per_s": 0.5}, (6, 8, 10)),
        # two workers: the third has one at 5, when its turn is too
        ({"calls_per_s": 0.5, "workers": 2}, (6, 8, 10)),
        # the second begins at 6 and would end at 10, the third would begin at 11: both are given up at 6.5
        ({"calls_per_s": 0.2, "timeout_s": 5.5, "lost": "truncated"}, (6, 6.5, 6.5)),
        # one of three is warm; the others start for 3 s
        ({"warm": 1, "start_s": 3.0}, (6, 9, 9)),
    ],
)
def test_a_rate_and_a_warm_pool_by_hand(tools: dict[str, Any], finish: tuple[float, ...]) -> None:
    assert whole(np.sort(one_batch([2, 2, 2], TWO_TURNS, tools=tools).samples["finish_s"])) == finish


def same_samples(a: Records, b: Records) -> bool:
    """To the byte, column by column: what lies between the columns of a row is no number."""
    names = a.samples.dtype.names or ()
    return all(a.samples[name].tobytes() == b.samples[name].tobytes() for name in names)


@st.composite
def stations(draw: st.DrawFn) -> dict[str, Any]:
    """A station with anything that it may have; time-outs above the shortest call."""
    return {
        "workers": draw(st.sampled_from([None, 1, 3, 8])),
        "start_s": draw(st.sampled_from([0.0, 0.2])),
        "warm": draw(st.sampled_from([0, 2])),
        "calls_per_s": draw(st.sampled_from([None, 40.0])),
        "fresh_per": draw(st.sampled_from(["call", "episode"])),
        "timeout_s": draw(st.sampled_from([None, 0.7, 2.0])),
        "failure_share": draw(st.sampled_from([0.0, 0.3])),
        "tries": draw(st.sampled_from([1, 3])),
        "lost": draw(st.sampled_from(["dropped", "truncated", "retried"])),
    }


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenarios(), stations(), stations(), st.sampled_from(["reward", "tools"]))
def test_nothing_is_lost_at_any_station(plain: Scenario, tools: Any, reward: Any, at: str) -> None:
    """Any scenario with any stations: visits in = out + there, no worker twice, same seed the same run to the byte."""
    changes = {"workload.turns.count": 2, "stations": {"tools": tools, "reward": {**reward, "at": at}}}
    scenario = with_changes(plain, changes)
    try:
        run = simulate(scenario)
    except StuckError as stuck:
        assert stuck.limits
        return
    assert same_samples(simulate(scenario), run)
    assume(len(run.stations))
    rows = run.stations
    assert np.all(rows["calls"] >= rows["served"] + rows["failed"] + rows["late"])
    for k, station in enumerate(metrics_of(run)["stations"].values()):
        own = rows[rows["station"] == k]
        assert np.all(np.diff(own["calls"]) >= 0)
        assert station["waiting"] >= -1e-9
        assert station["in_service"] >= -1e-9
        assert -1e-9 <= station.get("busy_fraction", 0.0) <= 1.0 + 1e-9
    done = run.samples["status"] == t.DONE
    assert np.all(run.samples["made"][done] <= run.samples["target"][done])
    assert np.all((run.steps["samples"] >= 1) & (run.steps["samples"] <= scenario.trainer.batch_samples))


def test_jumps_are_the_loop_with_sandboxes_between_the_turns() -> None:
    """A hold of no seconds ends every jump at its next iteration: asked for in each, the engine goes step by step."""
    arrivals = np.cumsum(np.random.default_rng(3).exponential(0.05, 80))
    tools = {"kind": "lognormal", "mean": 0.3, "cv": 1.0}
    own = {
        "workers": 3,
        "start_s": 0.05,
        "warm": 1,
        "calls_per_s": 9.0,
        "timeout_s": 1.5,
        "failure_share": 0.1,
        "tries": 2,
        "lost": "truncated",
    }
    ends, rows = [], []
    for step_by_step in (False, True):
        fleet = open_fleet(arrivals, {"tools": own}, tools, "geometric:3", 0, of_turn={"mean": 40, "cv": 1, "max": 90})
        now = 0.0
        while step_by_step and (now < arrivals[-1] or not fleet.quiet()):
            now += 4e-4  # an iteration takes a millisecond
            fleet.advance(now)
            fleet.hold(now, now)
        fleet.advance(math.inf)
        ends.append(fleet.world.samples["finish_s"][: len(arrivals)].copy())
        rows.append(fleet.world.stations[0].copy())
    assert np.abs(ends[0] - ends[1]).max() < 1e-9
    for name in ("calls", "served", "failed", "late", "lost"):
        assert rows[0][name] == rows[1][name]
    assert rows[0]["late"] > 0
    assert rows[0]["failed"] > 0


def test_the_short_form_of_reward_workers() -> None:
    """`workload.reward.workers` stands for `stations.reward.workers` in files, --set and changes."""
    short = scenario_from_mapping({"workload": {"reward": {"workers": 5}}})
    long = scenario_from_mapping({"stations": {"reward": {"workers": 5}}})
    assert short == long
    assert scenario_from_mapping(from_yaml(dump_scenario(short), "again")) == short
    assert with_changes(short, {"workload.reward.workers": 7}).stations.reward.workers == 7
    assert scenario_from_mapping({}, overrides=["workload.reward.workers=3"]).stations.reward.workers == 3
    with pytest.raises(
        InputError, match=r"workload\.reward\.workers: 5: stands for stations\.reward\.workers, which is 6"
    ):
        scenario_from_mapping({"workload": {"reward": {"workers": 5}}, "stations": {"reward": {"workers": 6}}})


def test_a_time_out_below_the_shortest_call_is_refused() -> None:
    scenario = with_changes(
        default_scenario(),
        {"workload.turns": {"count": 2, "tool_latency_s": 4.0}, "stations.tools": {"timeout_s": 5.0, "start_s": 1.0}},
    )
    with pytest.raises(InputError, match=r"stations\.tools\.timeout_s: 5.*every call would time out"):
        simulate(scenario)


def test_workers_are_paid() -> None:
    """96 workers at 0.5 dollars an hour over the window, beside the GPUs."""
    base = {"workload.turns": {"count": 2, "tool_latency_s": 4.0}, "stations.tools.workers": 9600, "run.steps": 4}
    free = metrics_of(simulate(with_changes(default_scenario(), base)))
    paid = metrics_of(simulate(with_changes(default_scenario(), base | {"stations.tools.worker_price_usd_per_h": 0.5})))
    assert paid["cost_per_step"] - free["cost_per_step"] == pytest.approx(9600 * 0.5 * free["step_s"] / 3600)


def test_full_sandboxes_bind_and_a_fifth_more_of_them_saves_a_sixth() -> None:
    """Where all workers are always in use, the step is calls x service / workers."""
    steps = []
    for workers in (40, 48):
        scenario = with_changes(
            default_scenario(),
            {
                "workload.turns": {"count": 3, "tool_latency_s": 5.0},
                "stations.tools.workers": workers,
                "admission.law": "version_window",
                "admission.max_staleness": 4.0,
                "trainer.batch_samples": 128,
                "trainer.fixed_s": 2.0,
                "run.steps": 60,
                "run.warmup_steps": 30,
            },
        )
        run = simulate(scenario)
        found = metrics_of(run)
        assert found["binding"] == "environment"
        assert found["stations"]["tools"]["workers_most"] == workers  # no more than there are
        assert found["step_s"] == pytest.approx(128 * 2 * 5.0 / workers, rel=0.05)
        steps.append(found["step_s"])
    assert steps[1] / steps[0] == pytest.approx(1 / 1.2, abs=0.03)


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        (["stations.tools.workers=4"], "only a workload.turns.count above 1"),
        (["stations.reward.workers=4", "stations.reward.at=tools"], "only stations.reward.at reward"),
        (["stations.reward.workers=4"], "with a workload.reward.latency_s, reads it"),
        (["stations.reward.workers=4", "workload.reward.latency_s=2"], ""),
    ],
)
def test_what_no_station_reads_is_told(sets: list[str], told: str) -> None:
    notes = " ".join(unread_notes(load_scenario("async-one-step", sets), sets))
    assert told in notes
    assert bool(notes) == bool(told)


def test_a_run_that_loses_all_its_rollouts_says_where() -> None:
    """Six sandboxes for a load of thirty: nearly every call is timed out, and no batch is ever complete."""
    changes = {
        "workload.turns": {"count": 5, "tool_latency_s": 20.0},
        "stations.tools": {"workers": 6, "timeout_s": 21.0},
        "trainer.batch_samples": 64,
    }
    with pytest.raises(StuckError, match=r"stations\.tools\.timeout_s: 21.*rollouts were lost there"):
        simulate(with_changes(default_scenario(), changes))
