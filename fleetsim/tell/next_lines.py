"""What to do next, as lines: words for people, and commands that can be pasted into a shell as they stand.

A `next` of the diagnosis is one line or several; those that begin with a program's name are commands. "fleetsim replay
..." in one of them stands for the call at hand, its source and what is known of the fleet, which only the command line
knows: `addressed` puts it there. LOG stands for what the call read.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise

CALL = "fleetsim replay ..."
PROGRAMS = ("fleetsim ", "kubectl ")
_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")
# Not a time: "-3h" is a value of the flag before it.
_FLAG = re.compile(r"-{1,2}[A-Za-z][\w-]*")
_OF_A_WINDOW = ("--start", "--end", "--step")
"""Flags that are given once: a next command's own wins over the call's."""


def resolved(text: str, call: Sequence[str]) -> str:
    """The lines with CALL and LOG replaced by the words of the call, quoted for a POSIX shell."""
    return "\n".join(_resolved(line, call) for line in text.splitlines())


def _resolved(line: str, call: Sequence[str]) -> str:
    if not line.startswith(CALL):
        logs = [value for flag, value in pairwise(call) if flag == "--from"]
        return re.sub(r"\bLOG\b", lambda _: shlex.quote(logs[0]), line) if is_command(line) and logs else line
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


def parted(text: str) -> tuple[str, str]:
    """The words that come before the first command, as one line, and that command; without one, the first line. What
    follows is left out."""
    lines = text.splitlines()
    at = next((i for i, line in enumerate(lines) if is_command(line)), None)
    return ("".join(lines[:1]), "") if at is None else (" ".join(lines[:at]), lines[at])


def broken(command: str, width: int, indent: int = 2) -> list[str]:
    """A command on lines of at most `width`, each but the last with a backslash at its end, those after the first set
    in. A flag stays with its value; a word wider than that has a line of its own."""
    if len(command) <= width:
        return [command]
    pieces: list[str] = []
    for word in _WORD.findall(command):
        if pieces and _FLAG.fullmatch(pieces[-1]) and not _FLAG.match(word):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    lines: list[str] = []
    for piece in pieces:
        if lines and len(lines[-1]) + 1 + len(piece) + 2 <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"{' ' * indent if lines else ''}{piece}")
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]
