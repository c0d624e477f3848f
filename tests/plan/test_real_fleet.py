"""The planner on the real simulator: what the fakes cannot show."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.job.nameplate import mean_output_tokens, nameplate_rate
from fleetsim.job.trials import simulated
from fleetsim.size.size import size

SMALL = {"trainer.batch_samples": 64, "trainer.fixed_s": 8.0, "workload.output_tokens.max": 3000.0, "run.steps": 12}


def test_the_cost_of_a_step_is_that_of_the_metrics() -> None:
    s = with_changes(default_scenario(), {**SMALL, "fleet.instances": 3, "cost.trainer_price_usd_per_gpu_h": 5.0})
    run = simulated(s, 0)
    dollars_per_h = 3 * s.engine.tp * 3.64 + s.trainer.gpus * 5.0
    assert run["step_s"] / 3600.0 * dollars_per_h == pytest.approx(run["cost_per_step"], rel=1e-9)


def test_supply_grows_with_the_count_and_an_instance_gets_slower() -> None:
    rate = nameplate_rate(default_scenario())
    supply = [n * rate(n) for n in range(1, 200)]
    assert all(b >= a for a, b in pairwise(supply))
    assert rate(4) > rate(16) > rate(64)


def test_the_recommendation_holds_and_one_less_does_not() -> None:
    s = with_changes(
        default_scenario(), {**SMALL, "admission.max_staleness": 3.0, "targets.trainer_idle_fraction": 0.05}
    )
    result = size(s)
    assert not result.at_knee
    idle = {c.instances: c.estimates["trainer_idle_fraction"] for c in result.candidates}
    assert idle[result.instances].ci_high <= 0.05
    if result.instances > 1:
        assert idle[result.instances - 1].ci_high > 0.05
    h = result.headroom
    assert h.computed + sum(h.parts.values()) == pytest.approx(1.0)
    supply = h.nameplate_tok_s * h.computed
    assert supply == pytest.approx(s.trainer.batch_samples * mean_output_tokens(s) / 8.0)
