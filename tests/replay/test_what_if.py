"""What-ifs, sweeps and the recommendation on an implied scenario."""

from __future__ import annotations

import math
import time

import pytest

from fleetsim.config.load import load_scenario
from fleetsim.engine.slowdown import slowdown_of
from fleetsim.engine.step_time import LinearStepTime
from fleetsim.errors import InputError
from fleetsim.records import replace
from fleetsim.replay.change.recommendation import recommend
from fleetsim.replay.change.what_if import METRICS, changed, sweep, what_if
from fleetsim.replay.implied.implied_scenario import Implied
from fleetsim.sim.engines import engine_of
from tests.replay.test_backtest import implied_of


@pytest.fixture(scope="module")
def model() -> Implied:
    return implied_of("async-one-step", known=True)[1]


def test_a_change_of_nothing_changes_nothing(model: Implied) -> None:
    result = what_if(model, {"fleet.instances": model.scenario.fleet.instances})
    assert [e.metric for e in result.effects] == list(METRICS)
    for effect in result.effects:
        assert effect.before == effect.after
        assert effect.ratio.mean == 1.0
        assert not effect.changed


def test_twice_the_fleet_is_faster_per_step_and_slower_each(model: Implied) -> None:
    started = time.process_time()
    result = what_if(model, {"fleet.instances": 8})
    assert time.process_time() - started < 10.0
    step, each, cost = (result.effect(m) for m in ("step_s", "instance_tok_s", "cost_per_step"))
    assert step.changed
    assert step.ratio.ci_high < 0.97
    assert each.ratio.mean < 0.7
    assert cost.ratio.mean == pytest.approx(step.ratio.mean * 16 / 12, rel=0.01)
    # Paired runs: the ratio is known far better than the two means.
    assert step.ratio.ci_high - step.ratio.ci_low < (step.before.ci_high - step.before.ci_low) / step.before.mean + 0.01


def test_limits_change_and_the_speed_stays(model: Implied) -> None:
    scenario, engine, notes = changed(model, {"engine.max_num_seqs": 16})
    assert engine is not None
    assert model.engine is not None
    assert engine[0] == model.engine[0]
    assert engine[1].max_num_seqs == 16
    assert scenario.engine.max_num_seqs == 16
    assert notes
    assert what_if(model, {"engine.max_num_seqs": 16}).effect("step_s").ratio.mean > 1.3


def test_another_gpu_has_its_own_speed(model: Implied) -> None:
    scenario, engine, notes = changed(model, {"engine.gpu": "A100-SXM-80GB"})
    assert engine is None
    assert "not the window's" in notes[0]
    assert engine_of(scenario)[0].kind == "roofline"


def test_another_engine_loses_in_the_job_by_what_the_window_s_does(model: Implied) -> None:
    """Half of it, in logarithms; the answer is as much in doubt as such a figure is. Another name changes nothing."""
    assert model.speed is not None
    seen, usual = 1.6, slowdown_of(model.scenario.trainer.recipe.framework)
    slow = replace(model, speed=replace(model.speed, factor=seen))
    same, _, _ = changed(slow, {"engine.gpu": "H100-SXM"})
    assert model.scenario.engine.gpu == "H100"
    assert same.engine.slowdown == seen
    other, _, _ = changed(slow, {"engine.gpu": "A100-80GB"})
    assert other.engine.slowdown == pytest.approx(math.sqrt(seen * usual), rel=0.001)
    alone = what_if(slow, {"engine.gpu": "H100-SXM"}, replications=2).effect("step_s")
    wide = what_if(slow, {"engine.gpu": "A100-80GB"}, replications=2).effect("step_s")
    assert alone.ratio.ci_high / alone.ratio.ci_low < 1.1
    assert wide.ratio.ci_high / wide.ratio.ci_low > 1.25


def test_an_engine_in_a_job_that_shows_no_speed_loses_what_is_usual(model: Implied) -> None:
    scenario, _, _ = changed(replace(model, speed=None), {"engine.gpu": "A100-80GB"})
    assert scenario.engine.slowdown == slowdown_of(scenario.trainer.recipe.framework)


def test_fewer_instances_drop_the_last_speed_factors() -> None:
    from fleetsim.config.load import with_changes
    from fleetsim.records import replace

    base = with_changes(load_scenario("async-one-step"), {"fleet.speed_factors": [1.0, 1.0, 1.0, 1.2]})
    model = Implied(base, None, None, (), (), None, ())
    assert changed(model, {"fleet.instances": 2})[0].fleet.speed_factors == (1.0, 1.0)
    assert changed(replace(model), {"fleet.instances": 6})[0].fleet.speed_factors == (1.0, 1.0, 1.0, 1.2)


def test_a_sweep_shares_its_draws(model: Implied) -> None:
    result = sweep(model, "fleet.instances", [2, 4, 8])
    assert result.now == 4
    steps = [p.estimates["step_s"].mean for p in result.points if p.estimates is not None]
    assert steps == sorted(steps, reverse=True)
    assert steps[1] == what_if(model, {"fleet.instances": 4}).effect("step_s").after.mean


def test_a_value_that_blocks_the_run_is_told(model: Implied) -> None:
    result = sweep(model, "buffer.capacity_samples", [256, 1024], replications=1)
    stuck, fine = result.points
    assert stuck.estimates is None
    assert stuck.stuck
    assert fine.estimates is not None


def test_refused(model: Implied) -> None:
    with pytest.raises(InputError):
        what_if(model, {"fleet.instances": 0})
    with pytest.raises(InputError):
        what_if(model, {"fleet.nodes": 3})
    with pytest.raises(InputError, match="values"):
        sweep(model, "fleet.instances", [])


def test_the_recommendation_uses_the_engine_of_the_window(model: Implied) -> None:
    """An engine ten times as slow, and a trainer that keeps up: the fleet that the window has is far too small."""
    from fleetsim.config.load import with_changes
    from fleetsim.records import replace

    assert model.engine is not None
    scenario = with_changes(
        model.scenario,
        {"admission.law": "version_window", "admission.max_staleness": 4.0, "trainer.fixed_s": 60.0, "run.steps": 16},
    )
    fast = replace(model, scenario=scenario, engine=(LinearStepTime(0.005, 1e-5), model.engine[1]))
    slow = replace(model, scenario=scenario, engine=(LinearStepTime(0.02, 4e-4), model.engine[1]))
    few, many = recommend(fast), recommend(slow)
    assert many.instances > few.instances
    assert many.size.profile.name == "replayed window"
    assert many.changes == {"fleet.instances": many.instances}
    assert many.was == 4
    assert many.predicted["step_s"].mean <= many.now["step_s"].mean * 1.001
    assert many.size.scenario.engine.profile is None
