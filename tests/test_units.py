"""Formatting at the edge."""

from __future__ import annotations

import pytest

from fleetsim import units
from fleetsim.estimates import Estimate, estimate


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0.0, "0 s"), (0.0000123, "12.3 us"), (0.85, "850 ms"), (0.9996, "1.0 s"), (12.34, "12.3 s"),
        (59.96, "1 min 00 s"), (125.0, "2 min 05 s"), (3599.7, "1 h 00 min"), (11_220.0, "3 h 07 min"),
        (-12.34, "-12.3 s"), (float("inf"), "inf s"),
    ],
)  # fmt: skip
def test_seconds(x: float, text: str) -> None:
    assert units.seconds(x) == text


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (812, "812"),
        (999.6, "1.0 k"),
        (39_321.6, "39.3 k"),
        (999_960, "1.0 M"),
        (12_407_040, "12.4 M"),
        (1.2e9, "1.2 G"),
    ],
)
def test_tokens(x: float, text: str) -> None:
    assert units.tokens(x) == text


def test_the_small_ones() -> None:
    assert units.share(0.18618) == "18.6 %"
    assert units.count(39_321.6) == "39,321.6"
    assert units.count(13.0) == "13"
    assert units.money(1234.5) == "$1,234.50"
    assert units.money(0.00123) == "$0.0012"
    assert units.money(-2) == "-$2.00"
    assert units.gib(80 * 2**30) == "80.0 GiB"


def test_sums_below_a_dollar_keep_three_figures_and_never_less_than_cents() -> None:
    sums = (0.2516, 0.00123, 12.345, 1234.5, -0.5, 0.05, 0.9999, 0.0)
    assert [units.money(x) for x in sums] == [
        "$0.252", "$0.0012", "$12.35", "$1,234.50", "-$0.50", "$0.05", "$1.00", "$0.00",
    ]  # fmt: skip
    assert units.with_ends(Estimate(0.2516, 0.2061, 0.5), "money") == "$0.252 [0.206, 0.50]"
    assert units.mean_and_half(Estimate(0.5, 0.4, 0.6), "money") == ("$0.50", "±0.10")
    # 0.1 + 0.2 and 0.3 are two runs that are alike.
    assert units.mean_and_half(estimate([0.1 + 0.2, 0.3]), "money")[1] == ""


def test_a_price_has_cents_where_it_is_not_whole() -> None:
    assert [units.price(x) for x in (3.0, 2.5, 2.49, 0.125)] == ["$3", "$2.50", "$2.49", "$0.125"]


def test_a_change_that_rounds_to_nothing_has_no_sign() -> None:
    assert [units.change(x) for x in (0.031, -0.031, 0.0004, -0.0004)] == ["+3.1 %", "-3.1 %", "0.0 %", "0.0 %"]


def test_words() -> None:
    assert [units.plural(n, "batch") for n in (1, 2, 1200, 1.001, 2.4)] == [
        "1 batch", "2 batches", "1,200 batches", "1 batch", "2.4 batches",
    ]  # fmt: skip
    assert [units.listed(parts) for parts in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert units.sentence("the NCCL broadcast") == "The NCCL broadcast."
    assert units.sentence("why?") == "Why?"


def test_what_rounds_to_nothing_has_no_sign() -> None:
    assert [units.percent_change(x) for x in (-0.0004, 0.0004, -0.031)] == ["0.0", "0.0", "-3.1"]


def test_no_share_is_below_nothing() -> None:
    assert units.with_ends(Estimate(0.0002, -0.0004, 0.0008), "share") == "0.0 % [0.0, 0.1]"
