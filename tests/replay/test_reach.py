"""Predictions at loads that the window never saw: they are told, everywhere, and only they."""

from __future__ import annotations

import json

import pytest

from fleetsim.config.load import load_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.step_time import LinearStepTime
from fleetsim.records import replace
from fleetsim.replay.answers import Answers
from fleetsim.replay.change.recommendation import REACH, extrapolated, recommend, running_per_instance
from fleetsim.replay.change.what_if import sweep, what_if
from fleetsim.replay.facts import replay_document
from fleetsim.replay.implied.implied_scenario import Implied
from fleetsim.replay.implied.speed import Shape, Speed
from fleetsim.replay.implied.stretch import own_paces
from fleetsim.replay.observe.observed import InstanceView
from fleetsim.replay.told import document as told
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from fleetsim.tell.data import dumps
from tests.replay.test_backtest import implied_of
from tests.replay.windows import HEALTHY, instance
from tests.report.test_replay_view import flat, result_of


def speed(shape: Shape, low: float, high: float) -> Speed:
    return Speed(LinearStepTime(0.01, 1e-4), shape, 1.0, (low, high), 100, True, 0.01, 0.0)


@pytest.fixture(scope="module")
def model() -> Implied:
    return implied_of("async-one-step", known=True)[1]


@pytest.mark.parametrize("running", [40.0, 10.0 / REACH, 60.0 * REACH, 0.0])
def test_within_reach_nothing_is_said(running: float) -> None:
    assert extrapolated(speed("fitted", 10.0, 60.0), running) is None
    assert extrapolated(None, 1e6) is None


@pytest.mark.parametrize("running", [10.0 / REACH - 0.1, 60.0 * REACH + 0.1])
def test_beyond_it_the_load_the_shape_and_the_remedy_are_said(running: float) -> None:
    found = {shape: extrapolated(speed(shape, 10.0, 60.0), running) for shape in ("fitted", "roofline", "assumed")}  # type: ignore[arg-type]
    for note in found.values():
        assert note is not None
        assert f"{running:,.0f} requests run per instance, the window saw 10 to 60" in note.text
        assert "fleetsim calibrate" in note.text
    assert found["roofline"] is not None
    assert "roofline's shape" in found["roofline"].text
    assert "engine.gpu" not in found["roofline"].text  # they are known, or there were no roofline
    assert found["fitted"] is not None
    assert "fitted" in found["fitted"].text
    assert "engine.gpu" in found["fitted"].text


@pytest.mark.parametrize("changes", [{}, {"engine.kv_blocks": 1500}])
def test_running_is_what_the_engines_gauges_show(changes: dict[str, object]) -> None:
    """With a small KV cache most of what is in flight waits, and is no load."""
    scenario: Scenario = with_changes(load_scenario("async-one-step"), {"run.steps": 30, **changes})
    records = simulate(scenario, scrape_every_s=2.0)
    rows = records.scrapes[(records.scrapes["time_s"] >= window_of(records).start_s) & (records.scrapes["running"] > 0)]
    found = running_per_instance(scenario, None, float(metrics_of(records)["step_s"]))
    assert found == pytest.approx(float(rows["running"].mean()), rel=0.1)


def test_the_window_s_own_load_is_no_extrapolation(model: Implied) -> None:
    assert model.speed is not None
    assert what_if(model, {"trainer.fixed_s": 1.0}, replications=1).extrapolated is None


@pytest.mark.slow
def test_told_for_one_change_a_sweep_and_a_recommendation(model: Implied) -> None:
    narrow = replace(model, speed=speed("roofline", 1.0, 2.0))
    one = what_if(narrow, {"fleet.instances": 2}, replications=1)
    assert one.extrapolated is not None
    wide = replace(model, speed=speed("roofline", *(2 * (one.extrapolated.running,))))
    several = sweep(wide, "fleet.instances", [2, 64], replications=1)
    assert [p.extrapolated is not None for p in several.points] == [False, True]
    advised = recommend(replace(narrow, scenario=with_changes(model.scenario, {"run.steps": 16})))
    assert advised.extrapolated is not None
    answers = Answers(what_if=one, sweep=several, recommendation=advised)
    text = flat(told(result_of(HEALTHY), answers))
    assert text.count("note: extrapolated: ") == 2
    assert "* extrapolated: the window saw" in text
    assert " 64* " in text
    assert " 2* " not in text
    document = json.loads(dumps(replay_document(result_of(HEALTHY), answers)))
    assert document["what_if"]["extrapolated"]["seen"] == [1.0, 2.0]
    assert document["sweep"]["points"][1]["extrapolated"]["running"] > 0
    assert document["sweep"]["points"][0]["extrapolated"] is None
    assert document["recommendation"]["extrapolated"]["speed"]


def test_another_engine_is_not_the_window_s(model: Implied) -> None:
    narrow = replace(model, speed=speed("roofline", 1.0, 2.0))
    assert what_if(narrow, {"engine.gpu": "A100-SXM-80GB"}, replications=1).extrapolated is None


def paces(*values: float, flagged: tuple[int, ...] = ()) -> list[float]:
    views: tuple[InstanceView, ...] = tuple(
        instance(i, pace=pace, straggler=i in flagged) for i, pace in enumerate(values)
    )
    return list(own_paces(views).values())


def test_paces_that_scatter_are_one_pace() -> None:
    """A fleet with a handful of requests each: what differs is chance, and a smaller fleet must not inherit it."""
    noise = (0.93, 1.05, 0.96, 1.06, 0.95, 1.04, 1.0, 0.92)
    assert paces(*noise) == [1.0] * 8
    assert paces(*noise, 0.7)[-1] == 0.7
    assert paces(*noise, flagged=(7,))[-1] == 0.92
    assert paces(1.0, 1.001, 0.999, 0.95)[-1] == 0.95
    assert paces(1.0, 1.0, 0.8, 0.8) == [1.0, 1.0, 0.8, 0.8]
    assert paces() == []
