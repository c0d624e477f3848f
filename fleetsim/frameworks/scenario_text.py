"""A scenario as YAML, with the origin of each value beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from fleetsim.config.plain_scalar import plain_scalar
from fleetsim.config.yaml_text import to_yaml
from fleetsim.frameworks.reading import one_line

# Those that a configuration can decide, and the others.
POLICIES = ("workload", "stations", "engine", "fleet", "trainer", "sync", "admission", "buffer")
SECTIONS = (*POLICIES, "targets", "cost", "run")
_COMMENT_COLUMN = 40


def scenario_yaml(raw: Mapping[str, Any], comments: Mapping[str, str], header: Sequence[str]) -> str:
    """YAML of a raw scenario mapping; a value whose dotted path is in `comments` has its comment behind it."""
    lines = [f"# {one_line(line, 300)}" for line in header]
    for key, value in raw.items():
        if isinstance(value, Mapping):
            lines += ["", f"{key}:", *_entries(key, value, comments, 1)]
        elif isinstance(value, list) and value:
            comment = f"  # {one_line(comments[key], 160)}" if key in comments else ""
            lines += ["", f"{key}:{comment}", *(f"  - {scalar(item)}" for item in value)]
        else:
            lines.append(_line(key, value, comments.get(key)))
    return "\n".join(lines) + "\n"


def _entries(above: str, values: Mapping[str, Any], comments: Mapping[str, str], level: int) -> Iterator[str]:
    indent = "  " * level
    for key, value in values.items():
        path = f"{above}.{key}"
        if isinstance(value, Mapping) and value and path not in comments:
            yield f"{indent}{key}:"
            yield from _entries(path, value, comments, level + 1)
        else:
            yield _line(f"{indent}{key}", value, comments.get(path))


def _line(key: str, value: Any, comment: str | None) -> str:
    return commented(f"{key}: {scalar(value)}", comment, _COMMENT_COLUMN)


def commented(text: str, comment: str | None, column: int) -> str:
    """A line with its comment behind it, from a column on."""
    return f"{text:<{column}}  # {one_line(comment, 160)}" if comment else text


def scalar(value: Any) -> str:
    """A value on one line. JSON is YAML; words that need no quotes have none."""
    if isinstance(value, str):
        plain = to_yaml(value).strip().removesuffix("...").strip()
        simple = plain == value and isinstance(plain_scalar(value), str) and not set(value) & set("#:,[]{}\"'")
        return value if simple else yaml.dump(value, default_style='"', allow_unicode=True, width=10**9).strip()
    return json.dumps(value)
