"""Turns of a sample: laws against their closed forms, caps by hand, and no cap that nothing reaches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fleetsim.config import default_scenario, dump_scenario, scenario_from_mapping, with_changes
from fleetsim.config.workload import WorkloadConfig
from fleetsim.config.yaml_text import from_yaml
from fleetsim.errors import InputError
from fleetsim.workload.lengths import limited_mean, mean_length
from fleetsim.workload.turns import Trajectories, TurnStreams, cut_shares, mean_turns, response_law, trajectories

N = 40_000


def workload(**turns: Any) -> WorkloadConfig:
    return with_changes(default_scenario(), {"workload.turns": turns}).workload


def drawn(w: WorkloadConfig, n: int = N) -> Trajectories:
    return trajectories(w, TurnStreams(np.random.SeedSequence(7)), n)


@pytest.mark.parametrize(
    ("count", "shares"),
    [
        (4, {4: 1.0}),
        ("geometric:3", {k: (2 / 3) ** (k - 1) / 3 for k in range(1, 12)}),  # stops after each turn with 1/3
        ("geometric:3:4", {1: 1 / 3, 2: 2 / 9, 3: 4 / 27, 4: 8 / 27}),  # the cap keeps what lies beyond
        ("geometric:1", {1: 1.0}),
        ("uniform:2:5", dict.fromkeys(range(2, 6), 0.25)),
        ({"le": [1, 2, 5], "count": [50, 20, 30]}, {1: 0.5, 2: 0.2, 3: 0.1, 4: 0.1, 5: 0.1}),
    ],
)
def test_counts_have_the_shares_of_their_law(count: Any, shares: dict[int, float]) -> None:
    w = workload(count=count)
    turns = drawn(w).turns
    for k, share in shares.items():
        assert abs((turns == k).mean() - share) < 4.5 * math.sqrt(share * (1 - share) / N) + 1e-9, k
    assert abs(turns.mean() - mean_turns(w)) < 4.5 * turns.std() / math.sqrt(N) + 1e-9
    if sum(shares.values()) > 0.999:
        assert mean_turns(w) == pytest.approx(sum(k * share for k, share in shares.items()), rel=1e-3)
    assert turns.max() <= w.turns.most


def test_the_mean_of_geometric_turns_is_that_of_its_chance() -> None:
    """1 / p; with a cap of m it is (1 - (1 - p)^m) / p."""
    assert mean_turns(workload(count="geometric:7")) == 7.0
    assert mean_turns(workload(count="geometric:4:3")) == pytest.approx((1 - 0.75**3) * 4)


# Five turns of 100 tokens, tools that answer with 30.
EVERY = {"count": 5, "output_tokens": 100, "tool_tokens": 30}


@pytest.mark.parametrize(
    ("caps", "turns", "tokens", "goals", "cut"),
    [
        ({}, 5, 500, [100, 200, 300, 400], (0, 0)),
        ({"max_trajectory_tokens": 620}, 5, 500, [100, 200, 300, 400], (0, 0)),  # 500 and 4 answers: just enough
        # 130, 260, 390 are used when a turn begins: of 400 the fourth has 10 left
        ({"max_trajectory_tokens": 400}, 4, 310, [100, 200, 300], (0, 1)),
        ({"max_trajectory_tokens": 390}, 3, 300, [100, 200], (0, 1)),  # none left: it ended with the third
        ({"max_trajectory_tokens": 99}, 1, 99, [], (0, 1)),
        ({"max_output_tokens": 60}, 5, 300, [60, 120, 180, 240], (5, 0)),
        ({"max_output_tokens": 60, "cut_turn": "ends"}, 1, 60, [], (1, 0)),
        ({"max_output_tokens": 60, "max_trajectory_tokens": 200}, 3, 140, [60, 120], (3, 1)),
    ],
)
def test_caps_by_hand(caps: dict[str, Any], turns: int, tokens: int, goals: list[int], cut: tuple[int, int]) -> None:
    """A turn's cap and a trajectory's, each alone and together."""
    found = drawn(workload(**EVERY, **caps), 3)
    assert found.turns.tolist() == [turns] * 3
    assert found.output_tokens.tolist() == [tokens] * 3
    assert found.goals.tolist() == goals * 3
    assert len(found.tool_tokens) == len(found.tool_latency_s) == len(found.goals)
    assert (found.cut_turns, found.cut) == (3 * cut[0], 3 * cut[1])


def test_a_sample_that_a_cut_turn_ends_has_geometric_turns() -> None:
    """A turn is cut with q = P(L > cap), so of at most n turns a sample has (1 - (1 - q)^n) / q on average."""
    law, cap, n = {"kind": "lognormal", "mean": 300.0, "cv": 1.0}, 600, 6
    w = workload(count=n, output_tokens=law, max_output_tokens=cap, cut_turn="ends")
    sigma = math.sqrt(math.log(2.0))
    z = (math.log(cap + 0.5) - math.log(300.0) + sigma**2 / 2) / sigma  # whole tokens
    q = 0.5 * math.erfc(z / math.sqrt(2))
    turns = drawn(w).turns
    expected = (1 - (1 - q) ** n) / q
    assert abs(turns.mean() - expected) < 4 * turns.std() / math.sqrt(N)
    assert mean_turns(w) == pytest.approx(expected, rel=0.02)
    assert cut_shares(w)[0] == pytest.approx(q, rel=0.1)


def test_tokens_of_turns_add_up() -> None:
    """Wald: the mean of a sum of N lengths is E[N] E[min(L, cap)]; each call stands between two of its turns."""
    law = {"kind": "lognormal", "mean": 300.0, "cv": 1.0}
    w = workload(count="geometric:3", output_tokens=law, max_output_tokens=500)
    found = drawn(w)
    of_turn = limited_mean(w.turns.output_tokens, 500.0)
    assert found.output_tokens.mean() == pytest.approx(3 * of_turn, rel=0.02)
    assert mean_length(response_law(w), at_least=1.0) == pytest.approx(3 * of_turn, rel=0.03)
    assert len(found.goals) == (found.turns - 1).sum()
    assert np.all(found.output_tokens >= found.turns)


def test_a_cap_that_nothing_reaches_changes_no_sample() -> None:
    """Spread evenly, floor(L j / T) at the end of turn j: as the kernel does it where there are no caps."""
    plain, capped = (drawn(workload(count="uniform:1:6", **cap)) for cap in ({}, {"max_output_tokens": 10**8}))
    for name in ("turns", "output_tokens", "tool_latency_s", "tool_tokens"):
        assert np.array_equal(getattr(plain, name), getattr(capped, name)), name
    sample = np.repeat(np.arange(N), plain.turns - 1)
    turn = np.arange(len(sample)) - np.repeat(np.cumsum(plain.turns - 1) - (plain.turns - 1), plain.turns - 1) + 1
    made = plain.output_tokens[sample].astype(np.int64)
    assert np.array_equal(capped.goals, made * turn // plain.turns[sample])


@pytest.mark.parametrize(
    ("given", "path", "rule"),
    [
        (0, r"workload\.turns\.count", "must be at least 1"),
        (2.5, r"workload\.turns\.count", "must be a whole number"),
        ("geometric", r"workload\.turns\.count", "must be a whole number or a law: geometric:MEAN"),
        ("geometric:0.5", r"workload\.turns\.count\.mean", "must be at least 1"),
        ("uniform:5:2", r"workload\.turns\.count", "low must be at most high"),
        ({"kind": "poisson"}, r"workload\.turns\.count\.kind", "must be one of geometric, uniform"),
    ],
)
def test_what_is_no_law_of_turns_is_refused(given: Any, path: str, rule: str) -> None:
    with pytest.raises(InputError, match=rf"{path}: .*{rule}"):
        workload(count=given)


@pytest.mark.parametrize("count", ["geometric:3:20", "uniform:5", {"mean": 4, "cv": 0.5}, 3])
def test_a_law_of_turns_is_written_and_read_again(count: Any) -> None:
    scenario = with_changes(default_scenario(), {"workload.turns.count": count})
    assert scenario_from_mapping(from_yaml(dump_scenario(scenario), "again")) == scenario
