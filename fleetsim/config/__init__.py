"""Scenario and profile files: pydantic models, YAML in and out, overrides, shipped data."""

from __future__ import annotations

from fleetsim.config.load import (
    default_scenario,
    dump_scenario,
    json_schema,
    load_scenario,
    scenario_from_mapping,
    with_changes,
)
from fleetsim.config.override import env_overrides
from fleetsim.config.scenario import Scenario
from fleetsim.config.shipped import data_path, shipped_scenarios

__all__ = [
    "Scenario",
    "data_path",
    "default_scenario",
    "dump_scenario",
    "env_overrides",
    "json_schema",
    "load_scenario",
    "scenario_from_mapping",
    "shipped_scenarios",
    "with_changes",
]
