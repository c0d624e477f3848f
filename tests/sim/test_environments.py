"""Environments in groups, as ROLL's: a fixed number of games at once, each group with its own share of a step's.

- By hand: a slow game holds its place, and nobody takes the games of its group over.
- A step's games in closed form: the mean of the longest of pure death chains (Erlang's law where each has one place).
- Game by game against a simulator of its own, in which a place is a heap's entry.
- Jumps against the loop, failures, filters and syncs; bad input.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.errors import InputError
from fleetsim.search.levers import CAP, NO_CAP, levers_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from tests.sim.test_judges import busy_judge, judged
from tests.sim.timelines import BASE, FREE, batches, done, play, sends, with_its_fleet

PLAYS: dict[str, Any] = {"fleet__in_flight_unit": "environments", "fleet__group_placement": "spread"}


def played(lengths: list[int | tuple[int, ...]], environments: int, batch: int, **more: Any) -> Records:
    """Two steps behind a barrier; the trainer takes four seconds."""
    changes = {"admission__law": "barrier", "trainer__batch_samples": batch, "run__steps": 2} | PLAYS | more
    return play(lengths, fleet__max_in_flight_samples=environments, **changes)


def test_a_slow_game_holds_its_place_and_the_games_of_its_group() -> None:
    """Two environments, three games each. One plays nine seconds and then one and one, the other is through at 3 and
    waits; any free place would have had them at 9."""
    run = played([9, 1, 1, 1, 1, 1], 2, 6)
    assert sends(run, 6) == (0, 0, 1, 2, 9, 10)
    assert done(run, *range(6)) == (9, 1, 2, 3, 10, 11)
    assert batches(run) == (11, 18)
    assert batches(played([9, 1, 1, 1, 1, 1], 2, 6, fleet__in_flight_unit="samples")) == (9, 16)


def test_of_a_group_the_quick_environment_plays_the_next_ones_first_sample() -> None:
    """Two groups of two environments, two games of two samples each. In the first, one plays three seconds: the other
    plays both samples of its second game, from 1 and 2 on. The second group has both of its own at 1."""
    lengths: list[int | tuple[int, ...]] = [(3, 1), (1, 1), (1, 1), (1, 1)]
    run = played(lengths, 4, 8, workload__group_size=2)
    assert sends(run, 4) == (0, 0, 1, 1)
    assert done(run, 0, 1, 2, 3) == (3, 1, 3, 2)
    # three samples of a game are played, two are enough: the third of the first is aborted at 1, and its place free
    more = {"workload__group_size": 2, "buffer__group_oversampling": 1.5}
    run = played([(9, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1)], 6, 8, **more)
    assert done(run, 0, 1, 2, 3) == (1, 1, 2, 2)


def test_a_game_that_is_filtered_is_played_again_by_its_own_group() -> None:
    """The second of four games has no signal: its environment plays three, and the other one the last, of five seconds,
    when it is free at 4. Any free place would have begun that at 3."""
    run = played([4, 1, 1, 1, 5], 2, 4, filtered=[1])
    assert done(run, *range(5)) == (4, 1, 2, 3, 9)
    assert batches(played([4, 1, 1, 1, 5], 2, 4, filtered=[1], fleet__in_flight_unit="samples"))[0] == 8


def test_a_place_is_held_until_its_reward_where_the_reward_says_so() -> None:
    """One environment, two games of two seconds with a reward of one."""
    for holds, sent in ((False, (0, 2)), (True, (0, 3))):
        run = played([2], 1, 2, workload__reward__latency_s=1.0, stations__reward__holds_slot=holds)
        assert sends(run, 2) == sent


def longest(groups: int, size: int, games: int) -> float:
    """Mean seconds in which each of so many groups of environments has played its games, whose samples take a second in
    the mean, exponential: a group is a chain that goes down by one at the pace of those that play."""
    n, dt = size * games, 2e-3
    rates = np.minimum(size, np.arange(n, 0, -1)) * dt
    down = np.diag(np.append(-rates, 0.0)) + np.diag(rates, 1)
    move = np.eye(n + 1) + down + down @ down / 2.0  # to the second order
    state, mean = np.eye(1, n + 1)[0], 0.0
    while (missing := 1.0 - state[-1] ** groups) > 1e-9:
        state = state @ move
        mean += dt * (missing + 1.0 - state[-1] ** groups) / 2.0
    return mean


def random_games(groups: int, size: int, games: int, steps: int, seed: int) -> Records:
    """A batch is so many games of each group, of ten seconds in the mean."""
    changes = {
        "workload.output_tokens": {"kind": "gamma", "mean": 1000, "cv": 1.0},
        "workload.group_correlation": 0.0,
        "workload.group_size": size,
        "fleet.max_in_flight_samples": groups * size,
        "fleet.in_flight_unit": "environments",
        "fleet.group_placement": "spread",
        "admission.law": "barrier",
        "trainer.batch_samples": groups * size * games,
        "run.steps": steps,
        "run.seed": seed,
    }
    return simulate(with_changes(default_scenario(), BASE | changes), engine=FREE)


@pytest.mark.parametrize(("groups", "size", "games"), [(8, 1, 1), (4, 1, 6), (1, 3, 4), (3, 2, 3)])
def test_a_step_takes_as_long_as_the_slowest_group(groups: int, size: int, games: int) -> None:
    theory = longest(groups, size, games)
    if games == 1 and size == 1:
        assert theory == pytest.approx(sum(1.0 / k for k in range(1, groups + 1)), rel=1e-3)
    if groups == 1:
        assert theory == pytest.approx(games - 1 + sum(1.0 / k for k in range(1, size + 1)), rel=1e-3)
    steps = random_games(groups, size, games, 600, 3).steps
    took = (steps["ready_s"] - steps["start_s"]) / 10.0
    half = 1.96 * took.std(ddof=1) / math.sqrt(len(took))
    assert abs(took.mean() - theory) < 1.5 * half + 2e-3  # tokens are whole ones, one at least
    assert half < 0.06 * theory, "else the test says nothing"


@pytest.mark.parametrize(("groups", "size", "games"), [(8, 1, 3), (3, 2, 3), (5, 4, 2), (1, 3, 4)])
def test_game_by_game_it_is_what_a_simulator_of_its_own_does(groups: int, size: int, games: int) -> None:
    run = random_games(groups, size, games, 6, 7)
    for step, row in enumerate(run.steps):
        first, n = step * groups * games * size, groups * games * size
        seconds = run.samples["target"][first : first + n].reshape(-1, size) / 100.0
        assert row["ready_s"] - row["start_s"] == pytest.approx(by_hand(seconds.tolist(), groups, games), abs=1e-6)


def by_hand(seconds: list[list[float]], groups: int, games: int) -> float:
    """When all games are over: each is begun by the first group that has a place free and games left to play."""
    ends, left, played = list[tuple[float, int]](), [list[float]() for _ in range(groups)], [0] * groups
    coming, now = iter(seconds), 0.0

    def play_on(lane: int) -> None:
        if not left[lane] and played[lane] < games:
            left[lane] = next(coming)[::-1]
            played[lane] += 1
        if left[lane]:
            heapq.heappush(ends, (round(now + left[lane].pop(), 6), lane))

    for lane in range(groups):
        for _ in seconds[0]:
            play_on(lane)
    while ends:
        now = ends[0][0]
        for lane in sorted(heapq.heappop(ends)[1] for _ in [e for e in ends if e[0] == now]):
            play_on(lane)
    return now


def rolls(lanes: int, batch: int, steps: int, seconds: Iterator[float]) -> list[float]:
    """Seconds of each step's rollout in ROLL's synchronous pipeline, groups of one (rollout_scheduler.py: GroupQueue).

    A step gives each lane as many games as a batch needs, rounded up. A batch takes one of each lane before a second of
    any, and a lane that has not given its one owes it to the next step. What is left is too old then; a game that is
    under way is played to its end all the same. While the trainer works, nobody plays.
    """
    games = [list[list[float]]() for _ in range(lanes)]  # of this step: when each ends, once it is begun
    free, now, owing, took = [0.0] * lanes, 0.0, set[int](), list[float]()
    for _ in range(steps):
        games, start, taken = [[[] for _ in range(-(-batch // lanes))] for _ in range(lanes)], now, 0
        while taken < batch:
            for lane in range(lanes):  # whoever is free begins the next one
                for game in games[lane]:
                    if not game and free[lane] <= now:
                        free[lane] = now + next(seconds)
                        game.append(free[lane])
            owing = owing or set(range(lanes))
            given = [lane for lane in sorted(owing) if games[lane] and games[lane][0] and games[lane][0][0] <= now]
            for lane in given[: batch - taken]:
                games[lane].pop(0)
                owing.discard(lane)
                taken += 1
            if not given:
                now = min(end for end in free if end > now)
        took.append(now - start)
    return took


def test_roll_takes_one_of_each_environment_before_a_second_of_any() -> None:
    """Three of four games a step. At first the slowest, of 9 s, is left out, and is played out: its environment owes
    the second step a game, which it begins at 9 and ends at 10, while those of the others are over at 4."""
    assert rolls(4, 3, 2, iter([1.0, 2.0, 3.0, 9.0, 1.0, 1.0, 1.0, 1.0])) == [3.0, 7.0]


@pytest.mark.parametrize(("lanes", "batch", "off"), [(8, 12, -0.14), (128, 96, 0.21), (32, 62, -0.07)])
def test_any_free_place_is_so_far_off_roll_where_its_games_are_no_batch(lanes: int, batch: int, off: float) -> None:
    """What an import takes in its place, as docs/not_modelled.md says."""
    draws = np.random.default_rng(5)
    theirs = np.mean(rolls(lanes, batch, 400, iter(lambda: draws.exponential(10.0), None))[40:])
    changes = {
        "workload.output_tokens": {"kind": "gamma", "mean": 1000, "cv": 1.0},
        "workload.group_correlation": 0.0,
        "workload.group_size": 1,
        "fleet.max_in_flight_samples": lanes,
        "admission.law": "barrier",
        "trainer.batch_samples": batch,
        "run.steps": 400,
    }
    steps = simulate(with_changes(default_scenario(), BASE | changes), engine=FREE).steps
    assert (steps["ready_s"] - steps["start_s"]).mean() / theirs - 1.0 == pytest.approx(off, abs=0.04)


def test_jumps_are_the_loop_with_environments_in_front() -> None:
    """A hold of no seconds ends every jump at its next iteration: agents that ask a judge, on two engines."""
    changes = {
        "workload.turns": {"count": 3, "tool_latency_s": {"mean": 1.0, "cv": 1.0}},
        "fleet.max_in_flight_samples": 20,
        "fleet.in_flight_unit": "environments",
        "fleet.group_placement": "spread",
    }
    scenario = with_changes(busy_judge(), changes)
    found = [judged(scenario, 24, every_s=every_s).world.groups["ready_s"][:24] for every_s in (None, 5e-4)]
    assert np.abs(found[0] - found[1]).max() < 1e-9
    assert np.all(found[0] > 0)


@pytest.mark.parametrize("in_flight", ["drain", "abort_discard", "abort_resume", "keep_recompute"])
def test_places_balance_whatever_happens_to_a_game(in_flight: str) -> None:
    """Instances fail, calls are lost and made again, groups are dropped: at the end as many places are free as no game
    holds, and each group of environments has begun as many as the others, but for one."""
    changes = {
        "workload.turns": {"count": 3, "tool_latency_s": 1.0},
        "workload.group_size": 4,
        "workload.filter.zero_variance_share": 0.2,
        "stations.tools": {"workers": 30, "failure_share": 0.05, "lost": "retried"},
        "stations.reward": {"holds_slot": in_flight == "drain"},
        "workload.reward.latency_s": 2.0,
        "fleet.instances": 3,
        "fleet.failures": {"mtbf_s": 300, "restart_s": 20},
        "fleet.max_in_flight_samples": 48,
        "fleet.in_flight_unit": "environments",
        "fleet.group_placement": "spread",
        "trainer.batch_samples": 96,
        "trainer.fixed_s": 5.0,
        "sync.in_flight": in_flight,
        "evaluation": {"every_steps": 2, "samples": 32},
        "run.steps": 8,
    }
    _, fleet = with_its_fleet(with_changes(default_scenario(), changes))
    world = fleet.world
    assert len(world.lanes) == 1 + 12
    assert world.lanes["free"][1:].min() >= 0
    assert fleet.get("in_flight") == 48 - world.lanes["free"][1:].sum() + 4 - world.lanes["free"][0]
    begun = world.lanes["begun"][1:]
    assert begun.sum() == fleet.get("begun")
    assert begun.max() - begun.min() <= 2


def test_more_environments_are_a_lever_and_none_are_not() -> None:
    """Half as many groups of them again; a client without any plays nothing."""
    changes = {"in_flight_unit": "environments", "max_in_flight_samples": 64, "group_placement": "spread"}
    scenario = with_changes(default_scenario(), {f"fleet.{name}": value for name, value in changes.items()})
    found = {lever.name: lever.scenario for lever in levers_of(scenario, scenario, "one more")}
    assert found[CAP].fleet.max_in_flight_samples == 96
    assert NO_CAP not in found


@pytest.mark.parametrize(
    ("fleet", "told"),
    [
        ({}, r"fleet\.max_in_flight_samples: in_flight_unit environments: their number, in groups of 8 \(samples "
         r"sent of a group\); use a multiple of 8, or in_flight_unit: samples"),
        ({"max_in_flight_samples": 4}, r"fleet\.max_in_flight_samples: 4: .* use a multiple of 8"),
        ({"max_in_flight_samples": 64, "group_placement": "together"}, r"fleet\.group_placement: 'together': "
         r"in_flight_unit environments: each sends its sample when it is free; use spread"),
        ({"max_in_flight_samples": 64, "in_flight_unit": "games"}, r"fleet\.in_flight_unit: 'games'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(fleet: dict[str, Any], told: str) -> None:
    base = {"in_flight_unit": "environments", "group_placement": "spread", **fleet}
    with pytest.raises(InputError, match=told):
        with_changes(default_scenario(), {f"fleet.{name}": value for name, value in base.items()})
    with pytest.raises(InputError, match=r"admission\.law: 'adaptive': .*their number is fixed"):
        with_changes(default_scenario(), {"admission.law": "adaptive", "fleet.in_flight_unit": "environments"})
