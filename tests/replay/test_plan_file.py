"""PLAN.json: written, read back equal, and anything else refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetsim.errors import InputError
from fleetsim.replay.backtest import backtest
from fleetsim.replay.change.patch import parse_deployment
from fleetsim.replay.change.plan import SavedPlan, load_plan, plan_from_mapping, plan_of, plan_text
from fleetsim.replay.change.plan import implied_of as implied_of_plan
from fleetsim.replay.change.recommendation import AdvisedFleet, recommend
from fleetsim.replay.change.verification import verify
from fleetsim.replay.observe.observed import Observed
from fleetsim.sim.run import simulate
from tests.replay.test_backtest import implied_of

NOW_S = 1_767_225_600.0  # 2026-01-01


@pytest.fixture(scope="module")
def made() -> tuple[Observed, Any, AdvisedFleet, SavedPlan]:
    observed, model = implied_of("async-one-step", known=True)
    advice = recommend(model)
    back = backtest(observed, model, replications=1)
    plan = plan_of(observed, model, advice, now_s=NOW_S, backtest=back, deployment=parse_deployment("rollout@rl"))
    return observed, model, advice, plan


def test_holds_baseline_change_and_the_way_back(made: tuple[Observed, Any, AdvisedFleet, SavedPlan]) -> None:
    observed, _, advice, plan = made
    assert observed.fleet is not None
    assert observed.trainer.step_s is not None
    assert plan.date == "2026-01-01T00:00:00+00:00"
    assert plan.baseline.instances == plan.rollback.instances == 4
    assert plan.baseline.gpus == 12
    assert plan.baseline.step_s == observed.trainer.step_s.value
    assert plan.baseline.cost_per_step == pytest.approx(observed.trainer.step_s.value * 12 * 3.64 / 3600)
    assert plan.planned == advice.instances
    assert plan.recommended.predicted["step_s"].mean == advice.predicted["step_s"].mean
    assert plan.targets.staleness_steps == 1.0
    assert plan.targets.queue_samples == advice.queue_cap_samples
    assert "replicas" in plan.patch
    assert plan.rollback.command == "kubectl -n rl scale deployment rollout --replicas 4"
    assert plan.back_test is not None
    assert set(plan.back_test.errors) == {"tok_s", "instance_tok_s", "step_s", "trainer_idle", "queue"}


def test_reads_back_equal(made: tuple[Observed, Any, AdvisedFleet, SavedPlan], tmp_path: Path) -> None:
    plan = made[-1]
    path = tmp_path / "plan.json"
    path.write_text(plan_text(plan), encoding="utf-8")
    again = load_plan(path)
    assert again == plan
    assert plan_text(again) == plan_text(plan)


def test_the_plan_simulates_as_its_window_did(made: tuple[Observed, Any, AdvisedFleet, SavedPlan]) -> None:
    """Scenario and engine speed survive the file: the run is the same to the byte."""
    _, model, _, plan = made
    again = implied_of_plan(plan_from_mapping(json.loads(plan_text(plan))))
    one = simulate(model.scenario, engine=model.engine)
    two = simulate(again.scenario, engine=again.engine)
    assert one.steps.tobytes() == two.steps.tobytes()


def test_its_own_window_verifies_but_for_what_it_changes(made: tuple[Observed, Any, AdvisedFleet, SavedPlan]) -> None:
    observed, _, advice, plan = made
    found = verify(plan, observed)
    states = {c.name: c.state for c in found.checks}
    assert states["cost_per_step"] == "ok"
    assert states["prefix_hit"] == "ok"
    assert states["instances"] == ("ok" if advice.instances == 4 else "failed")
    # 67 %, as the plan predicts of any fleet under this law; that its target is 5 % is said of the plan.
    assert states["trainer_idle"] == "ok"
    assert any(text.startswith("trainer idle at most 5.0 %") for text in found.missed)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "x"}', '{"kind": "fleetsim-plan", "date": NaN}', "\0"])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError):
        load_plan(path)
    with pytest.raises(InputError):
        load_plan(tmp_path / "none.json")


def test_a_later_version_is_refused(made: tuple[Observed, Any, AdvisedFleet, SavedPlan]) -> None:
    mapping = {**json.loads(plan_text(made[-1])), "schema_version": 2}
    with pytest.raises(InputError, match="upgrade"):
        plan_from_mapping(mapping)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(suppress_health_check=list(HealthCheck), max_examples=150, deadline=None)
@given(data=st.data())
def test_one_wrong_value_is_an_error_with_its_path(
    made: tuple[Observed, Any, AdvisedFleet, SavedPlan], data: Any
) -> None:
    mapping = json.loads(plan_text(made[-1]))
    here, path = mapping, []
    while isinstance(here, dict) and here:
        key = data.draw(st.sampled_from(sorted(here)))
        path.append(key)
        if not isinstance(here[key], dict) or not here[key] or data.draw(st.booleans()):
            here[key] = data.draw(JUNK)
            break
        here = here[key]
    try:
        plan = plan_from_mapping(mapping)
    except InputError as error:
        assert error.problems
        return
    assert plan_text(plan_from_mapping(json.loads(plan_text(plan)))) == plan_text(plan)
