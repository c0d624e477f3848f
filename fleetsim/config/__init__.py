"""Scenario and profile files: pydantic models, YAML in and out, overrides, shipped data.

Names are imported when they are asked for: whoever only reads a profile builds no models of scenarios.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_ELSEWHERE = {
    "Scenario": "scenario",
    "data_path": "shipped",
    "env_overrides": "override",
    "shipped_scenarios": "shipped",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'load')}"), name)
    globals()[name] = value
    return value
