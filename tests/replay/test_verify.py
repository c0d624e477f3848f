"""The runbook's verification list: each item held, failed and unknown."""

from __future__ import annotations

import pytest

from fleetsim.config.load import load_scenario, with_changes
from fleetsim.history.history import InstanceId
from fleetsim.records import replace
from fleetsim.replay.change.plan import (
    BaselineFields,
    IntervalFields,
    PlanTargets,
    PlanWindow,
    RecommendedFields,
    RollbackFields,
    SavedPlan,
    baseline_of,
)
from fleetsim.replay.change.verification import Name, State, verify
from fleetsim.replay.observe.observed import FleetView, InstanceView, Observed, QueueView, Reading, TrainerView

# 4 instances of 1 GPU, 8 trainer GPUs, each at a price of its own, which no list moves.
PRICES = {"cost.instance_price_usd_per_gpu_h": 2.95, "cost.trainer_price_usd_per_gpu_h": 2.95}
SCENARIO = with_changes(load_scenario("async-one-step"), PRICES)

PLAN = SavedPlan(
    date="2026-01-01T00:00:00+00:00",
    window=PlanWindow(start_s=0.0, end_s=1000.0, source="test"),
    baseline=BaselineFields(instances=4, gpus=12, cost_per_step=0.6, prefix_hit=0.8, waiting=3.0),
    recommended=RecommendedFields(
        instances=6,
        changes={"fleet.instances": 6},
        predicted={"trainer_idle_fraction": IntervalFields(mean=0.03, ci_low=0.02, ci_high=0.04)},
    ),
    targets=PlanTargets(trainer_idle_fraction=0.05, staleness_steps=1.0, queue_samples=768, cost_per_step=0.6),
    rollback=RollbackFields(instances=4, command="kubectl scale deployment rollout --replicas 4"),
    scenario=SCENARIO,
)

FLEET = FleetView(
    6.0, 6, 6, 6, 2e4, 3e3, 0.0, 300.0, 2.0, 300.0, 400.0, 0.4, 0.6, 0.0, 0.0, 0.82, 10.0, 0.0, 0.01
)  # fmt: skip
TRAINER = TrainerView(
    step_s=Reading(40.0, "exported"),
    wait_s=Reading(1.0, "exported"),
    train_s=Reading(38.0, "exported"),
    sync_s=Reading(1.0, "exported"),
    idle_fraction=Reading(0.025, "exported"),
    steps=Reading(400.0, "exported"),
    batch_samples=Reading(512.0, "exported"),
    batch_tokens=None,
    mfu=None,
)
QUEUE = QueueView(400.0, 700.0, 760.0, 0.0, 1.0, 1.0, 0.0, 1.0)


def instance(number: int, pace: float = 1.0, running: float = 50.0) -> InstanceView:
    rate = 3e3 * pace
    return InstanceView(
        InstanceId(f"rollout-{number}"), 16e3, 16e3 * rate, rate, rate, 0.05, running, 0.0, 0.3, 0.5, 0.0,
        0.82, 0, pace, pace < 0.9,
    )  # fmt: skip


GOOD = Observed(
    2000.0, 18000.0, 15.0, "test", TRAINER, QUEUE, (), (), engine="vllm", placement="disaggregated",
    instances=tuple(instance(number) for number in range(6)), fleet=FLEET,
)  # fmt: skip


def state_of(observed: Observed, name: Name) -> State:
    return next(c for c in verify(PLAN, observed).checks if c.name == name).state


def test_a_window_that_holds_everything() -> None:
    result = verify(PLAN, GOOD)
    assert [c.name for c in result.checks] == [
        "instances", "trainer_idle", "queue", "oldest_age", "cost_per_step", "waiting", "prefix_hit",
        "stragglers",
    ]  # fmt: skip
    assert [c.state for c in result.checks] == ["ok"] * 8
    assert result.ok
    assert result.next is None
    assert result.warnings == ()


# 40 s x (6 + 8) GPUs x $3 / 3600 = $0.467.
BROKEN: dict[Name, Observed] = {
    "instances": replace(GOOD, fleet=replace(FLEET, instances_now=5)),
    "trainer_idle": replace(GOOD, trainer=replace(TRAINER, idle_fraction=Reading(0.06, "exported"))),
    "queue": replace(GOOD, queue=replace(QUEUE, depth_p95=800.0)),
    "oldest_age": replace(GOOD, queue=replace(QUEUE, oldest_age_max_steps=2.0)),
    "cost_per_step": replace(GOOD, trainer=replace(TRAINER, step_s=Reading(55.0, "exported"))),
    "waiting": replace(GOOD, fleet=replace(FLEET, waiting=40.0)),
    "prefix_hit": replace(GOOD, fleet=replace(FLEET, prefix_hit=0.6)),
    "stragglers": replace(GOOD, instances=(instance(6, 0.6), *GOOD.instances[1:])),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_item_fails_alone(name: Name) -> None:
    result = verify(PLAN, BROKEN[name])
    assert [c.name for c in result.failed] == [name]
    assert not result.ok
    assert result.next is not None


UNREAD: dict[Name, Observed] = {
    "instances": replace(GOOD, fleet=None),
    "trainer_idle": replace(GOOD, trainer=replace(TRAINER, idle_fraction=None)),
    "queue": replace(GOOD, queue=replace(QUEUE, depth=None, depth_p95=None)),
    "oldest_age": replace(GOOD, queue=replace(QUEUE, oldest_age_steps=None, oldest_age_max_steps=None)),
    "cost_per_step": replace(GOOD, trainer=replace(TRAINER, step_s=None)),
    "waiting": replace(GOOD, fleet=replace(FLEET, waiting=None)),
    "prefix_hit": replace(GOOD, fleet=replace(FLEET, prefix_hit=None)),
    "stragglers": replace(GOOD, instances=GOOD.instances[:2]),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_exported_is_unknown_and_no_failure(name: Name) -> None:
    assert state_of(UNREAD[name], name) == "unknown"
    assert verify(PLAN, UNREAD[name]).ok


def interval(mean: float, half: float = 0.0) -> IntervalFields:
    return IntervalFields(mean=mean, ci_low=mean - half, ci_high=mean + half)


SHORT = PLAN.model_copy(
    update={
        "targets": PLAN.targets.model_copy(update={"cost_per_step": 0.72}),
        "recommended": PLAN.recommended.model_copy(
            update={
                "predicted": {
                    "trainer_idle_fraction": interval(0.20, 0.01),
                    "queue_depth": interval(1000.0, 20.0),
                    "oldest_sample_age_steps": interval(3.0, 0.1),
                    "staleness_steps.p99": interval(4.0),
                    "cost_per_step": interval(0.70, 0.01),
                }
            }
        ),
    }
)
"""A plan that cannot hold its targets: no fleet does, and this one costs least."""
# 55 s x 14 GPUs x $3 / 3600 = $0.64, 62 s: $0.72.
CAME_TRUE = replace(
    GOOD,
    trainer=replace(TRAINER, step_s=Reading(60.0, "exported"), idle_fraction=Reading(0.20, "exported")),
    queue=replace(QUEUE, depth=1000.0, depth_p95=1300.0, oldest_age_max_steps=4.0),
)


def test_a_plan_that_came_true_is_no_failure_though_it_misses_its_targets() -> None:
    result = verify(SHORT, CAME_TRUE)
    assert result.ok
    assert result.next is None
    assert len(result.missed) == 2  # what the law is set to is nobody's target
    age = next(c for c in result.checks if c.name == "oldest_age")
    assert "budget" not in age.text
    assert "batches_ahead is set to 1, which bounds what is started: 4 was predicted" in age.text
    assert result.missed[0] == "trainer idle at most 5.0 %, 20.0 % predicted"
    assert verify(PLAN, CAME_TRUE).missed == ()
    assert [c.name for c in verify(PLAN, CAME_TRUE).failed] == ["trainer_idle", "queue", "oldest_age", "cost_per_step"]


@pytest.mark.parametrize("predicted", [0.5, 1.0, 3.0, 4.0, 40.0])
@pytest.mark.parametrize("budget", [0.0, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("oldest", [0.0, 1.0, 2.0, 4.0, 6.0])
def test_samples_beyond_the_staleness_budget_fail_whatever_was_predicted(
    predicted: float, budget: float, oldest: float
) -> None:
    """A plan that promised four steps against a budget of two verified a window of four."""
    tolerant = with_changes(SCENARIO, {"targets.staleness_p99_steps": budget})
    plan = SHORT.model_copy(
        update={
            "scenario": tolerant,
            "targets": SHORT.targets.model_copy(update={"staleness_steps": budget}),
            "recommended": SHORT.recommended.model_copy(
                update={
                    "predicted": {
                        **SHORT.recommended.predicted,
                        "oldest_sample_age_steps": interval(predicted, 0.1),
                        "staleness_steps.p99": interval(predicted),
                    }
                }
            ),
        }
    )
    seen = replace(CAME_TRUE, queue=replace(CAME_TRUE.queue, oldest_age_max_steps=oldest))
    check = next(c for c in verify(plan, seen).checks if c.name == "oldest_age")
    assert check.state == ("ok" if oldest <= budget else "failed")
    assert check.limit == budget
    if check.state == "failed":
        assert "queue of at most" in (verify(plan, seen).next or "")


@pytest.mark.parametrize(
    ("name", "worse"),
    [
        (
            "trainer_idle",
            replace(CAME_TRUE, trainer=replace(CAME_TRUE.trainer, idle_fraction=Reading(0.25, "exported"))),
        ),
        ("queue", replace(CAME_TRUE, queue=replace(CAME_TRUE.queue, depth=1200.0))),
        ("queue", replace(CAME_TRUE, queue=replace(CAME_TRUE.queue, growth_per_h=500.0))),
        ("oldest_age", replace(CAME_TRUE, queue=replace(CAME_TRUE.queue, oldest_age_max_steps=6.0))),
        ("cost_per_step", replace(CAME_TRUE, trainer=replace(CAME_TRUE.trainer, step_s=Reading(66.0, "exported")))),
    ],
)
def test_worse_than_the_prediction_still_fails(name: Name, worse: Observed) -> None:
    assert [c.name for c in verify(SHORT, worse).failed] == [name]


def test_a_cost_above_the_baseline_fails_though_the_plan_said_so() -> None:
    """The runbook: cost per optimizer step at or below the pre-change baseline."""
    dearer = SHORT.model_copy(update={"targets": PLAN.targets})
    (cost,) = verify(dearer, CAME_TRUE).failed
    assert len(verify(dearer, CAME_TRUE).missed) == 3
    assert cost.text == "$0.688 per optimizer step, $0.60 before the change; $0.70 was predicted"
    cheap = replace(CAME_TRUE, trainer=replace(CAME_TRUE.trainer, step_s=Reading(51.0, "exported")))
    assert verify(dearer, cheap).ok


def test_a_straggler_fails_unless_it_was_one_before() -> None:
    slow = BROKEN["stragglers"]
    (found,) = verify(PLAN, slow).failed
    assert found.text == "new: rollout-6 makes 60.0 % of the median instance's rate at its load"
    assert "drain" in (verify(PLAN, slow).next or "")
    known = PLAN.model_copy(update={"baseline": baseline_of(slow, SCENARIO)})
    assert known.baseline.stragglers == ("rollout-6",)
    assert verify(known, slow).ok


def test_work_that_piles_up_on_an_instance_is_a_straggler_too() -> None:
    piled = replace(GOOD, instances=(instance(6, running=90.0), *GOOD.instances[1:]))
    assert [c.name for c in verify(PLAN, piled).failed] == ["stragglers"]


def test_a_growing_queue_is_not_bounded() -> None:
    assert state_of(replace(GOOD, queue=replace(QUEUE, growth_per_h=200.0)), "queue") == "failed"
    assert state_of(replace(GOOD, queue=replace(QUEUE, growth_per_h=50.0)), "queue") == "ok"


def test_idle_that_persists_means_a_wrong_model() -> None:
    advice = verify(PLAN, BROKEN["trainer_idle"]).next
    assert advice is not None
    assert "model is wrong somewhere" in advice
    assert "re-measure" in advice
    assert "pauses" in advice


def test_other_failures_roll_back_with_the_recorded_command() -> None:
    advice = verify(PLAN, BROKEN["cost_per_step"]).next
    assert advice is not None
    assert PLAN.rollback.command in advice
    assert "prefix-caching" in advice


def test_warnings_say_what_weakens_the_answer() -> None:
    short = replace(GOOD, start_s=900.0, trainer=replace(TRAINER, steps=Reading(40.0, "exported")), gap_share=0.2)
    changed = replace(short, fleet=replace(FLEET, instances_min=5))
    warnings = verify(PLAN, changed).warnings
    assert len(warnings) == 4
    assert any("several hundred" in w for w in warnings)
    uncounted = replace(GOOD, trainer=replace(TRAINER, steps=None))
    assert any("not counted" in w for w in verify(PLAN, uncounted).warnings)
