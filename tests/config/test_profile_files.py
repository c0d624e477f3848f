"""Profile files."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetsim.config.engine_profile import Profile, load_profile, profile_from_mapping, profile_text, seal_of
from fleetsim.errors import InputError

PROFILE: dict[str, Any] = {
    "schema_version": 1,
    "name": "h100-qwen2.5-7b",
    "kind": "measured",
    "coefficients": {
        "knots_tokens": [0, 256, 4096],
        "knots_s": [0.007, {"value": 0.009, "ci_low": 0.0088, "ci_high": 0.0092}, 0.11],
        "per_seq_s": {"value": 1e-5, "ci_low": 0, "ci_high": 2e-5},
        "per_kv_token_s": 2e-8,
    },
    "ranges": {"decodes": [1, 256], "kv_tokens": [0, 1e6]},
    "limits": {"max_num_seqs": 256, "max_num_batched_tokens": 8192, "kv_blocks": 20000},
    "error": {"median": 0.03, "p90": 0.08, "worst": 0.2, "what": "batch finish time, held out"},
    "provenance": {"gpu": "NVIDIA H100 80GB HBM3", "engine": "vllm", "tp": 1, "flags": ["--max-num-seqs", "256"]},
    "raw": "raw.jsonl",
}


def test_a_profile_loads_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(PROFILE))
    p = load_profile(tmp_path / "p.json")
    assert p.coefficients.knot_seconds == (0.007, 0.009, 0.11)
    assert p.coefficients.per_seq_s.ci_high == 2e-5
    assert p.coefficients.per_attn_pair_s.value == 0.0
    assert p.limits.block_size == 16
    assert profile_from_mapping(p.model_dump(mode="json")) == p


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("{", "not valid JSON"),
        ("[1]", "JSON object"),
        ('{"name": "a", "name": "b"}', "twice"),
        ("[" * 100_000, "nested too deep"),
        ('{"name": ' + "9" * 5000 + "}", "is too large"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(InputError, match=said):
        load_profile(tmp_path / "p.json")


def test_unknown_names() -> None:
    with pytest.raises(InputError, match="no shipped profile"):
        load_profile("no-such-profile")


def test_all_problems_at_once() -> None:
    wrong = copy.deepcopy(PROFILE)
    wrong["coefficients"]["per_seq_s"] = {"value": 1, "ci_low": 2}
    wrong["coefficients"]["per_kv_tokens_s"] = 1
    wrong["ranges"]["decodes"] = [5, 1]
    wrong["limits"].pop("kv_blocks")
    wrong["limits"]["max_num_seqs"] = float("nan")
    with pytest.raises(InputError) as caught:
        profile_from_mapping(wrong)
    assert {p.path for p in caught.value.problems} == {
        "coefficients.per_seq_s", "coefficients.per_kv_tokens_s", "ranges", "limits.kv_blocks", "limits.max_num_seqs",
    }  # fmt: skip


@pytest.mark.parametrize("knots", [[0, 0], [1, 0]])
def test_knots_must_make_a_curve(knots: list[int]) -> None:
    for tokens, seconds in ((knots, [1, 2]), ([1, 2, 3], [1, 2]), ([1, 2], [2, 1])):
        wrong = {**PROFILE, "coefficients": {"knots_tokens": tokens, "knots_s": seconds}}
        with pytest.raises(InputError, match="knots_tokens"):
            profile_from_mapping(wrong)


@given(
    st.sampled_from(sorted(PROFILE)),
    st.none() | st.integers() | st.floats() | st.text() | st.dictionaries(st.text(), st.floats()),
)
@settings(max_examples=100, deadline=None)
def test_any_mutation_gives_a_profile_or_an_input_error(key: str, value: object) -> None:
    try:
        assert isinstance(profile_from_mapping({**PROFILE, key: value}), Profile)
    except InputError as error:
        assert error.problems


def test_a_sealed_profile_says_when_it_was_edited(tmp_path: Path) -> None:
    p = profile_from_mapping(PROFILE)
    text = profile_text(p)
    (tmp_path / "p.json").write_text(text)
    assert load_profile(tmp_path / "p.json").seal == seal_of(p)
    assert profile_text(load_profile(tmp_path / "p.json")) == text
    edited = text.replace("1e-05", "2e-05", 1)
    assert edited != text
    (tmp_path / "p.json").write_text(edited)
    with pytest.raises(InputError, match="changed after it was written"):
        load_profile(tmp_path / "p.json")
    owned = {k: v for k, v in json.loads(edited).items() if k != "seal"}
    assert profile_from_mapping(owned).seal is None


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.99])
def test_a_truncated_profile_says_so(tmp_path: Path, cut: float) -> None:
    text = profile_text(profile_from_mapping(PROFILE))
    (tmp_path / "p.json").write_text(text[: int(len(text) * cut)])
    with pytest.raises(InputError, match="not valid JSON"):
        load_profile(tmp_path / "p.json")


def test_a_newer_schema_says_what_to_do() -> None:
    with pytest.raises(InputError, match="upgrade fleetsim"):
        profile_from_mapping({**PROFILE, "schema_version": 2, "a_new_key": 1})
