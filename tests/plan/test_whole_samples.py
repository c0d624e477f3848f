"""A step is worth the samples of its batch that are learned from and were not cut: of counts, ranges, moves, splits and
plans the one with the shortest steps is not the best where it loses most."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetsim as fs
from fleetsim.config import Scenario, with_changes
from fleetsim.job.trials import Trials
from fleetsim.search.arrangements import split as split_of
from fleetsim.search.best import best_of
from fleetsim.size.spread import count_doubt
from fleetsim.split.split import split
from tests.plan.fakes import metrics, one_ahead

WORK = 512 * 1536
DOLLARS = 3.0
JOB = {"batch": 64, "len": 2000, "turns": 3, "tool_s": 5, "replications": 2}
LOSSES: Mapping[str, Mapping[str, Any]] = {
    "episodes cut": {"stations.episode.timeout_s": 90.0, "stations.episode.lost": "truncated"},
    "episodes masked": {"stations.episode.timeout_s": 90.0, "stations.episode.lost": "masked"},
    "turns dropped": {"stations.turn.timeout_s": 30.0, "stations.turn.lost": "dropped"},
    "rewards masked": {
        "stations.reward.at": "reward", "workload.reward.latency_s": 5.0,
        "stations.reward.failure_share": 0.15, "stations.reward.lost": "masked",
    },
    "tools retried": {"stations.tools.failure_share": 0.1, "stations.tools.lost": "retried"},
}  # fmt: skip


def cut(s: Scenario, replication: int) -> Mapping[str, Any]:
    """Every rollout ends after 40 s, whatever it has: all steps are as long, and the rollouts, whose lengths are
    exponential, are whole as far as n instances make them by then."""
    n, step_s = s.fleet.instances, max(40.0, s.trainer.fixed_s)
    whole = -math.expm1(-step_s * n * s.engine.instance_tok_s / WORK)
    usd = step_s / 3600.0 * DOLLARS * (n + s.trainer.gpus)
    return metrics(step_s, 1.0 - s.trainer.fixed_s / step_s, cost_per_step=usd, whole_share=whole)


def job(rate: float, trainer_gpus: int, worth: float) -> Scenario:
    fixed = {"engine.kind": "constant", "workload.output_tokens": 1536, "targets.worth": worth}
    return with_changes(one_ahead(), fixed | {"engine.instance_tok_s": rate, "trainer.gpus": trainer_gpus})


def worth_of(found: Mapping[str, Any], exponent: float = 1.0) -> float:
    """Step time x cost for as many whole samples: what is to be least."""
    whole = found.get("whole_share", 1.0)
    return float((found["step_s"] / whole) ** exponent * found["cost_per_step"] / whole)


@settings(max_examples=25, deadline=None)
@given(rate=st.floats(800.0, 8000.0), trainer_gpus=st.integers(1, 32), worth=st.sampled_from([0.5, 1.0, 2.0]))
def test_the_count_is_that_with_the_least_step_time_and_cost_of_whole_samples(
    rate: float, trainer_gpus: int, worth: float
) -> None:
    s = job(rate, trainer_gpus, worth)
    n = best_of(Trials(s, cut), 5, (), 1).instances
    every = {k: worth_of(cut(with_changes(s, {"fleet.instances": k}), 0), worth) for k in range(1, 60)}
    assert every[n] <= 1.03 * min(every.values())
    assert every[1] > 1.2 * every[n]  # the shortest and cheapest step is that of one instance


def test_the_range_of_a_count_is_one_of_whole_samples() -> None:
    """A slower trainer makes longer steps, in which fewer instances end as many rollouts."""
    s = with_changes(job(2000.0, 8, 1.0), {"trainer.fixed_s": 40.0})

    def best(factor: float) -> int:
        there = with_changes(s, {"trainer.fixed_s": factor * s.trainer.fixed_s})
        return min(range(1, 80), key=lambda n: worth_of(cut(with_changes(there, {"fleet.instances": n}), 0)))

    doubt = count_doubt(s, best(1.0), (), (), cut)
    assert doubt is not None
    low, high = doubt.counts()
    (trainer,) = (law for uncertain, law in doubt.laws if uncertain.axis == "trainer")
    ends = [best(factor) for factor in (trainer.low, 1.0, trainer.high)]
    assert min(ends) - 1 <= low <= best(1.0) <= high <= max(ends) + 1


def test_a_split_is_not_the_better_for_the_rollouts_that_it_cuts() -> None:
    """Of 16 GPUs those with fewer for rollout have the shortest steps."""
    s = job(1200.0, 8, 1.0)
    found = split(s, 16, measure=cut)
    runs = {n: cut(split_of(s, n, 16).scenario, 0) for n in range(1, 16)}
    whole_s = {n: run["step_s"] / run["whole_share"] for n, run in runs.items()}
    assert found.best_split is not None
    assert whole_s[found.best_split.arrangement.instances] == min(whole_s.values())
    raw = min(runs, key=lambda n: (runs[n]["step_s"], n))
    assert whole_s[raw] > 1.5 * min(whole_s.values())


@pytest.mark.parametrize("loses", LOSSES)
def test_what_is_trained_whole_is_what_the_records_say(loses: str) -> None:
    """The share of the batch that stations and limits lost is missing, but what begins again is in its place."""
    mean = fs.load(None, **JOB).with_({**LOSSES[loses], "fleet.instances": 2, "run.steps": 40}).simulate().mean
    (lost,) = (v for k, v in mean.items() if k.startswith("stations.") and k.endswith(".lost") and v > 0)
    if loses == "tools retried":  # thrice, and then it is dropped
        assert mean["whole_share"] > 0.99 > 1.0 - lost / 64
        return
    assert mean["whole_share"] == pytest.approx(1.0 - lost / 64, abs=0.03)
    assert 0.3 < mean["whole_share"] < 0.999


def test_a_group_of_one_that_is_dropped_is_replaced_and_not_lost() -> None:
    """A longer step has it in it already."""
    alone = {**LOSSES["turns dropped"], "workload.group_size": 1, "fleet.instances": 2, "run.steps": 40}
    mean = fs.load(None, **JOB).with_(alone).simulate().mean
    assert mean["stations.turn.lost"] > 1.0
    assert mean["whole_share"] == 1.0


def test_a_job_that_loses_nothing_has_no_share_of_it() -> None:
    assert "whole_share" not in fs.load(None, **JOB).with_({"fleet.instances": 2, "run.steps": 8}).simulate().mean


@pytest.mark.slow
@pytest.mark.parametrize("loses", LOSSES)
def test_the_recommended_count_its_range_and_its_moves_hold_by_brute_force(loses: str) -> None:
    there = fs.load(None, **JOB).with_(LOSSES[loses])
    found = there.size()
    n, told = found.instances, found.to_dict()

    def worth(job: fs.Job) -> float:
        return worth_of(job.simulate(seed=7).mean)

    by_count = {k: worth(there.with_({"fleet.instances": k})) for k in sorted({1, 2, 3, 4, 6, 9, n})}
    assert by_count[n] <= 1.05 * min(by_count.values()), by_count
    low, high = told["spread"]["instances"]
    assert low <= min(by_count, key=by_count.__getitem__) <= high
    for move in told["alternatives"]["tried"]:
        if (own := move["anew"]) is None or not own["replications"]:
            continue
        words = move["flag"].split()
        changes = {k: json.loads(v) for k, v in (word.split("=", 1) for word in words if "=" in word)}
        if len(words) != 2 * len(changes):
            continue  # flags of their own
        with_it = worth(there.with_({**changes, "fleet.instances": own["instances"]}))
        assert 1.0 - with_it / by_count[n] == pytest.approx(own["gain"], abs=0.05), move["name"]


@pytest.mark.slow
def test_the_plan_of_a_budget_cuts_no_more_than_its_steps_are_worth() -> None:
    """Splits of twelve GPUs, in long runs."""
    there = fs.load(None, **JOB).with_(LOSSES["episodes masked"])
    found = there.plan(gpus=12)

    def whole_s(instances: int) -> float:
        split = {"fleet.instances": instances, "trainer.gpus": 12 - instances, "fleet.placement": "disaggregated"}
        try:
            mean = there.with_(split).simulate().mean
        except fs.InputError:  # a trainer that does not fit
            return math.inf
        return float(mean["step_s"] / mean["whole_share"])

    every = [whole_s(n) for n in range(1, 12)]
    assert min(every) < math.inf
    assert found.mean["step_s"] / found.mean["whole_share"] <= 1.03 * min(every)
