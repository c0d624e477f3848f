"""docs/reference/cli.md: every command with its examples, arguments and options, from the app itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import typer.main
from pydantic import BaseModel

from fleetsim.cli.main import app
from fleetsim.cli.manual import VARIABLES
from fleetsim.config.load import default_scenario
from fleetsim.job.settings import PATHS

INTRO = """\
# Commands

Results go to stdout, progress and warnings to stderr; `--json` prints one document ([its keys](json.md)). A flag wins
over a `FLEETSIM_*` variable, that over the scenario file, that over the default. `fleetsim COMMAND --help` says the
same as this page.
"""
_MARKUP = re.compile(r"\[/?(?:bold|dim|italic)\]")
_FIRST = "Options"
# Commands whose flags are keys of the scenario.
_BY_FLAGS = ("fleetsim size", "fleetsim split", "fleetsim plan")


def page() -> str:
    """The whole page."""
    group = typer.main.get_command(app)
    parts = [INTRO, *(section(f"fleetsim {path}", command) for path, command in commands(group)), environment()]
    return "\n".join(parts)


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


def section(title: str, command: Any) -> str:
    """One command: examples first."""
    examples, text = split_help(command.help)
    parts = [f"## {title}", ""]
    if examples:
        parts += ["```sh", *examples, "```", ""]
    parts += [text, ""]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    if arguments:
        parts += ["| argument | meaning |", "| --- | --- |"]
        parts += [f"| `{_argument(p)}` | {cell(p.help)} |" for p in arguments]
        parts.append("")
    panels: dict[str, list[Any]] = {}
    for param in command.params:
        if param.param_type_name == "option" and not param.hidden:
            panels.setdefault(getattr(param, "rich_help_panel", None) or _FIRST, []).append(param)
    if panels:
        parts += ["| option | value | default | meaning |", "| --- | --- | --- | --- |"]
        for panel, params in panels.items():
            if len(panels) > 1:
                parts.append(f"| **{panel}** | | | |")
            parts += [_option(p, title) for p in params]
        parts.append("")
    return "\n".join(parts)


def _argument(param: Any) -> str:
    name = param.metavar or param.name.rstrip("_").upper()
    return name if param.required else f"[{name}]"


def _option(param: Any, command: str) -> str:
    names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
    value = "" if param.is_flag else f"`{param.metavar or _type(param)}`"
    if param.multiple:
        value += ", repeatable"
    default = "" if param.default in (None, False, "", (), []) else f"`{param.default}`"
    if not default and command in _BY_FLAGS:
        default = _of_scenario(param.name)
    variable = f" Environment: `{param.envvar}`." if param.envvar else ""
    return f"| {names} | {value} | {default} | {cell(param.help)}{variable} |"


def _of_scenario(name: str) -> str:
    """What the scenario has where a flag is not given: its key, and that key's own default."""
    path = PATHS.get(name)
    if path is None:
        return ""
    value: Any = default_scenario()
    for part in path.split("."):
        value = getattr(value, part)
    if isinstance(value, BaseModel):
        value = getattr(value, "value", None)
    shown = "" if value in (None, (), []) else f" = `{value}`"
    return f"[`{path}`](scenario.md#{path.partition('.')[0]}){shown}"


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
