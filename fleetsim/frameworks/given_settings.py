"""Settings from what a user gives: the name of a file, standard input, or the framework's own words alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from fleetsim.errors import InputError, Problem
from fleetsim.frameworks.settings import RunSettings
from fleetsim.frameworks.source import MAX_BYTES, parsed_source, read_source, settings_of_words
from fleetsim.frameworks.trl import CLASSES


def settings_from(words: Sequence[str]) -> tuple[str, RunSettings]:
    """What the configuration is called, and its settings: of a file or `-` (standard input), then of the other words.

    A first word that is a flag or `key=value` says that there is no file. Raises InputError for what cannot be read.
    """
    if not words:
        raise InputError(
            [Problem("CONFIG", None, "nothing to read", "give the framework's file, or its flags after --")]
        )
    first, *rest = words
    if first == "-":
        try:
            text = sys.stdin.buffer.read(MAX_BYTES + 1).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(
                [Problem("CONFIG", "-", f"is not UTF-8 text (byte {error.start})", "give the right file")]
            ) from None
        return "stdin", parsed_source(text, "stdin", rest, CLASSES)
    if "\0" not in first and os.path.lexists(first):
        return os.path.basename(first), read_source(first, rest, CLASSES)
    if first.startswith("-") or "=" in first:
        return "flags", settings_of_words(words)
    return first, read_source(first, rest, CLASSES)
