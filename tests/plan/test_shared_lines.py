"""Lines that several answers share: how old samples are, and what is generated for nothing."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from statistics import NormalDist
from typing import Any

import pytest

import fleetsim as fs
from fleetsim.config import default_scenario, with_changes
from fleetsim.estimates import Estimate
from fleetsim.job.facts import losses_line, regime_line
from fleetsim.job.lengths import share_at_cap
from fleetsim.job.trials import trial_of
from tests.plan.fakes import metrics

LONG = {"kind": "lognormal", "mean": 1536, "cv": 1.0}


def of(**others: Any) -> Any:
    return trial_of(1, [metrics(10.0, 0.2, **others)]).estimates


@pytest.mark.parametrize(
    ("p99", "most", "told"),
    [
        (0.0, 0.0, "on-policy"),
        (0.0, 1.0, "99 % of the trained samples are on-policy"),
        (1.0, 1.0, "99 % of the trained samples are at most 1 step old: near on-policy"),
        (2.2, 4.0, "99 % of the trained samples are at most 3 steps old: near on-policy"),
        (4.0, 5.0, "99 % of the trained samples are at most 4 steps old: off-policy, train with importance-sampling"),
        (6.0, 9.0, "99 % of the trained samples are at most 6 steps old: far off-policy"),
    ],
)
def test_the_regime_follows_the_age(p99: float, most: float, told: str) -> None:
    found = regime_line(of(staleness_steps={"mean": 0.5, "p50": 0.0, "p99": p99, "max": most}))
    assert found.startswith(told)
    assert ("decoupled PPO" in found) == (p99 > 5)


def test_nothing_is_said_of_a_fleet_that_gets_stuck() -> None:
    unknown = defaultdict(lambda: Estimate(math.inf, math.inf, math.inf))
    assert regime_line(unknown) == ""
    assert losses_line(unknown, default_scenario()) is None


def test_nothing_is_said_where_nothing_is_lost() -> None:
    assert losses_line(of(), default_scenario()) is None


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (
            {
                "samples_lost": {"all": 0.56, "longest_tenth": 0.95},
                "waste": {"stale": 1.8, "filtered": 2.0, "aborted": 0.1, "recomputed": 0.0, "lost": 0.0},
                "tokens_per_trained_token": 2.8,
            },
            "56 % of all samples, 95 % of the longest tenth: stale at the queue; 2.8 tokens made per trained token",
        ),
        (
            {
                "samples_lost": {"all": 0.004, "longest_tenth": 0.04},
                "waste": {"stale": 0.0, "filtered": 0.0, "aborted": 0.1, "recomputed": 0.0, "lost": 0.0},
            },
            "0.4 % of all samples, 4 % of the longest tenth: aborted in flight",
        ),
        (
            {
                "waste": {"stale": 0.0, "filtered": 0.4, "aborted": 0.0, "recomputed": 0.1, "lost": 0.0},
                "tokens_per_trained_token": 1.5,
            },
            "1.5 tokens made per trained token, most of the others filtered by their reward",
        ),
        ({"preemptions": 256.0}, "0.5 preemptions a sample"),
    ],
)
def test_what_is_lost_is_told_with_what_loses_most(others: dict[str, Any], told: str) -> None:
    assert losses_line(of(**others), default_scenario()) == told


def test_responses_that_the_cap_cuts() -> None:
    """P(L > 2,048) of a lognormal of mean 1,536 and cv 1: 1 - Phi((ln 2048 - mu) / sigma), mu = ln 1536 - sigma^2 / 2,
    sigma^2 = ln 2."""
    s = with_changes(default_scenario(), {"workload.output_tokens": {**LONG, "max": 2048}})
    cut = share_at_cap(s.workload.output_tokens)
    above = (math.log(2048 / 1536) + math.log(2) / 2) / math.log(2) ** 0.5
    assert cut == pytest.approx(1 - NormalDist().cdf(above), abs=1e-3)
    assert losses_line(of(), s) == f"{100 * cut:.1f} % of the responses cut at the cap"
    assert share_at_cap(with_changes(s, {"workload.output_tokens": LONG}).workload.output_tokens) == 0.0
    assert share_at_cap(with_changes(s, {"workload.output_tokens": 700}).workload.output_tokens) == 0.0


@pytest.mark.parametrize(
    ("policy", "told"),
    [("truncated", "48.0 % of the rollouts truncated"), ("retried", "32.4 % of the rollouts retried"),
     ("dropped", "dropped")],
)  # fmt: skip
def test_rollouts_that_tools_lose_are_a_share_of_those_that_end(policy: str, told: str) -> None:
    """600 are lost in a step of 10 s that trains 512, while 125 a second are complete; another try ends beside them."""
    lost = {"stations": {"tools": {"lost": 600.0, "late": 0.2, "failed": 0.0}}, "completions_per_s": 125.0}
    s = with_changes(default_scenario(), {"stations.tools.lost": policy})
    assert losses_line(of(**lost), s) == f"{told} at their tools: 20.0 % of the calls timed out"


@pytest.mark.parametrize(
    ("what", "policy", "told"),
    [("episode", "masked", "48.0 % of the rollouts masked after 10 min 00 s"),
     ("episode", "dropped", "32.4 % of the rollouts dropped after 10 min 00 s"),
     ("episode", "truncated", "48.0 % of the rollouts truncated after 10 min 00 s"),
     ("turn", "waited", "20.0 % of the turns waited for after 10 min 00 s of a turn")],
)  # fmt: skip
def test_rollouts_over_their_time_are_told_by_their_policy(what: str, policy: str, told: str) -> None:
    lost = {"stations": {what: {"lost": 0.0 if policy == "waited" else 600.0, "late": 0.2}}, "completions_per_s": 125.0}
    s = with_changes(default_scenario(), {f"stations.{what}": {"timeout_s": 600.0, "lost": policy}})
    assert losses_line(of(**lost), s) == told


@pytest.mark.parametrize(
    ("cap", "told"), [(None, " of the trajectories ended by their cap"), (300, " of the trajectories ended by theirs")]
)
def test_trajectories_end_by_the_cap_that_was_named(cap: int | None, told: str) -> None:
    turns = {"workload.turns.count": 5, "workload.turns.output_tokens": {"mean": 200, "cv": 1.0}}
    caps = {"workload.turns.max_output_tokens": cap, "workload.turns.max_trajectory_tokens": 900}
    said = losses_line(of(), with_changes(default_scenario(), {**turns, **caps}))
    assert said is not None
    assert said.endswith(told)
    assert ("turns cut at their cap; " in said) == (cap is not None)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_preset_that_drops_many_of_its_samples_says_so() -> None:
    """TRL's asynchronous trainer drops what is too old; with a quarter of its batch that is a third of what is made."""
    found = fs.load("presets/trl-async-grpo", batch=128).simulate()
    said = losses_line(found.metrics, found.job.scenario)
    lost, longest = (found.mean[f"samples_lost.{of}"] for of in ("all", "longest_tenth"))
    assert lost > 0.3
    assert said is not None
    assert said.startswith(f"{100 * lost:.0f} % of all samples, {100 * longest:.0f} % of the longest tenth: stale at")
    assert "lost     " in str(found)


AGENTS = {"trainer.batch_samples": 64, "workload.turns.count": 4, "workload.turns.tool_latency_s": 2.0}
RETRIED: dict[str, Any] = {
    "engine.kind": "constant", "engine.instance_tok_s": 1500.0, "trainer.batch_samples": 128, "trainer.fixed_s": 8.0,
    "workload.turns.count": 4, "workload.turns.tool_latency_s": 6.0, "stations.tools.calls_per_s": 4.0,
    "stations.tools.failure_share": 0.05, "stations.tools.lost": "retried",
}  # fmt: skip
SLOW_API = {"tok_s": 40, "requests_per_s": 1}


@pytest.mark.parts
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        # 64 rollouts of three calls: 192 calls in a step, so 1 a second makes it 192 s
        (
            {**AGENTS, "stations.tools.calls_per_s": 1.0},
            "tools and rewards: the rate limit of tools, 1 call per second",
        ),
        ({**AGENTS, "stations.tools.workers": 2}, "tools and rewards: all 2 sandboxes are in use"),
        (
            {**AGENTS, "stations.tools.calls_per_s": 1.0, "stations.tools.workers": 2},
            "tools and rewards: the rate limit of tools, 1 call per second; beside it all 2 sandboxes are in use",
        ),
        # calls begin at 97.7 % of the rate, as a window stops them now and then: twice the rate takes 59 s for 109
        (
            {**RETRIED, "workload.output_tokens": 200, "admission.max_staleness": 1, "fleet.instances": 1},
            "tools and rewards: the rate limit of tools, 4 calls per second",
        ),
        # a batch at a time: tools stand still while the trainer trains, and calls wait while rollouts run
        (
            {**AGENTS, "admission.law": "barrier", "trainer.fixed_s": 60.0, "stations.tools.workers": 3},
            "tools and rewards: all 3 sandboxes are in use at times",
        ),
        (
            {**AGENTS, "admission.law": "barrier", "trainer.fixed_s": 60.0, "stations.tools.calls_per_s": 2.0},
            "tools and rewards: the rate limit of tools, 2 calls per second",
        ),
        # eight sandboxes are taken by calls that wait for their turn, but two would do
        (
            {**AGENTS, "stations.tools.calls_per_s": 1.0, "stations.tools.workers": 8},
            "tools and rewards: the rate limit of tools, 1 call per second",
        ),
        (
            {"trainer.batch_samples": 64, "workload.reward.latency_s": 1.0, "stations.reward.calls_per_s": 0.5},
            "tools and rewards: the rate limit of rewards, 0.5 calls per second",
        ),
        (
            {
                "trainer.batch_samples": 64,
                "stations.teacher": {"api": {"tok_s": 4000}},
                "stations.judge": {"api": SLOW_API, "output_tokens": 8},
            },
            "judges: the rate limit of the judge's API, 1 request per second",
        ),
        (
            {"trainer.batch_samples": 64, "stations.judge": {"api": {"tok_s": 40, "tokens_per_s": 500}}},
            "judges: the rate limit of the judge's API, 500 tokens per second",
        ),
        # a thousandth of what the tools could be asked: nothing waits for the limit
        ({**AGENTS, "stations.tools.calls_per_s": 10_000.0}, "the staleness budget"),
    ],
)
def test_the_limit_of_a_station_that_is_reached_stands_beside_what_binds(changes: dict[str, Any], told: str) -> None:
    found = fs.load(None, {"fleet.instances": 4, "run.steps": 30, "run.replications": 2, **changes}).simulate()
    (line,) = (str(fact["said"]) for fact in json.loads(found.to_json())["facts"] if fact["name"] == "binds")
    assert line == told


@pytest.mark.slow
def test_limits_that_bind_together_are_raised_together() -> None:
    """Calls of 4 s at 6 a second keep 24 sandboxes at work: a rate or sandboxes alone are worth nothing."""
    own = {"engine.kind": "constant", "engine.instance_tok_s": 4000.0, "workload.turns.count": 4, "run.replications": 2}
    tools = {"calls_per_s": 6.0, "workers": 24}
    job = fs.load(
        None,
        {**own, "workload.turns.tool_latency_s": 4.0, **{f"stations.tools.{name}": n for name, n in tools.items()}},
        batch=64,
        len=300,
        trainer_step_s=5,
        max_staleness=1,
    )
    found = job.size()
    change = found.plan.change
    assert change is not None
    assert change.flag == "--set stations.tools.calls_per_s=12 --sandboxes 48"
    now = found.job.simulate().mean["step_s"]
    for name, n in tools.items():
        alone = found.job.with_({f"stations.tools.{name}": 2 * n}).simulate()
        assert alone.mean["step_s"] == pytest.approx(now, rel=0.01)
    both = found.job.with_({f"stations.tools.{name}": 2 * n for name, n in tools.items()}).simulate()
    assert now - both.mean["step_s"] == pytest.approx(change.saves_s, rel=0.02)
    assert both.mean["step_s"] < 0.65 * now
