"""Comparing scenarios: nothing out of nothing, known effects found, luck not taken for one."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetsim.compare.compare import BY_ITSELF, Comparison, MetricChange, Side, input_differences, inputs_of
from fleetsim.compare.runs import ToRun, compare_runs, scenario_side
from fleetsim.compare.verdicts import compare
from fleetsim.config import Scenario, scenario_from_mapping, with_changes
from fleetsim.contrast import Mean
from fleetsim.errors import StuckError
from fleetsim.estimates import Estimate
from fleetsim.job.trials import flat, simulated
from fleetsim.quantities import METRICS, RUN_METRICS, quantity
from tests.plan.fakes import one_ahead
from tests.sim.random_scenarios import scenarios

SMALL = scenario_from_mapping(
    {
        "workload": {"output_tokens": {"mean": 200, "cv": 0.8, "max": 800}, "prompt_tokens": 64, "group_size": 4},
        "engine": {"kind": "constant", "instance_tok_s": 800},
        "fleet": {"instances": 2},
        "trainer": {"batch_samples": 32, "fixed_s": 2.0},
        "run": {"steps": 16},
    }
)


def compared(a: Scenario, b: Scenario, replications: int = 6, **more: Any) -> Comparison:
    return compare_runs(ToRun("A", a), ToRun("B", b), replications, **more)


def side_of(label: str, scenario: Scenario, replications: int) -> Side:
    runs = {(scenario.run.seed, r): flat(simulated(scenario, r)) for r in range(replications)}
    return scenario_side(ToRun(label, scenario), runs)


def change(found: Comparison, metric: str) -> MetricChange:
    return next(c for c in found.changes if c.metric == metric)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_a_scenario_equals_itself_in_every_metric(scenario: Scenario) -> None:
    try:
        found = compared(scenario, scenario, 2)
    except StuckError:
        return
    assert found.paired
    assert found.inputs == ()
    there = flat(simulated(scenario, 0))  # those of stations only where the scenario has any
    names = [m for m in RUN_METRICS if m in METRICS or m in there]
    assert [c.metric for c in found.changes] == names
    for c in found.changes:
        assert (c.verdict, c.p_adjusted) == ("no significant change", None)
        assert c.a == c.b
        assert c.difference is not None
        assert (c.difference.mean, c.difference.ci_low, c.difference.ci_high) == (0.0, 0.0, 0.0)
        assert c.ratio is None or (c.ratio.mean, c.ratio.ci_low, c.ratio.ci_high) == (1.0, 1.0, 1.0)
        assert c.ratio is not None or c.a is not None
        assert c.ratio is not None or c.a.mean == 0.0  # type: ignore[union-attr]
    assert found.headline == f"B equals A in all {len(names)} metrics"


@pytest.mark.slow
def test_luck_is_called_luck() -> None:
    """Thirty pairs of the same scenario under other seeds, no smallest change: wrongly called changed at most as often
    as is said, for any metric of a pair, and each interval by itself."""
    pairs, replications = 30, 4
    sides = [side_of(str(seed), with_changes(SMALL, {"run.seed": seed}), replications) for seed in range(2 * pairs)]
    wrong, outside, inside = 0, 0, 0
    for a, b in zip(sides[::2], sides[1::2], strict=True):
        found = compare(a, b, "scenarios", METRICS, pair=False, min_change=0.0)
        wrong += bool(found.significant)
        tested = [c for c in found.changes if c.p_adjusted is not None and c.difference is not None]
        missed = [c for c in tested if not c.difference.ci_low <= 0.0 <= c.difference.ci_high]  # type: ignore[union-attr]
        outside += len(missed)
        inside += len(tested) - len(missed)
        assert all(c.why == BY_ITSELF for c in missed if not c.significant)
    assert wrong <= 6, "above the 99.9 % quantile of 30 pairs at 5 %"
    assert inside + outside > 5 * pairs
    # The metrics of a pair go together: 30 independent pairs count, not their metrics.
    assert outside / (inside + outside) <= 0.05 + 3.1 * math.sqrt(0.05 * 0.95 / pairs)


def test_a_known_effect_is_found_and_pairs_tell_more() -> None:
    """Behind a barrier nothing overlaps: 0.2 s more compute are 0.2 s more per step, whatever the lengths drawn."""
    a = with_changes(SMALL, {"admission.law": "barrier"})
    b = with_changes(a, {"trainer.fixed_s": a.trainer.fixed_s + 0.2})
    found = compared(a, b)
    step = change(found, "step_s")
    assert step.verdict == "worse"
    assert step.difference is not None
    assert step.difference.mean == pytest.approx(0.2, rel=1e-6)
    assert [d.path for d in found.inputs] == ["trainer.fixed_s"]
    assert "B's step is" in found.headline
    assert "longer" in found.headline
    sides = [side_of(n, s, 6) for n, s in (("A", a), ("B", b))]
    loose = change(compare(*sides, "scenarios", METRICS, pair=False, min_change=0.01), "step_s")
    assert loose.difference is not None
    assert loose.difference.ci_low <= 0.2 <= loose.difference.ci_high
    assert width(loose.difference) > 20 * width(step.difference)


def width(x: Estimate) -> float:
    return x.ci_high - x.ci_low


def test_another_fleet_is_found_as_others_find_it() -> None:
    """Ten runs and thirty others: their intervals of the ratio meet, and the change is told.

    By a budget of one version: under the default of four, neither fleet of so short a run is held back.
    """
    a = with_changes(SMALL, {"admission.max_staleness": 1.0})
    b = with_changes(a, {"fleet.instances": 3})
    found, again = compared(a, b, 10), compared(*(with_changes(s, {"run.seed": 99}) for s in (a, b)), 30)
    ratios = [change(c, "step_s").ratio for c in (found, again)]
    assert change(found, "step_s").verdict == "better"
    assert change(found, "rollout_idle_fraction").verdict == "worse"
    assert ratios[0] is not None
    assert ratios[1] is not None
    assert ratios[0].ci_low <= ratios[1].ci_high
    assert ratios[1].ci_low <= ratios[0].ci_high


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"run.seed": 7}, "run.seed is 0 and 7"),
        ({"trainer.batch_samples": 64}, "trainer.batch_samples is 32 and 64"),
        ({"workload.group_size": 8}, "workload.group_size is 4 and 8"),
    ],
)
def test_other_draws_are_unpaired_and_said_to_be(changes: dict[str, Any], why: str) -> None:
    found = compared(SMALL, with_changes(SMALL, changes), 3)
    assert not found.paired
    assert any(note.startswith(f"unpaired: {why}") for note in found.notes)


def test_another_batch_is_other_work() -> None:
    found = compared(SMALL, with_changes(SMALL, {"trainer.batch_samples": 64}), 2)
    assert "a step of A trains 32 samples and one of B 64: what is per step is of other work; goodput is per token" in (
        found.notes
    )


def test_other_lengths_take_the_same_draws() -> None:
    longer = with_changes(SMALL, {"workload.output_tokens": {"kind": "gamma", "mean": 220, "cv": 0.8, "max": 800}})
    found = compared(SMALL, longer, 3)
    assert found.paired
    assert [d.path for d in found.inputs] == ["workload.output_tokens"], "a law of another kind differs as a whole"


def test_runs_of_other_length_are_made_equal() -> None:
    found = compared(SMALL, with_changes(SMALL, {"run.steps": 20}), 2)
    assert found.paired
    assert found.inputs == ()
    assert "A would run 16 steps and B 20 steps: both ran 20 steps (--steps)" in found.notes


def one(a: Mean, b: Mean, min_change: float, metric: str = "step_s") -> MetricChange:
    """One metric alone."""
    sides = [Side(label, means={metric: m}, replications=5) for label, m in (("A", a), ("B", b))]
    return compare(*sides, "results", [metric], pair=False, min_change=min_change).changes[0]


def test_the_smallest_change_of_interest() -> None:
    error = 0.1
    a, sure = Mean(100.0, error, 50.0), Mean(101.5, error, 50.0)
    assert one(a, sure, 0.0).verdict == "worse"
    assert one(a, sure, 0.01).verdict == "worse"
    assert one(a, sure, 0.0145).why == "not shown to exceed 1.45 %", "the interval reaches over the edge"
    assert one(a, sure, 0.05).why == "within 5 %"
    assert one(sure, a, 0.01).verdict == "better"
    assert one(a, Mean(100.1, error, 50.0), 0.0).why == "not told from none"
    assert one(a, Mean(103.0, 2.0, 50.0), 0.01).why == "not shown to exceed 1 %"


def test_shares_are_judged_by_points() -> None:
    near_nothing = one(Mean(0.001, 1e-5, 50.0), Mean(0.002, 1e-5, 50.0), 0.01, "trainer_idle_fraction")
    assert near_nothing.ratio is not None
    assert near_nothing.ratio.mean == pytest.approx(2.0)
    assert near_nothing.why == "within 1 point"
    assert one(Mean(0.1, 1e-3, 50.0), Mean(0.13, 1e-3, 50.0), 0.01, "trainer_idle_fraction").verdict == "worse"


def test_from_nothing_only_the_difference_counts() -> None:
    found = one(Mean(0.0, 0.0, 4.0), Mean(3.0, 0.1, 4.0), 0.01, "preemptions")
    assert found.ratio is None
    assert found.verdict == "worse"


def test_one_run_has_no_interval() -> None:
    found = one(Mean(10.0, 0.0, 0.0), Mean(12.0, 0.0, 0.0), 0.01)
    assert found.verdict == "not comparable"
    assert "more replications" in found.why


def test_many_metrics_ask_for_more() -> None:
    """What stands out alone does not among two dozen."""
    a = {m: Mean(10.0, 0.1, 9.0) for m in METRICS if quantity(m).unit != "share"}
    b = {**a, "step_s": Mean(10.37, 0.1, 9.0)}
    sides = [Side("A", means=a, replications=10), Side("B", means=b, replications=10)]
    assert compare(*sides, "results", ["step_s"], pair=False, min_change=0.0).changes[0].verdict == "worse"
    among = compare(*sides, "results", list(a), pair=False, min_change=0.0)
    assert change(among, "step_s").why in (BY_ITSELF, "")
    # The others are equal in their means but not in every run: they are tested.
    jittered = {m: Mean(10.0 + 0.01, 0.1, 9.0) for m in a} | {"step_s": b["step_s"]}
    among = compare(
        sides[0], Side("B", means=jittered, replications=10), "results", list(a), pair=False, min_change=0.0
    )
    assert change(among, "step_s").why == BY_ITSELF
    assert any("are tested at once" in note for note in among.notes)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(), scenarios())
def test_what_differs_makes_one_of_the_other(a: Scenario, b: Scenario) -> None:
    differences = input_differences(inputs_of(a), inputs_of(b))
    made = with_changes(a, {d.path: d.b for d in differences})
    assert inputs_of(made) == inputs_of(b)
    assert input_differences(inputs_of(a), inputs_of(a)) == ()
    back = input_differences(inputs_of(b), inputs_of(a))
    assert {d.path: (d.a, d.b) for d in back} == {d.path: (d.b, d.a) for d in differences}


@settings(max_examples=10)
@given(st.integers(1, 64), st.booleans())
def test_assumed_values_are_marked(instances: int, given_: bool) -> None:
    from fleetsim.compare.compare import assumed_of

    a = one_ahead()
    b = with_changes(a, {"fleet.instances": a.fleet.instances + instances})
    found = input_differences(
        inputs_of(a), inputs_of(b), assumed_of(a, ()), assumed_of(b, ["fleet.instances"] if given_ else ())
    )
    assert [(d.path, d.a_assumed, d.b_assumed) for d in found] == [("fleet.instances", True, not given_)]


def test_a_side_whose_backlog_grows_says_that_its_samples_become_older() -> None:
    slow = {"admission.law": "unbounded", "trainer.fixed_s": 20.0, "fleet.instances": 3, "run.steps": 24}
    bounded = with_changes(SMALL, {**slow, "buffer.capacity_samples": 64})
    free = with_changes(SMALL, {**slow, "buffer.capacity_samples": 64 * 100})
    notes = compared(bounded, free, 2).notes
    assert [note.partition(":")[0] for note in notes if "the backlog grows until it holds 6,400" in note] == ["B"]
