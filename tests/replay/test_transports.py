"""Another weight transport on a window: its times come anew, and what the window showed is not forgotten."""

from __future__ import annotations

import pytest

from fleetsim.config.load import load_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.transport import sync_times
from fleetsim.records import replace
from fleetsim.replay.change.what_if import changed, sweep, what_if, with_transport
from fleetsim.replay.implied.implied_scenario import Implied, implied
from tests.replay.test_backtest import implied_of, window_of

SLOW = {"sync.pause_s": 30.0, "sync.trainer_block_s": 30.0}


def seen(**changes: object) -> Scenario:
    """A job whose window showed pauses of 30 s."""
    dotted = {path.replace("__", "."): value for path, value in changes.items()}
    return with_changes(load_scenario("async-one-step"), {**SLOW, **dotted})


def test_an_unknown_transport_gives_way_to_the_new_one_s_own_times() -> None:
    scenario = seen()
    changes, note = with_transport(scenario, {"sync.transport": "rdma_p2p"})
    own = sync_times(with_changes(load_scenario("async-one-step"), {
        "sync.transport": "rdma_p2p", "sync.pause_s": None, "sync.trainer_block_s": None, "sync.publish_s": None,
    }))  # fmt: skip
    times = sync_times(with_changes(scenario, changes))
    assert (times.publish_s, times.pause_s, times.trainer_block_s) == (own.publish_s, own.pause_s, own.trainer_block_s)
    assert times.pause_s < 5.0
    assert note is not None
    assert "30.0 s" in note
    assert "nobody named" in note


def test_a_known_transport_keeps_its_relation_to_what_it_was_predicted_to_take() -> None:
    scenario = seen(sync__transport="collective_broadcast")
    free = dict.fromkeys(("sync.publish_s", "sync.pause_s", "sync.trainer_block_s"))
    before = sync_times(with_changes(scenario, free)).pause_s
    after = sync_times(with_changes(scenario, {**free, "sync.transport": "rdma_p2p"})).pause_s
    changes, note = with_transport(scenario, {"sync.transport": "rdma_p2p"})
    assert changes["sync.pause_s"] == pytest.approx(30.0 * after / before)
    assert note is not None
    assert "predicted to differ" in note
    same, _ = with_transport(scenario, {"sync.transport": "collective_broadcast"})
    assert same["sync.pause_s"] == pytest.approx(30.0)


def test_times_among_the_changes_stay_and_no_transport_changes_nothing() -> None:
    changes, _ = with_transport(seen(), {"sync.transport": "rdma_p2p", "sync.pause_s": 7.0})
    assert changes["sync.pause_s"] == 7.0
    assert changes["sync.trainer_block_s"] != 30.0
    assert with_transport(seen(), {"sync.every_steps": 4}) == ({"sync.every_steps": 4}, None)
    assert with_transport(seen(), {"sync.transport": None})[1] is None


def test_a_what_if_and_a_sweep_of_transports_are_faster_and_say_why() -> None:
    model = implied_of("async-one-step", known=True)[1]
    slow: Implied = replace(model, scenario=with_changes(model.scenario, SLOW))
    answer = what_if(slow, {"sync.transport": "rdma_p2p"}, replications=1)
    assert answer.effect("step_s").ratio.mean < 0.8
    assert any("rdma_p2p" in note for note in answer.notes)
    points = sweep(slow, "sync.transport", ["rdma_p2p", "collective_broadcast"], replications=1).points
    assert all(p.notes and p.estimates is not None for p in points)
    assert changed(slow, {"fleet.instances": 5})[2] == ()


def test_the_model_that_the_metrics_name_is_what_travels() -> None:
    history, observed = window_of("async-one-step")
    model = implied(replace(observed, model="Qwen/Qwen3-30B-A3B"), history)
    assert model.scenario.engine.model == "Qwen/Qwen3-30B-A3B"
    unknown = implied(replace(observed, model="our-own"), history)
    assert unknown.scenario.engine.model == Scenario().engine.model
