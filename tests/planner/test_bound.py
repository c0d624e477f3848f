"""The closed form never says more than the simulator: over whole small spaces, and over jobs that hypothesis draws."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fleetsim as fs
from fleetsim.config.load import default_scenario, with_changes
from fleetsim.errors import InputError, StuckError
from fleetsim.job.looks import looked
from fleetsim.job.trials import simulated, with_instances
from fleetsim.search.bound import Bounds, batches_out
from fleetsim.search.explore import Search, by_kind, rough_s
from fleetsim.sim.run import PRECISION
from fleetsim.sim.threads import side_by_side
from tests.planner.spaces import plans_of, space_of

EVERYTHING = "fp8,speculation,staleness<=3"


@pytest.mark.parts
@pytest.mark.parametrize(
    ("gpus", "options"),
    [
        (8, {"model": "Qwen/Qwen2.5-1.5B", "batch": 64, "len": 200, "max_staleness": 1}),
        (16, {"model": "Qwen/Qwen3-8B", "batch": 128, "len": 1500, "max_staleness": 2}),
        (16, {"model": "Qwen/Qwen3-30B-A3B", "batch": 64, "len": 1000, "max_staleness": 1}),
    ],
)
def test_no_plan_of_a_space_is_faster_than_its_bound(gpus: int, options: dict[str, object]) -> None:
    chosen = plans_of(space_of(gpus, **options), EVERYTHING, about=50)
    bounds = Bounds()
    found = side_by_side(lambda plan: float(simulated(plan[1], 0)["step_s"]), chosen)
    for (candidate, scenario), step_s in zip(chosen, found, strict=True):
        told = candidate.share, candidate.ahead.changes, candidate.engines.value.changes
        assert rough_s(bounds, [candidate])[0] <= step_s, told
        assert bounds.step_s(scenario) <= step_s, told
    kinds = {candidate.share.kind for candidate, _ in chosen}
    assert kinds == {"split", "colocated_sync", "colocated_async"}


def test_bounds_of_many_counts_at_once_are_those_of_each() -> None:
    """As numbers, without a scenario of each."""
    plans = plans_of(space_of(16, model="Qwen/Qwen3-8B", batch=128, len=1500, max_staleness=2), "")
    search, bounds = Search(simulated), Bounds()
    for alike in by_kind(candidate for candidate, _ in plans):
        for candidate, scenario in plans:
            if candidate in alike:
                assert search.closer_s(candidate, alike) == pytest.approx(bounds.step_s(scenario), rel=1e-12)


@settings(max_examples=40, deadline=None)
@example(  # an iteration takes 0.25 s, and goes on while the GPUs are handed over
    batch=160, group=4, mean=41, cv=0.5, rho=0.5, instances=5, rate=800.0, fixed_s=0.0, per_token_s=0.0, staleness=3.0,
    every=2, pause_s=1.8, law="version_window", placement="colocated", seqs=1024,
)  # fmt: skip
@example(  # the first 16 steps, which a look runs, draw longer samples than the whole run
    batch=16, group=1, mean=40, cv=1.0, rho=0.5, instances=1, rate=800.0, fixed_s=0.0, per_token_s=0.0, staleness=0.0,
    every=1, pause_s=0.0, law="version_window", placement="colocated", seqs=4,
)  # fmt: skip
@given(
    batch=st.sampled_from([16, 64, 160]),
    group=st.sampled_from([1, 4, 8]),
    mean=st.integers(40, 1200),
    cv=st.floats(0.2, 1.3),
    rho=st.sampled_from([0.0, 0.5]),
    instances=st.integers(1, 9),
    rate=st.sampled_from([None, 800.0, 5000.0]),
    fixed_s=st.floats(0.0, 20.0),
    per_token_s=st.sampled_from([0.0, 2e-5]),
    staleness=st.sampled_from([0.0, 0.5, 1.0, 3.0, 8.0]),
    every=st.sampled_from([1, 2, 3]),
    pause_s=st.floats(0.0, 10.0),
    law=st.sampled_from(["version_window", "batches_ahead", "barrier", "unbounded"]),
    placement=st.sampled_from(["disaggregated", "colocated"]),
    seqs=st.sampled_from([4, 64, 1024]),
)
def test_no_job_is_faster_than_its_bound_in_a_long_run(
    batch: int, group: int, mean: int, cv: float, rho: float, instances: int, rate: float | None, fixed_s: float,
    per_token_s: float, staleness: float, every: int, pause_s: float, law: str, placement: str, seqs: int,
) -> None:  # fmt: skip
    from fleetsim.config.load import default_scenario

    engine = {"engine.kind": "roofline"} if rate is None else {"engine.kind": "constant", "engine.instance_tok_s": rate}
    try:
        scenario = with_changes(
            default_scenario(),
            {
                "trainer.batch_samples": batch,
                "workload.group_size": group,
                "workload.group_correlation": rho,
                "workload.output_tokens": {"kind": "lognormal", "mean": mean, "cv": cv, "max": 4096},
                "fleet.instances": instances,
                "fleet.placement": placement,
                "fleet.switch_s": 2.0,
                "trainer.fixed_s": fixed_s,
                "trainer.per_token_s": per_token_s,
                "admission.law": law,
                "admission.max_staleness": staleness,
                "admission.batches_ahead": max(every, int(staleness)),
                "sync.every_steps": 1 if law == "barrier" else every,
                "sync.pause_s": pause_s,
                "sync.in_flight": "abort_resume" if placement == "colocated" else "keep",
                "engine.max_num_seqs": seqs,
                "run.steps": 64,
                **engine,
            },
        )
        step_s = float(simulated(scenario, 0)["step_s"])
    except (InputError, StuckError):  # a window that is too small for a batch
        return
    assert Bounds().step_s(scenario) <= step_s * (1 + 1e-9)


def test_a_bound_is_near_what_it_bounds() -> None:
    """A bound of nothing would hold as well, and rule nothing out: half of the plans take less than half more."""
    options = {"model": "Qwen/Qwen3-8B", "batch": 128, "len": 1500, "max_staleness": 1}
    plans = plans_of(space_of(16, **options))
    bounds = Bounds()
    shares = [
        bounds.step_s(s) / float(simulated(looked(s), 0)["step_s"]) for _, s in plans[:: max(1, len(plans) // 60)]
    ]
    assert sorted(shares)[len(shares) // 2] > 1 / 1.5


def test_batches_that_may_be_out() -> None:
    from fleetsim.config.load import default_scenario

    base = default_scenario()
    assert batches_out(with_changes(base, {"admission.max_staleness": 2, "sync.every_steps": 2})) == 6
    assert batches_out(with_changes(base, {"admission.law": "batches_ahead", "admission.batches_ahead": 3})) == 3
    assert batches_out(with_changes(base, {"admission.law": "unbounded"})) == float("inf")


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"batch": 512, "len": 1536}, {}),
        ({"batch": 256, "len": 3000, "max_staleness": 1}, {}),
        ({"batch": 512, "len": 1536, "max_staleness": 2}, {"workload.reward": {"latency_s": 20.0, "workers": 32}}),
    ],
)
def test_no_promise_beats_the_largest_bound(options: dict[str, object], changes: dict[str, object]) -> None:
    """What is advised is no faster than the busiest resource; and where the trainer alone takes all of a step, or the
    workers that score do, that is what binds."""
    found = fs.load(None, changes, replications=2, **options).size().plan
    here = with_instances(found.scenario, found.instances), found.recommended
    moves = [(a.anew.scenario, a.anew.trial) for a in found.alternatives.moves() if a.anew is not None]
    assert moves
    for scenario, trial in (here, *moves):
        by = Bounds(steady=True).by_resource(scenario)
        assert max(by.values()) <= trial.mean("step_s") * (1 + PRECISION)
    by = Bounds(steady=True).by_resource(here[0])
    largest = max(by, key=by.__getitem__)
    assert by[largest] > 0.5 * found.recommended.mean("step_s")
    named = {"trainer": "trainer", "rewards": "environment"}
    if largest in named and by[largest] > 0.97 * found.recommended.mean("step_s"):
        assert found.binding == named[largest]


def test_workers_that_score_bound_a_step() -> None:
    """512 samples of 20 s on 32 workers: 320 s, whatever the fleet; without a limit of workers nothing."""
    scored = {"batch": 512, "len": 1536}
    job = fs.load(None, {"workload.reward": {"latency_s": 20.0, "workers": 32}}, **scored).scenario
    assert Bounds().by_resource(job)["rewards"] == pytest.approx(320.0, rel=0.021)
    long = with_changes(job, {"run.steps": 100})  # the first steps are of what is scored before the trainer begins
    assert float(simulated(long, 0)["step_s"]) >= 320.0 * 0.98
    free = with_changes(job, {"workload.reward.workers": None})
    assert "rewards" not in Bounds().by_resource(free)


@pytest.mark.parametrize(
    "lost",
    [
        {"workload.turns": {"count": 4, "tool_latency_s": 1.0}, "stations.tools.failure_share": 0.7,
         "stations.tools.lost": "truncated"},
        {"stations.episode": {"timeout_s": 10.0, "lost": "truncated"}},
        {"stations.episode": {"timeout_s": 10.0, "lost": "dropped"}},
    ],
)  # fmt: skip
def test_rollouts_that_end_early_bound_nothing_by_their_drawn_lengths(lost: dict[str, Any]) -> None:
    """Tools that fail at seven calls of ten cut responses to a fraction: drawn whole, they would take 40 s for 15."""
    lengths = {"mean": 2000, "cv": 1.0, "max": 8000}
    job = {"run.steps": 24, "fleet.instances": 2, "trainer.fixed_s": 1.0, "workload.output_tokens": lengths}
    scenario = with_changes(default_scenario(), {**lost, **job})
    step_s = float(simulated(scenario, 0)["step_s"])
    assert max(Bounds(steady).step_s(scenario) for steady in (False, True)) <= step_s
