"""A configuration's text with one setting changed, and every other character as it was: YAML, TOML, Python.

Of YAML and Python the parser says where a value stands, and the text is cut there; TOML is tomlkit's.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from fleetsim.config.tree import put
from fleetsim.frameworks.python_source import name_of, table_of
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


def in_yaml(text: str, key: str, value: Any) -> str:
    """The text with `a.b.c` set to a value. A mapping that is not there is made. Raises Unchangeable."""
    name, place, rest = None, next(yaml.compose_all(text, Loader=yaml.SafeLoader), None), key.lstrip("+-").split(".")
    while rest and isinstance(place, yaml.MappingNode) and (found := _named(place, rest)) is not None:
        (name, place), rest = found[0], rest[found[1] :]
        if place.start_mark.index < name.end_mark.index:  # an alias: its value stands elsewhere
            raise Unchangeable(key)
    if not rest:
        return _replaced(text, name, place, value)
    if place is None or isinstance(place, yaml.MappingNode):
        return _with_entry(text, place, rest, value)
    if text[place.start_mark.index : _end(text, place)] not in _NULLS:
        raise Unchangeable(key)
    return _replaced(text, name, place, _nested(rest, value))


def _named(place: yaml.MappingNode, rest: list[str]) -> tuple[tuple[Any, Any], int] | None:
    """The entry that the first words of a key name, and how many they are: a key of YAML may hold dots itself."""
    for taken in range(len(rest), 0, -1):
        wanted = normal(".".join(rest[:taken]))
        for entry in reversed(place.value):
            if isinstance(entry[0], yaml.ScalarNode) and normal(entry[0].value) == wanted:
                return entry, taken
    return None


def _nested(rest: list[str], value: Any) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    put(tree, ".".join(rest), value)
    return tree


def _replaced(text: str, name: Any, place: Any, value: Any) -> str:
    start, end = place.start_mark.index, _end(text, place)
    old, new = text[start:end], scalar(value)
    if old.startswith("&"):
        raise Unchangeable
    if isinstance(value, str) and old[:1] in ("'", '"') and old[:1] not in value and "\\" not in value:
        new = f"{old[0]}{value}{old[0]}"
    behind = 0 if name is None else name.end_mark.index
    if "\n" in text[behind:start] and name is not None:  # the value begins on a line of its own
        colon = text.index(":", behind) + 1
        return f"{text[:colon]} {new}{text[colon:start].rstrip()}{text[end:]}"
    return f"{text[:start]}{' ' * (not old)}{new}{text[end:]}"


def _with_entry(text: str, place: Any, rest: list[str], value: Any) -> str:
    """A mapping with one more entry, behind its last one; None: a text without any."""
    end = 0 if place is None else _end(text, place)
    if place is not None and place.flow_style:
        comma = ", " if place.value else ""
        inner = scalar(_nested(rest, value))[1:-1]
        return f"{text[: end - 1]}{comma}{inner}{text[end - 1 :]}"
    line = "\r\n" if "\r\n" in text else "\n"
    column = place.value[0][0].start_mark.column if place is not None else 0
    lines = [f"{' ' * (column + 2 * i)}{name}:" for i, name in enumerate(rest)]
    lines[-1] += f" {scalar(value)}"
    end = text.find("\n", end)
    at = len(text) if end < 0 else end + 1
    before = "" if not text[:at] or text[:at].endswith("\n") else line
    return text[:at] + before + line.join(lines) + line + text[at:]


def _end(text: str, node: Any) -> int:
    """Where a node ends: one without brackets, where its last part does."""
    start, end = int(node.start_mark.index), int(node.end_mark.index)
    if isinstance(node, yaml.ScalarNode):
        return start + len(text[start:end].rstrip())
    if node.flow_style or not node.value:
        return end
    if isinstance(node, yaml.SequenceNode):
        return max(start, _end(text, node.value[-1]))
    name, last = node.value[-1]
    return max(int(name.end_mark.index), _end(text, last))  # an alias ends on the line of its key


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
    after = tomlkit.dumps(document)
    # What is new comes behind the last key, not behind the comment of the next table.
    same = next((at for at, (a, b) in enumerate(zip(text, after, strict=False)) if a != b), len(text))
    start = text.rfind("\n", 0, same) + 1
    added, lines = after[start : start + len(after) - len(text)], text[:start].splitlines(keepends=True)
    while lines and lines[-1].lstrip()[:1] in ("", "#"):
        lines.pop()
    head = "".join(lines)
    moved = head + added + text[len(head) :]
    new = bool(added) and text[:start] + added + text[start:] == after
    return moved if new and tomlkit.parse(moved).unwrap() == document.unwrap() else after


def _spelled(table: Mapping[str, Any], name: str) -> str:
    return next((known for known in table if normal(known) == normal(name)), name)


def in_python(text: str, key: str, value: Any) -> str:
    """The text with a keyword argument of its configuration object set to a value. Raises Unchangeable."""
    loader, _, name = normal(key).rpartition(".")
    nodes = list(ast.walk(ast.parse(text)))
    if table := table_of(nodes):
        return _in_table(text, table, key.lstrip("+-"), value)
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    calls = [call for call in calls if name_of(call) in ((loader,) if loader else CLASSES)]
    given = [word.value for call in calls for word in call.keywords if word.arg == name]
    given = given or [call.args[0] for call in calls if loader and name == "model_name" and call.args]
    if given:
        start, end = _span(text, given[0 if loader else -1])
        return text[:start] + repr(value) + text[end:]
    configs = [call for call in calls if call.keywords and (loader or name_of(call).endswith("Config"))]
    if not configs:
        raise Unchangeable(key)
    last = configs[0].keywords[-1]
    end = _span(text, last.value)[1]
    own_line = last.lineno != configs[0].lineno
    return f"{text[:end]},{_indent(text, last) if own_line else ' '}{name}={value!r}{text[end:]}"


def _in_table(text: str, table: ast.Dict, key: str, value: Any) -> str:
    """A table's text with a key of it set: where it stands, or behind the first key of the table that it belongs to."""
    section, _, rest = key.partition(".")
    found = [v for k, v in zip(table.keys, table.values, strict=True) if k and ast.literal_eval(k) == section]
    if rest and found and isinstance(found[0], ast.Dict):
        return _in_table(text, found[0], rest, value)
    if found and not rest:
        start, end = _span(text, found[0])
        return text[:start] + repr(value) + text[end:]
    if found or not table.keys or table.keys[0] is None:
        raise Unchangeable(key)
    for part in reversed(rest.split(".") if rest else []):
        value = {part: value}
    start = _span(text, table.keys[0])[0]
    gap = _indent(text, table.keys[0]) if text[:start].endswith((" ", "\t")) else " "
    return f"{text[:start]}{text[start]}{section}{text[start]}: {value!r},{gap}{text[start:]}"


def _span(text: str, node: ast.expr) -> tuple[int, int]:
    """Where a node begins and ends in a text: the parser counts bytes of a line."""
    lines = text.split("\n")

    def place(line: int, column: int) -> int:
        return sum(len(before) + 1 for before in lines[: line - 1]) + len(lines[line - 1].encode()[:column].decode())

    return place(node.lineno, node.col_offset), place(node.end_lineno or 0, node.end_col_offset or 0)


def _indent(text: str, word: ast.keyword | ast.expr) -> str:
    line = text.split("\n")[word.lineno - 1]
    return "\r" * line.endswith("\r") + "\n" + line[: len(line) - len(line.lstrip())]
