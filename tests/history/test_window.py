"""The ends of a window as users write them, and the slice of a history between them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.errors import InputError
from fleetsim.history.history import Buckets, History, InstanceId, Note, StepLog
from fleetsim.history.window import parse_span, parse_time, shown, window

NOW = 1_795_258_800.0  # 2026-11-21 11:00:00 UTC


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("-6h", NOW - 6 * 3600),
        ("-90m", NOW - 5400),
        ("now-1d12h", NOW - 36 * 3600),
        ("-1.5h", NOW - 5400),
        ("2026-11-21T11:00:00Z", NOW),
        ("2026-11-21T11:00", NOW),  # without a zone: UTC
        ("2026-11-21 11:00:00", NOW),
        ("2026-11-21T13:00:00+02:00", NOW),
        ("2026-11-21", NOW - 11 * 3600),
        (" 1795258800 ", NOW),
        ("1795258800.5", NOW + 0.5),
        ("0", 0.0),
    ],
)
def test_times(text: str, expected: float) -> None:
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("6h", "-6h"),
        ("-3600", "-3600s"),
        ("1795258800000", "1795258800"),
        ("20261121", "2026-11-21"),
        ("yesterday", "-1d12h"),
        ("2026-13-01", "unix seconds"),
        ("", "now"),
        ("nan", "now"),
        ("-6 h", "-6h"),
    ],
)
def test_what_is_no_time_is_an_error_with_a_remedy(text: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_time(text, NOW, "--end")
    (problem,) = caught.value.problems
    assert problem.path == "--end"
    assert problem.value == text
    assert remedy in problem.remedy


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_an_input_error(text: str) -> None:
    try:
        at = parse_time(text, NOW)
    except InputError as error:
        assert error.problems[0].remedy
    else:
        assert np.isfinite(at)


@given(st.integers(946_684_800, 4_102_444_800))
def test_a_time_shown_can_be_given_back(at: int) -> None:
    assert parse_time(shown(at).removesuffix(" UTC") + "Z", NOW) == at


def test_spans() -> None:
    assert parse_span("15s") == 15
    assert parse_span("1d12h") == 36 * 3600
    assert parse_span("15") is None
    assert parse_span("-15s") is None


def history() -> History:
    times = 1000.0 + 10.0 * np.arange(7)  # 1000 .. 1060
    late = np.where(times >= 1040, times, np.nan)
    return History(
        times=times,
        step_s=10.0,
        instances=(InstanceId("a"), InstanceId("b")),
        values={"running": np.stack([times, late])},
        fleet={"queue.samples": times * 2},
        histograms={
            "e2e_s": Buckets(
                np.array([1.0, np.inf]),
                np.array([1000.0, 1030.0, 1060.0]),
                np.arange(12.0).reshape(2, 3, 2),
                np.arange(6.0).reshape(2, 3),
            )
        },
        configs=({"block_size": "16"}, {}),
        steps=StepLog("verl", {"time_s": times, "step": np.arange(7.0)}),
        notes=(Note("gap", "one", 0.1),),
        source="test",
    )


def test_a_slice_holds_both_ends_and_only_the_instances_that_were_there() -> None:
    part = window(history(), 1010, 1030)
    assert part.times.tolist() == [1010, 1020, 1030]
    assert [i.name for i in part.instances] == ["a"]
    assert part.values["running"].tolist() == [[1010, 1020, 1030]]
    assert part.fleet["queue.samples"].tolist() == [2020, 2040, 2060]
    assert part.configs == ({"block_size": "16"},)
    assert part.histograms["e2e_s"].times.tolist() == [1000, 1030]  # the reading before counts the growth
    assert part.histograms["e2e_s"].counts.shape == (1, 2, 2)
    assert part.steps is not None
    assert part.steps.columns["step"].tolist() == [1, 2, 3]
    assert part.notes == history().notes


def test_a_time_after_the_calendar_s_end_is_counted_in_seconds() -> None:
    assert shown(4.134e12) == "4134000000000 s"


def test_the_whole_window_is_the_history() -> None:
    whole = window(history(), 0, 1e12)
    assert len(whole.instances) == 2
    assert np.array_equal(whole.values["running"], history().values["running"], equal_nan=True)


@pytest.mark.parametrize(
    ("start", "end", "says"), [(0, 10, "0 s to 10 s"), (1030, 1010, "before it starts"), (2000, 3000, "has")]
)
def test_a_window_without_data_says_what_there_is(start: float, end: float, says: str) -> None:
    with pytest.raises(InputError, match=says):
        window(history(), start, end)


def test_a_log_without_a_clock_is_told_so_and_not_cut() -> None:
    log = History(np.array([0.0, 60.0]), 60.0, (), {}, {}, {}, (), StepLog("trl", {"step": np.arange(7.0)}), (), "log")
    assert window(log, 0, 60) is not None
    with pytest.raises(InputError, match="log has no clock"):
        window(log, 30, 60)
    assert shown(30.0) == "30 s"
    assert shown(1_790_000_000) == "2026-09-21 14:13:20 UTC"
