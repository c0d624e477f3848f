"""Small plans and their rehearsals, simulated once per process."""

from __future__ import annotations

import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetsim.alerts import rehearsal
from fleetsim.alerts.alert_rule import Standing
from fleetsim.alerts.rehearsal import Rehearsal
from fleetsim.alerts.thresholds import choose
from fleetsim.config.load import scenario_from_mapping
from fleetsim.config.scenario import Scenario
from tests.once import rehearse_once


def small(**fleet: Any) -> Scenario:
    """Four small instances and a trainer of ten seconds, waiting for a part of its time."""
    return scenario_from_mapping(
        {
            "name": "small",
            "workload": {
                "output_tokens": {"kind": "lognormal", "mean": 400, "cv": 0.6, "max": 1600},
                "prompt_tokens": 128,
                "group_size": 4,
            },
            "fleet": {"instances": 4, **fleet},
            "trainer": {"batch_samples": 64, "fixed_s": 20.0, "per_token_s": 1e-5},
            "sync": {"pause_s": 1.0, "trainer_block_s": 2.0},
        }
    )


@lru_cache
def rehearsed() -> Rehearsal:
    """Twelve healthy hours, every fault twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "MULTIPLES", (1, 2, 3, 6))  # shorter windows than a user gets, and a minute saved
        return rehearse_once(small(), hours=12.0, replications=2)


@lru_cache
def chosen() -> Standing:
    """Its alerts."""
    return choose(rehearsed())


def promtool(*arguments: str) -> str:
    """What promtool says; the test fails when it is not content, and is skipped without one."""
    if shutil.which("promtool") is None:
        pytest.skip("RULES NOT TESTED: no promtool on PATH; tests/real_prometheus/install.sh installs it")
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def counts_window_start() -> bool:
    """Whether this Prometheus counts a sample that lies exactly on a window's start, as releases before 3 do."""
    if shutil.which("promtool") is None:
        pytest.skip("RULES NOT TESTED: no promtool on PATH; tests/real_prometheus/install.sh installs it")
    done = subprocess.run(["promtool", "--version"], capture_output=True, text=True, check=True)
    return int((done.stdout + done.stderr).split("version ")[1].split(".")[0]) < 3


def written(folder: Path, name: str, document: Any) -> str:
    """A YAML file."""
    place = folder / name
    place.write_text(yaml.safe_dump(document, sort_keys=False))
    return str(place)
