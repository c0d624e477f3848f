"""Settings in Python's own words: the arguments of a configuration object in a script, and of what loads its model; a
table that holds verl's sections.

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
from fleetsim.frameworks.settings import RunSettings, whole_number

_MOST_CHARACTERS = 300_000
# Arguments whose presence says something, whatever object they are.
_OBJECTS = ("tools", "environment_factory", "rollout_func", "rollout_worker", "peft_config")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
# A section that only verl has (Agent Lightning's scripts are such tables).
_TABLE = "actor_rollout_ref"
# What loads a model, and what puts adapters on it: Hugging Face's classes, and Unsloth's, by which it is known.
_LOADERS, _UNSLOTH = ("from_pretrained", "get_peft_model"), re.compile(r"Fast\w*Model")
_MODELS = re.compile(rf"AutoModel(For\w+)?|\w+For(CausalLM|ConditionalGeneration)|{_UNSLOTH.pattern}")
NOTEBOOK = ".ipynb"
# A command of IPython's or of the shell; cells of another language.
_MAGIC, _FOREIGN = re.compile(r"(?m)^([ \t]*)([%!](?:.*\\\n)*.*)$"), re.compile(r"\s*%%(?!capture|time)")


def code_of_notebook(tree: Any) -> str:
    """The Python of a notebook's cells; commands of IPython stand there as comments. Nothing where there is none."""
    cells = tree.get("cells") if isinstance(tree, dict) else None
    texts = []
    for cell in cells if isinstance(cells, list) else ():
        lines = cell.get("source", "") if isinstance(cell, dict) and cell.get("cell_type") == "code" else ""
        texts.append("".join(map(str, lines)) if isinstance(lines, (str, list)) else "")
    return "\n".join(
        _MAGIC.sub(lambda line: f"{line[1]}pass  # {line[2]!r}", text) for text in texts if not _FOREIGN.match(text)
    )


def settings_of_python(text: str, classes: tuple[str, ...], where: str) -> RunSettings:
    """The keyword arguments of all calls of these classes. The classes' names become programs of the settings. What the
    first call that loads a model says stands below `from_pretrained`.

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
    if table := table_of(nodes):
        _put_table(settings, table, "", names)
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        called = name_of(node)
        if called in _LOADERS and isinstance(node.func, ast.Attribute):
            _load(settings, node, ast.unparse(node.func.value), names)
            continue
        if called not in classes:
            settings.programs += [called] if called.endswith(("Config", "Trainer", "TrainableModel")) else []
            continue
        settings.programs.append(called)
        for key, given in _keywords(node, nodes):
            known, value = _value(given, names)
            if not known and key in _OBJECTS:
                known, value = True, ast.unparse(given)[:100]
            if known:
                settings.add(key, value)
            elif key != "model":  # the object that was loaded
                settings.not_understood.append(f"{key} = ...: line {given.lineno}, computed")
    return settings


def table_of(nodes: list[ast.AST]) -> ast.Dict | None:
    """The table that holds verl's sections."""
    tables = (node for node in nodes if isinstance(node, ast.Dict))
    return next((t for t in tables if _TABLE in [getattr(key, "value", None) for key in t.keys]), None)


def _put_table(settings: RunSettings, table: ast.Dict, prefix: str, names: dict[str, Any]) -> None:
    """The keys of a table with tables in it."""
    for key, given in zip(table.keys, table.values, strict=True):
        if not isinstance(key, ast.Constant):
            continue
        name, (known, value) = f"{prefix}{key.value}", _value(given, names)
        if isinstance(given, ast.Dict) and given.keys:
            _put_table(settings, given, f"{name}.", names)
        elif known:
            settings.add(name, value)
        else:
            settings.not_understood.append(f"{name} = ...: line {given.lineno}, computed")


def _load(settings: RunSettings, call: ast.Call, model: str, names: dict[str, Any]) -> None:
    """The arguments of a call that loads a model; the first one counts."""
    if not _MODELS.fullmatch(model):
        return
    settings.programs += ["unsloth"] if _UNSLOTH.fullmatch(model) else []
    first = [("model_name", call.args[0])] if call.args and name_of(call) == "from_pretrained" else []
    for key, given in (*first, *((word.arg, word.value) for word in call.keywords)):
        known, value = _value(given, names)
        if known and not settings.has(name := f"{name_of(call)}.{key}"):
            settings.add(name, value)


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
        number = whole_number(_NAME.sub(lambda name: str(names.get(name[0], name[0])), ast.unparse(node)))
    except RecursionError:
        number = None
    return number is not None, number
