from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetsim.config import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import InputError, Problem, StuckError
from fleetsim.job.trials import with_instances
from fleetsim.size.size import Sizing, size
from tests.plan.fakes import fluid, metrics, one_ahead


def job(**changes: Any) -> Scenario:
    constant = {"engine.kind": "constant", "engine.instance_tok_s": 4000.0, "workload.output_tokens": 1536}
    constant |= {"targets.trainer_idle_fraction": 0.05}
    return with_changes(one_ahead(), constant | {k.replace("__", "."): v for k, v in changes.items()})


def test_the_smallest_count_that_holds_the_target() -> None:
    # 512 * 1536 / (n * 4000) <= 20 / 0.95 from n = 9.34 on
    result = size(job(), measure=fluid())
    assert result.instances == 10
    assert (result.missed, result.at_knee, result.feasible) == ((), False, True)
    assert [c.instances for c in result.candidates] == [5, 9, 10, 11, 13]
    assert result.rate_matching.instances == 13
    assert result.recommended.mean("trainer_idle_fraction") == 0.0


def test_the_upper_end_of_the_interval_decides_not_the_mean() -> None:
    spread = fluid(noise=lambda r: (0.0, 0.01, 0.02, 0.07, 0.11)[r % 5])
    mean_only = with_changes(job(), {"run.replications": 1})
    assert size(mean_only, measure=spread).instances == 10
    result = size(job(), measure=spread)
    idle = result.candidate(10).estimates["trainer_idle_fraction"]
    assert idle.mean <= 0.05 < idle.ci_high
    assert result.at_knee  # the noise does not shrink with the count: no fleet can show that it holds the target


def test_a_count_that_few_runs_leave_open_has_more_of_them() -> None:
    result = size(job(), measure=fluid(noise=lambda r: (0.0, 0.01, 0.02, 0.06, 0.09)[r % 5]))
    held = result.recommended
    assert (result.instances, result.at_knee) == (10, False)
    assert held.replications > job().run.replications
    assert held.estimates["trainer_idle_fraction"].ci_high <= 0.05


def test_every_fleet_is_simulated_at_most_once_and_few_are() -> None:
    calls: list[tuple[int, int]] = []
    result = size(job(), measure=fluid(calls=calls))
    assert result.simulations <= 26
    # the rest are ablations and queue caps, at the recommended count, levers (two of them other trainers), each with a
    # count of its own, and the
    # ends of the inputs that are in doubt
    assert len(calls) <= 75


@pytest.mark.parametrize("factor", [0.12, 0.3, 3.0, 40.0])
def test_a_bad_guess_is_corrected(factor: float) -> None:
    """The simulated rate may be far from the nameplate rate."""
    result = size(job(), measure=fluid(rate=4000.0 * factor))
    assert result.instances == max(1, math.ceil(512 * 1536 / (4000.0 * factor) / (20.0 / 0.95)))


def test_without_a_target_the_least_step_time_times_cost_is_the_answer() -> None:
    """With n instances a step takes 196.6 / n s, and 20 s at least: (196.6 / n)^2 (n + 8) falls until then."""
    result = size(job(targets__trainer_idle_fraction=None), measure=fluid())
    assert (result.instances, result.targets, result.at_knee, result.feasible) == (10, (), True, True)


@pytest.mark.parametrize(("worth", "best"), [(0.0, 1), (0.25, 2), (1.0, 10)])
def test_what_a_per_cent_of_time_is_worth_moves_it(worth: float, best: int) -> None:
    """Where time is worth nothing, the cheapest step counts: with one trainer GPU, the fewest instances."""
    cheap = job(targets__trainer_idle_fraction=None, targets__worth=worth, trainer__gpus=1)
    result = size(cheap, measure=fluid())
    dear = {n: max(20.0, 196.608 / n) ** (1 + worth) * (n + 1) for n in range(1, 40)}
    assert dear[result.instances] <= 1.01 * min(dear.values())
    assert worth != 1.0 or result.instances == best


def test_a_target_that_nothing_reaches_is_infeasible_and_the_answer_the_least_objective() -> None:
    result = size(job(), measure=fluid(floor_s=30.0))
    assert result.at_knee
    assert not result.feasible
    assert [t.name for t in result.missed] == ["trainer_idle_fraction"]
    assert result.largest is not None
    assert result.largest.mean("step_s") == 30.0
    # more than 7 make no step shorter: 512 * 1536 / 4000 / 30 = 6.55
    assert result.instances == 7
    assert any("out of reach" in w for w in result.warnings)


def test_what_mends_a_missed_target_is_a_larger_staleness_budget() -> None:
    def measure(s: Scenario, replication: int) -> Any:
        return fluid(floor_s=60.0 / (1.0 + s.admission.max_staleness))(s, replication)

    result = size(job(), measure=measure)
    change = result.change
    assert change is not None
    assert (change.mends, change.flag, change.instances) == (True, "--max-staleness 2", 10)
    barrier = size(job(admission__law="barrier"), measure=measure).change
    assert barrier is None or not barrier.mends


def test_a_cost_and_an_idle_target_that_no_count_holds_together() -> None:
    # 10 instances: 20 s * 11 GPUs * $3/h = $0.1833; 9: 21.8 s * 10 GPUs = $0.1820; 8 are dearer again.
    cheap = job(targets__cost_per_step=0.1825, trainer__gpus=1)
    result = size(cheap, measure=fluid())
    assert not result.feasible
    assert result.missed
    only = size(
        job(targets__cost_per_step=0.1825, trainer__gpus=1, targets__trainer_idle_fraction=None), measure=fluid()
    )
    assert (only.instances, only.feasible) == (9, True)


def test_a_cost_that_no_fleet_holds_is_infeasible() -> None:
    result = size(job(targets__cost_per_step=0.001), measure=fluid())
    assert not result.feasible


def test_a_step_time_target_counts_like_idle() -> None:
    result = size(job(targets__step_s=20.5, targets__trainer_idle_fraction=1.0), measure=fluid())
    assert result.instances == math.ceil(512 * 1536 / 4000 / 20.5)


def test_a_trainer_without_compute_time_is_sized_against_the_step_that_is_aimed_at() -> None:
    with pytest.raises(InputError, match="there are none"):
        size(job(trainer__fixed_s=0.0), measure=fluid())
    free = job(trainer__fixed_s=0.0, targets__step_s=10.0, targets__trainer_idle_fraction=1.0)
    assert size(free, measure=fluid()).rate_matching.consume_tok_s == pytest.approx(512 * 1536 / 10.0)


def test_resize_events_are_left_out_and_said_to_be() -> None:
    events = [{"step": 2, "instances": 3, "trainer_slowdown": 1.5}, {"step": 5, "instances": 9}]
    result = size(job(run__events=events), measure=fluid())
    assert [(e.step, e.instances, e.trainer_slowdown) for e in result.scenario.run.events] == [(2, None, 1.5)]
    assert any("run.events" in w for w in result.warnings)


def test_warnings_name_the_number_and_the_way_out() -> None:
    def measure(s: Scenario, replication: int) -> Any:
        return metrics(20.0, 0.0, staleness_p99=3.0, preemptions=40.0)

    given = ("admission.max_staleness",)  # a budget that nobody gave is told, and is no warning
    result: Sizing = size(job(), measure=measure, notes=("a note",), given=given)
    assert result.warnings[0] == "a note"
    text = " ".join(result.warnings)
    assert "at most 3 steps old, the budget is 1" in text
    assert "40 preemptions per step" in text


def test_speed_factors_of_instances_that_are_no_more_are_dropped() -> None:
    slow = job(fleet__instances=40, fleet__speed_factors=[1.5] * 40)
    assert size(slow, measure=fluid()).instances == 10


def test_a_fleet_on_the_trainers_own_gpus_is_a_matter_of_gpus() -> None:
    """In a fluid model rollout and trainer do not wait for each other; the trainer has the GPUs of the count."""
    shared = job(fleet__placement="colocated", trainer__gpus=16)
    found = size(shared, measure=fluid())
    assert found.scenario.fleet.instances * found.scenario.engine.gpus == 16
    assert not [w for w in found.warnings if "share the trainer" in w]
    assert {c.instances * found.scenario.engine.gpus % 8 for c in found.candidates} <= {0, 1, 2, 4}


def test_defaults_that_do_not_fit_are_among_the_warnings() -> None:
    small = job(engine__kind="roofline", engine__model="Qwen/Qwen2.5-32B", engine__tp=2, trainer__gpus=2)
    found = size(small, measure=fluid(), given=("engine.model",))
    assert any("a trainer of 2 GPUs cannot hold" in w for w in found.warnings)


def test_a_count_that_was_chosen_is_not_assumed() -> None:
    guessed = job(assumed=("fleet.instances", "fleet.switch_s"))
    assert with_instances(guessed, 3).assumed == ("fleet.switch_s",)
    assert "fleet.instances" not in [a.path for a in size(guessed, measure=fluid()).assumptions]


@settings(max_examples=25, deadline=None)
@example(set(), {(11, 1)}, 0.0)
@given(
    st.sets(st.integers(1, 30)), st.sets(st.tuples(st.integers(1, 30), st.integers(0, 2))), st.sampled_from([0.0, 30.0])
)
def test_a_count_that_gets_stuck_is_left_out(always: set[int], sometimes: set[tuple[int, int]], floor_s: float) -> None:
    """Whatever counts get stuck, in whichever replication: another one is the answer, and the reason is told."""
    smooth = fluid(floor_s=floor_s)

    def measure(s: Scenario, replication: int) -> Any:
        n = s.fleet.instances
        if n in always or (n, replication) in sometimes or n > 60:
            raise StuckError("the queue is full", [Problem("buffer.capacity_samples", 8, "too few", "raise it")])
        return smooth(s, replication)

    result = size(with_changes(job(), {"run.replications": 3}), measure=measure)
    stuck = always | {n for n, _ in sometimes}
    counts = {c.instances for c in result.candidates}
    assert result.instances in counts
    assert not counts & stuck
    once = always | {n for n, replication in sometimes if replication == 0}
    assert result.largest is None or result.largest.instances not in once
    assert math.isfinite(result.recommended.mean("step_s"))
    assert floor_s or not result.missed
    if result.instances + 1 in stuck:
        assert any("cannot run this job and were left out" in w for w in result.warnings)


def test_where_every_count_gets_stuck_the_answer_says_why() -> None:
    def measure(s: Scenario, replication: int) -> Any:
        raise StuckError("the queue is full", [Problem("buffer.capacity_samples", 8, "too few", "raise it")])

    with pytest.raises(StuckError, match=r"no fleet can run this job \(instances tried: .*the queue is full") as error:
        size(job(), measure=measure)
    assert [p.path for p in error.value.limits] == ["buffer.capacity_samples"]
