"""How a command's help reads: what it is for, examples that can be pasted, then the options panel by panel.

In the docstring an example is a line that begins with "fleetsim" under "Examples:"; here each becomes one line, or
several that end in backslashes where the terminal is narrower.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from typer.core import TyperCommand

_BOLD = re.compile(r"\[/?bold\]")
_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")
_MARGIN = 4


class Documented(TyperCommand):
    """A command with its examples laid out for the terminal at hand."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Prints the help."""
        from rich.console import Console
        from typer import rich_utils

        written = self.help
        self.help = arranged(written or "", (rich_utils.MAX_WIDTH or Console().width) - _MARGIN)
        try:
            super().format_help(ctx, formatter)
        finally:
            self.help = written


def arranged(text: str, width: int) -> str:
    """A docstring with its examples as one block of lines, none wider than `width` where that can be."""
    from rich.markup import escape

    purpose, *rest = inspect.cleandoc(text).split("\n\n")
    found = [example for part in rest for example in examples_in(part)]
    others = [
        part if part.startswith("\b") else " ".join(part.split())
        for part in rest
        if not examples_in(part) and part.strip() not in ("Example:", "Examples:")
    ]
    if not found:
        return "\n\n".join([purpose, *others])
    lines = [line for example in found for line in broken(example, width)]
    block = "\n".join(["\b", "Examples:", *(f"[bold]  {escape(line)}[/bold]" for line in lines)])
    return "\n\n".join([purpose, block, *others])


def examples_in(paragraph: str) -> list[str]:
    """The examples of a paragraph, if that is what it is made of: one line each, without marks."""
    lines = [_BOLD.sub("", line).strip() for line in paragraph.splitlines() if line.strip() != "\b"]
    return lines if lines and all(line.startswith("fleetsim ") for line in lines) else []


def broken(command: str, width: int) -> list[str]:
    """A command on lines of at most `width`, each but the last with a backslash at its end; a flag keeps its value."""
    pieces: list[str] = []
    for word in _WORD.findall(command):
        if pieces and re.fullmatch(r"-{1,2}[\w-]+", pieces[-1]) and not word.startswith("-"):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    if len(command) <= width:
        return [command]
    lines: list[str] = []
    for piece in pieces:
        indent = "    " if lines else ""
        if lines and len(lines[-1]) + 1 + len(piece) + 2 <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"{indent}{piece}")
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]
