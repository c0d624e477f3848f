"""Every command that a text of the source names is there, and has the flags that stand behind it: remedies of errors,
what is to be done next, help, the words of a page. What a figure is put into (`{...}`) is left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

import fleetsim
from fleetsim.cli.main import app
from tests.printed.reading import flags_in
from tests.printed.shell import command_of, options_of

SOURCE = Path(fleetsim.__file__).parent
FILES = sorted(path for path in SOURCE.rglob("*.py") if "fleetsim " in path.read_text(encoding="utf-8"))
_GROUP = typer.main.get_command(app)
_COMMANDS = _GROUP.list_commands(_GROUP.make_context("fleetsim", [], resilient_parsing=True))  # type: ignore[attr-defined]
# A command, a second word of a group's, and what stands behind it up to the end of the clause.
_SECOND = "ls|show|check|from|to|init|schema|estimate|trainer"
_CALL = re.compile(rf"fleetsim ((?:{'|'.join(_COMMANDS)})(?: (?:{_SECOND}))?)\b([^`\n;()]*)")
_TICKED = re.compile(r"`fleetsim ([a-z]+)")


def _texts(file: Path) -> Iterator[str]:
    """The strings of a file; one that is put together is one."""
    inside: set[ast.AST] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            inside.update(node.values)
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            yield node.value


def _wrong(text: str) -> Iterator[str]:
    """What a text says that cannot be typed."""
    for name in _TICKED.findall(text):
        if name not in _COMMANDS:
            yield f"fleetsim has no command {name!r}"
    for name, behind in _CALL.findall(text):
        parts = name.split()
        group = parts[0] in ("scenario", "profile")
        words = tuple(parts) if group else (parts[0],)
        own = options_of(command_of(("fleetsim", *words))[0])
        yield from (f"fleetsim {name} has no {flag}" for flag in flags_in(re.split(r"\. | -- ", behind)[0]) - own)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_every_command_that_is_named_can_be_typed(file: Path) -> None:
    assert [problem for text in _texts(file) for problem in _wrong(text)] == []


def test_what_cannot_be_typed_is_found() -> None:
    assert list(_wrong("see `fleetsim sise`")) == ["fleetsim has no command 'sise'"]
    assert list(_wrong("give fleetsim size --gpus 4; or --html x")) == ["fleetsim size has no --gpus"]
    assert list(_wrong("fleetsim scenario init areal -o job.yaml")) == []
