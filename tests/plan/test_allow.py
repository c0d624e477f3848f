"""What would help more than the recipe allows, and what a larger fleet makes worse, against long runs of each."""

from __future__ import annotations

from functools import cache

import pytest

import fleetsim as fs
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.job.trials import with_instances
from fleetsim.search.change import Change
from fleetsim.sim.processes import measured
from fleetsim.size.ask import Size, size
from fleetsim.size.facts import brief_facts
from fleetsim.size.size import Sizing
from tests.plan.typed import typed


@cache
def sized(preset: str | None, trainer_step_s: float | None = None) -> tuple[fs.Job, Sizing]:
    job = fs.load(preset, trainer_step_s=trainer_step_s) if preset else fs.load(batch=64, len=300)
    return job, job.size().plan


def long_run(scenario: Scenario, instances: int, steps: int = 120) -> dict[str, float]:
    run = measured(with_changes(with_instances(scenario, instances), {"run.steps": steps}), 0)
    found = {name: float(run[name]) for name in ("step_s", "cost_per_step", "queue_depth")}
    return {**found, "lost": run["samples_lost"]["all"], "objective": found["step_s"] * found["cost_per_step"]}


def followed(job: fs.Job, change: Change) -> dict[str, float]:
    changes, options = typed(change.flag)
    return long_run(job.with_(changes, **options).scenario, change.instances)


def test_what_needs_a_permission_stands_apart_where_it_saves_more_and_does() -> None:
    job, plan = sized(None)
    assert plan.change is not None
    assert plan.change.permission is None
    assert plan.allow is not None
    assert plan.allow.permission is not None
    change, allow = (followed(job, one) for one in (plan.change, plan.allow))
    assert allow["objective"] < 0.98 * change["objective"] < 0.98 * long_run(job.scenario, plan.instances)["objective"]
    lines = dict(brief_facts(plan).lines)
    assert str(lines["allow"]).startswith(plan.allow.flag)
    assert "if the recipe may" in str(lines["allow"])
    assert "if the recipe may" not in str(lines["change"])


def test_a_sync_that_waits_for_what_is_in_flight_is_told_what_that_costs() -> None:
    job = fs.load(None, {"sync.in_flight": "drain"}, batch=64, len=300, max_staleness=2)
    plan = size(Size(job=job, in_brief=True)).plan
    best = plan.allow or plan.change
    assert best is not None
    assert best.flag == "--set sync.in_flight=abort_resume"
    assert best.permission is not None
    now = long_run(plan.scenario, plan.instances)
    saves = now["cost_per_step"] - (then := followed(job, best))["cost_per_step"]
    assert saves == pytest.approx(best.saves_usd, rel=0.15)
    assert then["objective"] < 0.7 * now["objective"]


def test_a_brief_answer_says_the_same_moves_as_a_whole_one() -> None:
    job, plan = sized(None)
    brief = size(Size(job=job, in_brief=True)).plan
    assert (brief.change, brief.allow) == (plan.change, plan.allow)


@pytest.mark.slow
def test_a_larger_fleet_that_makes_a_step_longer_is_told_with_its_reason_and_a_lower_cap_that_helps() -> None:
    job, plan = sized("trl-async-grpo", 25.4)
    assert plan.longer is not None
    assert plan.longer.instances == plan.instances + 1
    now, larger = (long_run(plan.scenario, n) for n in (plan.instances, plan.longer.instances))
    assert larger["step_s"] > 1.02 * now["step_s"]
    assert larger["queue_depth"] > 1.5 * now["queue_depth"]
    said = str(dict(brief_facts(plan).lines)["more"])
    assert "samples wait for the trainer instead of" in said
    assert "grow older than 4 steps there" in said
    assert plan.change is not None
    assert plan.change.text.startswith("an in-flight cap of 1,024 instead of 2,048 samples")
    capped = followed(job, plan.change)
    assert capped["objective"] < now["objective"]
    assert capped["lost"] < 0.8 * now["lost"]


@pytest.mark.slow
def test_moves_of_a_recipe_that_drops_old_samples_have_the_count_that_just_keeps_up() -> None:
    """A fleet of one instance more grows a queue whose samples are dropped, and one of fewer is slower: looks of few
    steps, in which nothing is old yet, tell neither."""
    job, plan = sized("trl-async-grpo-lora", 21.5)
    assert plan.change is not None
    assert plan.allow is not None
    now = long_run(plan.scenario, plan.instances)["objective"]
    assert followed(job, plan.change)["objective"] < 0.9 * now
    allow = followed(job, plan.allow)["objective"]
    changes, options = typed(plan.allow.flag)
    there = job.with_(changes, **options).scenario
    assert allow < 1.03 * min(long_run(there, n)["objective"] for n in range(3, 9)) < 0.8 * now
