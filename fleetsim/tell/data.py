"""Results as one JSON document: sorted keys, full precision, no timestamps, no NaN. Same seed, same bytes."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fleetsim
from fleetsim.errors import InputError, Problem
from fleetsim.records import field_names
from fleetsim.visible import visible_json

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.estimates import Estimate
    from fleetsim.tell.facts import Facts

SCHEMA_VERSION = 2


def dumps(document: Mapping[str, Any]) -> str:
    """The text of a document. Numbers that JSON does not know (NaN, infinities) become null."""
    return visible_json(json.dumps(plain(document), indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False))


def plain(value: Any) -> Any:
    """Only what JSON knows: records and mappings as objects, tuples as lists, numpy numbers as Python's."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if names := field_names(value):
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(below) for key, below in value.items()}
    if isinstance(value, (Sequence, set, frozenset)):
        return [plain(below) for below in value]
    return plain(value.item())


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows under the names of all their columns; what is no number or text stands as JSON."""
    lines = io.StringIO()
    writer = csv.DictWriter(lines, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = {name: plain(value) for name, value in row.items()}
        writer.writerow({n: json.dumps(c) if isinstance(c, (dict, list, bool)) else c for n, c in cells.items()})
    return lines.getvalue()


def estimate(value: Estimate) -> dict[str, float]:
    """mean, ci_low, ci_high."""
    return {"mean": value.mean, "ci_low": value.ci_low, "ci_high": value.ci_high}


def result_schema(command: str) -> str:
    """The JSON Schema of what `fleetsim COMMAND --json` prints. Raises InputError for one that has none."""
    places = {place.stem: place for place in (Path(__file__).parent / "schemas").glob("*.json")}
    name = command.strip().replace(" ", "-")
    if name not in places:
        raise InputError([Problem("--result", command, "has no schema", f"one of {', '.join(sorted(places))}")])
    return places[name].read_text(encoding="utf-8")


def told(facts: Facts) -> dict[str, Any]:
    """A result's facts, and what a terminal shows first of them: the answer, and the lines by their labels."""
    lines: dict[str, str] = {}
    for label, said in facts.lines:
        lines[label] = f"{lines[label]}; {said}" if label in lines else str(said)
    return {"facts": facts.data(), "brief": {"answer": facts.answer, "tone": facts.tone, **lines}}


def versions(command: str) -> dict[str, Any]:
    """What every document starts from."""
    return {"schema_version": SCHEMA_VERSION, "command": command, "fleetsim_version": fleetsim.__version__}


def head(command: str, scenario: Scenario) -> dict[str, Any]:
    """What a document of one scenario starts from: versions, seeds, the scenario with all defaults written out."""
    return {
        **versions(command),
        "scenario": scenario.model_dump(mode="json"),
        "seeds": [{"seed": scenario.run.seed, "replication": r} for r in range(scenario.run.replications)],
    }
