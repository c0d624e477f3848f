"""A split recommends no older samples than the recipe permits, and says what a permission would buy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from typer.testing import CliRunner

import fleetsim as fs
from fleetsim.cli.main import app
from fleetsim.config import Scenario, default_scenario, with_changes
from fleetsim.config.data_files import presets
from fleetsim.config.law_numbers import budget_steps
from fleetsim.job.looks import looked
from fleetsim.search.arrangements import Rules, split_in_turn
from fleetsim.search.permissions import Allowed
from fleetsim.sim.metrics import numbers_of
from fleetsim.sim.run import simulate
from fleetsim.split.facts import bought, split_facts
from fleetsim.split.split import Advice, split
from tests.plan.fakes import metrics

SMALL: dict[str, Any] = {"batch": 256, "len": 400, "max_len": 1500, "replications": 2}
JOB = with_changes(default_scenario(), {"engine.kind": "constant", "engine.instance_tok_s": 1000.0})


def by_window(s: Scenario, replication: int) -> Mapping[str, Any]:
    """A window of eta versions makes samples 2 eta steps old; the older they are, the shorter a step. Splits are best
    in the middle, and batch by batch they are longer than shared GPUs."""
    n, a = s.fleet.instances, s.admission
    if a.law == "barrier":
        seconds, age = (80.0 if s.fleet.placement == "colocated" else 90.0 + abs(n - 4)), 0.0
    else:
        seconds, age = (45.0 if s.fleet.placement == "colocated" else 40.0 + abs(n - 4)), 2.0 * a.max_staleness
        seconds -= 2 * age
    return metrics(seconds, 0.2, goodput=1000.0 / seconds, cost_per_step=seconds, staleness_p99=age)


def advised(changes: Mapping[str, Any], allow: int | None = None) -> Advice:
    job = with_changes(JOB, {"run.replications": 2, **changes})
    rules = Rules(trainer_unit=1)
    return split(job, 8, rules=rules, allowed=Allowed(staleness=allow), given=changes.keys(), measure=by_window)


@pytest.mark.parametrize("changes", [{"admission.law": "barrier"}, {"admission.max_staleness": 0.0}])
def test_a_synchronous_recipe_gets_on_policy_ways_and_is_told_what_a_permission_buys(changes: dict[str, Any]) -> None:
    found = advised(changes)
    assert found.oldest == 0
    assert {o.arrangement.kind for o in found.outcomes} == {"colocated_sync", "split_sync"}
    assert found.chosen.arrangement.label == "colocated sync"
    assert found.best_split is not None
    assert found.best_split.arrangement.label == "4 + 4 in turn"
    assert [(steps, o.arrangement.label, o.mean("step_s")) for steps, o in found.bought] == [
        (1, "4 + 4", 38.0),  # half a version ahead
        (2, "4 + 4", 36.0),
    ]
    assert next(iter(bought(found))) == ("--allow 'staleness<=1'", "4 + 4, a step of 38.0 s instead of 1 min 20 s")


def test_a_permission_is_taken_and_no_more_than_it() -> None:
    found = advised({"admission.law": "barrier"}, allow=2)
    assert (found.chosen.arrangement.label, found.chosen.mean("staleness_steps.p99")) == ("4 + 4", 2.0)
    assert found.chosen.arrangement.scenario.admission.max_staleness == 1.0
    assert all(steps > 2 for steps, _ in found.bought)


@pytest.mark.parametrize(("budget", "window"), [(4.0, 2.0), (2.0, 1.0), (1.0, 0.5)])
def test_an_asynchronous_recipe_is_held_to_its_budget_by_a_smaller_window(budget: float, window: float) -> None:
    found = advised({"admission.max_staleness": budget})
    assert found.oldest == budget
    assert all(o.age <= budget for o in found.outcomes)
    assert found.chosen.arrangement.scenario.admission.max_staleness == window
    assert dict(split_facts(found).lines)["ahead"] == (
        f"--set admission.max_staleness={window:g}, not {budget:g}: more lets its samples become older than the recipe "
        "permits"
    )
    assert [steps for steps, _ in found.bought] == [2 * budget]


def test_the_window_is_that_of_the_way_that_is_best_with_it() -> None:
    """Few instances are fastest with the whole window, and much too old; more of them need only half of it."""

    def by_count(s: Scenario, replication: int) -> Mapping[str, Any]:
        n, eta = s.fleet.instances, s.admission.max_staleness
        if s.admission.law == "barrier" or s.fleet.placement == "colocated":
            return metrics(90.0, 0.2, goodput=10.0, cost_per_step=90.0, staleness_p99=0.0)
        seconds, age = (20.0 + 8.0 * (4.0 - eta), 4.0 * eta) if n < 4 else (24.0 + 2.0 * (4.0 - eta), 2.0 * eta)
        return metrics(seconds, 0.2, goodput=1.0 / seconds, cost_per_step=seconds, staleness_p99=age)

    job = with_changes(JOB, {"run.replications": 2, "admission.max_staleness": 4.0})
    found = split(job, 8, rules=Rules(trainer_unit=1), given=["admission.max_staleness"], measure=by_count)
    assert (found.oldest, found.chosen.age, found.chosen.mean("step_s")) == (4.0, 4.0, 28.0)


def test_a_window_that_nobody_said_promises_nothing_and_a_permission_is_then_the_limit() -> None:
    """`size`, `split` and `plan` of a job whose window is assumed recommend samples of the same age."""
    assumed = with_changes(JOB, {"run.replications": 2})
    own = assumed.admission.max_staleness
    found = split(assumed, 8, rules=Rules(trainer_unit=1), measure=by_window)
    assert (found.oldest, found.bought, found.chosen.age) == (None, (), 2 * own)
    assert found.chosen.arrangement.scenario.admission.max_staleness == own
    limited = split(assumed, 8, rules=Rules(trainer_unit=1), allowed=Allowed(staleness=4), measure=by_window)
    assert (limited.oldest, limited.chosen.age) == (4, 4)
    at = fs.load(None, **SMALL)
    sized = at.size()
    gpus = sized.instances + at.scenario.trainer.gpus
    assert at.split(gpus).mean["staleness_steps.p99"] == pytest.approx(sized.mean["staleness_steps.p99"], abs=1.0)
    assert fs.plan(at, gpus=gpus).mean["step_s"] <= 1.01 * sized.mean["step_s"]


@pytest.mark.parametrize("look", [0.5, 1.0, 2.0])
def test_a_look_of_few_steps_is_held_against_a_look(look: float) -> None:
    """Where all looks are twice as long as long runs, or half, the same permissions are told."""
    long = with_changes(JOB, {"run.replications": 2})

    def longer(s: Scenario, replication: int) -> Mapping[str, Any]:
        run, off = dict(by_window(s, replication)), look if s == looked(s) else 1.0
        return {**run, "step_s": off * run["step_s"], "cost_per_step": off * run["step_s"]}

    job = with_changes(long, {"admission.law": "barrier", "run.steps": 400})
    assert job != looked(job)
    found = split(job, 8, rules=Rules(trainer_unit=1), given=["admission.law"], measure=longer)
    assert [(steps, o.arrangement.label, o.mean("step_s")) for steps, o in found.bought] == [
        (1, "4 + 4", 38.0),
        (2, "4 + 4", 36.0),
    ]


def test_where_no_way_is_fresh_enough_the_freshest_is_told_and_so_is_that() -> None:
    def old(s: Scenario, replication: int) -> Mapping[str, Any]:
        return metrics(10.0, 0.2, staleness_p99=3.0 if s.admission.law == "barrier" else 7.0)

    said = {"admission.max_staleness": 2.0}
    found = split(with_changes(JOB, said), 4, rules=Rules(trainer_unit=1), given=said.keys(), measure=old)
    assert found.chosen.age == 3
    assert any("at most 2 steps old, and no way that runs keeps that" in text for text in found.warnings)


def test_a_split_that_works_in_turn_is_on_policy_and_takes_what_both_pools_take() -> None:
    """Four GPUs write 240 samples of 1,000 tokens at 1,000 tokens/s in 60 s; then four others train for 20 s."""
    job = with_changes(
        JOB,
        {
            "workload.output_tokens": 1001,
            "workload.group_size": 1,
            "trainer.batch_samples": 240,
            "trainer.gpus": 4,
            "trainer.fixed_s": 20.0,
            "sync.pause_s": 0.0,
            "sync.publish_s": 0.0,
            "sync.trainer_block_s": 0.0,
            "admission.max_staleness": 4.0,
        },
    )
    found = numbers_of(simulate(split_in_turn(job, 4, 8).scenario))
    assert found["step_s"] == pytest.approx(80.0)
    assert found["trainer_idle_fraction"] == pytest.approx(60 / 80)
    assert found["rollout_idle_fraction"] == pytest.approx(20 / 80)
    assert found["staleness_steps"]["max"] == 0.0


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"admission.law": "barrier", "sync.every_steps": 1}, 0.0),
        ({"admission.max_staleness": 0.0}, 0.0),
        ({"admission.max_staleness": 0.5}, 1.0),
        ({"admission.max_staleness": 4.0}, 4.0),
        ({"admission.max_staleness": 1.0, "sync.every_steps": 4}, 7.0),
        ({"admission.law": "batches_ahead", "admission.batches_ahead": 2}, 2.0),
        ({"admission.law": "cumulative_ratio", "admission.async_ratio": 1.0}, 1.0),
        ({"admission.law": "unbounded"}, None),
        ({"admission.law": "unbounded", "admission.age_action": "drop_on_dequeue", "admission.max_age": 4.0}, 4.0),
    ],
)
def test_steps_that_a_recipe_permits_itself(changes: dict[str, Any], steps: float | None) -> None:
    assert budget_steps(with_changes(default_scenario(), changes)) == steps


@pytest.mark.parametrize("name", ["verl-one-step-off", "trl-async-grpo", "nemo-rl-async-grpo", "trl-grpo"])
def test_no_staleness_is_an_answer_of_any_recipe(name: str) -> None:
    assert name in presets()
    found = fs.load(f"presets/{name}", max_staleness=0, **SMALL).split(8)
    assert found.mean["staleness_steps.p99"] == 0
    assert found.advice.chosen.arrangement.on_policy


@pytest.mark.usefixtures("quick")
def test_the_command_python_and_json_say_the_same_of_a_synchronous_recipe() -> None:
    flags = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words = ["split", "--preset", "trl-grpo", "--gpus", "8", *flags]
    plain = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert plain["recommendation"]["kind"] in ("colocated_sync", "split_sync")
    assert plain["recommendation"]["staleness_p99_steps"]["mean"] == 0
    assert plain["staleness_steps_permitted"] == 0
    assert plain["forbidden"]
    first = plain["forbidden"][0]
    assert first["step_s"]["mean"] < plain["recommendation"]["step_s"]["mean"]
    job = fs.load("trl-grpo", **SMALL)
    assert job.split(8).to_json() + "\n" == CliRunner().invoke(app, [*words, "--json"]).stdout
    more = job.split(8, allow=first["allow"])
    assert 0 < more.mean["staleness_steps.p99"] <= int(first["allow"].rpartition("=")[2])
    assert more.mean["step_s"] <= first["step_s"]["mean"] * 1.01
    refused = CliRunner().invoke(app, [*words, "--allow", "staleness<=x"])
    assert refused.exit_code == 2
    assert "is no permission" in refused.stderr


@pytest.mark.slow
def test_what_dropping_old_samples_loses_stands_beside_the_advice_to_do_so_and_comes_true() -> None:
    job = fs.load(None, batch=128, len=6000, max_staleness=1, replications=2)
    found = job.size()
    (told,) = (text for text in found.warnings if "drop old samples" in text)
    lost, of_longest, longer = map(float, re.findall(r"([\d.]+) %", told.partition("drop old samples")[2]))
    drop = {"admission.age_action": "drop_on_dequeue", "admission.max_age": 1}
    now, then = (found.job.with_(changes).simulate().mean for changes in ({}, drop))
    assert then["samples_lost.all"] == pytest.approx(lost / 100, abs=0.02)
    assert then["samples_lost.longest_tenth"] == pytest.approx(of_longest / 100, abs=0.05)
    assert then["step_s"] / now["step_s"] - 1 == pytest.approx(longer / 100, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [2500, 6000])
def test_what_a_cap_against_preemptions_does_stands_beside_it_and_comes_true(blocks: int) -> None:
    job = fs.load(None, batch=128, len=1536, replications=2).with_({"engine.kv_blocks": blocks})
    found = job.size()
    (told,) = (text for text in found.warnings if "preemptions per step" in text)
    cap, percent, way = re.search(r"per_instance=(\d+)\) makes a step ([\d.]+) % (longer|shorter)", told).groups()  # type: ignore[union-attr]
    capped = {"fleet.max_in_flight_samples_per_instance": int(cap)}
    now, then = (found.job.with_(changes).simulate().mean for changes in ({}, capped))
    assert then["preemptions"] < 0.1 * now["preemptions"]
    change = float(percent) / 100 * (1 if way == "longer" else -1)
    assert then["step_s"] / now["step_s"] - 1 == pytest.approx(change, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["masked", "truncated"])
def test_a_fleet_too_small_to_end_its_rollouts_in_time_is_not_the_best(lost: str) -> None:
    """Its steps are short, for half of what it trains is cut: brute force over counts, per batch of whole rollouts."""
    limit = {"stations.episode.timeout_s": 100.0, "stations.episode.lost": lost}
    job = fs.load(None, batch=128, len=2000, turns=4, tool_s=10, replications=2).with_(limit)
    found = job.size()

    def worth(n: int) -> float:
        mean = job.with_({"fleet.instances": n}).simulate().mean
        return mean["step_s"] * mean["cost_per_step"] / (1.0 - mean["stations.episode.lost"] / 128) ** 2

    by_count = {n: worth(n) for n in sorted({2, 3, 5, 8, 12, found.instances})}
    assert by_count[found.instances] <= 1.05 * min(by_count.values()), by_count
    assert found.mean["stations.episode.lost"] < 0.3 * 128
