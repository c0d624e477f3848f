"""Groups: the same row of groups whoever asks, one stream per cause."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config import scenario_from_mapping
from fleetsim.config.workload import WorkloadConfig
from fleetsim.records import field_names
from fleetsim.workload.groups import Groups, GroupSource
from fleetsim.workload.streams import seed_sequence, stream, substream


def workload(**changes: Any) -> WorkloadConfig:
    given_: dict[str, Any] = {
        "prompt_tokens": {"mean": 300, "cv": 0.5},
        "output_tokens": {"mean": 1000, "cv": 1, "max": 8000},
        "group_size": 4,
        "group_correlation": 0.3,
        "turns": {
            "count": 3,
            "tool_latency_s": {"kind": "gamma", "mean": 2, "cv": 1},
            "tool_tokens": {"mean": 50, "cv": 1},
        },
        "reward": {"latency_s": {"mean": 1, "cv": 1}},
        "filter": {"zero_variance_share": 0.25},
        "length_drift_per_step": 0.1,
    }
    return scenario_from_mapping({"workload": {**given_, **changes}}).workload


def source(w: WorkloadConfig, seed: int = 5, replication: int = 0) -> GroupSource:
    return GroupSource(w, seed_sequence(seed, replication, "workload"), groups_per_step=8)


def joined(parts: list[Groups]) -> dict[str, np.ndarray[Any, Any]]:
    names = [name for name in field_names(Groups) if name != "first"]
    return {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.booleans())
@settings(max_examples=40, deadline=None)
def test_group_k_does_not_depend_on_the_chunks(chunks: list[int], by_law: bool) -> None:
    turns = {"count": "geometric:3", "output_tokens": {"mean": 300, "cv": 1}, "max_trajectory_tokens": 900}
    w = workload(turns=workload().turns.model_dump() | turns if by_law else workload().turns.model_dump())
    one, many = source(w), source(w)
    whole, parts = joined([one.take(sum(chunks))]), [many.take(n) for n in chunks]
    for name, values in joined(parts).items():
        np.testing.assert_array_equal(values, whole[name], err_msg=name)
    assert [p.first for p in parts] == [sum(chunks[:i]) for i in range(len(chunks))]
    assert many.taken == sum(chunks)


def test_groups_that_are_remembered_are_those_that_are_drawn() -> None:
    w = workload()
    fresh = source(w)
    drawn = [fresh.drawn(n) for n in (7, 5, 9)]
    for _ in range(3):  # the second and the third find the first groups already there
        again = source(w)
        taken = [again.take(n) for n in (7, 5, 9)]
        for one, other in zip(taken, drawn, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(*(joined([g]).values() for g in (one, other)), strict=True))
        with pytest.raises(ValueError, match="read-only"):
            taken[0].output_tokens[0] = 1


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({"prompt_tokens": {"mean": 400, "cv": 0.5}}, {"prompt_tokens"}),
        ({"output_tokens": {"mean": 900, "cv": 1}}, {"output_tokens"}),
        ({"group_correlation": 0.0}, {"output_tokens"}),
        ({"filter": {"zero_variance_share": 0.5}}, {"zero_variance"}),
        ({"reward": {"latency_s": 0.0}}, {"reward_latency_s"}),
        ({"turns": {"count": 3, "tool_latency_s": 1.0, "tool_tokens": {"mean": 50, "cv": 1}}}, {"tool_latency_s"}),
    ],
)
def test_one_cause_does_not_move_another(changes: dict[str, Any], moved: set[str]) -> None:
    a, b = joined([source(workload()).take(50)]), joined([source(workload(**changes)).take(50)])
    assert {name for name in a if not np.array_equal(a[name], b[name])} == moved


def test_shapes_and_types() -> None:
    g = source(workload()).take(10)
    assert len(g) == 10
    assert (g.prompt_tokens.shape, g.prompt_tokens.dtype) == ((10,), np.dtype(np.int32))
    assert (g.output_tokens.shape, g.output_tokens.dtype) == ((40,), np.dtype(np.int32))
    assert (g.zero_variance.shape, g.zero_variance.dtype) == ((10,), np.dtype(np.bool_))
    assert (g.reward_latency_s.shape, g.reward_latency_s.dtype) == ((40,), np.dtype(np.float64))
    assert (g.tool_latency_s.shape, g.tool_latency_s.dtype) == ((80,), np.dtype(np.float64))
    assert (g.tool_tokens.shape, g.tool_tokens.dtype) == ((80,), np.dtype(np.int32))
    short = source(workload(output_tokens={"mean": 1, "cv": 1}, turns={"count": 5}, length_drift_per_step=0.0))
    assert short.take(100).output_tokens.min() == 5  # a token per turn
    single = source(workload(turns={"count": 1})).take(3)
    assert single.tool_tokens.shape == (0,)
    empty = source(workload()).take(0)
    assert len(empty) == 0
    assert empty.tool_latency_s.shape == (0,)


def test_prompts_hold_the_shared_prefix() -> None:
    g = source(workload(shared_prefix_tokens=250)).take(2000)
    assert g.prompt_tokens.min() == 250


def test_zero_variance_share() -> None:
    share = source(workload()).take(40_000).zero_variance.mean()
    assert share == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / 40_000))
    assert not source(workload(filter={})).take(1000).zero_variance.any()


def test_lengths_drift_with_the_group() -> None:
    s = source(workload(output_tokens=1000))
    assert s.group_factor(np.array([0, 7, 8, 16])).tolist() == pytest.approx([1.0, 1.0, 1.1, 1.21])
    assert s.take(17).output_tokens[::4].tolist() == [1000] * 8 + [1100] * 8 + [1210]
    assert float(s.group_factor(10**9)) == 1e9  # far beyond any cap, but finite
    shrinking = source(workload(output_tokens=1000, length_drift_per_step=-0.5))
    assert shrinking.take(200).output_tokens.min() == 3  # a token for each of the three turns
    with pytest.raises(ValueError, match="groups_per_step"):
        GroupSource(workload(), seed_sequence(1, 0, "workload"))


def test_streams_are_named_and_apart() -> None:
    draws = {
        (seed, replication, name): float(stream(seed, replication, name).random())
        for seed in (0, 1) for replication in (0, 1) for name in ("failures", "lengths")
    }  # fmt: skip
    assert len(set(draws.values())) == len(draws)
    assert float(stream(1, 1, "lengths").random()) == draws[1, 1, "lengths"]
    parent = seed_sequence(3, 0, "workload")
    first = substream(parent, "a").random()
    assert substream(parent, "b").random() != first
    assert substream(parent, "a").random() == first  # asking does not use the parent up


def test_replications_are_uncorrelated() -> None:
    w = workload(length_drift_per_step=0.0)  # a drift is the same in every replication
    a = np.log(source(w, replication=0).take(5000).output_tokens)
    b = np.log(source(w, replication=1).take(5000).output_tokens)
    # siblings share 0.3 of the variance: the effective sample is 20,000 / (1 + 3 * 0.3)
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 * math.sqrt(1.9 / 20_000)
