from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetsim.config import Scenario, with_changes
from fleetsim.engine.known_error import LEAST_RUNS
from fleetsim.job.engine_source import engine_source
from tests import profiles
from tests.plan.fakes import one_ahead

ROOT = Path(__file__).resolve().parents[2]


def test_the_error_of_the_roofline_is_the_one_on_the_accuracy_page() -> None:
    source = engine_source(one_ahead(), 8)
    rows = json.loads((ROOT / "calibration" / "engine_errors.json").read_text(encoding="utf-8"))["errors"]
    kind = {"gpu": "H100-SXM", "model": "dense", "engine": None, "gpu_seen": True}
    by_bits = {r["bits"]: r for r in rows if all(r[key] == value for key, value in kind.items())}
    row = by_bits[None]  # the runs in 16 bits alone are too few
    assert by_bits["16"]["runs"] < LEAST_RUNS <= row["runs"]
    assert (source.error_median, source.error_p90, source.error_worst) == (row["median"], row["p90"], None)
    assert f"90 % within {100 * row['p90']:.0f} %" in source.accuracy
    assert f"of {row['runs']} published runs of dense models on H100-SXM kept out of the fit" in source.accuracy


def test_a_given_rate_has_no_error_to_show() -> None:
    constant = with_changes(one_ahead(), {"engine.kind": "constant", "engine.instance_tok_s": 4000.0})
    source = engine_source(constant, 8)
    assert (source.kind, source.error_median, source.extrapolations) == ("constant", None, None)


@pytest.mark.parametrize(("instances", "outside"), [(2, True), (8, False), (400, True)])
def test_a_plan_that_leaves_the_measured_range_is_told(tmp_path: Path, instances: int, outside: bool) -> None:
    file = tmp_path / "mine.json"
    profile = {
        "name": "mine",
        "coefficients": {"knots_tokens": [1], "knots_s": [0.01]},
        "ranges": {"decodes": [4, 128]},
        "limits": {"max_num_seqs": 512, "max_num_batched_tokens": 8192, "kv_blocks": 30000},
    }
    file.write_text(json.dumps(profile))
    scenario = with_changes(one_ahead(), {"engine.kind": "measured", "engine.profile": str(file)})
    source = engine_source(scenario, instances)
    assert source.name == "mine"
    assert bool(source.extrapolations) is outside


def measured(file: str) -> Scenario:
    return with_changes(one_ahead(), {"engine.kind": "measured", "engine.profile": file})


def test_a_profile_says_what_it_is_and_how_far_off(tmp_path: Path) -> None:
    source = engine_source(measured(profiles.profile_file(tmp_path)), 8)
    assert source.kind == "measured"
    assert source.text == (
        "profile h200-qwen2.5-7b-tp1-vllm-0.26.0, measured (NVIDIA H200 x 1, Qwen/Qwen2.5-7B, vllm 0.26.0, 2026-11-20)"
    )
    assert (source.error_median, source.error_worst, source.gpu) == (0.017, 0.028, "NVIDIA H200")
    assert source.strict_problem is None


def test_a_derived_profile_is_as_good_as_the_ranges_that_it_has(tmp_path: Path) -> None:
    provenance = profiles.provenance(source="bench.json", date="")
    derived = profiles.profile_file(tmp_path, kind="derived", checks=None, provenance=provenance)
    source = engine_source(measured(derived), 8)
    assert source.kind == "derived"
    assert "derived from bench.json" in source.text
    assert source.strict_problem is None
    outside = profiles.profile_file(tmp_path, kind="derived", ranges={"decodes": [1, 2]}, provenance=provenance)
    assert "leaves the range" in str(engine_source(measured(outside), 8).strict_problem)


def test_an_estimate_and_a_profile_of_no_range_do_not_pass_strict(tmp_path: Path) -> None:
    for changes in (profiles.estimate(), {"ranges": None}):
        source = engine_source(measured(profiles.profile_file(tmp_path, **changes)), 8)
        assert source.extrapolations is None
        assert "no measured ranges" in str(source.strict_problem)
    assert "roofline estimate" in str(engine_source(one_ahead(), 8).strict_problem)
