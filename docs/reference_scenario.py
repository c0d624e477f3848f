"""docs/reference/scenario.md: every key of a scenario file, from the models that read one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from reference_cli import cell

from fleetsim.config.load import json_schema

INTRO = """\
# Scenario files

A scenario says only what differs from the defaults: every section and key may be left out, an unknown key is an error,
and all problems of a file are told at once. `fleetsim scenario init` writes one to start from, `scenario check` reads
one, `scenario schema` prints a JSON Schema for editors, with every bound. `--set section.key=value` sets any key on a
command line; the heading is the section. In parentheses stand type, bounds (0..1 has both ends), unit and, behind a
semicolon, the default or null.

```yaml
schema_version: 1
workload: {prompt_tokens: 512, output_tokens: {mean: 1536, cv: 1.0, max: 8192}, group_size: 8}
engine: {gpu: H100, model: Qwen/Qwen2.5-7B, tp: 1}
fleet: {instances: 6}
trainer: {gpus: 8, batch_samples: 512, fixed_s: 20}
```
"""
CONSTANTS = ("ConstantTokens", "ConstantSeconds")
LAWS = ("Lognormal", "Gamma", "Empirical", "Histogram")
# Keys that the introduction of the laws says of all of them.
SAID_OF_LAWS = ("kind", "max")
LAW_INTRO = """\
## Laws of lengths and latencies

Where a key takes a *law*, it takes a bare number (always the same: `{kind: constant, value: 512}`) or one of these
mappings, whose `kind` is the heading. It may be left out where the other keys say which law it is; mean, median, cv and
p99 without `kind` mean lognormal. They describe the law before the cap, in tokens or seconds: `max` (number > 0) of any
law cuts every value above it to `max`, as an engine's `max_tokens` does.
"""
# Endings of names and what they are counted in, the longest first.
UNITS = (
    ("gb_s", "GB/s"),
    ("tb_s", "TB/s"),
    ("tflop_s", "TFLOP/s"),
    ("_usd_per_gpu_h", "US dollars / GPU-hour"),
    ("_tok_s", "tokens / s"),
    ("tok_s_per_gpu", "tokens / s / GPU"),
    ("_bytes_s", "bytes / s"),
    ("_bytes", "bytes"),
    ("_p99_steps", "steps"),
    ("per_token_s", "s / token"),
    ("_s", "s"),
    ("_tokens", "tokens"),
    ("_samples", "samples"),
    ("_steps", "steps"),
    ("gpus", "GPUs"),
    ("_share", "share"),
    ("_fraction", "share"),
)
WORDS = {"integer": "integer", "number": "number", "string": "text", "boolean": "true/false", "null": "null"}
# A bound beyond this only keeps numbers that a computer can hold.
FAR = 1e5
# A type of more letters is written once in a section.
LONG = 60
BOUNDS = (("exclusiveMinimum", ">"), ("minimum", "≥"), ("exclusiveMaximum", "<"), ("maximum", "≤"))


def page() -> str:
    """The whole page."""
    schema = json_schema()
    parts = [INTRO, "## Top level\n", *_top(schema)]
    for name, field in schema["properties"].items():
        model = _model(schema, field)
        if model is not None:
            parts += [f"## {name}\n", *_section(schema, model, name)]
    parts.append(LAW_INTRO)
    for law in LAWS:
        model = schema["$defs"][law]
        kind = model["properties"]["kind"]["const"]
        parts += [f"### {kind}\n", *_section(schema, model, "", law=True)]
    return "\n".join(parts) + "\n"


def _top(schema: Mapping[str, Any]) -> Iterator[str]:
    """The keys of the first level: plain values, then the names of the sections."""
    sections = [name for name, field in schema["properties"].items() if _model(schema, field) is not None]
    plain = {name: field for name, field in schema["properties"].items() if name not in sections}
    yield "\n".join(_row(schema, name, field, required=False) for name, field in plain.items()) + "\n"
    yield f"Sections: {', '.join(f'[{name}](#{_anchor(name)})' for name in sections)}.\n"


def _section(
    schema: Mapping[str, Any],
    model: Mapping[str, Any],
    path: str,
    *,
    law: bool = False,
    alike: tuple[str, Mapping[str, Any]] | None = None,
) -> Iterator[str]:
    """A model's table, then those of the models below it.

    alike: a section and its model, whose keys this one has, too.
    """
    if alike is None or model["properties"].keys() != alike[1]["properties"].keys():
        yield cell(model.get("description", "").partition("\n\n")[0]) + "\n"
    rows: list[str] = []
    below: list[tuple[str, Mapping[str, Any]]] = []
    types: dict[str, str] = {}
    if alike is not None:
        more = "" if model["properties"].keys() == alike[1]["properties"].keys() else ", and:"
        yield f"The keys of [{alike[0]}](#{_anchor(alike[0])}){more or '.'}\n"
    for name, field in model["properties"].items():
        if (alike is not None and name in alike[1]["properties"]) or (law and name in SAID_OF_LAWS):
            continue
        inner = None if law else _model(schema, field)
        if inner is not None:
            here = f"{path}.{name}" + ("[]" if "items" in field else ".NAME" if _named(field) else "")
            section = next((top for top, of in schema["properties"].items() if _model(schema, of) is inner), None)
            if section is None:
                below.append((here, inner))
            here = section or here
            kind = f"[{'list' if 'items' in field else 'mapping'}](#{_anchor(here)})"
            said = cell(field.get("description"))
            rows.append(f"- `{name}` {kind}" + (f": {said}" if said else ""))
            continue
        rows.append(_row(schema, name, field, required=name in model.get("required", ()), types=types))
    yield "\n".join(rows) + "\n"
    for n, (here, inner) in enumerate(below):
        yield f"### {here}\n"
        same = next((one for one in below[:n] if one[1]["properties"].items() <= inner["properties"].items()), None)
        yield from _section(schema, inner, here, alike=same)


def _anchor(title: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _row(
    schema: Mapping[str, Any],
    name: str,
    field: Mapping[str, Any],
    *,
    required: bool,
    types: dict[str, str] | None = None,
) -> str:
    """A key: type, unit, default, meaning. types: each long type with the first key of the section that has it."""
    meaning = field.get("description") or next(
        (o["description"] for o in field.get("anyOf", ()) if "description" in o), ""
    )
    unit = _unit(name)
    said = _type(schema, field).removesuffix(" or null")
    if types is not None and len(said) > LONG:
        first = types.setdefault(said, name)
        said = said if first == name else f"as `{first}`"
    said += f", {unit.replace(' / ', '/')}" if unit and unit not in meaning else ""
    default = _short(field.get("default"))
    if required:
        said += ", required"
    elif default is not None:
        said += f"; `{json.dumps(default, ensure_ascii=False)}`"
    return f"- `{name}` ({said})" + (f": {cell(meaning)}" if meaning else "")


def _short(value: Any) -> Any:
    """A default without what it leaves out itself; a law that is always the same is its value; 1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, dict):
        return value
    if value.get("kind") == "constant":
        return _short(value["value"])
    return {k: _short(v) for k, v in value.items() if v is not None}


def _unit(name: str) -> str:
    return next((unit for ending, unit in UNITS if name.endswith(ending)), "")


def _model(schema: Mapping[str, Any], field: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The model behind a field or behind the items of a list; None where it is a plain value or a law."""
    refs = [field, field.get("items", {}), _named(field), *field.get("anyOf", ())]
    names = [r["$ref"].rpartition("/")[2] for r in refs if "$ref" in r]
    if not names or any(name in (*CONSTANTS, *LAWS) for name in names):
        return None
    found: Mapping[str, Any] = schema["$defs"][names[0]]
    return found


def _named(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """What each section under a name of its own is; empty where a field has none."""
    below = field.get("additionalProperties")
    return below if isinstance(below, Mapping) else {}


def _type(schema: Mapping[str, Any], field: Mapping[str, Any]) -> str:
    """Type and bounds, in words."""
    options = field.get("anyOf")
    if options is not None:
        if any("$ref" in o for o in options):
            return "[law](#laws-of-lengths-and-latencies)"
        return " or ".join(_type(schema, o) for o in options)
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {_type(schema, field['items'])}" if "items" in field else "pair"
    words = WORDS.get(field.get("type", ""), field.get("type", ""))
    bounds = {sign: f"{field[key]:,g}" for key, sign in BOUNDS if key in field and abs(field[key]) < FAR}
    if bounds.keys() == {"≥", "≤"}:
        return f"{words} {bounds['≥']}..{bounds['≤']}"
    return " ".join([words, ", ".join(f"{sign}{bound}" for sign, bound in bounds.items())]).strip()
