"""Scenario and profile files: pydantic models, YAML in and out, overrides, shipped data.

- A scenario: `load` leads; `yaml_text` reads, `override` takes --set and variables, `followers` has what follows
  another value.
- Its keys: `sections` (all of them, and schema_version), then a file a section: `workload`, `stations`, `engine`,
  `fleet`, `trainer`, `sync`, `link` (bandwidths of a weight sync), `admission`, `run`, `cost`, `targets`, `published`.
- `short_forms`: what may be written for another key. What fits together: `rules`, `engine_rules`, `policy_rules`,
  `transport_rules`; `unread_settings` tells what nothing reads.
- Errors: `tree` (did you mean), `problems` (pydantic's, in plain words). `files` reads a file without trusting it.
- A profile: `engine_profile` is its schema, `profile_files` finds and seals it. `data_files`: what is shipped.

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
        json_schema,
        load_scenario,
        scenario_from_mapping,
        with_changes,
    )
    from fleetsim.config.override import env_overrides
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

_ELSEWHERE = {
    "Scenario": "scenario",
    "data_path": "data_files",
    "env_overrides": "override",
    "shipped_scenarios": "data_files",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'load')}"), name)
    globals()[name] = value
    return value
