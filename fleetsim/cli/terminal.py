"""Lines of text on stdout and stderr, as wide as the terminal: the one way out for what is no view (`output.show`)."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

import typer

from fleetsim.visible import visible


def say(text: str = "", err: bool = False, nl: bool = True) -> None:
    """One or more lines, with control characters written out. err: on stderr. nl: ends the last line."""
    typer.echo(visible(text), err=err, nl=nl)


def say_json(document: object) -> None:
    """One JSON document on stdout, in ASCII: what stands in files that others read."""
    import json

    say(json.dumps(document, indent=2, sort_keys=True, default=str))


_INDENT = 4


def columns() -> int:
    """The width of the terminal; COLUMNS, or 80, where there is none."""
    return shutil.get_terminal_size().columns


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """The text on lines of at most `width`, all but the first begun with `indent` blanks. A word that is longer than a
    line stands on one of its own, whole."""
    return textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


def beside(rows: Sequence[tuple[str, str]], width: int, begin: str = "") -> list[str]:
    """Names and what there is to say of each, in two columns; below each other where a line would be too long."""
    widest = max((len(name) for name, _ in rows), default=0)
    lines = [f"{begin}{name:<{widest}}  {text}".rstrip() for name, text in rows]
    if all(len(line) <= width for line in lines):
        return lines
    found = []
    for name, text in rows:
        below = " " * (len(begin) + _INDENT)
        found += [f"{begin}{name}".rstrip(), *(below + line for line in wrapped(text, width - len(below)) if text)]
    return found
