"""The one door for JSON: what it lets in, later arithmetic can hold."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.json_text import from_json, from_loose_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_json_is_read_as_it_stands(value: object) -> None:
    text = json.dumps(value)
    assert from_json(text) == value
    assert from_json(text.encode()) == value


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", "-Infinity", "1e999", "-1e400", str(2**63), str(-(2**63)), "9" * 5000, "[" * 100_000]
)
def test_numbers_beyond_reach_and_texts_beyond_depth_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no number that can be used|nested too deep"):
        from_json(text)


def test_a_log_may_hold_what_is_no_number() -> None:
    row = from_loose_json('{"loss": NaN, "grad": 1e999, "kl": -Infinity, "n": 99999999999999999999, "step": 3}')
    assert row["step"] == 3
    assert all(math.isnan(row[name]) for name in ("loss", "grad", "kl", "n"))
    with pytest.raises(ValueError, match="nested"):
        from_loose_json("[" * 100_000)


def test_keys_given_twice_reach_the_reader() -> None:
    assert from_json('{"a": 1, "a": 2.5}', pairs=list) == [("a", 1), ("a", 2.5)]
    assert math.isclose(from_json("1.5e-5"), 1.5e-5)
