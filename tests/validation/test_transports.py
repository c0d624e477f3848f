"""Weight-sync transports against published seconds: the order, the median factor, what the defaults were fitted on."""

from __future__ import annotations

from statistics import median

import pytest

from docs import make_transports
from docs.transport_rows import FITTED, coverage, factor, fit, fits, in_order, pairs, predicted_s, rows
from fleetsim.config.data_files import shipped_scenarios
from fleetsim.job.uncertainty import SYNC_DERIVED

ROWS = rows()
TOLD = [row for row in ROWS if row.use != "listed"]
TABLE = [row for row in TOLD if row.lookup]


def test_the_median_is_within_a_factor_of_one_and_a_half() -> None:
    factors = [factor(row) for row in TABLE if row.predicted_only]
    assert len(factors) == 27
    assert median(factors) <= 1.5
    assert sum(f <= 1.5 for f in factors) >= 18


def test_sources_that_gave_nothing_are_predicted_as_well() -> None:
    gave = {row.source for row in TOLD if not row.predicted_only}
    factors = [factor(row) for row in TABLE if row.source not in gave]
    assert len(factors) >= 10
    assert median(factors) <= 1.5


def test_what_a_source_measured_side_by_side_comes_out_in_its_order() -> None:
    found = pairs(TABLE)
    assert len(found) >= 16
    assert [f"{a.id} < {b.id}" for a, b in found if not in_order(a, b)] == []


@pytest.mark.parametrize("what", FITTED)
def test_defaults_are_what_their_rows_give(what: str) -> None:
    assert FITTED[what][1] == pytest.approx(fits(ROWS)[what], rel=0.02)


def test_eight_of_ten_published_syncs_lie_within_the_interval_of_a_derived_one() -> None:
    inside, of = coverage(TOLD, *SYNC_DERIVED)
    assert of >= 50
    assert 0.75 <= inside / of <= 0.85


def test_a_trillion_weights_are_synced_in_about_a_minute() -> None:
    """Where one rank sends at a time; published: 53 s (Kimi-K2) and 58 s (GLM-5)."""
    largest = [row for row in TOLD if row.source == "miles" and row.seconds > 50]
    assert len(largest) == 2
    assert all(factor(row) <= 1.25 for row in largest)


@pytest.mark.parametrize(
    ("fitted_on", "predicted"), [("NeMo-RL nixl", "checkpoint-engine"), ("checkpoint-engine", "NeMo-RL nixl")]
)
def test_seconds_per_tensor_carry_from_one_source_to_another(fitted_on: str, predicted: str) -> None:
    value = fit("tensor_s", [row for row in TABLE if row.source == fitted_on])
    assert median(factor(row, tensor_s=value) for row in TABLE if row.source == predicted) <= 1.5


def test_no_default_rests_on_a_predicted_row() -> None:
    for row in TOLD:
        assert row.predicted_only or row.use == "given" or row.use.removeprefix("fit ") in FITTED
    assert sum(not row.predicted_only for row in TABLE) == 8


def test_a_row_that_misses_says_why() -> None:
    assert [row.id for row in TOLD if row.predicted_only and factor(row) > 1.5 and not row.note] == []
    assert all(row.note for row in ROWS if row.use == "listed")


def test_sharded_weights_written_in_place_are_the_fastest_way_for_a_model() -> None:
    by_id = {row.id: row for row in TABLE}
    assert predicted_s(by_id["nemo-dsv3-reshard"]) < predicted_s(by_id["nemo-dsv3-nixl-async"])
    assert predicted_s(by_id["nemo-30b-reshard"]) < predicted_s(by_id["verl-30b-ce"])


def test_the_table_is_no_scenario() -> None:
    assert not [name for name in shipped_scenarios() if "weight_sync" in name]


def test_the_page_is_what_the_script_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert make_transports.main(["--check"]) == 0, capsys.readouterr().err
