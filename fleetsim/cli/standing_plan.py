"""The plan of `--plan FILE`: PLAN.json of a replay, or the document that `size --json` printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetsim.errors import InputError, Problem

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.engine.limits import EngineLimits
    from fleetsim.engine.step_time import StepTime

REMEDY = "give what replay --recommend --plan-out or size --json has written"
# Of the documents that `size --json` prints.
SIZE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Planned:
    """The fleet after the change. engine: speed and limits of the replayed window, None = the scenario's own."""

    scenario: Scenario
    engine: tuple[StepTime, EngineLimits] | None
    notes: tuple[str, ...] = ()


def planned_of(file: str, sets: Sequence[str] = ()) -> Planned:
    """The plan in a file, with `--set` on top. Raises InputError, all problems of the file at once."""
    document = _document(file)
    if document.get("kind") == "fleetsim-plan":
        return _replayed(document, file, sets)
    if document.get("command") == "size" and "recommendation" in document:
        return Planned(_sized(document, file, sets), None)
    raise _refused(file, "is no plan of fleetsim")


def _document(file: str) -> dict[str, Any]:
    from fleetsim.config.files import read_text
    from fleetsim.config.plan import MAX_BYTES

    try:
        document = json.loads(read_text(file, "--plan", MAX_BYTES))
    except json.JSONDecodeError as error:
        rule = f"is not valid JSON at line {error.lineno}: {error.msg}"
        raise InputError([Problem("--plan", file, rule, "write it again: is it complete?")]) from None
    except (ValueError, RecursionError) as error:
        raise _refused(file, f"is no usable JSON: {str(error)[:80]}") from None
    if not isinstance(document, dict):
        raise _refused(file, "is no plan of fleetsim")
    return document


def _refused(file: str, rule: str) -> InputError:
    return InputError([Problem("--plan", file, rule, REMEDY)])


def _replayed(document: dict[str, Any], file: str, sets: Sequence[str]) -> Planned:
    """The scenario of the window with the recommended changes, and the engine's speed in that window."""
    from fleetsim.config.override import parse_override
    from fleetsim.config.plan import plan_from_mapping
    from fleetsim.replay.plan_file import implied_of
    from fleetsim.replay.what_if import changed

    plan = plan_from_mapping(document, file)
    changes = {**plan.recommended.changes, "fleet.instances": plan.planned}
    changes |= dict(parse_override(text) for text in sets)
    scenario, engine, notes = changed(implied_of(plan), changes)
    return Planned(scenario, engine, notes)


def _sized(document: dict[str, Any], file: str, sets: Sequence[str]) -> Scenario:
    """The scenario that was sized, with the recommended count."""
    from fleetsim.config.load import scenario_from_mapping

    version = document.get("schema_version", SIZE_VERSION)
    if version != SIZE_VERSION:
        rule = f"this fleetsim reads documents of schema_version {SIZE_VERSION}"
        raise InputError([Problem(f"{file}: schema_version", version, rule, "upgrade fleetsim")])
    scenario, recommendation = document.get("scenario"), document["recommendation"]
    instances = recommendation.get("instances") if isinstance(recommendation, dict) else None
    if not isinstance(scenario, dict) or not isinstance(instances, int) or isinstance(instances, bool):
        raise _refused(file, "carries no scenario with a recommended count")
    fleet = scenario.get("fleet")
    sized = {**scenario, "fleet": {**(fleet if isinstance(fleet, dict) else {}), "instances": instances}}
    return scenario_from_mapping(_without_nulls(sized), file, sets)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(v) for key, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value
