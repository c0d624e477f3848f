"""Keyword arguments of a configuration object in a Python script: `GRPOConfig(num_generations=8, ...)`.

The script is parsed, never run. Followed: literals, names that a module-level assignment gives a literal, sums.
"""

from __future__ import annotations

import ast
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
    names = dict(_assigned(nodes))
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


def _value(node: ast.expr, names: dict[str, Any]) -> tuple[bool, Any]:
    if isinstance(node, ast.Name):
        return node.id in names, names.get(node.id)
    try:
        return True, ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        pass
    try:
        number = whole_number(ast.unparse(node))
    except RecursionError:
        number = None
    return number is not None, number
