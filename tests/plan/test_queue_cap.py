from __future__ import annotations

from typing import Any

import pytest

from fleetsim.config import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.errors import Problem, StuckError
from fleetsim.size.headroom import queue_cap_of, staleness_budget
from tests.plan.fakes import metrics, one_ahead


def needing(samples: int) -> Any:
    """A run whose step time falls until the buffer holds `samples`; staleness grows with what it holds."""

    def measure(s: Scenario, replication: int) -> Any:
        cap = s.buffer.capacity_samples
        held = samples if cap is None else min(cap, samples)
        return metrics(20.0 * (1.0 + 0.2 * (samples - held) / samples), 0.0, staleness_p99=held // 512)

    return measure


def test_the_smallest_cap_that_costs_next_to_nothing() -> None:
    scenario = with_changes(one_ahead(), {"admission.max_staleness": 4.0})
    cap = queue_cap_of(scenario, 8, needing(1000))
    assert (cap.samples, cap.steps) == (1024, 2.0)  # quarters of a batch: 896 would cost 2 %
    assert cap.step_cost <= 0.01
    assert cap.bound_samples == 2048
    assert cap.within_budget


def test_one_batch_when_nothing_is_gained_by_more() -> None:
    assert queue_cap_of(one_ahead(), 8, needing(300)).samples == 512


def test_never_beyond_the_staleness_budget() -> None:
    cap = queue_cap_of(one_ahead(), 8, needing(4000))
    assert cap.samples == cap.bound_samples == 512
    assert cap.step_cost > 0.01


def test_a_cap_that_gets_the_run_stuck_does_not_hold() -> None:
    def measure(s: Scenario, replication: int) -> Any:
        if s.buffer.capacity_samples is not None and s.buffer.capacity_samples < 800:
            raise StuckError("stuck", [Problem("buffer.capacity_samples", 1, "r", "m")])
        return metrics(20.0, 0.0)

    scenario = with_changes(one_ahead(), {"admission.max_staleness": 3.0})
    assert queue_cap_of(scenario, 8, measure).samples == 896


@pytest.mark.parametrize(
    ("changes", "budget"),
    [
        ({}, 1.0),
        ({"admission.max_staleness": 0.5}, 1.0),
        ({"admission.law": "barrier"}, 0.0),
        ({"admission.law": "batches_ahead", "admission.batches_ahead": 3}, 3.0),
        ({"admission.law": "unbounded"}, None),
        ({"targets.staleness_p99_steps": 5.0}, 5.0),
        ({"admission.age_action": "drop_on_dequeue", "admission.max_age": 2.0}, 2.0),
    ],
)
def test_the_budget_is_what_was_asked_for_or_what_the_law_promises(changes: dict[str, Any], budget: float) -> None:
    assert staleness_budget(with_changes(one_ahead(), changes)) == budget
