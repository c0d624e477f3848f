"""What differs between the inputs of two sides: dotted paths, with defaults written out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fleetsim.compare.compare import InputDifference
from fleetsim.config.scenario import Scenario
from fleetsim.config.tree import is_given, is_touched

# Keys of a scenario that nothing is simulated from.
WORDS = ("schema_version", "name", "description", "source", "published", "assumed", "follow")
PROFILE_HASH = "engine.profile (hash)"


def inputs_of(scenario: Scenario) -> dict[str, Any]:
    """The scenario as JSON has it, without its words."""
    return {key: value for key, value in scenario.model_dump(mode="json").items() if key not in WORDS}


def assumed_of(scenario: Scenario, given: Collection[str]) -> list[str]:
    """Every path of the scenario that nobody gave, or that it calls assumed. given: as `Job.given`."""
    paths = [path for path, _ in _leaves(inputs_of(scenario))]
    return [p for p in paths if is_given(p, scenario.assumed) or not is_touched(p, given)]


def input_differences(
    a: Mapping[str, Any], b: Mapping[str, Any], a_assumed: Collection[str] = (), b_assumed: Collection[str] = ()
) -> tuple[InputDifference, ...]:
    """Every value that differs, in the order of the scenario. A law of another kind, and a list, differ as a whole."""
    return tuple(
        InputDifference(path, left, right, is_touched(path, a_assumed), is_touched(path, b_assumed))
        for path, left, right in _differences(a, b, "")
    )


def _differences(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys((*a, *b)):
        path, left, right = f"{prefix}{key}", a.get(key), b.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping) and _same_kind(path, left, right):
            yield from _differences(left, right, f"{path}.")
        elif left != right:
            yield path, left, right


def _same_kind(path: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two mappings have their keys in common: sections do, laws of two kinds do not."""
    return "." not in path or left.get("kind") == right.get("kind")


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
