"""Counts of instances that are no whole engines of `engine.dp` ranks are rounded up: ranks come and go together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from typing_extensions import TypeIs

from fleetsim.config.engine import EngineConfig
from fleetsim.config.fleet import FleetConfig
from fleetsim.config.scenario import Scenario


def whole_engines(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A raw scenario with its fleet, and the fleets of its resize events, rounded up to whole engines.

    What is no count stays: the validation tells about it.
    """
    result = dict(raw)
    engine, fleet, run = (raw.get(name) for name in ("engine", "fleet", "run"))
    dp = engine.get("dp", EngineConfig().dp) if isinstance(engine, Mapping) else EngineConfig().dp
    if not _count(dp) or dp == 1:
        return result
    if fleet is None or isinstance(fleet, Mapping):
        asked = (fleet or {}).get("instances", FleetConfig().instances)
        if _count(asked) and asked % dp:
            result["fleet"] = {**(fleet or {}), "instances": -(-asked // dp) * dp}
    if isinstance(run, Mapping) and isinstance(run.get("events"), (list, tuple)):
        result["run"] = {**run, "events": [_whole_event(event, dp) for event in run["events"]]}
    return result


def _whole_event(event: Any, dp: int) -> Any:
    asked = event.get("instances") if isinstance(event, Mapping) else None
    return {**event, "instances": -(-asked // dp) * dp} if _count(asked) else event


def _count(value: Any) -> TypeIs[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def rounded_note(asked: Scenario, scenario: Scenario, given: Collection[str]) -> tuple[str, ...]:
    """What was rounded up of what somebody wrote. asked: the same scenario with engines of one rank."""
    counts = [("fleet.instances", asked.fleet.instances, scenario.fleet.instances)]
    if "fleet.instances" not in given:
        counts = []
    for i, (before, after) in enumerate(zip(asked.run.events, scenario.run.events, strict=True)):
        if before.instances is not None and after.instances is not None:
            counts.append((f"run.events[{i}].instances", before.instances, after.instances))
    words = [f"{name} {before} becomes {after}" for name, before, after in counts if before != after]
    if not words:
        return ()
    return (f"{', '.join(words)}: the {scenario.engine.dp} ranks of an engine (engine.dp) come and go together",)
