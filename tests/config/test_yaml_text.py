"""YAML in and out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config.yaml_events import MAX_DEPTH, MAX_NODES, document
from fleetsim.config.yaml_text import from_yaml, to_yaml
from fleetsim.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6), ("1E3", 1000.0), ("10", 10), ("+3", 3), ("-0x1F", "-0x1F"), ("0x1F", 31), ("0o17", 15),
        ("010", 10), ("1:30", "1:30"), ("on", "on"), ("yes", "yes"), ("true", True), ("~", None), (".5", 0.5),
        ("-.inf", -math.inf), ("2025-01-01", "2025-01-01"), ("'8'", "8"), ("[1, {a: b}]", [1, {"a": "b"}]),
        ("1_000", "1_000"), ("=", "="), ("<<: 3", {"<<": 3}), ("1: x", {"1": "x"}), ('{"a": 1}', {"a": 1}),
    ],
)  # fmt: skip
def test_yaml_1_2_core_schema(text: str, value: object) -> None:
    got = from_yaml(text, "t")
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a: &x 1\nb: *x", "anchors"),
        ("b: *x", "valid YAML|anchors"),
        ("!!python/object/apply:os.system ['true']", "tags"),
        ("!!binary aGk=", "tags"),
        ("!!str 8", "tags"),
        ("a: 1\na: 2", "twice"),
        ("{a: {b: 1, b: 1}, c: 1, c: 2}", "twice"),
        ("a: 1\n---\nb: 2", "more than one"),
        ("# nothing\n", "no YAML document"),
        ("? [a]\n: 1", "single word"),
        ("a: [1", "valid YAML"),
        ("a: b: c", "valid YAML"),
        ("\t- x: [", "valid YAML"),
        ("a: \x07", "valid YAML"),
        ("[" * (MAX_DEPTH + 1), "too deeply"),
        ("[" * 100_000, "too deeply"),
        ("[" + "1," * (MAX_NODES + 1) + "]", "too many"),
    ],
)
def test_refused_yaml(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        from_yaml(text, "t")


def test_both_duplicate_keys_are_reported_with_their_lines() -> None:
    with pytest.raises(InputError) as caught:
        from_yaml("a: 1\na: 2\nb:\n  c: 1\n  c: 2\n", "s.yaml")
    assert [p.path for p in caught.value.problems] == ["s.yaml:2", "s.yaml:5"]


def test_a_billion_laughs_is_refused_at_the_first_anchor() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    with pytest.raises(InputError, match="anchors"):
        from_yaml(bomb, "t")


scalars = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False) | st.text(max_size=30)
tricky = st.sampled_from(
    ["1e6", "yes", "1:30", "~", "0o7", ".nan", "=", "<<", "null", "---", "a: b", "\x85", "a\u2028b", "#c", " x ", "1_0"]
)
trees = st.recursive(
    scalars | tricky,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=8) | tricky, below, max_size=4),
    max_leaves=12,
)


@given(trees)
@settings(max_examples=200, deadline=None)
def test_what_is_written_reads_back_equal(value: object) -> None:
    assert from_yaml(to_yaml(value), "t") == value


@given(st.text(max_size=200) | st.text("[]{}:-?&*!|>'\"%@`#, \nab1", max_size=80))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_a_value_or_an_input_error(text: str) -> None:
    try:
        from_yaml(text, "t")
    except InputError as error:
        assert error.problems


@given(st.from_regex(r'"?[ -~]{0,12}"?', fullmatch=True))
def test_a_single_word_means_what_the_parser_says(text: str) -> None:
    """One word is not parsed: what is read at once, and what is not, must be the same."""
    try:
        parsed = document(text, "t")
    except InputError as error:
        with pytest.raises(InputError) as caught:
            from_yaml(text, "t")
        assert caught.value.problems == error.problems
    else:
        got = from_yaml(text, "t")
        assert (repr(got), type(got)) == (repr(parsed), type(parsed))
