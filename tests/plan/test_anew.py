"""Alternatives with a count of their own: what is said of them is what asking for them directly says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetsim as fs
from fleetsim.config import Scenario, with_changes
from fleetsim.errors import StuckError
from fleetsim.job.trials import with_instances
from fleetsim.search.levers import CAP, STALENESS, levers_of
from fleetsim.size.size import Sizing, size
from tests.plan.fakes import fluid, metrics, one_ahead
from tests.plan.typed import typed

WORK = 512 * 1536


def job(**changes: Any) -> Scenario:
    constant = {"engine.kind": "constant", "engine.instance_tok_s": 4000.0, "workload.output_tokens": 1536}
    return with_changes(one_ahead(), constant | {k.replace("__", "."): v for k, v in changes.items()})


def filled(s: Scenario, replication: int) -> Mapping[str, Any]:
    """As fast as instances are full: x samples make 8,000 x / (x + 64) tok/s. Each version ahead hides 15 s."""
    n, train = s.fleet.instances, s.trainer.fixed_s
    each = (s.fleet.max_in_flight_samples or 4096) / n
    produce = WORK / (n * 8000.0 * each / (each + 64.0))
    step = max(train, produce, 60.0 - 15.0 * s.admission.max_staleness)
    gpus = n + s.trainer.gpus
    return metrics(step, max(0.0, 1.0 - train / step), cost_per_step=step / 3600.0 * 3.0 * gpus)


def direct(s: Scenario) -> Sizing:
    return size(s, measure=filled)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(cap=st.integers(40, 90), staleness=st.integers(0, 4), trainer=st.integers(1, 32))
def test_what_is_said_of_an_alternative_is_what_asking_for_it_says(cap: int, staleness: int, trainer: int) -> None:
    s = job(fleet__max_in_flight_samples=8 * cap, admission__max_staleness=float(staleness), trainer__gpus=trainer)
    found = direct(s)
    here = with_instances(s, found.instances)
    pulled = {lever.name: lever.scenario for lever in levers_of(here, here, "")}
    for a in found.alternatives.tried:
        if a.anew is None:
            continue
        asked = direct(pulled[a.name])
        own, best = a.anew.trial, asked.recommended
        rough = own.replications < best.replications
        assert own.mean("cost_per_step") * own.mean("step_s") <= (1.15 if rough else 1.0 + 1e-9) * (
            best.mean("cost_per_step") * best.mean("step_s")
        )


def test_a_cap_that_buys_nothing_here_and_makes_the_fleet_several_times_too_large() -> None:
    """352 samples in flight make 39,322 tok/s with 47 instances, 528 with 13: 8,000 * 528 / (528 / 13 + 64)."""
    idle = 0.0004
    found = direct(
        job(fleet__max_in_flight_samples=352, admission__max_staleness=3.0, targets__trainer_idle_fraction=idle)
    )
    cap = found.alternatives.named(CAP)
    assert cap is not None
    assert not cap.shortens
    assert cap.anew is not None
    assert (found.instances, cap.anew.instances) == (47, 13)
    assert "would buy nothing measurable with 47 instances" in found.explanation
    assert "an in-flight cap of 528 instead of 352 samples, 13 instances do what 47 do now (step " in found.explanation


def test_what_is_typed_for_more_staleness_raises_its_age_limit_too() -> None:
    """What may start a step earlier is a step older when it is trained: with the old limit it would wait or go."""
    s = job(admission__age_action="wait", admission__max_age=1.0, targets__trainer_idle_fraction=0.05)
    seen: dict[str, Scenario] = {}

    def measure(s: Scenario, replication: int) -> Mapping[str, Any]:
        seen[f"{s.admission.max_staleness:g}, {s.admission.max_age:g}"] = s
        return fluid(floor_s=60.0 / (1.0 + s.admission.max_staleness))(s, replication)

    change = size(s, measure=measure).change
    assert change is not None
    assert change.mends
    changes, options = typed(change.flag)
    asked = fs.load(s.model_dump(exclude_none=True)).with_(changes, **options).scenario.admission
    assert asked.max_staleness > s.admission.max_staleness
    assert f"{asked.max_staleness:g}, {asked.max_age:g}" in seen


def test_a_budget_that_is_raised_twice_is_told_beside_the_one_of_the_job_with_all_that_is_typed() -> None:
    """What nothing ran ahead of is resumed after a sync with the first raise; the second alone would not say so."""
    s = job(admission__max_staleness=0.0, sync__in_flight="abort_discard", targets__trainer_idle_fraction=0.05)

    def measure(s: Scenario, replication: int) -> Mapping[str, Any]:
        return fluid(floor_s=60.0 / (1.0 + s.admission.max_staleness))(s, replication)

    change = size(s, measure=measure).change
    assert change is not None
    assert change.text == "a staleness budget of 2 instead of 0, with unfinished responses resumed after a sync"
    changes, options = typed(change.flag)
    asked = fs.load(s.model_dump(exclude_none=True)).with_(changes, **options).scenario
    assert (asked.admission.max_staleness, asked.sync.in_flight) == (2.0, "abort_resume")


def test_counts_that_get_stuck_are_no_count_of_an_alternative() -> None:
    """With more staleness nothing but seven instances runs, which do not hold the target."""

    def measure(s: Scenario, replication: int) -> Mapping[str, Any]:
        if s.admission.max_staleness > 1.0 and s.fleet.instances != 7:
            raise StuckError("nothing moves", [])
        return fluid(floor_s=60.0 / (1.0 + s.admission.max_staleness))(s, replication)

    found = size(job(targets__trainer_idle_fraction=0.05), measure=measure)
    lever = found.alternatives.named(STALENESS)
    assert lever is not None
    assert lever.anew is None or (lever.anew.instances, lever.anew.holds) == (7, False)
    assert found.change is None or not found.change.mends


@pytest.mark.parametrize("floor_s", [0.0, 30.0])
def test_few_runs_are_made_for_all_of_them(floor_s: float) -> None:
    calls: list[tuple[int, int]] = []
    known = ("trainer.fixed_s", "sync.pause_s")  # nothing is in doubt, whose runs are others
    found = size(job(), given=known, measure=fluid(floor_s=floor_s, calls=calls))
    assert found.spread is None
    assert len(calls) - found.simulations <= 40


@pytest.mark.parts
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"max_staleness": 1.0},
        {"model": "Qwen/Qwen3-32B", "gpu": "B200", "len": 300, "batch": 256},
        {"model": "Qwen/Qwen3-14B", "gpu": "A100", "group_size": 16, "len_cv": 1.4, "max_staleness": 0.0},
        {"model": "Qwen/Qwen3-14B", "gpu": "B200", "max_staleness": 1.0},
        {"batch": 512, "len": 1536},
        {"len": 900, "len_cv": 1.5, "trainer_step_s": 20.0},
    ],
)
def test_the_change_that_is_advised_is_what_asking_for_it_says(options: dict[str, Any]) -> None:
    """Of the simulator, whose runs differ: what the line "change" promises is what its flags give, to the digit."""
    job = fs.load(None, {"run.steps": 10}, replications=2, **options)
    now = job.size()
    change = now.plan.change
    assert change is not None
    changes, flags = typed(change.flag)
    asked = job.with_(changes, **flags).size()
    assert asked.instances == change.instances
    assert now.mean["cost_per_step"] - asked.mean["cost_per_step"] == pytest.approx(change.saves_usd, rel=1e-9)
    assert now.mean["step_s"] - asked.mean["step_s"] == pytest.approx(change.saves_s, rel=1e-9)


@pytest.mark.parts
@pytest.mark.parametrize("options", [{"len": 4000.0, "max_len": 8192}, {"len": 3500.0, "max_len": 8192}, {}])
def test_nobody_is_advised_to_cut_many_responses(options: dict[str, Any]) -> None:
    """A cap that cuts one response in ten or five saves most of all, and teaches the model to stop."""
    job = fs.load(None, {"run.steps": 8}, replications=2, model="Qwen/Qwen3-14B", **options)
    found = job.size().plan
    cuts = {a.flag.own: a.truncated for a in found.alternatives.tried}
    assert max(cuts.values()) > 0.04  # there is such a lever
    simulated = job.with_({"fleet.instances": 6}).simulate().document()["change"]
    for flag in (found.change and found.change.flag, simulated and simulated["flag"]):
        assert flag is None or cuts.get(flag, 0.0) <= 0.06
