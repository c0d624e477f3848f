"""What no engine and no trainer can have counts as missing, whoever wrote it, and the reader is told."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.history.faults import bounded
from fleetsim.history.history import Buckets, History, InstanceId, StepLog
from fleetsim.records import replace

odd = st.sampled_from([math.inf, -math.inf, -1.0, -(2.0**63), 1e300, 2.0**70])


def history(running: float = 4.0, tokens: float = 10.0, le: tuple[float, ...] = (64.0, 128.0, math.inf)) -> History:
    times = np.arange(3.0) * 15
    return History(
        times=times,
        step_s=15.0,
        instances=(InstanceId("a"),),
        values={"running": np.array([[4.0, running, np.nan]]), "generation_tokens": np.array([[0.0, tokens, 20.0]])},
        fleet={"trainer.steps": np.array([1.0, 2.0, 3.0])},
        histograms={
            "output_tokens": Buckets(
                np.array(le), times, np.cumsum(np.ones((1, 3, len(le))), axis=2), np.full((1, 3), 100.0)
            )
        },
        configs=({},),
        steps=None,
        notes=(),
        source="test",
    )


def test_what_can_be_is_left_alone() -> None:
    given = history()
    assert bounded(given) is given


def test_a_log_s_step_of_a_thousand_years_is_missing_and_its_clock_is_not() -> None:
    steps = StepLog("plain", {"time_s": np.array([1.8e9, 1.8e9]), "step_s": np.array([5.0, 1.06e11])})
    found = bounded(replace(history(), steps=steps)).steps
    assert found is not None
    assert found.columns["time_s"].tolist() == [1.8e9, 1.8e9]
    assert found.columns["step_s"][0] == 5.0
    assert np.isnan(found.columns["step_s"][1])


@given(odd, odd)
def test_what_cannot_be_is_missing_and_told(running: float, tokens: float) -> None:
    found = bounded(history(running, tokens))
    assert np.isnan(found.values["running"][0, 1])
    assert np.isnan(found.values["generation_tokens"][0, 1])
    assert found.values["running"][0, 0] == 4.0
    assert [note.kind for note in found.notes] == ["partial", "partial"]
    assert bounded(replace(found, notes=())).notes == ()


def test_bounds_of_a_histogram_that_cannot_be_are_left_out() -> None:
    found = bounded(history(le=(-1.0, 0.0, 64.0, 128.0, 1e12, math.inf)))
    b = found.histograms["output_tokens"]
    assert b.le.tolist() == [64.0, 128.0, math.inf]
    # counts run up over the bounds: what lay at or below 0 lies below 64 as well, what lay below 1e12 below infinity
    assert b.counts[0, 0].tolist() == [3.0, 4.0, 6.0]
    assert "-1, 0, 1e+12" in found.notes[0].text
