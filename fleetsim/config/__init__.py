"""Scenario and profile files: pydantic models, YAML in and out, overrides, shipped data.

- A scenario: `load` leads and takes --set and variables, `yaml_text` reads, `scenario` says what a whole one asks.
- Its keys: `sections` (all of them, and the small ones), then the larger sections: `workload`, `stations`, `engine`,
  `speculation`, `pools` (fleet and trainer), `spot_trace`, `exchange` (what passes between them: samples and weights).
- What fits together: `rules`, and `law_numbers` for policies.
- Errors: `tree` (did you mean, short forms of keys), `problems` (pydantic's, in plain words).
- A profile: `engine_profile` is its schema, finds and seals it. `data_files`: what is shipped, and how any file is read
  without trusting it.

Names are imported when they are asked for: whoever only reads a profile builds no models of scenarios.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetsim.config.data_files import data_path, shipped_scenarios
    from fleetsim.config.load import (
        default_scenario,
        dump_scenario,
        env_overrides,
        json_schema,
        load_scenario,
        scenario_from_mapping,
        with_changes,
    )
    from fleetsim.config.scenario import Scenario

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

_ELSEWHERE = {"Scenario": "scenario", "data_path": "data_files", "shipped_scenarios": "data_files"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'load')}"), name)
    globals()[name] = value
    return value
