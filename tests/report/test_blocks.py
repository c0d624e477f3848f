from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetsim import units
from fleetsim.estimates import Estimate
from fleetsim.tell.document import bar, sparkline
from fleetsim.tell.terminal import with_interval

seconds = st.floats(0, 1e6)


@given(parts=st.lists(seconds, min_size=1, max_size=6), width=st.integers(1, 80))
def test_a_bar_fills_its_width_and_splits_it_by_share(parts: list[float], width: int) -> None:
    drawn = bar([(p, "abcdef"[i]) for i, p in enumerate(parts)], width)
    assert len(drawn) == width
    for i, p in enumerate(parts):
        if sum(parts) > 0:
            assert abs(drawn.count("abcdef"[i]) - p / sum(parts) * width) <= 1.0 + 1e-6
    assert drawn == "".join(sorted(drawn))


@given(values=st.lists(seconds, max_size=300), width=st.integers(1, 60))
def test_a_sparkline_fits_and_peaks_where_the_values_do(values: list[float], width: int) -> None:
    line = sparkline(values, width)
    assert len(line) == min(len(values), width)
    if 0 < len(values) <= width and max(values) > 0:
        assert line[values.index(max(values))] == "█"


def test_long_series_are_averaged_not_cut() -> None:
    assert sparkline([0.0] * 50 + [1.0] * 50, 10) == "▁▁▁▁▁█████"


def test_numbers_have_no_exponents() -> None:
    assert [units.number(x) for x in (0.0, 0.0012, 0.4277, 13.0, 999.4, 1234.5, 2.5e6)] == [
        "0", "0.0012", "0.428", "13", "999", "1,234", "2,500,000",
    ]  # fmt: skip


def test_an_interval_is_shown_only_where_there_is_one() -> None:
    assert with_interval(Estimate(0.385, 0.383, 0.387)).plain == "38.5 % ±0.2"
    assert with_interval(Estimate(0.385, 0.385, 0.385)).plain == "38.5 %"
    assert with_interval(Estimate(21.5, 21.0, 22.0), "seconds").plain == "21.5 s ±0.5"
    assert with_interval(Estimate(1234.0, 1200.0, 1268.0), "number").plain == "1,234 ±34"
