"""docs/reference/cli.md: every command with its examples, arguments and options, from the app itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import typer.main

from fleetsim.cli.help import VARIABLES
from fleetsim.cli.main import app
from fleetsim.job.settings import PATHS

INTRO = """\
# Commands

Results go to stdout, progress and warnings to stderr; `--json` prints one document ([its keys](json.md)). A flag wins
over a `FLEETSIM_*` variable, that over the scenario file, that over the default. `fleetsim COMMAND --help` says the
same, with more examples. Each command has the options that stand below it and those of
[several commands](#options-of-several-commands) that name it. A key behind an option, as `engine.gpu`, is what it sets
of a [scenario](scenario.md); what stands in parentheses is taken if nobody says otherwise. The examples' files are made
by

```sh
fleetsim examples
```
"""
SHARED_INTRO = """\
## Options of several commands

At the end stand the commands that take it: *job* stands for `size`, `split`, `plan`, `simulate`, `forecast`, `compare`
and `sweep`, which have those without a name as well; *server* for `compare`, `replay`, `watch` and `doctor`.

"""
_MARKUP = re.compile(r"\[/?(?:bold|dim|italic)\]")
# Commands whose flags are keys of the scenario, and their name in the table of shared options.
_JOB = ("size", "split", "plan", "simulate", "forecast", "compare", "sweep")
# Commands that ask a Prometheus, and their name there.
_SERVER = ("compare", "replay", "watch", "doctor")
# An option of so many commands, with one meaning, stands in the table of shared options.
_SHARED = 3


def page() -> str:
    """The whole page."""
    group = typer.main.get_command(app)
    every = list(commands(group))
    shared = shared_rows(every)
    parts = [INTRO, *(section(path, command, shared) for path, command in every)]
    rows = "\n".join(f"{row}{_commands(of)}" for row, of in shared.items())
    return "\n".join([*parts, f"{SHARED_INTRO}{rows}\n", environment()])


def shared_rows(every: Iterable[tuple[str, Any]]) -> dict[str, list[str]]:
    """The rows that several commands have alike, each with those commands."""
    found: dict[str, list[str]] = {}
    for path, command in every:
        for param in _options(command):
            found.setdefault(_option(param), []).append(path)
    return {row: of for row, of in found.items() if len(of) >= _SHARED}


def _commands(of: list[str]) -> str:
    """ " Of *job*, `replay`.", empty where *job* is all."""
    if of == list(_SERVER):
        return " Of *server*."
    names = ["*job*", *(name for name in of if name not in _JOB)] if set(_JOB) <= set(of) else of
    told = ", ".join(name if name == "*job*" else f"`{name}`" for name in names)
    return "" if told == "*job*" else f" Of {told}."


def _options(command: Any) -> list[Any]:
    return [p for p in command.params if p.param_type_name == "option" and not p.hidden]


def commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(path, command) of every command, those of groups below them, as `--help` lists them."""
    for name, command in group.commands.items():
        path = f"{prefix}{name}"
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} ")
        else:
            yield path, command


def split_help(text: str) -> tuple[list[str], str]:
    """The examples of a help text (its lines that are commands), and the rest, in Markdown.

    A paragraph that begins with a backspace keeps its lines, as in a terminal.
    """
    examples: list[str] = []
    rest: list[str] = []
    for paragraph in re.split(r"\n\s*\n", _MARKUP.sub("", text or "")):
        kept = "\b" in paragraph
        lines = [line.rstrip() for line in paragraph.replace("\b", "").strip("\n").splitlines()]
        examples += [line.strip() for line in lines if line.strip().startswith("fleetsim ")]
        lines = [line for line in lines if line.strip() and not line.strip().startswith("fleetsim ")]
        lines = [line for line in lines if line.strip().rstrip(":").lower() not in ("example", "examples")]
        if lines:
            rest.append("\n".join(["```text", *lines, "```"] if kept else [line.strip() for line in lines]))
    return examples, "\n\n".join(rest)


def section(path: str, command: Any, shared: Mapping[str, object]) -> str:
    """One command: its first example, the others stand in --help. shared: rows that stand elsewhere."""
    examples, text = split_help(command.help)
    parts = [f"## fleetsim {path}", ""]
    if examples:
        parts += ["```sh", examples[0], "```", ""]
    parts += [text, ""]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    if arguments:
        parts += [f"- `{_argument(p)}`: {cell(p.help)}" for p in arguments]
        parts.append("")
    rows = [row for param in _options(command) if (row := _option(param)) not in shared]
    if rows:
        parts += [*rows, ""]
    return "\n".join(parts)


def _argument(param: Any) -> str:
    name = param.metavar or param.name.rstrip("_").upper()
    return name if param.required else f"[{name}]"


def _option(param: Any) -> str:
    """A row: names and value, meaning, and what is taken if it is not given."""
    value = "" if param.is_flag else f" {param.metavar or _type(param)}"
    names = ", ".join((*param.opts, *param.secondary_opts))
    said = [cell(param.help), "Repeatable." if param.multiple else ""]
    if param.default not in (None, False, "", (), []):
        said.append(f"Default: `{param.default}`.")
    elif key := _of_scenario(param.name):
        said.append(f"{key}.")
    if param.envvar:
        said.append(f"Environment: `{param.envvar}`.")
    return f"- `{names}{value}`: {' '.join(filter(None, said))}"


def _of_scenario(name: str) -> str:
    """The key of a scenario that an option sets."""
    path = PATHS.get(name)
    if path is None:
        return ""
    return f"`{path}`"


def _type(param: Any) -> str:
    kind = param.type_descriptor.annotation
    return {"int": "integer", "float": "number", "str": "text", "Path": "path"}.get(kind.__name__, kind.__name__)


def cell(text: str | None) -> str:
    """Text for a cell of a table."""
    plain = _MARKUP.sub("", text or "").replace(" Repeatable.", "")
    return " ".join(plain.split()).replace("|", "\\|").replace("<", "\\<").replace("$", "\\$")


def environment() -> str:
    """The variables that are read."""
    rows = table(("variable", "meaning"), VARIABLES)
    return f"## Environment\n\n{rows}"


def table(head: tuple[str, str], rows: Mapping[str, str]) -> str:
    """Two columns: a name in code, and its meaning."""
    lines = [f"| {head[0]} | {head[1]} |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| `{name}` | {cell(meaning)} |" for name, meaning in rows.items()), ""])
