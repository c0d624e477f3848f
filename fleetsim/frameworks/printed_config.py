"""The configuration that a framework prints at the head of its log: a Python mapping over many lines.

verl prints it with pprint before it trains (verl-project/verl at 1dda039: verl/trainer/main_ppo.py and
verl/experimental/fully_async_policy/fully_async_main.py), NeMo-RL under "Final config:" (NVIDIA-NeMo/RL at 7ea279a:
examples/run_grpo.py). Ray puts the process before each line, and lines of other processes come in between.
"""

from __future__ import annotations

import ast
import gzip
import os
import re
from collections.abc import Mapping
from itertools import islice
from typing import IO, Any

# Lines within which a log prints its configuration, and what one may hold at most.
_LOOK, _MOST_BYTES = 20_000, 2**20
_LONGEST = 100_000
_FEWEST_KEYS = 3
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PROCESS = re.compile(r"\((?:\w+ )?(?:pid|ip)=[^)]*\) ?")
_BEGINS = re.compile(r"\{'\w+': ?")


def printed_config(path: str | os.PathLike[str]) -> Mapping[str, Any] | None:
    """The first mapping of a log, with keys of text; None for a file that prints none, or cannot be read."""
    try:
        with _text(path) as file:
            return _first(file)
    except (OSError, EOFError, ValueError):  # told by whoever reads the file as what it is
        return None


def _text(path: str | os.PathLike[str]) -> IO[str]:
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return open(path, encoding="utf-8", errors="replace")


def _first(file: IO[str]) -> Mapping[str, Any] | None:
    whose, size = "", 0
    lines: list[str] = []
    for line in islice(file, _LOOK):
        process, text = _parts(line[:_LONGEST])
        if not lines:
            if _BEGINS.match(text):
                whose, lines, size = process, [text], len(text)
        elif process == whose:
            lines.append(text)
            size += len(text)
        else:
            continue
        if lines and text.rstrip().endswith("}"):
            found = _mapping("\n".join(lines))
            if found is not None:
                return found
        if size > _MOST_BYTES or (lines and not _goes_on(text)):
            lines = []
    return None


def _parts(line: str) -> tuple[str, str]:
    """The process that printed a line, and the line without what another one wrote into it."""
    line = _COLOURS.sub("", line.rstrip("\n"))
    found = _PROCESS.match(line)
    process, text = ("", line) if found is None else (found[0], line[found.end() :])
    return process, _PROCESS.split(text, maxsplit=1)[0]


def _goes_on(text: str) -> bool:
    """Whether a line may be one of a mapping: indented, or the rest of one that another process broke in two."""
    return not text.strip() or text[0] in " ,:}]'\"{-TFN" or text[0].isdigit()


def _mapping(text: str) -> Mapping[str, Any] | None:
    try:
        tree = ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    whole = isinstance(tree, dict) and len(tree) >= _FEWEST_KEYS and all(isinstance(key, str) for key in tree)
    return tree if whole else None
