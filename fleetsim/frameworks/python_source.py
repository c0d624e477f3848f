"""Keyword arguments of a configuration object in a Python script: `GRPOConfig(num_generations=8, ...)`.

The script is parsed, never run. Followed: literals, names that a module-level assignment gives a literal, defaults
of flags, sums.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Any

from fleetsim.errors import InputError, Problem
from fleetsim.frameworks.arithmetic import whole_number
from fleetsim.frameworks.settings import RunSettings

_MOST_CHARACTERS = 300_000
# Arguments whose presence says something, whatever object they are.
_OBJECTS = ("tools", "environment_factory", "rollout_func", "peft_config")


def settings_of_python(text: str, classes: tuple[str, ...], where: str) -> RunSettings:
    """The keyword arguments of all calls of these classes. The classes' names become programs of the settings.

    Raises InputError for text that is no Python.
    """
    try:
        if len(text) > _MOST_CHARACTERS:
            raise ValueError("too long")
        with warnings.catch_warnings(action="ignore"):
            nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError([Problem(where, str(error)[:100], "is no Python script", "give the right file")]) from None
    names = {**dict(_assigned(nodes)), **dict(_defaults(nodes))}
    settings = RunSettings()
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called not in classes:
            settings.programs += [called] if called.endswith(("Config", "Trainer")) else []
            continue
        settings.programs.append(called)
        for keyword in node.keywords:
            if keyword.arg is None:
                continue
            known, value = _value(keyword.value, names)
            if not known and keyword.arg in _OBJECTS:
                known, value = True, ast.unparse(keyword.value)[:100]
            if known:
                settings.add(keyword.arg, value, where)
            else:
                settings.not_understood.append(f"line {keyword.value.lineno}: {keyword.arg} is computed")
    return settings


def _assigned(nodes: list[ast.AST]) -> Iterator[tuple[str, Any]]:
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            known, value = _value(node.value, {})
            if known:
                yield node.targets[0].id, value


def _defaults(nodes: list[ast.AST]) -> Iterator[tuple[str, Any]]:
    """What `args.batch_size` is without a flag: `parser.add_argument("--batch-size", default=8)`."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            flags = [word.value for word in node.args if isinstance(word, ast.Constant)]
            for default in (word.value for word in node.keywords if word.arg == "default"):
                known, value = _value(default, {})
                if known and flags and isinstance(flags[-1], str):
                    yield f".{flags[-1].lstrip('-').replace('-', '_')}", value


def command_of(text: str) -> str:
    """The command that a script shows in its docstring, for one that takes its settings from the command line."""
    with warnings.catch_warnings(action="ignore"):
        shown = (ast.get_docstring(ast.parse(text)) or "") if "parse_args" in text else ""
    lines = [line for line in shown.splitlines() if not line.lstrip().startswith("`")]
    return "\n".join(lines) if re.search(r"\.py\b[^`]*?--\w", shown) else ""


def _value(node: ast.expr, names: dict[str, Any]) -> tuple[bool, Any]:
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = node.id if isinstance(node, ast.Name) else f".{node.attr}"
        return name in names, names.get(name)
    try:
        return True, ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        pass
    try:
        number = whole_number(ast.unparse(node))
    except RecursionError:
        number = None
    return number is not None, number
