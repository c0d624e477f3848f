"""A job that is simulated in milliseconds, and its grids."""

from __future__ import annotations

from typing import Any

from fleetsim.config import scenario_from_mapping
from fleetsim.config.scenario import Scenario
from fleetsim.sweep.grid import Axis, Grid, grid_of

JOB: dict[str, Any] = {
    "name": "small",
    "workload": {"output_tokens": {"mean": 200, "cv": 0.8, "max": 800}, "prompt_tokens": 64, "group_size": 4},
    "fleet": {"instances": 2},
    "trainer": {"batch_samples": 32, "fixed_s": 2.0},
    "sync": {"pause_s": 1.0, "trainer_block_s": 1.0},
    "admission": {"law": "version_window", "max_staleness": 1},
    "run": {"steps": 6, "replications": 2},
}


def job(**run: Any) -> Scenario:
    return scenario_from_mapping({**JOB, "run": {**JOB["run"], **run}})


def grid(*axes: tuple[str, list[Any]]) -> Grid:
    return grid_of([Axis(path, tuple(values)) for path, values in axes])


SMALL = grid(("fleet.instances", [1, 2, 3]), ("admission.max_staleness", [0, 1]))
