from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetsim.config import default_scenario, with_changes
from fleetsim.plan.engine_source import engine_source

ROOT = Path(__file__).resolve().parents[2]


def test_the_error_of_the_roofline_is_the_one_on_the_accuracy_page() -> None:
    source = engine_source(default_scenario(), 8)
    assert source.error_median is not None
    assert source.error_worst is not None
    row = next(
        line
        for line in (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| fitted models, each left out of its fit")
    )
    assert f"median {100 * source.error_median:.1f} %, largest {100 * source.error_worst:.1f} %" in row


def test_a_given_rate_has_no_error_to_show() -> None:
    constant = with_changes(default_scenario(), {"engine.kind": "constant", "engine.instance_tok_s": 4000.0})
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
    scenario = with_changes(default_scenario(), {"engine.kind": "measured", "engine.profile": str(file)})
    source = engine_source(scenario, instances)
    assert source.name == "mine"
    assert bool(source.extrapolations) is outside
