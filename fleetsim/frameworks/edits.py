"""A configuration's text with one setting changed, and every other character as it was: YAML, TOML, Python.

Of YAML and Python the parser says where a value stands, and the text is cut there; TOML is tomlkit's.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml
from msgspec import Struct

from fleetsim.config.tree import put
from fleetsim.frameworks.scenario_text import scalar
from fleetsim.frameworks.settings import normal
from fleetsim.frameworks.trl import CLASSES

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
# text, key, value -> text
Edit = Callable[[str, str, Any], str]


class Unchangeable(Exception):  # noqa: N818
    """A setting that cannot be changed where it stands: it is another one's by an alias or a pointer."""


def edit_of(name: str) -> Edit | None:
    """How a file of this name is changed; None for a script, whose command takes words instead."""
    forms: dict[str, Edit] = {".yaml": in_yaml, ".yml": in_yaml, ".toml": in_toml, ".py": in_python}
    return forms.get(os.path.splitext(name)[1].lower())


class _Spot(Struct):
    """Where a value of a YAML text begins and ends. entries: of a mapping, by key; None for what is none.

    column: of its keys. flow: whether it stands in braces. fixed: whether it is an alias, or has an anchor. colon: the
    place behind its key, for a value that begins on a line of its own.
    """

    start: int
    end: int
    entries: dict[str, _Spot] | None = None
    column: int = 0
    flow: bool = False
    fixed: bool = False
    colon: int = -1


def in_yaml(text: str, key: str, value: Any) -> str:
    """The text with `a.b.c` set to a value. A mapping that is not there is made. Raises Unchangeable."""
    events = iter(yaml.parse(text, Loader=yaml.SafeLoader))
    next(events)
    empty = isinstance(next(events), yaml.StreamEndEvent)
    place, rest = _Spot(0, 0, {}) if empty else _place(next(events), events, text), key.lstrip("+-").split(".")
    while rest:
        name, taken = _named(place, rest)
        if name is None or place.entries is None:
            break
        place, rest = place.entries[name], rest[taken:]
    if not rest:
        return _replaced(text, place, value)
    if place.entries is not None:
        return _with_entry(text, place, rest, value)
    if text[place.start : place.end] not in _NULLS or place.fixed:
        raise Unchangeable(key)
    return _replaced(text, place, _nested(rest, value))


def _named(place: _Spot, rest: list[str]) -> tuple[str | None, int]:
    """The entry that the first words of a key name, and how many they are: a key of YAML may hold dots itself."""
    for taken in range(len(rest), 0, -1):
        wanted = normal(".".join(rest[:taken]))
        for name in place.entries or ():
            if normal(name) == wanted:
                return name, taken
    return None, 0


def _nested(rest: list[str], value: Any) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    put(tree, ".".join(rest), value)
    return tree


def _replaced(text: str, place: _Spot, value: Any) -> str:
    if place.fixed:
        raise Unchangeable
    old, new = text[place.start : place.end], scalar(value)
    if isinstance(value, str) and old[:1] in ("'", '"') and old[:1] not in value and "\\" not in value:
        new = f"{old[0]}{value}{old[0]}"
    if place.colon >= 0:
        between = text[place.colon : place.start].rstrip()
        return f"{text[: place.colon]} {new}{between}{text[place.end :]}"
    return f"{text[: place.start]}{' ' * (not old)}{new}{text[place.end :]}"


def _with_entry(text: str, place: _Spot, rest: list[str], value: Any) -> str:
    """A mapping with one more entry, behind its last one."""
    if place.flow:
        comma = ", " if place.entries else ""
        inner = scalar(_nested(rest, value))[1:-1]
        return f"{text[: place.end - 1]}{comma}{inner}{text[place.end - 1 :]}"
    line = "\r\n" if "\r\n" in text else "\n"
    lines = [f"{' ' * (place.column + 2 * i)}{name}:" for i, name in enumerate(rest)]
    lines[-1] += f" {scalar(value)}"
    end = text.find("\n", place.end)
    at = len(text) if end < 0 else end + 1
    before = "" if not text[:at] or text[:at].endswith("\n") else line
    return text[:at] + before + line.join(lines) + line + text[at:]


def _end(event: Any) -> int:
    """Where an event ends in the text: every one that was parsed of a text has its marks."""
    found: int = event.end_mark.index
    return found


def _column(event: Any) -> int:
    found: int = event.start_mark.column
    return found


def _place(event: Any, events: Iterator[Any], text: str) -> _Spot:
    start, end = event.start_mark.index, event.end_mark.index
    fixed = isinstance(event, yaml.AliasEvent) or event.anchor is not None
    if isinstance(event, yaml.SequenceStartEvent):
        last = end
        while not isinstance(item := next(events), yaml.SequenceEndEvent):
            last = _place(item, events, text).end
        return _Spot(start, _end(item) if event.flow_style else last, fixed=fixed)
    if not isinstance(event, yaml.MappingStartEvent):
        return _Spot(start, start + len(text[start:end].rstrip()), fixed=fixed)
    found = _Spot(start, end, {}, _column(event), bool(event.flow_style), fixed)
    while not isinstance(name := next(events), yaml.MappingEndEvent):
        _place(name, events, text)
        below = _place(next(events), events, text)
        if isinstance(name, yaml.ScalarEvent) and found.entries is not None:
            found.column = found.column if found.entries else _column(name)
            found.entries[name.value] = below
            if "\n" in text[_end(name) : below.start]:
                below.colon = text.index(":", _end(name)) + 1
        found.end = below.end
    found.end = _end(name) if found.flow else found.end
    return found


def in_toml(text: str, key: str, value: Any) -> str:
    """The text with `a.b.c` set to a value. A table that is not there is made."""
    import tomlkit

    document = tomlkit.parse(text)
    table: Any = document
    *sections, last = key.lstrip("+-").split(".")
    for section in sections:
        name = _spelled(table, section)
        if name not in table:
            table[name] = tomlkit.table()
        table = table[name]
    table[_spelled(table, last)] = value
    return tomlkit.dumps(document)


def _spelled(table: Mapping[str, Any], name: str) -> str:
    return next((known for known in table if normal(known) == normal(name)), name)


def in_python(text: str, key: str, value: Any) -> str:
    """The text with a keyword argument of its configuration object set to a value. Raises Unchangeable."""
    name = normal(key)
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and _called(node) in CLASSES]
    given = [word for call in calls for word in call.keywords if word.arg == name]
    if given:
        start, end = _span(text, given[-1].value)
        return text[:start] + repr(value) + text[end:]
    configs = [call for call in calls if call.keywords and _called(call).endswith("Config")]
    if not configs or "." in name:
        raise Unchangeable(key)
    last = configs[0].keywords[-1]
    end = _span(text, last.value)[1]
    own_line = last.lineno != configs[0].lineno
    return f"{text[:end]},{_indent(text, last) if own_line else ' '}{name}={value!r}{text[end:]}"


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _span(text: str, node: ast.expr) -> tuple[int, int]:
    """Where a node begins and ends in a text: the parser counts bytes of a line."""
    lines = text.split("\n")

    def place(line: int, column: int) -> int:
        return sum(len(before) + 1 for before in lines[: line - 1]) + len(lines[line - 1].encode()[:column].decode())

    return place(node.lineno, node.col_offset), place(node.end_lineno or 0, node.end_col_offset or 0)


def _indent(text: str, word: ast.keyword) -> str:
    line = text.split("\n")[word.lineno - 1]
    return "\r" * line.endswith("\r") + "\n" + line[: len(line) - len(line.lstrip())]
