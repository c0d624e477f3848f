"""YAML, TOML and JSON files of the frameworks as plain nested values.

The frameworks' YAML is wider than a scenario's: anchors, merge keys, tags, several documents. It is read as parser
events all the same, so that nothing in it constructs anything, and with limits on size and depth.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import yaml

from fleetsim.config.yaml_events import Builder, document
from fleetsim.errors import InputError, Problem
from fleetsim.json_text import from_json

MAX_NODES = 100_000
MAX_DEPTH = 40
_MOST_DOTS = 100
_KEY_LIKE = re.compile(r"[\w.\"' \t-]+")


def tree_of_yaml(text: str, where: str) -> Any:
    """The first document of a YAML text. Raises InputError for text that is no YAML, too many values, too deep."""
    return document(text, where, _Tree)


def tree_of_toml(text: str, where: str) -> Any:
    """A TOML document. Raises InputError."""
    if any(run.count(".") > _MOST_DOTS for run in _KEY_LIKE.findall(text)):
        raise _too_large(where)  # the parser keeps every prefix of a dotted key
    try:
        return _small(tomllib.loads(text), where)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise InputError([Problem(where, str(error)[:200], "is not valid TOML", "check this line")]) from None


def tree_of_json(text: str, where: str) -> Any:
    """A JSON document. Raises InputError."""
    try:
        return _small(from_json(text), where)
    except ValueError as error:
        rule = f"is not valid JSON: {str(error)[:200]}"
        raise InputError([Problem(where, None, rule, "mend it, or give the right file")]) from None


def _small(tree: Any, where: str) -> Any:
    """The tree, if it keeps the limits. Raises InputError."""
    level, depth, nodes = [tree], 0, 0
    while level:
        depth, nodes = depth + 1, nodes + len(level)
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            raise _too_large(where)
        level = [
            below
            for value in level
            for below in (value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
        ]
    return tree


def _too_large(where: str) -> InputError:
    rule = f"holds more than {MAX_NODES:,} values, or more than {MAX_DEPTH} levels"
    return InputError([Problem(where, "...", rule, "give the right file")])


class _Tree(Builder):
    """Of several documents the first; an alias is the value that its anchor names."""

    def __init__(self, events: Iterator[Any], where: str) -> None:
        super().__init__(events, where)
        self.anchors: dict[str, tuple[Any, int, int]] = {}  # value, values in it, levels below it
        self.deepest = 0

    def document(self) -> Any:
        """The first document; None where there is none."""
        next(self.events)  # the stream's start, then the document's or the stream's end
        return None if isinstance(next(self.events), yaml.StreamEndEvent) else self.value(next(self.events), 1)

    def value(self, event: Any, depth: int) -> Any:
        """What begins with this event."""
        if isinstance(event, yaml.AliasEvent):
            value, nodes, levels = self.anchors.get(str(event.anchor), (None, 1, 0))
            self._count(event, nodes, depth + levels)
            return value
        nodes_before, deepest_before = self.nodes, self.deepest
        self.deepest = depth
        self._count(event, 1, depth)
        value = self.content(event, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.nodes - nodes_before, self.deepest - depth)
        self.deepest = max(self.deepest, deepest_before)
        return value

    def _count(self, event: Any, nodes: int, depth: int) -> None:
        """What an alias repeats counts as often as it stands there."""
        self.nodes += nodes
        self.deepest = max(self.deepest, depth)
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise _too_large(f"{self.where}:{event.start_mark.line + 1}")

    def mapping(self, depth: int) -> dict[str, Any]:
        """A mapping, with those that it merges."""
        mapping: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(key_event := next(self.events), yaml.MappingEndEvent):
            key = self.value(key_event, depth + 1)
            value = self.value(next(self.events), depth + 1)
            if key == "<<":
                for other in value if isinstance(value, list) else [value]:
                    for name, inherited in other.items() if isinstance(other, dict) else ():
                        merged.setdefault(name, inherited)
            else:
                name = key_event.value if isinstance(key_event, yaml.ScalarEvent) else str(key)[:100]
                mapping[name] = value
        return {**merged, **mapping}
