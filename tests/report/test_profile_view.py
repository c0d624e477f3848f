from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetsim import units
from fleetsim.calibrate.facts import checked_document, document, drift_words, listed_words, sheets_of
from fleetsim.calibrate.known_profiles import ListedProfile, compared, drift_of
from fleetsim.calibrate.points import how_good, what_it_is
from fleetsim.config.engine_profile import BatchCheck, EstimateFields, Profile
from fleetsim.tell.console import as_text
from fleetsim.tell.document import Document
from fleetsim.tell.terminal import draw
from tests import profiles


def rendered(what: Document, width: int = 80) -> str:
    return as_text(draw(what), width)


def shown(profile: Profile, width: int = 80) -> str:
    return rendered(document(profile, "mine.profile.json"), width)


def test_the_answer_comes_first() -> None:
    lines = shown(profiles.profile(), 200).splitlines()
    assert lines[0].rstrip() == "h200-qwen2.5-7b-tp1-vllm-0.26.0"
    assert lines[1].startswith("Measured on 2026-11-20: Qwen/Qwen2.5-7B bfloat16 on NVIDIA H200 x 1, vllm 0.26.0.")
    assert "makespan off by 1.7 % in the median, 2.8 % at worst" in lines[2]


def test_measured_and_predicted_stand_side_by_side() -> None:
    rows = [line.split() for line in shown(profiles.profile()).splitlines()]
    # the first row of a context names it, the others do not
    decode = next(row for row in rows if row[:2] == ["1,024", "1"])
    measured = profiles.mapping()["points"][8]["seconds"]
    predicted = profiles.seconds(1, 1024.0)
    assert decode[2:4] == [f"{1e3 * measured:.2f}", f"{1e3 * predicted:.2f}"]
    assert decode[4:6] == f"{100 * (predicted / measured - 1):+.1f} %".split()
    assert any(row[:1] == ["16,384"] and "134.2" in row for row in rows), "the prompt of 16,384 tokens"
    assert any(row[:3] == ["256", "1,024", "2,048"] for row in rows), "decodes and prefill together"


def test_batches_are_drawn_to_one_scale() -> None:
    lines = shown(profiles.profile()).splitlines()
    bars = [line.count("█") for line in lines if line.strip().startswith("measured") and "█" in line]
    assert bars == [round(40 * x / (61.8 * 1.004)) for x in (49.0, 50.4, 61.8)]
    assert "112 preemptions, predicted 108" in " ".join(shown(profiles.profile()).split())


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    flags = [f"flag_number_{i}=true" for i in range(20)]
    text = shown(profiles.profile(provenance=profiles.provenance(flags=flags)), width)
    assert max(map(len, text.splitlines())) <= width
    assert "flag_number_19=true" in text


def test_an_estimate_never_looks_measured() -> None:
    text = " ".join(shown(profiles.profile(**profiles.estimate())).split())
    assert "An estimate, not a measurement: Qwen/Qwen2.5-7B on H100-SXM x 1" in text
    assert "Its error: 7.0 % in the median, 21.0 % at worst (roofline)." in text
    assert "no measured ranges are on record" in text
    assert "Measured" not in text


def test_a_derived_profile_says_from_what() -> None:
    p = profiles.profile(kind="derived", provenance=profiles.provenance(source="bench-1.json, bench-2.json"))
    assert what_it_is(p).startswith("Derived from bench-1.json, bench-2.json, 2026-11-20: ")


def test_a_bare_profile_shows_what_it_has() -> None:
    bare = Profile.model_validate(
        {"name": "bare", "coefficients": {"knots_tokens": [1], "knots_s": [0.01]},
         "limits": {"max_num_seqs": 8, "max_num_batched_tokens": 64, "kv_blocks": 100}}
    )  # fmt: skip
    assert "No error is on record" in how_good(bare)
    text = shown(bare)
    assert "f at 1 token" in text
    assert "10 ms" in text
    assert "profile check" not in text, "there is nothing to check it on"


def test_many_points_and_knots_are_thinned_and_say_so() -> None:
    points = [
        {"kind": "decode", "decodes": b, "kv_tokens": b * c, "seconds": 0.01}
        for c in (128.0, 1024.0, 8192.0) for b in range(1, 101)
    ]  # fmt: skip
    knots = {"knots_tokens": list(range(1, 101)), "knots_s": [0.001 * i for i in range(1, 101)]}
    text = " ".join(shown(profiles.profile(points=points, coefficients=knots)).split())
    assert "64 of 300 points" in text
    assert "12 of 100 knots of f" in text
    assert "f at 1 token " in text
    assert "f at 100 tokens " in text


def test_a_cache_that_misses_is_told() -> None:
    found = {s.title: s for s in sheets_of(profiles.profile())}["prefix cache on groups of siblings"]
    assert found.rows[1] == ("prompt tokens found", "222,208 (as expected)")
    half = {"enabled": True, "hit_tokens": 111_104, "expected_tokens": 222_208}
    found = {s.title: s for s in sheets_of(profiles.profile(prefix_cache=half))}["prefix cache on groups of siblings"]
    assert found.rows[1][1] == "111,104 (50.0 % of what was expected)"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"value": 0.0135, "ci_low": 0.0133, "ci_high": 0.0137}, ("13.5 ms", "13.3 to 13.7")),
        ({"value": 1.35e-8, "ci_low": 1.31e-8, "ci_high": 1.39e-8}, ("13.5 ns", "13.1 to 13.9")),
        ({"value": 4e-6}, ("4 us", "")),
        ({"value": 1e-10, "ci_low": 0.0, "ci_high": 2e-9}, ("100 ps", "0 to 2,000")),
        ({"value": 0.0, "ci_low": 0.0, "ci_high": 2e-9}, ("0", "0 to 2 ns")),
        ({"value": 0.0}, ("0", "")),
    ],
)
def test_a_coefficient_and_its_interval_share_a_unit(given: dict[str, float], expected: tuple[str, str]) -> None:
    e = EstimateFields.model_validate(given)
    assert units.coefficient(e.value, e.ci_low, e.ci_high) == expected


@given(x=st.floats(-5, 5))
def test_signs_are_told_and_zero_has_none(x: float) -> None:
    text = units.change(x)
    assert text == "0.0 %" or text[0] in "+-"
    assert float(text.removesuffix(" %")) == pytest.approx(100 * x, abs=0.051)


def test_the_list_names_what_to_give_and_the_error() -> None:
    known = ListedProfile("h200-7b.profile.json", profiles.profile())
    unknown = ListedProfile("old", profiles.profile(error=None, checks=None))
    guessed = ListedProfile("guess", profiles.profile(**profiles.estimate()))
    said = [listed_words(one) for one in (known, unknown, guessed)]
    assert said[0] == "Qwen2.5-7B on H200 x 1, vllm 0.26.0, 2026-11-20, off by 1.7 % in the median"
    assert said[1].endswith("error not known")
    assert said[2].endswith("derived from roofline")


def batch(name: str, error: float, finish: float = 0.01, **others: Any) -> BatchCheck:
    return BatchCheck.model_validate({**profiles.check(name, 50.0, error, finish), **others})


def test_a_batch_passes_when_both_of_its_errors_do() -> None:
    now = (batch("a", 0.05), batch("b", -0.051), batch("c", 0.0, 0.06), batch("d", -0.05, 0.05))
    assert [one.passed for one in compared(now, (), 0.05)] == [True, False, False, True]


def test_what_the_simulator_changed_is_told_in_points() -> None:
    stored = (batch("a", 0.02), batch("gone", 0.5))
    same = compared((batch("a", 0.02 + 1e-7),), stored, 0.05)
    assert "what it predicted when" in drift_words(drift_of(same))
    moved = compared((batch("a", -0.01, 0.02), batch("new", 0.3)), stored, 0.05)
    drift = drift_of(moved)
    assert drift is not None
    assert (drift.makespan, drift.finish, drift.changed) == (pytest.approx(0.03), pytest.approx(0.01), True)
    assert "up to 3 points (makespan) and 1 points" in drift_words(drift)
    assert "no errors of these batches" in drift_words(drift_of(compared((batch("new", 0.3),), stored, 0.05)))


def test_the_check_says_the_verdict_first() -> None:
    profile = profiles.profile()
    good = rendered(checked_document(profile, compared(profile.checks, profile.checks, 0.05), 0.05), 120)
    assert good.splitlines()[0].rstrip() == f"{profile.name}: all of 3 kept-out batches predicted within 5.0 %"
    bad = rendered(checked_document(profile, compared(profile.checks, profile.checks, 0.02), 0.02))
    assert "1 of 3 kept-out batches predicted within 2.0 %" in " ".join(bad.split())
    assert bad.count("above") == 2


def test_a_cpu_is_called_one() -> None:
    p = profiles.profile(provenance=profiles.provenance(gpu="", torch="2.13.0+cpu"))
    assert "on CPU x 1, vllm" in what_it_is(p)
    unnamed = profiles.profile(provenance=profiles.provenance(gpu=""))
    assert "on a GPU of no name x 1" in what_it_is(unnamed)


def test_one_batch_has_no_median() -> None:
    p = profiles.profile(checks=[profiles.check("rl_on", 49.0, -0.017, 0.011)])
    assert how_good(p).startswith("Predicts a batch kept out of the fit: makespan off by 1.7 %, the requests' finish")
    assert "at worst" not in how_good(p)
