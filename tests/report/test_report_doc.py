"""docs/report.md: its pictures are there and small, and its commands are commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from fleetsim.cli.main import app

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "report.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    fleetsim (?!examples)(.*)$", PAGE, re.MULTILINE)


def test_every_picture_is_there_small_and_described() -> None:
    pictures = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", PAGE)
    assert len(pictures) >= 4
    for words, path in pictures:
        assert len(words) > 20
        assert 5_000 < (DOCS / path).stat().st_size < 200_000
    assert {p.name for p in (DOCS / "img").glob("*.png")} >= {Path(path).name for _, path in pictures}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_the_flags_that_the_page_gives(command: str) -> None:
    name, *arguments = shlex.split(command)
    known = typer.main.get_command(app)
    parameters = {flag for p in known.commands[name].params for flag in p.opts}  # type: ignore[attr-defined]
    assert {a for a in arguments if a.startswith("--")} <= parameters
    assert "--html" in arguments
