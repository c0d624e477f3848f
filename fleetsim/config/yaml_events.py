"""A YAML document from its parser's events: plain values, built by hand, with limits; and written to be read back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from fleetsim.config.plain_scalar import plain_scalar
from fleetsim.errors import InputError, Problem
from fleetsim.faces import text

MAX_NODES = 50_000
MAX_DEPTH = 40
# Value, rule and remedy of a document that is deeper.
_TOO_DEEP = (f"> {MAX_DEPTH} levels", "is nested too deeply", "a scenario has four levels")
_MAX_DUPLICATES = 100

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def document(text: str, where: str, kind: type[Builder] | None = None) -> Any:
    """The value of one YAML document; raises InputError as `yaml_text.from_yaml`, which asks it, says.

    kind: of a document that may hold more than a scenario does.
    """
    events: Iterator[Any] = iter(yaml.parse(text, Loader=_Parser))
    builder = (kind or Builder)(events, where)
    try:
        value = builder.document()
    except yaml.YAMLError as error:
        raise InputError([_no_yaml(error, where)]) from None
    if builder.problems:
        raise InputError(builder.problems)
    return value


def _no_yaml(error: yaml.YAMLError, where: str) -> Problem:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be parsed"
    line = f":{mark.line + 1}" if mark is not None else ""
    if "nesting" in str(what):  # newer parsers of YAML stop by themselves
        return Problem(text("{}{}", where, line), *_TOO_DEEP)
    return Problem(
        text("{}{}", where, line), str(what), "is not valid YAML", "check indentation, colons and quotes on this line"
    )


class Builder:
    """Builds plain values from parser events, one document, counting nodes and depth as it goes."""

    def __init__(self, events: Iterator[Any], where: str) -> None:
        self.events, self.where = events, where
        self.problems: list[Problem] = []
        self.nodes = 0

    def document(self) -> Any:
        """The only document."""
        next(self.events)  # stream start
        event = next(self.events)
        if isinstance(event, yaml.StreamEndEvent):
            self._stop(None, "empty", "holds no YAML document", "write at least one section, or start from a preset")
        value = self.value(next(self.events), 1)
        next(self.events)  # document end
        if not isinstance(next(self.events), yaml.StreamEndEvent):
            self._stop(None, "---", "holds more than one YAML document", "keep one document per file")
        return value

    def _stop(self, event: Any, value: object, rule: str, remedy: str) -> None:
        line = "" if event is None else f":{event.start_mark.line + 1}"
        raise InputError([*self.problems, Problem(text("{}{}", self.where, line), value, rule, remedy)])

    def value(self, event: Any, depth: int) -> Any:
        """What begins with this event."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self._stop(event, f"> {MAX_NODES} nodes", "holds too many values", "a scenario has a few hundred at most")
        if depth > MAX_DEPTH:
            self._stop(event, *_TOO_DEEP)
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            self._stop(event, f"{sign}{event.anchor}", "anchors and aliases are refused", "write the value out")
        if event.tag is not None and event.tag != "!":
            self._stop(event, event.tag, "YAML tags are refused", "write a plain value")
        return self.content(event, depth)

    def content(self, event: Any, depth: int) -> Any:
        """The same, whatever is said of it."""
        if isinstance(event, yaml.ScalarEvent):
            return plain_scalar(event.value) if event.implicit[0] else event.value
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
                items.append(self.value(event, depth + 1))
            return items
        return self.mapping(depth)

    def mapping(self, depth: int) -> dict[str, Any]:
        """A mapping, of which the beginning is read."""
        mapping: dict[str, Any] = {}
        while not isinstance(key_event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(key_event, yaml.ScalarEvent):
                self._stop(key_event, "? ...", "a key must be a single word", "write key: value")
            self.value(key_event, depth + 1)  # for its checks; a key is its own text, whatever it looks like
            key = key_event.value
            value = self.value(next(self.events), depth + 1)
            if key in mapping and len(self.problems) < _MAX_DUPLICATES:
                self.problems.append(
                    Problem(
                        text("{}:{}", self.where, key_event.start_mark.line + 1),
                        key,
                        "this key is given twice in the same mapping",
                        "keep one of them",
                    )
                )
            mapping[key] = value
        return mapping


# --- Plain values as YAML that reads back equal: laws and lists of scalars on one line, no anchors, quotes if needed.


def dumped(value: Any) -> str:
    """The YAML of a value; its keys keep their order."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, default_flow_style=False
    )
    return text


class _Dumper(yaml.SafeDumper):
    """SafeDumper that writes no anchors and quotes every string that would read back as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = isinstance(plain_scalar(text), str) and text.isprintable()  # else a line break could be folded away
    lines = text.split("\n")
    block = len(lines) > 1 and all(line.isprintable() and line.strip(" ") == line != "" for line in lines)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else "|" if block else '"')


def _mapping(dumper: yaml.SafeDumper, mapping: dict[str, Any]) -> yaml.MappingNode:
    return dumper.represent_mapping(
        "tag:yaml.org,2002:map", mapping, flow_style="kind" in mapping and "name" not in mapping
    )


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    scalars = not any(isinstance(item, (dict, list)) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=scalars)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(dict, _mapping)
_Dumper.add_representer(list, _list)
