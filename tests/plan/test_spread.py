"""How sure an answer is: its inputs moved to their ends, held against draws of all of them at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetsim as fs
from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.slowdown import off_by, slowdown_of
from fleetsim.errors import InputError
from fleetsim.estimates import Estimate
from fleetsim.job.input_moves import METRICS, Moved
from fleetsim.job.trials import Trials, simulated, with_instances
from fleetsim.job.uncertainty import CONFIDENCE, UNCERTAIN
from fleetsim.size.best import best_of
from fleetsim.size.size import Sizing
from fleetsim.size.spread import CountDoubt, CountSpread
from fleetsim.size.targets import Target, targets_of
from fleetsim.size.words import headline, likely
from fleetsim.trainer.estimate import estimate_of
from tests.plan.draws import all_off
from tests.plan.fakes import fluid

JOB = {"batch": 256, "len": 1536, "max_staleness": 3, "max_len": 4096}
IDLE = Target("trainer_idle_fraction", "trainer_idle_fraction", 0.05, given=False)


def planned(**options: Any) -> Sizing:
    confidence = options.pop("confidence", None)
    return fs.load(**{**JOB, **options}).size(confidence=confidence).plan


def slowed(rate: float = 4000.0) -> Any:
    """A fluid fleet that hears speed factors and what is lost inside a job."""
    plain = fluid(rate)

    def measure(scenario: Scenario, replication: int) -> Mapping[str, Any]:
        factors = scenario.fleet.speed_factors
        slow = scenario.engine.slowdown * (factors[0] if factors else 1.0)
        return fluid(rate / slow)(scenario, replication) if slow != 1.0 else plain(scenario, replication)

    return measure


def test_what_was_given_is_not_in_doubt() -> None:
    known = planned(instance_tok_s=4000.0, trainer_step_s=20.0, sync_pause_s=1.0, len_cv=0.8)
    assert known.spread is None
    assert likely(known) is None
    assert "likely" not in headline(known)
    some = planned(trainer_step_s=20.0, sync_pause_s=1.0)
    assert some.spread is not None
    assert {p.what for p in some.spread.parts} == {"engine speed", "speed lost in a training job", "spread of lengths"}


def test_counts_of_a_fluid_fleet_follow_the_engines_speed() -> None:
    """Demand is 256 x 1536 / 20 s = 19,661 tok/s: at 4000 tok/s x 0.95 five instances, at a factor f five times f."""
    job = fs.load(batch=256, len=1536, trainer_step_s=20.0, len_cv=0)
    slowdown = job.scenario.engine.slowdown
    scenario = with_changes(job.scenario, {"sync.pause_s": 0.0, "sync.trainer_block_s": 0.0})
    doubt = CountDoubt(scenario, 5, job.given, (IDLE,), slowed(4000.0 * slowdown))
    ends = {u.what: (low, high) for u, low, high in doubt.ends}
    for low, high in (ends["engine speed"], ends["speed lost in a training job"]):
        for end in (low, high):
            exact = 256 * 1536 * end.factor / (4000.0 * 20.0 / 0.95)
            assert end.held
            assert end.instances == math.ceil(exact - 1e-9)
    fewest, most = doubt.counts()
    up = math.hypot(*(math.log(high.instances / 5) for _, high in ends.values()))
    assert most == math.ceil(5 * math.exp(up) - 1e-9)
    down = math.hypot(*(math.log(5 / low.instances) for low, _ in ends.values()))
    assert fewest == round(5 * math.exp(-down))


@given(st.floats(0.5, 0.98), st.floats(0.5, 0.98))
@settings(max_examples=20, deadline=None)
def test_more_confidence_is_a_wider_range(one: float, other: float) -> None:
    job = fs.load(batch=256, len=1536, trainer_step_s=20.0, len_cv=0)
    doubt = CountDoubt(job.scenario, 5, job.given, (IDLE,), slowed())
    (low_1, high_1), (low_2, high_2) = (doubt.counts(c) for c in sorted((one, other)))
    assert low_2 <= low_1 <= 5 <= high_1 <= high_2


def test_the_ends_are_simulated_as_they_are_told() -> None:
    plan = planned(trainer_step_s=30.0, sync_pause_s=2.0)
    assert plan.spread is not None
    part = next(p for p in plan.spread.parts if p.what == "speed lost in a training job")
    short = with_changes(with_instances(plan.scenario, plan.instances), {"run.steps": 8})
    for end, factor in zip((part.low, part.high), off_by(None), strict=True):
        moved = with_changes(short, {"engine.slowdown": factor * slowdown_of(None)})
        assert end.metrics["step_s"] == pytest.approx(simulated(moved, 0)["step_s"], rel=1e-12)


@pytest.mark.slow
def test_what_an_input_does_is_told_around_the_step_of_all_runs() -> None:
    short = dict.fromkeys(METRICS, 32.0)  # one short run, longer than the mean of all by its luck
    faster, slower = dict.fromkeys(METRICS, 31.0), dict.fromkeys(METRICS, 34.5)
    all_runs = dict.fromkeys(METRICS, Estimate(30.0, 29.5, 30.5))
    [(low, high)] = Moved(short, ((faster, slower),)).told(all_runs)
    assert (low["step_s"], high["step_s"]) == (29.0, 32.5)


@pytest.mark.parametrize(
    "options", [{"trainer_step_s": 15.0, "sync_pause_s": 2.0, "gpu": "H200"}, {"len": 3000, "max_len": 8192}]
)
def test_ranges_hold_what_draws_of_all_inputs_at_once_give(options: dict[str, Any]) -> None:
    """Brute force: every input drawn from the law that has its interval, the fleet sized and simulated for each.

    A range that said 80 % and held half would be false comfort; the parts add as squares, so it holds more than it
    says, never far less.
    """
    job = fs.load(None, {"run.steps": 8}, **{**JOB, **options})
    plan = job.size().plan
    assert plan.spread is not None
    targets = targets_of(job.scenario, job.given)
    inputs = [(u, ends) for u in UNCERTAIN if (ends := u.interval(plan.scenario, job.given))]
    draw = np.random.default_rng(0)
    counts, steps = [], []
    # one run of each count decides here, all replications do in the recommendation
    likeliest = best_of(Trials(plan.scenario, simulated), plan.instances, targets, 1).instances
    for _ in range(30):
        z = draw.normal(size=len(inputs)) / 1.2816
        factors = [(u, high**x if x > 0 else low**-x) for (u, (low, high)), x in zip(inputs, z, strict=True)]

        def measure(scenario: Scenario, r: int, factors: Any = factors) -> Mapping[str, Any]:
            return simulated(all_off(scenario, factors), r)

        best = best_of(Trials(plan.scenario, measure), plan.instances, targets, 1)
        counts += [best.instances * plan.instances / likeliest] if best.knee is None else []
        steps.append(measure(with_instances(plan.scenario, plan.instances), 0)["step_s"])
    for found, (low, high) in ((counts, plan.spread.instances), (steps, plan.spread.metrics["step_s"])):
        assert found
        assert sum(low <= x <= high for x in found) >= round((CONFIDENCE - 0.1) * len(found))


def test_a_fleet_for_nine_cases_in_ten_is_larger_or_refused() -> None:
    options = {"trainer_step_s": 30.0, "sync_pause_s": 2.0}
    likeliest, sure = planned(**options), planned(**options, confidence=0.9)
    assert sure.instances >= likeliest.instances
    assert sure.spread is not None
    if sure.enough:
        assert sure.spread.instances[1] == sure.instances
        assert "enough in 90 % of cases" in headline(sure)
    else:
        assert sure.instances == likeliest.instances
        assert not sure.feasible
        assert headline(sure).startswith("No fleet is enough in 90 % of cases.")


def test_a_job_that_some_case_breaks_says_so() -> None:
    plan = planned(max_staleness=2, max_len=8192, batch=512)
    assert plan.spread is not None
    assert not plan.spread.held
    said = likely(plan)
    assert said is not None
    assert "At the slow end no count holds the targets" in said
    tight = planned(max_staleness=2, max_len=8192, batch=512, confidence=0.9)
    assert tight.enough is False
    assert not tight.feasible


@pytest.mark.parametrize("confidence", [0.5, 0.0, 1.0, 1.2, -1.0, math.nan])
def test_a_confidence_is_a_share(confidence: float) -> None:
    with pytest.raises(InputError, match=r"above 0\.5 and at most 0\.99"):
        planned(confidence=confidence)


def test_a_wide_range_is_said_first() -> None:
    spread = CountSpread(CONFIDENCE, (4, 9), True, {}, ())
    assert spread.wide
    assert not CountSpread(CONFIDENCE, (1, 2), True, {}, ()).wide
    assert not CountSpread(CONFIDENCE, (6, 9), True, {}, ()).wide


def test_an_estimated_trainer_has_the_error_of_its_kind_and_an_assumed_one_that_of_nobody() -> None:
    def trainer(**options: Any) -> Any:
        spread = planned(**options).spread
        assert spread is not None
        return next(p for p in spread.parts if p.what == "trainer seconds")

    estimated = trainer()
    job = fs.load(**JOB)
    error = estimate_of(job.scenario, job.scenario.trainer.gpus).error
    assert error is not None
    assert estimated.high.factor == pytest.approx((1 + error.p90) ** (1.2816 / 1.6449))
    assert "published runs" in estimated.why
    nobody = trainer(instance_tok_s=4000.0)
    assert (nobody.low.factor, nobody.high.factor) == (0.5, 2.0)
    assert nobody.why == "20.0 s a step is assumed"
