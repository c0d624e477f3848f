"""fleetsim/tell/schemas: JSON Schemas of what `--json` prints, from the documents that tests keep (tests/golden/said).

The keys of the first level that every kept document of a command has are required; a type is what was seen; a value
that was null alone may be anything; a number may be null, for JSON does not know all, and a text, where there is
nothing to say; objects may have more keys. So an answer that loses a key, or gives it another type, no longer fits.
Scenarios have a schema of their own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fleetsim.tell.data import SCHEMA_VERSION

KEPT = Path(__file__).resolve().parents[1] / "tests" / "golden" / "said"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Mappings of so many names hold data by their own names: metrics, settings, SHA-256 of files.
_MANY = 12
_SCENARIO = {"workload", "engine", "fleet", "trainer"}
_TYPES = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}


def schemas() -> dict[str, str]:
    """Name of the file -> its text, one a command."""
    found: dict[str, list[Any]] = defaultdict(list)
    for document in documents():
        found[document["command"]].append(document)
    return {f"{name.replace(' ', '-')}.json": text(name, of) for name, of in sorted(found.items())}


def documents() -> Iterator[dict[str, Any]]:
    """Every document of a result that the tests keep."""
    for place in sorted(KEPT.glob("*.txt")):
        _, begun, rest = place.read_text(encoding="utf-8").partition("--- stdout\n{")
        if begun:
            document = json.JSONDecoder().raw_decode("{" + rest)[0]
            if "schema_version" in document and "command" in document:
                yield _unfolded(document)


def _unfolded(value: Any) -> Any:
    """The document with a list where the tests keep the ends of a long one (tests/golden/shortened.py)."""
    if isinstance(value, dict):
        if {"count", "first", "last"} <= value.keys() <= {"count", "first", "last", "numbers", "sum", "texts", "crc"}:
            return [_unfolded(value["first"]), _unfolded(value["last"])]
        return {key: _unfolded(below) for key, below in value.items()}
    return [_unfolded(below) for below in value] if isinstance(value, list) else value


def text(command: str, of: Sequence[Any]) -> str:
    """The schema of a command's documents."""
    name = command.replace(" ", "-")
    head = {
        "$schema": DIALECT,
        "$id": f"urn:fleetsim:result:{name}:{SCHEMA_VERSION}",
        "title": f"fleetsim {command} --json",
    }
    made = schema(of)
    made["required"] = sorted(set.intersection(*map(set, of)))
    lines = ",\n".join(
        f'  "{key}": {json.dumps(made["properties"].pop(key), sort_keys=True)}' for key in sorted(made["properties"])
    )
    rest = json.dumps({**head, **made}, sort_keys=True).replace('"properties": {}', f'"properties": {{\n{lines}\n}}')
    return rest + "\n"


def schema(values: Sequence[Any]) -> dict[str, Any]:
    """Of values that stand in one place."""
    types = {_TYPES[type(v)] for v in values if not isinstance(v, dict | list)}
    types |= {"null"} if types & {"number", "string"} else set()
    objects, lists = ([v for v in values if isinstance(v, kind)] for kind in (dict, list))
    if types == {"null"} and not objects and not lists:
        return {}
    made: dict[str, Any] = {}
    if any(value.keys() >= _SCENARIO for value in objects):
        return {"type": ["null", "object"], "description": "fleetsim scenario schema"}
    if objects:
        types.add("object")
        names = sorted({name for value in objects for name in value})
        alike = [schema([value[name] for value in objects if name in value]) for name in names]
        if len(names) > _MANY and all(one == alike[0] for one in alike):
            made["additionalProperties"] = alike[0]
        else:
            made["properties"] = dict(zip(names, alike, strict=True))
    if lists:
        types.add("array")
        items = [item for value in lists for item in value]
        made["items"] = schema(items) if items else {}
    return {"type": sorted(types) if len(types) > 1 else next(iter(types), "null"), **made}
