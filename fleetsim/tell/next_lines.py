"""What to do next, as lines: words for people, and commands that can be pasted into a shell as they stand.

A `next` of the diagnosis is one line or several; those that begin with a program's name are commands. "fleetsim replay
..." in one of them stands for the call at hand, its source and what is known of the fleet, which only the command line
knows: `addressed` puts it there.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

CALL = "fleetsim replay ..."
PROGRAMS = ("fleetsim ", "kubectl ")
_OF_A_WINDOW = ("--start", "--end", "--step")
"""Flags that are given once: a next command's own wins over the call's."""


def resolved(text: str, call: Sequence[str]) -> str:
    """The lines with CALL replaced by the words of the call, quoted for a POSIX shell."""
    return "\n".join(_resolved(line, call) for line in text.splitlines())


def _resolved(line: str, call: Sequence[str]) -> str:
    if not line.startswith(CALL):
        return line
    own = shlex.split(line.removeprefix(CALL))
    kept = list(call)
    for flag in _OF_A_WINDOW:
        if flag in own and flag in kept:
            at = kept.index(flag)
            del kept[at : at + 2]
    return shlex.join(["fleetsim", "replay", *kept, *own])


def is_command(line: str) -> bool:
    """Whether a line is for a shell, not for a reader."""
    return line.startswith(PROGRAMS)


@dataclass(frozen=True, slots=True)
class BrokenLines:
    """`lead` and the lines of a `next` in a terminal. A command that is wider than the view is broken where the shell
    allows it; a single word that is too wide is left whole, for a cut one could not be pasted. Not to be put into a
    table or a padding, which cut."""

    lead: str
    text: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lead = self.lead
        if is_command(self.text):
            yield from self._words(console, options, lead.rstrip(), "")
            lead = ""
        for line in self.text.splitlines():
            if is_command(line):
                yield from self._command(line, options.max_width)
            else:
                yield from self._words(console, options, lead, line)
                lead = ""

    def _words(self, console: Console, options: ConsoleOptions, lead: str, line: str) -> Iterator[RenderableType]:
        text = Text.assemble(lead, (line, self.style))
        yield from text.wrap(console, max(20, options.max_width))

    def _command(self, line: str, width: int) -> Iterator[RenderableType]:
        for k, part in enumerate(broken(line, max(20, width - 2))):
            yield Text(f"  {'  ' if k else ''}{part}", style=self.style, no_wrap=True, overflow="ignore")


def broken(command: str, width: int) -> list[str]:
    """A command on lines of at most `width`, ended by backslashes; what follows the first is to be indented by two.

    A flag stays with its value. A word wider than that has a line of its own.
    """
    pieces: list[str] = []
    for word in shlex.split(command):
        quoted = shlex.quote(word)
        if pieces and pieces[-1].startswith("-") and " " not in pieces[-1] and not word.startswith("--"):
            pieces[-1] += f" {quoted}"
        else:
            pieces.append(quoted)
    lines: list[str] = []
    for piece in pieces:
        room = width - (4 if len(lines) > 1 else 2)
        if lines and len(lines[-1]) + 1 + len(piece) <= room:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]
