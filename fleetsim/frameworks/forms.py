"""Settings as text: a framework's own YAML, TOML or launch script, with a comment behind each of them."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fleetsim.config.tree import put
from fleetsim.frameworks.common import Framework
from fleetsim.frameworks.reading import one_line
from fleetsim.frameworks.scenario_text import scenario_yaml

_COMMENT_COLUMN = 60
_WIDTH = 118


def written(
    framework: Framework, start: str, settings: Mapping[str, Any], comments: Mapping[str, str], header: Sequence[str]
) -> str:
    """The text of a file. start: the command that runs it. comments, settings: by dotted key."""
    form = framework.form
    if form == "yaml":
        settings = dict(sorted(settings.items(), key=lambda item: "." in item[0]))  # sections after single keys
        return "\n".join(
            [*_comments(header), f"# Start it with: {start}", scenario_yaml(_nested(settings), comments, [])]
        )
    if form == "toml":
        return _toml(settings, comments, [*header, f"Start it with: {start}"])
    inside = {key: str(value) for key, value in settings.items() if f"{{{key}}}" in start}
    word = WORDS[form]
    lines = ["#!/usr/bin/env bash", *_comments(header)]
    apart = {key for key in settings if key in inside or key.startswith(tuple(framework.beside))}
    for prefix, command in framework.beside.items():
        own = {key: value for key, value in settings.items() if key.startswith(prefix)}
        if own:
            name = prefix.strip(".").upper()
            lines += [*_array(name, *_as_json(own, comments, prefix), _flag, prefix), f'{command} "${{{name}[@]}}" &']
    lines += _array("SETTINGS", {k: v for k, v in settings.items() if k not in apart}, comments, word)
    for key, text in inside.items():
        start = start.replace(f"{{{key}}}", text)
    return "\n".join([*lines, f'{start} "${{SETTINGS[@]}}" "$@"']) + "\n"


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        put(tree, key, value)
    return tree


def _array(
    name: str,
    settings: Mapping[str, Any],
    comments: Mapping[str, str],
    word: Callable[[str, Any], str],
    prefix: str = "",
) -> Iterator[str]:
    """A shell array of words, each setting on a line of its own."""
    yield f"{name}=("
    for key, value in settings.items():
        text = word(key.removeprefix(prefix), value)
        if text:
            yield _with(f"    {text}", comments.get(key))
    yield ")"


def _as_json(
    settings: Mapping[str, Any], comments: Mapping[str, str], prefix: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings of a section as one, whose value is a JSON object."""
    folded: dict[str, Any] = {}
    said: dict[str, list[str]] = {}
    for key, value in settings.items():
        section, dot, name = key.removeprefix(prefix).partition(".")
        into = prefix + section
        said.setdefault(into, []).append(comments.get(key, ""))
        folded[into] = {**folded.get(into, {}), name: value} if dot else value
    texts = {k: json.dumps(v) if isinstance(v, dict) else v for k, v in folded.items()}
    return texts, {key: ", ".join(filter(None, all_)) for key, all_ in said.items()}


def _override(key: str, value: Any) -> str:
    """Hydra's `key=value`."""
    return shlex.quote(f"{key}={_word(value)}")


def _flag(key: str, value: Any) -> str:
    """`--key value`, true and false among the values."""
    values = value if isinstance(value, list) else [value]
    return f"--{key} {' '.join(shlex.quote(_word(v)) for v in values)}"


def _switch(key: str, value: Any) -> str:
    """`--key value`; a switch stands there or not."""
    return "" if value is False else f"--{key}" if value is True else _flag(key, value)


def _dashed(key: str, value: Any) -> str:
    """`--a-key value`."""
    return _switch(key.replace("_", "-"), value)


# Form -> a setting as a word of a command line; nothing for a switch that is off.
WORDS: Mapping[str, Callable[[str, Any], str]] = {
    "yaml": _override,
    "toml": _flag,
    "overrides": _override,
    "flags": _switch,
    "dashes": _dashed,
    "values": _flag,
}


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "True" if value else "False"
    return value if isinstance(value, str) else json.dumps(value)


def _toml(settings: Mapping[str, Any], comments: Mapping[str, str], header: Sequence[str]) -> str:
    tables: dict[str, list[str]] = {}
    for key, value in settings.items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table, []).append(
            _with(f"{name} = {json.dumps(value, ensure_ascii=False)}", comments.get(key))
        )
    return "\n".join([*_comments(header), *_tables(tables)]) + "\n"


def _comments(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        yield from textwrap.wrap(
            one_line(line.strip(), 400), _WIDTH, initial_indent=f"# {indent}", subsequent_indent=f"# {indent}  "
        )


def _tables(tables: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for table in sorted(tables, key=bool):
        yield ""
        if table:
            yield f"[{table}]"
        yield from tables[table]


def _with(text: str, comment: str | None) -> str:
    return f"{text:<{_COMMENT_COLUMN}}  # {one_line(comment, 160)}" if comment else text
