"""The one door for JSON: what it lets in, later arithmetic can hold."""

from __future__ import annotations

import gc
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.json_text import from_json, from_long_json, from_loose_json

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
    with pytest.raises(ValueError, match=r"is not a finite number|is too large|nested too deep"):
        from_json(text)
    for encoding in ("utf-8", "utf-16", "utf-32-be"):
        with pytest.raises(ValueError, match=r"is not a finite number|is too large|nested too deep"):
            from_json(f'{{"a": {text}}}'.encode(encoding))


def test_a_log_may_hold_what_is_no_number() -> None:
    row = from_loose_json('{"loss": NaN, "grad": 1e999, "kl": -Infinity, "n": 99999999999999999999, "step": 3}')
    assert row["step"] == 3
    assert all(math.isnan(row[name]) for name in ("loss", "grad", "kl", "n"))
    with pytest.raises(ValueError, match="nested"):
        from_loose_json("[" * 100_000)


def test_keys_given_twice_reach_the_reader() -> None:
    assert from_json('{"a": 1, "a": 2.5}', pairs=list) == [("a", 1), ("a", 2.5)]
    assert math.isclose(from_json("1.5e-5"), 1.5e-5)


def test_long_answers_read_as_others_do_and_refuse_what_others_refuse() -> None:
    text = b'{"values": [[1790000000, "1.5"], [1790000015.5, "NaN"]], "deep": {"a": [1, -2, 3e5]}}'
    assert from_long_json(text) == from_json(text)
    assert gc.isenabled()
    for wrong in (b'{"a": NaN}', b'{"a": 1e999}', b"{", b"[" * 100_000, b'\xff"'):
        with pytest.raises(ValueError):  # noqa: PT011
            from_long_json(wrong)
    assert gc.isenabled()


def test_a_loose_number_beyond_reach_is_none_however_deep() -> None:
    found = from_loose_json('{"a": 1e999, "b": {"c": [-1e999, 2.5]}, "d": 1.5}')
    assert math.isnan(found["a"])
    assert math.isnan(found["b"]["c"][0])
    assert (found["b"]["c"][1], found["d"]) == (2.5, 1.5)
