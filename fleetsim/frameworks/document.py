"""The result as text: the scenario as YAML with the origin of each value beside it, and the report of what was done."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from fleetsim.config.yaml_text import plain_scalar, to_yaml
from fleetsim.frameworks.draft import Taken, one_line

if TYPE_CHECKING:
    from fleetsim.frameworks.convert import Imported

SECTIONS = (
    "workload",
    "engine",
    "fleet",
    "trainer",
    "sync",
    "admission",
    "buffer",
    "targets",
    "cost",
    "run",
)
_COMMENT_COLUMN = 40
_LIST_LIMIT = 40


def scenario_yaml(raw: Mapping[str, Any], comments: Mapping[str, str], header: Sequence[str]) -> str:
    """YAML of a raw scenario mapping; a value whose dotted path is in `comments` has its comment behind it."""
    lines = [f"# {one_line(line, 300)}" for line in header]
    for key, value in raw.items():
        if isinstance(value, Mapping):
            lines += ["", *_section(key, value, comments)]
        elif isinstance(value, list) and value:
            comment = f"  # {one_line(comments[key], 160)}" if key in comments else ""
            lines += ["", f"{key}:{comment}", *(f"  - {_scalar(item)}" for item in value)]
        else:
            lines.append(f"{key}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def _section(name: str, values: Mapping[str, Any], comments: Mapping[str, str]) -> Iterator[str]:
    yield f"{name}:"
    for key, value in values.items():
        yield from _entry(f"{name}.{key}", key, value, comments, 1)


def _entry(path: str, key: str, value: Any, comments: Mapping[str, str], level: int) -> Iterator[str]:
    indent = "  " * level
    if isinstance(value, Mapping) and value and path not in comments:
        yield f"{indent}{key}:"
        for below, inner in value.items():
            yield from _entry(f"{path}.{below}", below, inner, comments, level + 1)
        return
    text = f"{indent}{key}: {_scalar(value)}"
    comment = comments.get(path)
    yield text if not comment else f"{text:<{_COMMENT_COLUMN}}  # {one_line(comment, 160)}"


def _scalar(value: Any) -> str:
    """A value on one line. JSON is YAML; words that need no quotes have none."""
    if isinstance(value, str):
        plain = to_yaml(value).strip().removesuffix("...").strip()
        simple = plain == value and isinstance(plain_scalar(value), str) and not set(value) & set("#:,[]{}\"'")
        return value if simple else yaml.dump(value, default_style='"', allow_unicode=True, width=10**9).strip()
    return json.dumps(value)


def report_lines(result: Imported, verbose: bool = False) -> Iterator[str]:
    """What was taken, assumed and left out, for a terminal."""
    yield f"{result.framework}: {result.mode}; the preset {result.preset} has the same semantics"
    facts = [t for t in result.taken if not _is_mode(t, result)]
    yield f"took {len(facts)} values:"
    for t in facts:
        yield f"  {' and '.join(t.settings)}  ->  {t.path} = {one_line(t.value)}" + (f"  ({t.why})" if t.why else "")
    yield "from the mode:"
    for t in result.taken:
        if _is_mode(t, result):
            yield f"  {t.path} = {one_line(t.value)}: {t.why}"
    yield f"assumed {len(result.assumed)} values:"
    for a in result.assumed:
        yield f"  {a.path} = {one_line(a.value)}: {a.why}" + (f"; {a.remedy}" if a.remedy else "")
    if result.not_modelled:
        yield "does not model:"
        for n in result.not_modelled:
            yield f"  {n.setting}: {n.why}"
    yield from _listed("not understood", result.not_understood, verbose, always=True)
    yield from _listed("expressions that were not followed", result.remarks, verbose)
    yield from _listed("keys without a bearing on the scenario", result.not_looked_at, verbose)


def _is_mode(taken: Taken, result: Imported) -> bool:
    return taken.settings == (result.mode,)


def _listed(what: str, items: Sequence[str], verbose: bool, always: bool = False) -> Iterator[str]:
    if not items:
        return
    if not (verbose or always):
        yield f"{what}: {len(items)} (--verbose lists them)"
        return
    shown = items if verbose else items[:_LIST_LIMIT]
    yield f"{what}:"
    for item in shown:
        yield f"  {one_line(item)}"
    if len(shown) < len(items):
        yield f"  and {len(items) - len(shown)} more (--verbose)"


def report_document(result: Imported) -> dict[str, Any]:
    """The same as one JSON document, the scenario in it."""
    return {
        "schema_version": 1,
        "command": "scenario from",
        "framework": result.framework,
        "mode": result.mode,
        "preset": result.preset,
        "scenario": result.raw,
        "took": [{"path": t.path, "value": t.value, "settings": list(t.settings), "why": t.why} for t in result.taken],
        "assumed": [{"path": a.path, "value": a.value, "why": a.why, "remedy": a.remedy} for a in result.assumed],
        "not_modelled": [{"setting": n.setting, "why": n.why} for n in result.not_modelled],
        "not_understood": list(result.not_understood),
        "not_followed": list(result.remarks),
        "not_looked_at": list(result.not_looked_at),
    }
