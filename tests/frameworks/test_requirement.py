"""Versions that a text pins, against PyPA's own reading of them (packaging)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim.frameworks.settings import requirements_of

specifiers = pytest.importorskip("packaging.specifiers")
RELEASES = [f"{major}.{minor}.{patch}" for major in range(3) for minor in range(13) for patch in (0, 1, 9)]
BOUNDS = st.tuples(st.sampled_from(["==", "<=", "<", ">=", ">", "~=", "!="]), st.sampled_from(RELEASES)).map("".join)


@given(st.lists(BOUNDS, min_size=1, max_size=3), st.tuples(st.integers(1, 2), st.integers(1, 12)))
def test_what_a_pin_allows(bounds: list[str], version: tuple[int, int]) -> None:
    """It says "only before" or "only from" of no versions that the pin allows on the other side; of one bound, always
    where it is so."""
    spec = ",".join(bounds)
    pin = requirements_of(f'pip install "trl[vllm]{spec}" accelerate')["trl"]
    allowed = [r for r in RELEASES if r in specifiers.SpecifierSet(spec)]
    before = [tuple(map(int, r.split("."))) < version for r in allowed]
    assert not pin.only_before(version) or all(before)
    assert not pin.only_from(version) or not any(before)
    if allowed and len(bounds) == 1 and bounds[0][:2] in ("==", "<=", ">="):
        assert pin.only_before(version) == all(before)
        assert pin.only_from(version) == (not any(before))


@pytest.mark.parametrize(
    ("text", "pin"),
    [
        ('# dependencies = ["trl>=1.9, <1.11", "peft"]', "trl>=1.9, <1.11"),
        ("uv run --with trl==1.10.0 train.py", "trl==1.10.0"),
        ("trl ~= 1.10.2\n", "trl ~= 1.10.2"),
        ("TRL[vllm,peft]<1.11", "TRL[vllm,peft]<1.11"),
    ],
)
def test_where_a_pin_stands(text: str, pin: str) -> None:
    found = requirements_of(text)["trl"]
    assert found.text == pin
    assert found.only_before((1, 11))
    assert not found.only_from((1, 11))


@pytest.mark.parametrize("text", ["pip install trl", "my-trl==1.0", "trl.version == '1.0'", "control==1.0", ""])
def test_no_pin_of_it(text: str) -> None:
    assert "trl" not in requirements_of(text)


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    for pin in requirements_of(text).values():
        assert not (pin.only_before((1, 11)) and pin.only_from((2, 0)) and pin.text.count(",") == 0)
