"""`calibrate --dry-run`: the measuring loop itself, on an engine of the roofline."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from fleetsim.calibrate.ask import Calibrate
from fleetsim.calibrate.dry_run import START_S, dry_run
from fleetsim.cli.main import app
from fleetsim.engine import roofline


def plan(**said: Any) -> Any:
    return dry_run(Calibrate(model="Qwen/Qwen2.5-7B", dry_run=True, **said).ready())


def test_it_fits_into_its_budget_and_a_larger_one_holds_more() -> None:
    found = [plan(budget_s=seconds) for seconds in (120.0, 300.0, 600.0, 1800.0)]
    for one in found:
        assert START_S + sum(one.seconds.values()) <= one.budget_s
        assert sum(one.loads.values()) == one.outcome.ran
    counts = [sum(one.loads.values()) for one in found]
    assert counts == sorted(counts)
    assert found[0].outcome.left_out > 0
    assert found[-1].outcome.left_out == 0
    assert {"decode", "prefill", "mixed", "rl_on", "rl_off", "rl_preempt", "rl_long"} == set(found[-1].loads)


def test_a_slower_gpu_takes_longer_for_the_same() -> None:
    slow, fast = plan(gpu="A100", budget_s=3600.0), plan(gpu="B200", budget_s=3600.0)
    assert slow.seconds["prefill"] / slow.loads["prefill"] > 1.5 * fast.seconds["prefill"] / fast.loads["prefill"]


def test_its_memory_is_the_engines() -> None:
    found = plan(gpu="H100")
    _, limits = roofline("H100", "Qwen/Qwen2.5-7B")
    # 28 layers x 4 KV heads x 128 x 2 (K and V) x 2 bytes: 56 KiB a token.
    assert found.cache_gib == pytest.approx(limits.kv_blocks * limits.block_size * 56 / 2**20)
    assert found.weights_gib == pytest.approx(7.6e9 * 2 / 2**30, rel=0.02)
    assert found.weights_gib + found.cache_gib < found.memory_gib


def test_the_command_starts_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    said = ["calibrate", "--model", "Qwen/Qwen2.5-7B", "--dry-run"]
    shown = CliRunner().invoke(app, said)
    assert shown.exit_code == 0
    assert "nothing was started" in shown.stdout
    assert "assumed: --gpu names yours" in shown.stdout
    data = json.loads(CliRunner().invoke(app, [*said, "--gpu", "H200", "--json"]).stdout)
    assert data["gpu"] == "H200-SXM"
    assert data["seconds"] <= data["budget_s"]
    assert list(tmp_path.iterdir()) == []
    refused = CliRunner().invoke(app, ["calibrate", "--url", "http://localhost:1", "--dry-run"])
    assert refused.exit_code == 2
    assert "--dry-run" in refused.stderr
