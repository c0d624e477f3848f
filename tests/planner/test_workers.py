"""The workers that `size` counts, held against every count: brute force in long runs, and promises that come true."""

from __future__ import annotations

import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

import fleetsim as fs
from fleetsim.config import with_changes
from fleetsim.job.trials import planned, simulated, trial_of, with_instances
from fleetsim.search import best as search
from fleetsim.search.best import Best
from fleetsim.search.objective import objective
from fleetsim.search.workers import Crew, with_workers
from fleetsim.size.size import Sizing, size
from fleetsim.size.words import workers
from fleetsim.workload.lengths import mean_length
from tests.plan.fakes import metrics

AGENTS: dict[str, Any] = {
    "workload.turns": {"count": 3, "tool_latency_s": {"kind": "gamma", "mean": 6, "cv": 1.0}},
    "trainer.fixed_s": 8.0,
    "trainer.per_token_s": 0.0,
    "admission.max_staleness": 2.0,
    "run.replications": 2,
}


def job_of(sandboxes: int | None = 10, **more: float) -> fs.Job:
    """A job of agents whose runs are quick."""
    if sandboxes is not None:
        more["sandboxes"] = sandboxes
    return fs.load({}, AGENTS, batch=64, len=400, max_len=1200, instance_tok_s=1500, **more)


def sized(job: fs.Job) -> Sizing:
    return size(job.scenario, given=job.given, brief=True)


def value(job: fs.Job, instances: int, workers: int) -> float:
    """Step time x cost per step of a pair of counts in a long run."""
    scenario = with_instances(with_workers(planned(job.scenario, job.given), {"tools": workers}), instances)
    return objective(scenario, instances, float(simulated(scenario, 0)["step_s"]))


def test_no_pair_of_counts_is_better() -> None:
    """Instances and sandboxes together are as good as the best of a whole grid, and what is told of the ten is theory:
    all are always in use, so the step is calls x seconds / workers."""
    job = job_of(sandbox_price=5.0)
    plan = sized(job)
    (crew,) = plan.crews
    best = min(value(job, n, w) for n, w in product((2, 3, 5), (50, 60, 75, 90)))
    assert value(job, plan.instances, crew.workers) <= 1.02 * best
    assert crew.given == crew.fewer == 10
    assert crew.other.mean("step_s") == pytest.approx(64 * 2 * 6.0 / 10, rel=0.05)


@pytest.mark.parametrize("price", [0.0, 0.05])
def test_workers_that_are_just_enough_do_not_keep_instances_away(price: float) -> None:
    """Alone neither a second instance nor more sandboxes than one keeps busy gain anything; together they do."""
    job = fs.load("skyrl-fully-async", turns="geometric:4", tool_s=5, sandboxes=64, sandbox_price=price)
    plan = sized(job)
    (crew,) = plan.crews
    best = min(value(job, n, w) for n, w in product((1, 2, 3), (70, 110, 150, 200)))
    assert plan.instances > 1
    assert value(job, plan.instances, crew.workers) <= 1.03 * best


@pytest.mark.parametrize(
    ("rate", "tokens", "trained_s", "fleet"),
    [
        (1500.0, 400, 3.0, {"len": 400, "max_len": 1200, "instance_tok_s": 1500}),
        (1000.0, 200, 10.0, {"len": 1000, "max_len": 4000, "instance_tok_s": 2000}),
    ],
)
def test_no_pair_of_instances_and_judges_is_better_and_advice_comes_true(
    rate: float, tokens: int, trained_s: float, fleet: dict[str, Any]
) -> None:
    """Against a grid of pairs. One judge is always at work: so many tokens at its rate are a step; and what is told of
    it, and of the chosen ones, comes true under another seed."""
    judge: dict[str, Any] = {"engine": {"kind": "constant", "instance_tok_s": rate}, "output_tokens": tokens}
    judge["price_usd_per_gpu_h"] = 1.0
    changes: dict[str, Any] = {"stations.judge": judge, "trainer.fixed_s": trained_s, "run.replications": 2}
    job = fs.load({}, changes, batch=64, **fleet)
    result = job.size()
    (crew,) = result.plan.crews

    def of(instances: int, judges: int) -> float:
        scenario = with_instances(with_workers(planned(job.scenario, job.given), {"judge": judges}), instances)
        return objective(scenario, instances, float(simulated(scenario, 0)["step_s"]))

    near = range(max(1, result.instances - 2), result.instances + 4)
    best = min(of(n, k) for n, k in product(near, range(max(1, crew.workers - 2), crew.workers + 5)))
    assert of(result.instances, crew.workers) <= 1.02 * best
    assert crew.workers > crew.given == crew.fewer == 1
    assert crew.other.mean("step_s") == pytest.approx(64 * tokens / rate, rel=0.05)
    _, given, *_ = result.advice
    assert given["what"] == "1 engine of the judge"  # the default: nobody gave it
    for advised, judges in zip(result.advice, (crew.workers, 1), strict=False):
        typed = advised["command"]
        instances = int(typed[typed.index("--instances") + 1])
        own = result.asked.with_({"stations.judge.instances": judges}, instances=instances, seed=7)
        again = own.simulate(replications=1)
        for name, promise in advised["promise"].items():
            assert promise["low"] <= again.mean[name] <= promise["high"], (advised["what"], name)


@pytest.mark.parametrize(("per_million", "more"), [(60.0, {}), (15.0, {"after_s": 3.0, "requests_per_s": 2.0})])
def test_no_count_of_judges_is_better_beside_an_overflow_that_costs_money(
    per_million: float, more: dict[str, float]
) -> None:
    """Against all counts in long runs, as of tools below."""
    engine = {"kind": "constant", "instance_tok_s": 300.0, "max_num_seqs": 8}
    overflow = {"usd_per_million_output_tokens": per_million, "tok_s": 60.0, **more}
    judge = {"engine": engine, "output_tokens": 200, "price_usd_per_gpu_h": 2.0, "overflow": overflow}
    changes: dict[str, Any] = {"stations.judge": judge, "trainer.fixed_s": 8.0}
    job = fs.load({}, {"run.replications": 2, **changes}, batch=64, len=400, max_len=1200, instance_tok_s=1500)
    plan = sized(job)
    (crew,) = plan.crews

    def cost(judges: int) -> float:
        scenario = with_instances(with_workers(planned(job.scenario, job.given), {"judge": judges}), plan.instances)
        run = simulated(with_changes(scenario, {"run.steps": 60}), 0)
        return float(run["step_s"]) * float(run["cost_per_step"])

    counts = sorted({*range(1, 12), crew.workers})
    costs = {n: cost(n) for n in counts}
    assert costs[crew.workers] <= 1.01 * min(costs.values()), (crew.workers, costs)
    assert max(costs.values()) > 1.02 * costs[crew.workers], "else the test says nothing"
    assert crew.told()["overflow_usd"] == crew.with_them.mean("stations.judge.overflow_usd") > 0.0


def test_plenty_of_priced_sandboxes_do_not_make_the_fleet_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a price, a million of them cost so much beside any instance that the fastest fleet is the best."""
    seen = list[int]()

    def best_of(*args: Any, **options: Any) -> Best:
        seen.append((best := search.best_of(*args, **options)).instances)
        return best

    monkeypatch.setattr("fleetsim.search.workers.best_of", best_of)
    plan = sized(job_of(sandbox_price=0.5))
    assert seen[0] <= plan.instances + 1


@pytest.mark.parametrize(("said", "told"), [(True, " as given"), (False, "")])
def test_a_count_is_called_given_where_somebody_gave_it(said: bool, told: str) -> None:
    run = trial_of(1, [metrics(10.0, 0.2)])
    plan: Any = SimpleNamespace(crews=(Crew("judge", 1, 1, said, 0.5, 1.0, 0.94, run, 1, run),))
    assert workers(plan) == f"1 engine of the judge{told}, 94 % in use"


def test_without_a_limit_the_most_in_use_is_told() -> None:
    """The plan is as without stations; as many sandboxes as are in use for 99 % of the time do not make it slower."""
    job = job_of(None)
    plan = sized(job)
    (crew,) = plan.crews
    assert plan.scenario.stations.tools.workers is None
    assert crew.given is None
    assert crew.workers - 1 <= crew.p99 <= crew.workers <= crew.most
    assert value(job, plan.instances, crew.workers) <= 1.02 * value(job, plan.instances, 100_000)
    assert crew.longer > 0.03


def test_free_sandboxes_are_the_fewest_that_hardly_cost_time_and_advice_comes_true() -> None:
    """Neither would a tenth less do. The commands of the recommendation, and of the sandboxes that the job has, come to
    what is promised under another seed."""
    result = job_of().size()
    (crew,) = result.plan.crews
    plenty = with_workers(result.job.scenario, {"tools": 100_000})
    steps = [
        float(simulated(planned(with_workers(plenty, {"tools": n}), ()), 0)["step_s"])
        for n in (100_000, crew.workers, round(0.9 * crew.workers))
    ]
    assert steps[1] <= 1.01 * steps[0] < steps[2]
    own, given, *_ = result.advice
    assert given["what"] == "10 sandboxes, as given"
    for one, count in ((own, crew.workers), (given, 10)):
        typed = one["command"]
        assert typed[typed.index("--sandboxes") + 1] == str(count)
        instances = int(typed[typed.index("--instances") + 1])
        again = result.asked.with_(sandboxes=count, instances=instances, seed=7).simulate(replications=1)
        for name, promise in one["promise"].items():
            assert promise["low"] <= again.mean[name] <= promise["high"], (one["what"], name)


def test_beside_an_overflow_a_call_that_waits_for_its_turn_has_no_worker() -> None:
    """In use are as many as Little says: calls that begin at its own times their seconds. Others are paid by call."""
    tools = {"calls_per_s": 4.0, "overflow": {"usd_per_call": 0.01, "after_s": 2.0}}
    plan = sized(fs.load({}, {**AGENTS, "stations.tools": tools}, batch=64, len=400, max_len=1200, instance_tok_s=1500))
    (crew,) = plan.crews
    of = {name: crew.with_them.mean(f"stations.tools.{name}") for name in ("calls", "overflow_share", "overflow_usd")}
    begun = (1.0 - of["overflow_share"]) * of["calls"]
    seconds = mean_length(plan.scenario.workload.turns.tool_latency_s)
    assert crew.busy * crew.workers * crew.with_them.mean("step_s") == pytest.approx(begun * seconds, rel=0.1)
    assert 0.1 < crew.told()["overflow_share"] == of["overflow_share"] < 0.9
    assert of["overflow_usd"] == pytest.approx(0.01 * of["overflow_share"] * of["calls"], rel=0.05)


@pytest.mark.parametrize(
    ("flags", "overflow", "step_s"),
    [
        ({"sandbox_price": 1.0}, {"usd_per_call": 0.02}, None),
        ({"sandbox_price": 3.0}, {"usd_per_call": 0.006, "after_s": 3.0, "calls_per_s": 2.0}, None),
        ({"sandbox_price": 3.0}, {"workers": 10, "worker_price_usd_per_h": 6.0, "start_s": 1.0}, None),
        ({"sandbox_price": 5.0}, {"usd_per_call": 0.01}, 15.4),
        ({"sandbox_price": 3.0}, {"usd_per_call": 0.0001}, None),
        ({}, {"usd_per_call": 0.01}, None),
    ],
)
def test_no_count_is_better_beside_an_overflow_that_costs_money(
    flags: dict[str, float], overflow: dict[str, float], step_s: float | None
) -> None:
    """Against all counts in long runs: of step x cost per step, and with a target of the cost of a step within it."""
    changes: dict[str, Any] = {"stations.tools": {"workers": 10, "overflow": overflow}, "targets.step_s": step_s}
    job = fs.load({}, {**AGENTS, **changes}, batch=64, len=400, max_len=1200, instance_tok_s=1500, **flags)
    plan = sized(job)
    (crew,) = plan.crews

    def cost(workers: int) -> float:
        scenario = with_instances(with_workers(planned(job.scenario, job.given), {"tools": workers}), plan.instances)
        run = simulated(with_changes(scenario, {"run.steps": 120}), 0)
        step, usd = float(run["step_s"]), float(run["cost_per_step"])
        return step * usd if step_s is None else usd if step <= step_s else math.inf

    counts = sorted({*range(12), *range(12, 110, 4), crew.workers})
    costs = {n: cost(n) for n in counts}
    assert costs[crew.workers] <= 1.005 * min(costs.values())
    assert max(costs[1], costs[counts[-1]]) > 1.02 * costs[crew.workers], "else the test says nothing"
    assert crew.told()["overflow_usd"] == crew.with_them.mean("stations.tools.overflow_usd")
