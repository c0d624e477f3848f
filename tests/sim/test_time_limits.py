"""Time limits of turns and of episodes: timelines by hand, closed forms, jumps against the loop, books that balance.

- By hand: what each of the six policies makes of a rollout whose time is over where it computes, waits for an engine,
  is served by its tool, or waits for a worker.
- The share that is over time is the law's own tail at a roomy engine; at one worker it is M/M/1's sojourn time where
  rollouts are waited for, and Barrer's queue (1957), whose customers leave even in service, where they are not.
- Conservation: a clock counts for each rollout that is under way, and for no other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.engine.kernel import tables as t
from fleetsim.errors import InputError, StuckError
from fleetsim.policies.samples import LOST
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from tests.sim.random_scenarios import scenarios
from tests.sim.test_invariants import run as run_to_its_end
from tests.sim.test_stations import one_batch, open_fleet, same_samples, stations
from tests.sim.timelines import FREE, limited, play, whole

# A tool of four seconds whose law has shorter ones: a limit that no call keeps is refused.
TWO_TURNS = {"count": 2, "tool_latency_s": {"kind": "histogram", "le": [0.01, 4.0, 4.001], "count": [1, 0, 999]}}


def last_of(run: Records, k: int = -1) -> dict[str, float]:
    """What a station, by default the last one, counted in all."""
    row = run.stations[run.stations["station"] == (run.stations["station"].max() if k < 0 else k)][-1]
    return {name: float(row[name]) for name in ("calls", "served", "failed", "late", "lost")}


@pytest.mark.parametrize(
    ("episode_s", "tools", "finish", "made"),
    [
        # a second of tokens, four of the tool, a second of tokens: cut at the tool, or in the second turn
        (3.0, {}, (3, 3, 3), (100, 100, 100)),
        (5.5, {}, (5.5, 5.5, 5.5), (150, 150, 150)),
        # one worker: served from 1, two wait; at 3 all are cut, and at 6.5 the one from 5 on and the one that waits
        (3.0, {"workers": 1}, (3, 3, 3), (100, 100, 100)),
        (6.5, {"workers": 1}, (6, 6.5, 6.5), (100, 100, 200)),
        # its turn by the rate comes at 1, 6 and 11
        (7.0, {"calls_per_s": 0.2}, (6, 7, 7), (100, 100, 200)),
        (8.0, {}, (6, 6, 6), (200, 200, 200)),
    ],
)
def test_an_episode_ends_wherever_it_is(
    episode_s: float, tools: dict[str, Any], finish: tuple[float, ...], made: tuple[int, ...]
) -> None:
    run = one_batch([2, 2, 2], TWO_TURNS, tools=tools, episode={"timeout_s": episode_s, "lost": "truncated"})
    assert np.sort(run.samples["finish_s"]) == pytest.approx(finish, abs=0.02)
    assert np.sort(run.samples["made"]).tolist() == pytest.approx(made, abs=1)
    late = sum(s == episode_s for s in finish)
    assert last_of(run) == {"calls": 3, "served": 3 - late, "failed": 0, "late": late, "lost": late}
    if tools:
        assert last_of(run, 0)["late"] == 0, "the tool did not time out"


def test_a_worker_is_free_when_its_rollout_is_cut() -> None:
    """Calls of 4 s from 1 on, an episode of 3 s: the one worker is in use for 2 s."""
    run = one_batch([2, 2], TWO_TURNS, tools={"workers": 1}, episode={"timeout_s": 3.0, "lost": "truncated"})
    assert run.stations[run.stations["station"] == 0][-1]["used_s"] == pytest.approx(2.0, abs=0.05)
    assert run.stations[run.stations["station"] == 0][-1]["waited_s"] == pytest.approx(2.0, abs=0.05)


def test_a_turn_counts_from_its_request_on_and_not_at_the_tool() -> None:
    """One place at the engine: 0 to 2 s; the second begins then and is cut at 3 with half of its tokens, the third has
    none. Two turns of a second each, with four seconds between them, are in time."""
    turn = {"timeout_s": 3.0, "lost": "truncated"}
    run = play(
        [2], engine=limited(FREE, max_num_seqs=1), admission__law="barrier", trainer__batch_samples=3, run__steps=1,
        stations__turn=turn,
    )  # fmt: skip
    assert np.sort(run.samples["finish_s"]) == pytest.approx((2, 3, 3), abs=0.02)
    assert np.sort(run.samples["made"]).tolist() == pytest.approx((0, 100, 200), abs=1)
    run = one_batch([2, 2, 2], TWO_TURNS, turn={"timeout_s": 1.5})
    assert last_of(run) == {"calls": 6, "served": 6, "failed": 0, "late": 0, "lost": 0}


@pytest.mark.parametrize(
    ("policy", "ready_s", "samples", "tokens"),
    [
        ("dropped", (3, 9), (3, 4), (600, 800)),
        ("truncated", (3, 9), (4, 4), (900, 800)),
        ("masked", (3, 9), (4, 4), (900, 800)),
        # three more tries, from 3, 6 and 9 on
        ("retried", (12, 18), (3, 4), (600, 800)),
        # the next group takes its place, from 3 to 5
        ("withheld", (5, 11), (4, 4), (800, 800)),
        ("waited", (5, 11), (4, 4), (1100, 800)),
    ],
)
def test_what_becomes_of_a_group(
    policy: str, ready_s: tuple[int, int], samples: tuple[int, int], tokens: tuple[int, int]
) -> None:
    """Four samples of 2, 2, 2 and 5 s, then groups of 2 s; an episode of 3 s; the trainer takes 4 s."""
    run = play(
        [(2, 2, 2, 5), (2, 2, 2, 2)],
        workload__group_size=4,
        admission__law="barrier",
        trainer__batch_samples=4,
        run__steps=2,
        stations__episode={"timeout_s": 3.0, "lost": policy},
    )
    assert whole(run.steps["ready_s"]) == ready_s
    assert run.steps["samples"].tolist() == list(samples)
    assert run.steps["output_tokens"].tolist() == pytest.approx(tokens, abs=2)
    metrics = metrics_of(run)
    useful = sum(tokens) - (300 if policy == "masked" else 0)
    assert metrics["tokens_per_trained_token"] * useful == pytest.approx(run.steps["generated_tokens"][-1], rel=1e-3)
    wasted = {"dropped": ("aborted", 300), "masked": ("lost", 300), "withheld": ("aborted", 900)}
    if policy in wasted:
        cause, made = wasted[policy]
        assert metrics["waste"][cause] * useful == pytest.approx(made, abs=3)
    lost = {"dropped": 1 / 8, "masked": 1 / 8, "retried": 1 / 8, "withheld": 4 / 12}.get(policy, 0.0)
    assert metrics["samples_lost"]["all"] == pytest.approx(lost)
    clock = metrics["stations"]["episode"]
    assert clock["lost"] == {"waited": 0.0, "retried": 2.0}.get(policy, 0.5)
    assert clock["late"] > 0.0


def test_a_rollout_starts_again_with_its_whole_time() -> None:
    """One worker: the second call is served from 5 on, and cut at 6.5; from its prompt again it asks at 7.5."""
    run = one_batch([2, 2], TWO_TURNS, tools={"workers": 1}, episode={"timeout_s": 6.5, "lost": "retried"})
    assert np.sort(run.samples["finish_s"]) == pytest.approx((6, 12.5), abs=0.03)
    assert last_of(run) == {"calls": 3, "served": 2, "failed": 0, "late": 1, "lost": 1}
    assert run.steps["lost_tokens"][-1] == 100


def test_masked_and_withheld_calls_of_a_tool() -> None:
    """The policies of a tool's time-outs are those of time limits: of four calls on one worker one is served."""
    of: dict[str, Records] = {}
    for policy in ("masked", "withheld", "waited"):
        try:
            of[policy] = play(
                [2], workload__turns=TWO_TURNS, workload__group_size=4, admission__law="barrier",
                trainer__batch_samples=4, run__steps=1,
                stations__tools={"workers": 1, "timeout_s": 6.0, "lost": policy},
            )  # fmt: skip
        except StuckError as stuck:
            assert policy == "withheld"
            assert "stations.tools.timeout_s" in str(stuck)
    assert of["masked"].steps["output_tokens"].tolist() == [500]
    assert metrics_of(of["masked"])["samples_lost"]["all"] == 0.75
    assert "withheld" not in of, "no group of four is ever whole"
    # 1 to 5; 5 to 7 in vain, with the third, who waited; both again, until each was served whole
    assert of["waited"].steps["output_tokens"].tolist() == [800]
    assert last_of(of["waited"])["served"] == 4
    assert last_of(of["waited"])["lost"] == 0


def test_the_share_over_time_is_the_tail_of_the_law() -> None:
    """At an engine with room a rollout of L tokens takes L / 100 s: over time with P(L > 100 T), made min(L, 100 T)."""
    n, limit_s = 6_000, 12.0
    law = {"kind": "lognormal", "median": 800.0, "p99": 4000.0}
    sigma = math.log(4000.0 / 800.0) / 2.3263478740408408
    z = math.log(100 * limit_s / 800.0) / sigma
    tail = 0.5 * math.erfc(z / math.sqrt(2.0))
    # E[min(L, c)] of a lognormal law: its mean below c, and c above it
    below = 800.0 * math.exp(sigma**2 / 2) * 0.5 * math.erfc((sigma - z) / math.sqrt(2.0))
    scenario = with_changes(
        default_scenario(),
        {
            "workload.output_tokens": law,
            "workload.group_size": 1,
            "workload.prompt_tokens": 1,
            "trainer.batch_samples": n,
            "admission.law": "barrier",
            "run.steps": 1,
            "run.warmup_steps": 0,
            "stations.episode": {"timeout_s": limit_s, "lost": "truncated"},
        },
    )
    run = simulate(scenario, engine=limited(FREE, max_num_seqs=1 << 14, max_num_batched_tokens=1 << 15))
    share = last_of(run)["late"] / n
    assert abs(share - tail) < 4 * math.sqrt(tail * (1 - tail) / n)
    made = run.samples["made"].astype(float)
    assert abs(made.mean() - (below + 100 * limit_s * tail)) < 4 * made.std() / math.sqrt(n) + 1
    assert metrics_of(run)["stations"]["episode"]["late"] == pytest.approx(share)


@pytest.mark.parametrize("policy", ["waited", "truncated"])
def test_one_worker_is_a_queue_with_a_limit_on_the_sojourn(policy: str) -> None:
    """Waited for, a call's sojourn is above T with e^-(m-l)T (M/M/1). Cut, even in service, the work that a call finds
    has the density l p e^-(m-l)x up to T, p = 1 / (1 + l (1 - e^-(m-l)T) / (m - l)), and p e^-(m-l)T are cut."""
    rate, limit_s, n, found = 0.75, 3.0, 20_000, []
    slack = 1.0 - rate
    idle = 1.0 / (1.0 + rate * (1.0 - math.exp(-slack * limit_s)) / slack) if policy == "truncated" else 1.0
    theory = idle * math.exp(-slack * limit_s)
    for seed in range(8):
        gaps = np.random.default_rng(700 + seed).exponential(1.0 / rate, n)
        # a token of a millisecond before the tool, and one behind it
        station = {"tools": {"workers": 1}, "episode": {"timeout_s": limit_s + 0.002, "lost": policy}}
        fleet = open_fleet(np.cumsum(gaps), station, {"kind": "gamma", "mean": 1.0, "cv": 1.0}, 2, seed)
        fleet.advance(math.inf)
        fleet.add_up(fleet.now)
        tools, clock = fleet.world.stations[0], fleet.world.stations[1]
        assert clock["calls"] == clock["served"] + clock["late"] == n
        assert tools["waiting"] == tools["serving"] == tools["used"] == 0
        assert clock["lost"] == (clock["late"] if policy == "truncated" else 0)
        found.append(float(clock["late"]) / n)
    mean, half = np.mean(found), 2.365 * np.std(found, ddof=1) / math.sqrt(len(found))
    assert abs(mean - theory) < 1.5 * half + 0.001
    assert half < 0.1 * theory, "else the test says nothing"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"stations.episode.timeout_s": 1.0}, "stations.episode.timeout_s"),
        ({"stations.turn.timeout_s": 0.4, "workload.turns.count": 2}, "stations.turn.timeout_s"),
        (
            {"stations.episode.timeout_s": 5.9, "workload.turns": {"count": 2, "tool_latency_s": 4.0}},
            "stations.episode.timeout_s",
        ),
    ],
)
def test_a_limit_that_nothing_can_keep_is_refused(changes: dict[str, Any], path: str) -> None:
    """Two hundred tokens are two seconds; with a tool of four between them six."""
    with pytest.raises(InputError, match="on an engine of its own") as refused:
        play([2], workload__output_tokens=200, **{name.replace(".", "__"): value for name, value in changes.items()})
    assert [p.path for p in refused.value.problems] == [path]


@st.composite
def limits(draw: st.DrawFn) -> dict[str, Any]:
    """A time limit that some keep and some do not, or none."""
    return {"timeout_s": draw(st.sampled_from([None, 2.5, 4.0, 8.0])), "lost": draw(st.sampled_from(list(LOST)))}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenarios(), st.one_of(st.just({}), stations()), limits(), limits(), st.integers(1, 3))
def test_a_clock_counts_for_what_is_under_way(plain: Scenario, tools: Any, turn: Any, episode: Any, count: int) -> None:
    """Any scenario with any limits: as many clocks as rollouts under way; the same seed, the same run to the byte."""
    changes = {"workload.turns.count": count, "stations": {"tools": tools, "turn": turn, "episode": episode}}
    scenario = with_changes(plain, changes)
    try:
        run, fleet = run_to_its_end(scenario)
    except StuckError as stuck:
        assert stuck.limits
        return
    except InputError:
        return  # a law whose shortest rollout is longer, or all of it masked
    assert same_samples(simulate(scenario), run)
    world = fleet.world
    live = np.isin(world.samples["status"][: world.get("n_samples")], [t.WAITING, t.RUNNING, t.AWAY])
    evaluated = world.groups["zero_variance"][world.samples["group"][: len(live)]] == t.ASKED
    for what, limit in ((t.EPISODE, episode), (t.TURN, turn)):
        k = world.get("episode_limit" if what == t.EPISODE else "turn_limit")
        assert (k >= 0) == (limit["timeout_s"] is not None)
        if k < 0:
            continue
        row = world.stations[k]
        state = world.deadlines["state"][int(what) : 2 * len(live) : 2]
        assert not (state != t.OFF)[~live & (world.samples["status"][: len(live)] != t.UNSENT)].any()
        under_way = live & ~evaluated
        if what == t.TURN:
            under_way &= world.samples["status"][: len(live)] != t.AWAY
        elif limit["lost"] != "waited":
            assert (state != t.OFF)[under_way].all()
        assert row["calls"] >= row["served"] + row["late"] + np.count_nonzero(state == t.COUNTING)
        assert row["lost"] <= row["late"]
        n, at = 0, int(row["first_due"])
        while at >= 0:
            n, at = n + 1, int(world.deadlines["next"][at])
        assert n == np.count_nonzero(state == t.COUNTING), "the order holds each clock that counts, once"
    masked = run.samples["masked"] == 1
    assert not masked.any() or "masked" in (turn["lost"], episode["lost"], tools.get("lost"))


def test_jumps_are_the_loop_with_time_limits() -> None:
    """A hold of no seconds ends every jump at its next iteration: asked for in each, the engine goes step by step."""
    arrivals = np.cumsum(np.random.default_rng(3).exponential(0.05, 80))
    limits_of = {
        "tools": {"workers": 3, "timeout_s": 1.5},
        "turn": {"timeout_s": 0.06, "lost": "truncated"},
        "episode": {"timeout_s": 1.0, "lost": "truncated"},
    }
    ends, rows = [], []
    for step_by_step in (False, True):
        fleet = open_fleet(
            arrivals, limits_of, {"kind": "lognormal", "mean": 0.3, "cv": 1.0}, "geometric:3", 0,
            of_turn={"mean": 40, "cv": 1, "max": 90},
        )  # fmt: skip
        while fleet.now < 30.0:
            fleet.advance(fleet.now + 5e-4 if step_by_step else 30.0)
            if step_by_step:
                fleet.hold(fleet.now, fleet.now)
        ends.append(fleet.world.samples["finish_s"][:80].copy())
        rows.append([fleet.world.stations[name][1:].tolist() for name in ("calls", "served", "late", "lost")])
    assert rows[0] == rows[1]
    assert min(rows[0][3]) > 5, "both limits cut some"
    assert ends[0] == pytest.approx(ends[1], abs=1e-9)
