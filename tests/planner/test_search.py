"""Branch and bound against every plan of small spaces: what is recommended is within a percent of the best of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import pytest

import fleetsim as fs
from fleetsim.config.load import default_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError, StuckError
from fleetsim.job.looks import looked
from fleetsim.job.trials import Measure, flat, remembered, simulated, with_instances
from fleetsim.plan.choices import ChoiceInputs
from fleetsim.plan.plan import pareto, plan, worth_a_look
from fleetsim.plan.space import Space, usd_per_h
from fleetsim.records import replace
from fleetsim.search.arrangements import divided
from fleetsim.search.explore import Search
from fleetsim.search.front import Budget, Found, Front, age_of, front_of, thinned
from fleetsim.search.permissions import allowed
from fleetsim.search.shares import Share
from fleetsim.sim.threads import side_by_side
from fleetsim.trainer.estimate import least_for_states
from tests.planner.spaces import plans_of, space_of, with_all_limits

# Short runs: what is held against each other is the same runs.
LONG = {"run.steps": 100}
SMALL = {"changes": {"run.steps": 8}, "batch": 32, "len": 150, "replications": 2}


def few_ways(seed: int, **changes: Any) -> dict[str, Any]:
    """Changes of a job that leave few ways to run it: in one replication of short runs of groups of 16."""
    ways = {"engine.pp": 1, "engine.dp": 1, "sync.every_steps": 1, "workload.group_size": 16}
    prompts = {"workload.prompt_tokens": {"kind": "constant", "value": 100}}
    return {
        "tp": 1,
        "replications": 1,
        "batch": 128,
        "changes": {"run.steps": 8, "run.seed": seed} | ways | prompts,
    } | changes


@dataclass(frozen=True)
class Plan:
    """A plan by all its replications."""

    step_s: float
    usd: float
    scenario: Scenario


def _every_one(space: Space, allow: str, measure: Measure) -> list[Plan]:
    """Every plan, with every combination of limits, whose samples are as fresh as is permitted in all replications; the
    shortest step first."""
    scenarios = [s for _, plain in plans_of(space, allow) for s in with_all_limits(plain, space)]
    oldest = allowed(allow).oldest(space.own)
    assert oldest is not None

    def means(scenario: Scenario) -> Plan | None:
        try:
            runs = [flat(measure(scenario, r)) for r in range(scenario.run.replications)]
        except StuckError:
            return None
        if age_of(runs) > oldest:
            return None
        return Plan(*(sum(float(run[m]) for run in runs) / len(runs) for m in ("step_s", "cost_per_step")), scenario)

    return sorted((p for p in side_by_side(means, scenarios) if p is not None), key=lambda p: p.step_s)


def first_fresh(plans: Sequence[Plan], oldest: float | None) -> Plan:
    """The first of some plans whose samples are that fresh in a long run, too: no other may be an answer."""
    assert oldest is not None
    return next(p for p in plans if age_of([flat(simulated(with_changes(p.scenario, LONG), 0))]) <= oldest)


@pytest.mark.parts
@pytest.mark.parametrize(
    ("gpus", "allow", "options"),
    [
        (2, "fp8", {"model": "Qwen/Qwen2.5-1.5B", "max_staleness": 1}),
        (4, "", {"model": "Qwen/Qwen2.5-1.5B", "max_staleness": 2}),
        (8, "", {"model": "Qwen/Qwen2.5-7B", "max_staleness": 1, "tp": 2}),
        # Its first run, and only that, misses a step that the cheapest plan makes.
        (8, "", {"model": "Qwen/Qwen2.5-1.5B", "max_staleness": 1, "changes": {"run.steps": 16}}),
        # Long responses in large batches: rough bounds that are 1.4 times too high lose the cheapest plan, by 8 %.
        (
            2,
            "",
            {
                "model": "Qwen/Qwen2.5-1.5B",
                "max_staleness": 1,
                "batch": 256,
                "len": 12_000,
                "changes": {"run.steps": 8, "workload.group_size": 4},
            },
        ),
        # Long responses on GPUs with little memory: without limits the best plan loses 6 %.
        (4, "", few_ways(3, model="Qwen/Qwen2.5-1.5B", gpu="L4", len=6000, max_staleness=4)),
        # Plans that are alike differ: were their steps taken for sure (1.3 for 0.9), the fastest would be lost, by 4 %.
        # The cheapest of a step makes it by a limit alone.
        (12, "", few_ways(4, model="Qwen/Qwen2.5-7B", gpu="H100", len=1500, max_staleness=2)),
    ],
)
def test_the_answer_is_within_a_percent_of_the_best_of_all(gpus: int, allow: str, options: dict[str, Any]) -> None:
    """For the shortest step, and the cheapest, on so many GPUs. Then for a step alone: no GPUs are said, so that all
    plans of so many are some of those that may be had, and none of them that makes the step is cheaper by more than a
    percent, for steps that few of them make and that most of them make."""
    space = space_of(gpus, **(SMALL | options))
    measure, permitted = remembered(simulated), allowed(allow)  # what the search looks at was simulated already
    everything = _every_one(space, allow, measure)
    oldest = permitted.oldest(space.own)
    by_cost = sorted(everything, key=lambda p: p.usd)

    def answer(budget: Budget) -> Found:
        search = Search(measure)
        best = worth_a_look(search, Space(space.asked, budget), permitted)[0]
        assert budget.gpus is None or search.tally.simulated < len(everything)
        return best

    shortest = first_fresh(everything, oldest).step_s
    assert answer(Budget(gpus, objective="step")).step_s <= 1.01 * shortest
    assert answer(Budget(gpus, objective="cost")).usd <= 1.01 * first_fresh(by_cost, oldest).usd
    plainly = Search(measure)
    worth_a_look(plainly, Space(space.asked, Budget(gpus)), permitted)
    for step_s in (0.2 * shortest, 0.98 * shortest):  # which no plan makes: the shortest is the nearest, found as soon
        search = Search(measure)
        nearest = worth_a_look(search, Space(space.asked, Budget(gpus, step_s=step_s, objective="cost")), permitted)[0]
        assert nearest.step_s <= 1.01 * shortest
        assert len(search.found) <= 1.5 * len(plainly.found)  # a run that is asked for twice is made once
    for step_s in (1.02 * shortest, everything[len(everything) // 4].step_s, everything[-1].step_s):
        cheapest = first_fresh([p for p in by_cost if p.step_s <= step_s], oldest).usd
        best = answer(Budget(step_s=step_s, objective="cost"))
        assert best.step_s <= step_s
        assert best.usd <= 1.01 * cheapest


def test_what_a_permission_buys_is_told_where_the_plan_itself_is_better_with_it() -> None:
    """A look may take longer than all runs, so only another look says whether a plan is better than the best one."""
    found = fs.plan(gpus=4, batch=32, len=900, model="Qwen/Qwen3-4B", max_staleness=1, tp=2, replications=2)
    smaller_cache = found.job.with_({"engine.kv_dtype": "fp8"}).simulate().mean["step_s"]
    (fp8,) = (one.row for one in found.found.bought if one.permission == "fp8")
    assert smaller_cache < 0.99 * found.mean["step_s"]
    assert fp8 is not None
    assert fp8.step_s <= 1.005 * smaller_cache


def test_dollars_that_one_pool_costs_less_of_are_spent_on_it() -> None:
    """Of 24 dollars an hour one trainer GPU takes 8 and leaves 16 for rollout, at one each."""
    fleet: dict[str, Any] = {"batch": 32, "len": 200, "max_len": 600, "instance_tok_s": 400, "trainer_step_s": 2}
    job = fs.load(trainer_gpus=1, max_staleness=1, instance_price=1, trainer_price=8, replications=1, **fleet)
    found = fs.plan(job, max_price_per_hour=24)
    trainer = found.job["trainer.gpus"]
    most = found.job.with_(instances=24 - 8 * trainer)
    assert found.numbers()["usd_per_hour"] <= 24
    assert found.mean["step_s"] <= 1.01 * most.simulate().mean["step_s"]


def test_an_hour_of_a_plan_costs_what_its_own_spot_machines_do() -> None:
    """Half of one instance is none, and GPUs that are shared in turn are never on spot machines."""
    fleet: dict[str, Any] = {"batch": 16, "len": 100, "max_len": 300, "instance_tok_s": 400, "trainer_step_s": 2}
    found = fs.plan(fs.load(trainer_gpus=1, max_staleness=1, spot=0.5, replications=1, **fleet), gpus=2)
    for row in found.found.rows:
        assert usd_per_h(row) == pytest.approx(3600 * row.usd / row.step_s, rel=0.05), row.choice.share.label


@pytest.mark.parametrize("instances", [2, 4])
@pytest.mark.parametrize(
    "job",
    [
        {"batch": 64, "len": 1500, "model": "Qwen/Qwen3-32B", "gpu": "H200", "max_staleness": 0, "spot": 1.0},
        {"batch": 256, "len": 600, "max_staleness": 2, "trainer_gpus": 16, "spot": 1.0},
    ],
    ids=["a step of minutes", "a step of seconds"],
)
def test_a_look_at_spot_machines_sees_what_a_long_run_sees(job: dict[str, Any], instances: int) -> None:
    """80 and 27 % too slow where machines came and went as fast as the trainer alone steps."""
    scenario = with_instances(fs.load(**job).scenario, instances)
    look, long = (fmean(float(simulated(s, r)["step_s"]) for r in range(2)) for s in (looked(scenario), scenario))
    assert look == pytest.approx(long, rel=0.04)


def test_nothing_within_the_bound_is_lost_from_the_front() -> None:
    """Each plan of the front of all is one of those that were simulated, or hardly better than one."""
    space = space_of(4, **SMALL, model="Qwen/Qwen2.5-1.5B", max_staleness=1)
    measure = remembered(simulated)
    search, front = Search(measure), Front()
    for found in pareto(search, space, allowed(""))[0]:
        front.add(found.step_s, found.usd)
    for candidate, scenario in plans_of(space):
        run = flat(measure(scenario, 0))
        fresh = age_of([run]) <= 1
        assert not fresh or front.beats(run["step_s"], run["cost_per_step"], close=0.01), candidate.share


@pytest.mark.parts
@pytest.mark.parametrize(("gpus", "tp"), [(40, 1), (80, 2)])
def test_counts_between_those_of_the_grid_are_found(gpus: int, tp: int) -> None:
    """Every count of engines, and of servers of the trainer, simulated: none is cheaper at a step that is told, faster
    than the fastest, or cheaper than the cheapest."""
    changes = {"run.steps": 8, "engine.pp": 1, "engine.dp": 1, "sync.every_steps": 1, "sync.pause_s": 1.0}
    options = {"model": "Qwen/Qwen2.5-7B", "batch": 256, "len": 1000, "max_staleness": 1, "tp": tp}
    space = space_of(gpus, changes=changes, **options)
    grid = list(space.plans(allowed("")))
    servers = range(8, gpus + 1, 8)
    shares = {
        "split": [Share("split", r, tp * r, t) for t in (1, 2, 4, *servers) for r in range(1, (gpus - t) // tp + 1)],
        "colocated_sync": [Share("colocated_sync", n // tp, n, n) for n in servers],
        "colocated_async": [Share("colocated_async", n // tp, n, n) for n in servers],
    }
    ways = {c.kind: c for c in grid}.values()
    every = [replace(c, share=s) for c in ways for s in shares[c.share.kind] if s.trainer_gpus >= c.engines.least]
    plain = [s for c in every if (s := c.scenario()) is not None]
    measure = remembered(simulated)
    runs = [run for run in map(flat, side_by_side(lambda s: measure(s, 0), plain)) if age_of([run]) <= 1]
    search = Search(measure)
    told = [(row.step_s, row.usd) for row in pareto(search, space, allowed(""))[1]]
    steps, usd = np.array([(run["step_s"], run["cost_per_step"]) for run in runs]).T
    assert len(told) > 3
    assert all(usd[steps <= step_s].min() >= 0.99 * cheapest for step_s, cheapest in told)
    assert min(step_s for step_s, _ in told) <= 1.01 * steps.min()
    assert min(cheapest for _, cheapest in told) <= 1.01 * usd.min()
    assert search.tally.simulated < len(plain) / 2


@pytest.mark.parametrize("start", [None, "presets/verl-fully-async", "presets/areal", "sync-colocated"])
def test_a_plan_s_scenario_is_the_one_that_is_written_down(start: str | None) -> None:
    """Most plans take their parts from others of their kind: what is validated from the values is equal to them."""
    job, permitted = fs.load(start, {}), allowed("staleness<=6")
    asked = ChoiceInputs(divided(job.scenario, job.given), job.given)
    candidates = list(Space(asked, Budget(24)).plans(permitted))
    made = [(c.scenario(), c) for c in candidates[:: max(1, len(candidates) // 400)]]
    whole = [(s, c) for s, c in made if s is not None]
    assert len({c.share.instances for _, c in whole}) > 1
    for scenario, candidate in whole:
        alone = replace(candidate.engines, _first={})  # remembers no other plan
        assert replace(candidate, engines=alone).scenario() == scenario == with_changes(scenario, {})


def at(step_s: float, usd: float) -> Found[None]:
    """A point of a front."""
    return Found(None, default_scenario(), ({"step_s": step_s, "cost_per_step": usd},))


def test_a_front_keeps_what_nobody_beats_and_seven_of_it_at_most() -> None:
    points = [at(float(n), 100.0 - n) for n in range(10, 90)] + [at(50.0, 90.0)]
    front = front_of(points)
    assert len(front) == 80
    few = thinned(front, front[30])
    assert len(few) == 7
    assert {front[0], front[30], front[-1]} <= set(few)
    assert thinned(front[:1], front[0]) == front[:1]
    near = [at(10.0, 5.0), at(10.1, 4.95)]
    assert thinned(front_of(near), near[1]) == [near[1]]


def test_the_smallest_trainer_is_looked_for_once_however_many_engines_ask() -> None:
    """To say that nothing holds DeepSeek-V3 took a search for each of 86 engines, 14 s of processor time in all."""
    job = fs.load(None, model="deepseek-ai/DeepSeek-V3")
    least_for_states.cache_clear()
    with pytest.raises(InputError, match=r"the trainer takes at least 256 GPUs, an engine 16"):
        plan(job.scenario, Budget(gpus=128), given=job.given)
    assert least_for_states.cache_info().misses == 1


@pytest.mark.parts
def test_more_gpus_than_are_needed_make_no_answer_worse() -> None:
    """The cheapest plan of a look is older than is permitted in one run of three; what it ruled out is looked at."""
    job = fs.load(max_staleness=4)
    few, any_ = (
        plan(job.scenario, Budget(gpus, step_s=14.0, objective="cost"), given=job.given) for gpus in (64, None)
    )
    assert few.feasible
    assert any_.feasible
    assert any_.best.usd <= 1.01 * few.best.usd


@pytest.mark.parts
def test_a_step_that_plans_just_miss_is_looked_for_in_few_of_them() -> None:
    """Bounds of thousands of plans leave them a chance: what is smaller than a plan that does not make it has none."""
    job = fs.load(max_staleness=4)
    found = plan(job.scenario, Budget(step_s=9.0, objective="cost"), given=job.given)
    assert found.tally.simulated < 1500
    assert not found.feasible
    assert found.reach is not None
    assert found.reach.within_s < found.best.step_s < 10.0
