from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.calibrate.known_profiles import profile_data
from fleetsim.calibrate.points import by_context, decode_line, rows_of, seconds_of
from fleetsim.sim.engines import step_time_of
from tests import profiles

tokens = st.floats(0, 1e5)


@given(b=st.integers(0, 3000), p=st.integers(0, 40_000), kv=tokens, pairs=tokens)
def test_predictions_are_those_of_the_step_time(b: int, p: int, kv: float, pairs: float) -> None:
    profile = profiles.profile()
    step_time = step_time_of(profile)
    expected = step_time.seconds(b, p, kv, pairs)
    assert seconds_of(profile.coefficients, b, p, kv, pairs) == expected
    many = step_time.each_s(np.array([b, 1.0]), np.array([p, 0.0]), np.array([kv, 0.0]), np.array([pairs, 0.0]))
    assert many[0] == expected, "an array of iterations differs from one alone"


def test_a_curve_of_one_knot_is_flat() -> None:
    flat = profiles.profile(coefficients={"knots_tokens": [7], "knots_s": [0.01]})
    assert [seconds_of(flat.coefficients, b) for b in (1, 7, 900)] == [0.01] * 3


def test_rows_have_the_errors_that_the_points_were_made_with() -> None:
    profile = profiles.profile()
    rows = [r for kind in ("decode", "prefill", "mixed") for r in rows_of(profile, kind)]
    assert len(rows) == len(profile.points)
    off = {p.seconds: 1 + 0.03 * math.sin(7.0 * i) for i, p in enumerate(profile.points)}
    for row in rows:
        assert row.error == pytest.approx(1 / off[row.point.seconds] - 1, abs=1e-9)
        assert row.tok_s * row.point.seconds == pytest.approx(row.point.decodes or row.point.prefill_tokens)


def test_one_sweep_is_one_context_although_it_grows_by_what_is_decoded() -> None:
    points = [
        {"kind": "decode", "decodes": b, "kv_tokens": b * context, "seconds": 0.01}
        for b, context in ((1.0, 128.0), (8.0, 140.0), (32.0, 151.0), (1.0, 1024.0), (8.0, 1055.5))
    ]
    found = by_context(rows_of(profiles.profile(points=points), "decode"))
    assert [[r.point.decodes for r in rows] for _, rows in found] == [[1, 8, 32], [1, 8]]
    assert [context for context, _ in found] == [140.0, 1055.5]


def test_a_point_of_zero_seconds_or_decodes_breaks_nothing() -> None:
    points = [
        {"kind": "decode", "decodes": 0, "seconds": 0.01},
        {"kind": "decode", "decodes": 4, "kv_tokens": 40, "seconds": 0.0},
    ]
    (row,) = rows_of(profiles.profile(points=points), "decode")
    assert (row.context, row.tok_s) == (0.0, 0.0)


def test_a_line_passes_through_every_knot() -> None:
    line = dict(decode_line(profiles.profile().coefficients, 1024.0, 1.0, 1024.0))
    assert set(profiles.KNOTS[:5]) <= set(line)
    assert line[256.0] == pytest.approx(profiles.seconds(256, 256 * 1024.0))
    assert list(line) == sorted(line)


def test_the_document_holds_the_profile_and_a_prediction_per_point() -> None:
    profile = profiles.profile()
    made = profile_data(profile, "profile show")
    assert made["profile"]["name"] == profile.name
    assert len(made["predictions"]) == len(profile.points)
    assert {"seconds", "predicted_s", "error", "tok_s"} <= made["predictions"][0].keys()
