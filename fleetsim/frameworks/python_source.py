"""Settings in Python's own words: the arguments of a configuration object in a script, a mapping that a log prints.

The script is parsed, never run. Followed: literals, names that a module-level assignment gives a literal, defaults
of flags, sums. A framework prints its configuration at the head of its log, a mapping over many lines: verl with pprint
before it trains (verl-project/verl at 1dda039: verl/trainer/main_ppo.py and
verl/experimental/fully_async_policy/fully_async_main.py), NeMo-RL under "Final config:" (NVIDIA-NeMo/RL at 7ea279a:
examples/run_grpo.py). Ray puts the process before each line, and lines of other processes come in between.
"""

from __future__ import annotations

import ast
import gzip
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import IO, Any

from fleetsim.errors import InputError, Problem
from fleetsim.frameworks.settings import RunSettings, whole_number

_MOST_CHARACTERS = 300_000
# Arguments whose presence says something, whatever object they are.
_OBJECTS = ("tools", "environment_factory", "rollout_func", "rollout_worker", "peft_config")


def settings_of_python(text: str, classes: tuple[str, ...], where: str) -> RunSettings:
    """The keyword arguments of all calls of these classes. The classes' names become programs of the settings.

    where: the name of the text. Raises InputError for text that is no Python.
    """
    try:
        if len(text) > _MOST_CHARACTERS:
            raise ValueError("too long")
        with warnings.catch_warnings(action="ignore"):
            nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError([Problem(where, str(error)[:100], "is no Python script", "give the right file")]) from None
    names = dict(_known(nodes))
    settings = RunSettings()
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        called = name_of(node)
        if called not in classes:
            settings.programs += [called] if called.endswith(("Config", "Trainer")) else []
            continue
        settings.programs.append(called)
        for key, given in _keywords(node, nodes):
            known, value = _value(given, names)
            if not known and key in _OBJECTS:
                known, value = True, ast.unparse(given)[:100]
            if known:
                settings.add(key, value)
            else:
                settings.not_understood.append(f"line {given.lineno}: {key} is computed")
    return settings


def _keywords(call: ast.Call, nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """The keyword arguments of a call; of `**name` those of the `dict(...)` that the name is given, and what is put
    into it later, which may depend on anything."""
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.arg, keyword.value
            continue
        name = ast.unparse(keyword.value)
        for node in nodes:
            if not isinstance(node, (ast.Assign, ast.AnnAssign)):
                continue
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if ast.unparse(target) == name and isinstance(node.value, ast.Call) and name_of(node.value) == "dict":
                yield from ((word.arg, word.value) for word in node.value.keywords if word.arg is not None)
            elif isinstance(target, ast.Subscript) and ast.unparse(target.value) == name:
                yield ast.unparse(target.slice).strip("'"), target


def name_of(call: ast.Call) -> str:
    """The last part of what a call calls; nothing where that has no name."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _known(nodes: list[ast.AST]) -> Iterator[tuple[str, Any]]:
    """What a name is, and what `args.batch_size` is without a flag: `add_argument("--batch-size", default=8)`."""
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            known, value = _value(node.value, {})
            if known:
                yield node.targets[0].id, value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
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


# Lines within which a log prints its configuration, and what one may hold at most.
_LOOK, _MOST_BYTES = 20_000, 2**20
_LONGEST = 100_000
_FEWEST_KEYS = 3
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PROCESS = re.compile(r"\((?:\w+ )?(?:pid|ip)=[^)]*\) ?")
_BEGINS = re.compile(r"\{'\w+': ?")


def printed_config(path: str | os.PathLike[str]) -> Mapping[str, Any] | None:
    """The first mapping of a log, with keys of text; None for a file that prints none, or cannot be read."""
    try:
        with _text(path) as file:
            return _first(file)
    except (OSError, EOFError, ValueError):  # told by whoever reads the file as what it is
        return None


def _text(path: str | os.PathLike[str]) -> IO[str]:
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return open(path, encoding="utf-8", errors="replace")


def _first(file: IO[str]) -> Mapping[str, Any] | None:
    whose, size = "", 0
    lines: list[str] = []
    for line in islice(file, _LOOK):
        process, text = _parts(line[:_LONGEST])
        if not lines:
            if _BEGINS.match(text):
                whose, lines, size = process, [text], len(text)
        elif process == whose:
            lines.append(text)
            size += len(text)
        else:
            continue
        if lines and text.rstrip().endswith("}"):
            found = _mapping("\n".join(lines))
            if found is not None:
                return found
        # A line of a mapping is indented, or the rest of one that another process broke in two.
        goes_on = not text.strip() or text[0] in " ,:}]'\"{-TFN" or text[0].isdigit()
        if size > _MOST_BYTES or not goes_on:
            lines = []
    return None


def _parts(line: str) -> tuple[str, str]:
    """The process that printed a line, and the line without what another one wrote into it."""
    line = _COLOURS.sub("", line.rstrip("\n"))
    found = _PROCESS.match(line)
    process, text = ("", line) if found is None else (found[0], line[found.end() :])
    return process, _PROCESS.split(text, maxsplit=1)[0]


def _mapping(text: str) -> Mapping[str, Any] | None:
    try:
        tree = ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    whole = isinstance(tree, dict) and len(tree) >= _FEWEST_KEYS and all(isinstance(key, str) for key in tree)
    return tree if whole else None
