"""Text from outside is text in every face: what a terminal, a page or a reader of files would act on is written out."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fleetsim.config.yaml_text import from_yaml, to_yaml
from fleetsim.errors import InputError, OutsideError, Problem, StuckError
from fleetsim.tell.console import as_html, as_text, console
from fleetsim.tell.data import dumps
from fleetsim.visible import CONTROL, visible

HOSTILE = "[red]a[/x] :smile: \x1b]0;owned\x1b\\ \x9b2J \u202egnp.exe \x7f [fd00::1]:8000"
WRITTEN = r"[red]a[/x] :smile: \x1b]0;owned\x1b\ \x9b2J \u202egnp.exe \x7f [fd00::1]:8000"
anything = st.text(st.characters(), max_size=60)


def test_control_characters_are_written_out_and_nothing_else() -> None:
    assert visible(HOSTILE) == WRITTEN
    assert visible("tab\tline\nümlaut 漢字 ±0.5") == "tab\tline\nümlaut 漢字 ±0.5"


@given(anything)
def test_nothing_is_left_that_a_terminal_acts_on(text: str) -> None:
    assert not CONTROL.search(visible(text))
    assert visible(visible(text)) == visible(text)


@pytest.mark.parametrize("form", [str, Text], ids=["as text", "as rich text"])
def test_a_view_shows_it_letter_by_letter(form: type) -> None:
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE, overflow="fold")
    table.add_row(form(HOSTILE))
    drawn = as_text(Group(form(HOSTILE), table), width=140)
    assert drawn.count(WRITTEN) == 4
    assert not CONTROL.search(drawn)
    assert WRITTEN in as_html(form(HOSTILE), width=140)


def test_on_a_terminal_only_our_own_escape_sequences_are_left() -> None:
    drawn = io.StringIO()
    terminal = console(drawn, force_terminal=True, width=140)
    terminal.print(Text.assemble("by ", (HOSTILE, "bold"), " end"))
    assert drawn.getvalue() == f"by \x1b[1m{WRITTEN}\x1b[0m end\n"


def test_errors_write_it_out() -> None:
    problem = Problem(f"fleet.{HOSTILE}", HOSTILE, HOSTILE, HOSTILE)
    for error in (InputError([problem]), OutsideError(HOSTILE), StuckError(HOSTILE, [problem])):
        assert not CONTROL.search(str(error)), error


@given(anything)
def test_files_say_the_same_when_they_are_read_again(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    written = to_yaml({"name": text, "list": [text]})
    assert from_yaml(written, "file") == {"name": text, "list": [text]}
    document = dumps({"name": text})
    assert json.loads(document) == {"name": text}
    assert not CONTROL.search(written + document)


# Where text leaves the program: a new one must go through the same function, so it is made here, or named here.
FACES = {
    "Console": set(),  # tell/console.py makes its own kind
    # a child's own protocol: one number; a warning of the kernel, written out where it is made
    "print": {"engine/native.py"},
    "echo": {"cli/terminal.py"},
}


def test_no_face_goes_round_it() -> None:
    root = Path(__file__).parents[2] / "fleetsim"
    found: dict[str, set[str]] = {name: set() for name in FACES}
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            plain = isinstance(called, ast.Name) or (isinstance(called, ast.Attribute) and _is(called.value, "typer"))
            if name in found and plain:
                found[name].add(path.relative_to(root).as_posix())
    assert found == FACES


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
