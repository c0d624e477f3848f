"""A hole in the history, in which nothing was read, is part of no elapsed time: means are the same without it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config.scenario import Scenario
from fleetsim.history.history import History, StepLog
from fleetsim.records import replace
from fleetsim.replay.diagnose.diagnosis import diagnose
from fleetsim.replay.observe.observe import observe
from fleetsim.replay.observe.observed import Observed
from fleetsim.replay.observe.window_metrics import window_means, window_of
from tests.replay.independent import Job, run

SPAN = 7200.0


@cache
def whole(seed: int) -> History:
    return run(Job(seed=seed, sync_s=3.0), SPAN / 3600).history()


def without(history: History, start_s: float, end_s: float, what: str = "all") -> History:
    """The history as if nobody had scraped from start_s to end_s of the window."""

    def lost(times: np.ndarray) -> np.ndarray:
        return (times >= history.start_s + start_s) & (times < history.start_s + end_s)

    values, fleet, histograms = history.values, history.fleet, history.histograms
    if what in ("all", "engines"):
        values = {name: np.where(lost(history.times), np.nan, v) for name, v in values.items()}
        histograms = {
            name: replace(
                b,
                counts=np.where(lost(b.times)[:, None], np.nan, b.counts),
                sums=np.where(lost(b.times), np.nan, b.sums),
            )
            for name, b in histograms.items()
        }
    if what in ("all", "trainer"):
        fleet = {name: np.where(lost(history.times), np.nan, v) for name, v in fleet.items()}
    return replace(history, values=values, fleet=fleet, histograms=histograms)


def means(o: Observed) -> dict[str, float]:
    f, t = o.fleet, o.trainer
    assert f is not None
    assert f.finished_s is not None
    numbers = {"step_s": t.step_s, "wait_s": t.wait_s, "train_s": t.train_s, "sync_s": t.sync_s}
    numbers |= {"batch": t.batch_samples, "tokens": t.batch_tokens}
    out = {name: q.value for name, q in numbers.items() if q is not None}
    return {**out, "tok_s": f.tok_s, "finished_s": f.finished_s, "instances": f.instances}


@settings(max_examples=6, deadline=None)
@given(
    st.integers(0, 1), st.floats(600, 2400), st.floats(330, 3600), st.sampled_from(["all", "engines", "trainer"])
)  # fmt: skip
def test_a_hole_changes_no_mean(seed: int, start_s: float, length_s: float, what: str) -> None:
    """The job keeps one pace, so every part of it tells the same, to what single steps scatter by."""
    expected = means(observe(whole(seed)))
    found = means(observe(without(whole(seed), start_s, start_s + length_s, what)))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=0.02, abs=0.05), name


def test_the_data_check_names_the_hole() -> None:
    observed = observe(without(whole(0), 3000.0, 3900.0))
    assert [(h.of, round(h.seconds)) for h in observed.holes] == [("engines", 915)]
    data = diagnose(observed, Scenario()).findings[0]
    assert data.check == "data"
    assert any("nothing was read for 15 min 15 s" in said and "left out" in said for said in data.evidence)
    trainer = observe(without(whole(0), 3000.0, 3900.0, "trainer"))
    assert [h.of for h in trainer.holes] == ["trainer"]
    assert not observe(whole(0)).holes


def test_blocks_of_a_comparison_leave_the_hole_out() -> None:
    """A comparison's GPU-seconds per step and tokens per trained token are over the steps' own time."""
    expected, _ = window_means(window_of(whole(0)))
    found, _ = window_means(window_of(without(whole(0), 2400.0, 4200.0)))
    for name in ("step_s", "instance_s_per_step", "tokens_per_trained_token", "trained_samples", "finished_s"):
        assert found[name].value == pytest.approx(expected[name].value, rel=0.02), name


def test_an_instance_that_vanished_is_seen_beside_a_hole_of_all() -> None:
    gone = run(Job(lost={3: 5000.0}), SPAN / 3600).history()
    assert [str(d.id) for d in observe(without(gone, 1200.0, 1800.0)).departed] == ["rollout-3"]


def test_a_log_that_pauses_has_no_step_of_that_length() -> None:
    """A job that stood for an hour and was resumed: the log's rows have a clock and no step seconds."""
    times = 1.7e9 + 40.0 * np.arange(1, 61) + np.where(np.arange(60) >= 30, 3600.0, 0.0)
    log = StepLog("custom", {"step": np.arange(60.0), "time_s": times, "samples": np.full(60, 256.0)})
    empty = replace(whole(0), instances=(), values={}, fleet={}, histograms={}, configs=(), steps=log, times=times)
    observed = observe(empty)
    assert observed.trainer.step_s is not None
    assert observed.trainer.step_s.value == pytest.approx(40.0)
    assert [h.seconds for h in observed.holes] == pytest.approx([3640.0])
