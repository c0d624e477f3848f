"""The profiles of published runs: what ships is what the script makes, and it is better than the model alone."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleetsim as fs
from fleetsim.calibrate.derivation import estimate_profile
from fleetsim.calibrate.known_profiles import known_profiles

CALIBRATION = Path(__file__).resolve().parents[2] / "calibration"


@cache
def script() -> dict[str, Any]:
    sys.path.insert(0, str(CALIBRATION))
    try:
        return runpy.run_path(str(CALIBRATION / "public_profiles.py"))
    finally:
        sys.path.remove(str(CALIBRATION))


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a document by its path, but the seal, which follows from the others."""
    if isinstance(tree, dict | list):
        for name, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _leaves(value, f"{path}.{name}")
    elif path != ".seal":
        yield path, tree


def test_what_ships_is_what_the_script_makes() -> None:
    """But for the last digits of a number, in which processors differ."""
    there = {path.stem: path.read_text(encoding="utf-8") for path in (CALIBRATION / "profiles").glob("*.json")}
    made = script()["profiles"]()
    assert there.keys() == made.keys()
    for name, written in there.items():
        ships, new = (dict(_leaves(json.loads(text))) for text in (written, made[name]))
        figures = {path for path, value in ships.items() if isinstance(value, float)}
        assert {path: ships[path] for path in figures} == pytest.approx(
            {path: new[path] for path in figures}, rel=1e-12
        )
        assert {path: ships[path] for path in ships.keys() - figures} == {
            path: new[path] for path in new.keys() - figures
        }


def test_all_are_listed_with_source_date_and_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed, wrong = known_profiles()
    assert not wrong
    assert len(listed) >= 40
    for one in listed:
        p, error = one.profile.provenance, one.profile.error
        assert p.source.startswith("published runs (")
        assert p.date
        assert p.gpu
        assert p.engine in ("vllm", "sglang", "tensorrt-llm")
        assert error.median is not None
        assert 0.0 < error.median < 0.25
    # The model itself, which saw all of them, is off by 6.6 % (README).
    assert float(np.median([one.profile.error.median or 1.0 for one in listed])) < 0.06


def test_an_engine_twice_as_slow_takes_twice_as_long() -> None:
    plain = estimate_profile("H100", "Qwen/Qwen3-8B")
    twice = estimate_profile("H100", "Qwen/Qwen3-8B", slower=2.0)
    assert twice.coefficients.knots_s[0].value == pytest.approx(2.0 * plain.coefficients.knots_s[0].value)
    assert twice.coefficients.per_kv_token_s.value == pytest.approx(2.0 * plain.coefficients.per_kv_token_s.value)
    assert twice.limits == plain.limits


@pytest.mark.parametrize("engine", ["qwen3-8b-bfloat16-tp1-vllm-0.30.0", "qwen3-32b-bfloat16-tp4-sglang-0.5.1.post1"])
def test_a_job_runs_on_one(engine: str) -> None:
    run = fs.load(batch=64, len=256, profile=f"h100-{engine}").simulate(steps=3)
    assert run.metrics["step_s"].mean > 0.0
