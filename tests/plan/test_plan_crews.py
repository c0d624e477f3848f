"""The workers and judges of plans and splits, held against every count in long runs; a budget holds them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import fleetsim as fs
from fleetsim.config.scenario import Scenario
from fleetsim.job.trials import Memo, remembered, simulated
from fleetsim.plan.choices import ChoiceInputs
from fleetsim.plan.plan import Plans, plan
from fleetsim.plan.space import Space, bought, gpus_of
from fleetsim.search.arrangements import divided
from fleetsim.search.front import Budget
from fleetsim.search.objective import objective
from fleetsim.search.permissions import Allowed
from fleetsim.search.workers import with_workers, workers_of
from fleetsim.split.split import split
from tests.printed.shell import works

# A recommendation may lose so much.
LOSS = 1.03
GPUS = 5
JOB: dict[str, Any] = {
    "trainer.fixed_s": 4.0,
    "trainer.per_token_s": 0.0,
    "trainer.gpus": 1,
    "admission.max_staleness": 1.0,
    "sync.every_steps": 1,
    "fleet.placement": "disaggregated",
    "run.replications": 2,
}
SHORT = {"run.steps": 20}
# Runs are made once for all tests.
MEASURE = remembered(simulated)
TOOLS = {"workload.turns": {"count": 3, "tool_latency_s": {"kind": "gamma", "mean": 6, "cv": 1.0}}}


def job_of(changes: dict[str, Any], **more: float) -> fs.Job:
    """A job whose runs are quick."""
    return fs.load({}, JOB | changes, batch=32, len=400, max_len=1200, instance_tok_s=1500, **more)


def judged(engines: int, changes: dict[str, Any] = SHORT) -> fs.Job:
    """A job that a judge reads, which has so many engines."""
    judge = {"engine": {"kind": "constant", "instance_tok_s": 1500}, "output_tokens": 400, "instances": engines}
    return job_of({"stations.judge": {**judge, "price_usd_per_gpu_h": 1.0}, **changes})


def planned(job: fs.Job, measure: Memo, **budget: Any) -> Plans:
    return plan(job.scenario, Budget(**budget), given=job.given, measure=measure)


def run(measure: Memo, scenario: Scenario) -> tuple[float, float]:
    """Step time x cost per step in a long run, and the step alone."""
    step_s = float(measure(scenario, 0)["step_s"])
    return objective(scenario, scenario.fleet.instances, step_s), step_s


def every_one() -> Iterator[Scenario]:
    """Every plan of so many GPUs in all, with every count of its judge."""
    job = judged(1)
    space = Space(ChoiceInputs(divided(job.scenario, frozenset(job.given)), frozenset(job.given)), Budget(GPUS))
    for candidate in space.plans(Allowed()):
        if (there := candidate.scenario()) is not None:
            for engines in range(1, GPUS - candidate.share.gpus + 1):
                yield with_workers(there, {"judge": engines})


@pytest.mark.parametrize("written", [1, 20])
def test_a_plan_has_the_judges_that_are_best_within_all_of_its_gpus(written: int) -> None:
    """Whatever count is written, one engine or far too many: no pools and no judge of as many GPUs together make a
    shorter step, and of the plan's own pools no other count is better."""
    plans = planned(judged(written), MEASURE, gpus=GPUS)
    best = plans.best.scenario
    assert all(gpus_of(row) <= GPUS for row in plans.rows)
    everything = [(run(MEASURE, s)[1], MEASURE(s, 0)["staleness_steps"]["p99"]) for s in every_one()]
    assert run(MEASURE, best)[1] <= LOSS * min(step_s for step_s, age in everything if age <= 1.0)
    own = [with_workers(best, {"judge": n}) for n in range(1, GPUS - plans.best.choice.share.gpus + 1)]
    assert run(MEASURE, best)[0] <= LOSS * min(run(MEASURE, s)[0] for s in own)


def test_where_the_step_counts_alone_no_more_judges_shorten_it() -> None:
    """Whatever they cost: a barrier waits for the last answer, which more of them give sooner."""
    barrier: dict[str, Any] = {"admission.law": "barrier", "trainer.gpus": 4, "trainer.fixed_s": 20.0}
    judge = {"engine": {"kind": "constant", "instance_tok_s": 1500}, "output_tokens": 400, "price_usd_per_gpu_h": 1.0}
    whole = {n: v for n, v in JOB.items() if n not in ("admission.max_staleness", "fleet.placement")}
    fleet: dict[str, Any] = {"batch": 32, "len": 400, "max_len": 1200, "instance_tok_s": 1500}
    job = fs.load({}, whole | SHORT | barrier | {"stations.judge": judge | {"instances": 1}}, **fleet)
    best = planned(job, MEASURE, gpus=16).best.scenario
    others = [with_workers(best, {"judge": n}) for n in range(1, 9)]
    assert run(MEASURE, best)[1] <= 1.01 * min(run(MEASURE, s)[1] for s in others)


@pytest.mark.parts
@pytest.mark.parametrize(
    ("wanted", "measured"),
    [
        ({}, "step_s"),
        ({"objective": "cost"}, "cost_per_step"),
        ({"step_s": 28.0, "objective": "cost"}, "cost_per_step"),
    ],
)
def test_of_several_stations_that_a_budget_does_not_hold_each_gets_what_serves_best(
    wanted: dict[str, Any], measured: str
) -> None:
    """A judge that is one engine is not halved with the sandboxes, nor they with it; and a step that was asked for is
    held by all runs, at hardly more than the cheapest that holds it."""
    job = judged(1, {"stations.tools.workers": 4, "stations.tools.worker_price_usd_per_h": 0.3, **TOOLS, **SHORT})
    plans = planned(job, MEASURE, price_per_h=18.0, **wanted)
    best = plans.best
    grid = [with_workers(best.scenario, {"judge": k, "tools": n}) for k in (1, 2) for n in (20, 24, 26, 28, 30, 32, 36)]
    limit = wanted.get("step_s", 1e9)
    held = [s for s in grid if plans.budget.allows(*bought(best.choice, s)) and run(MEASURE, s)[1] <= limit]
    assert plans.feasible
    assert MEASURE(best.scenario, 0)[measured] <= 1.01 * min(MEASURE(s, 0)[measured] for s in held)


@pytest.mark.slow
def test_a_split_has_the_sandboxes_that_are_best() -> None:
    """Of what is advised, and of the best way of the other kind, no other count is better."""
    job = job_of(TOOLS | SHORT, sandboxes=4, sandbox_price=0.3)
    advice = split(job.scenario, 3, given=job.given, measure=MEASURE)
    for way in (advice.best_split, advice.best_colocated):
        assert way is not None
        n = workers_of(way.scenario)["tools"]
        assert n > 8
        others = [with_workers(way.scenario, {"tools": round(x * n)}) for x in (0.6, 0.75, 0.9, 1.1, 1.25, 1.6)]
        assert run(MEASURE, way.scenario)[0] <= LOSS * min(run(MEASURE, s)[0] for s in others)


def test_the_command_that_is_told_makes_the_plan_with_its_judge() -> None:
    """It comes to what is promised under another seed, and what an hour of the plan costs is all that is paid."""
    result = fs.plan(judged(20, {}), gpus=GPUS)
    first, row = result.advice[0], result.document()["recommendation"]
    judges = row["stations"]["judge"]
    assert f"stations.judge.instances={judges}" in first["command"]
    assert row["gpus"] == row["rollout_gpus"] + row["trainer_gpus"] + judges <= GPUS
    again = works((*first["command"], "--seed", "7", "--steps", "150")).mean
    for name in ("step_s", "cost_per_step"):
        assert first["promise"][name]["low"] <= again[name] <= first["promise"][name]["high"], name
    assert 3600 * again["cost_per_step"] / again["step_s"] == pytest.approx(row["usd_per_hour"])


def test_without_room_for_a_judge_there_is_no_plan() -> None:
    with pytest.raises(fs.InputError, match="judges 1"):
        fs.plan(judged(1), gpus=1)
