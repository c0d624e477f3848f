"""Reading an input file without trusting it: what it is and how big it is, before it is opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fleetsim.errors import InputError, Problem

_SECTION = "write at least one section, or start from a preset"


def read_text(path: str | os.PathLike[str], what: str, max_bytes: int) -> str:
    """The UTF-8 text of a regular file of at most `max_bytes`. `what` names it in errors.

    Raises InputError for a missing file, a folder, a pipe or device, an unreadable, too big or binary file.
    """
    shown = os.fspath(path)

    def refuse(rule: str, remedy: str) -> InputError:
        return InputError([Problem(what, shown, rule, remedy)])

    try:
        info = os.stat(path)
        if stat.S_ISDIR(info.st_mode):
            raise refuse("is a directory", "give a file")
        if not stat.S_ISREG(info.st_mode):
            raise refuse("is no regular file", "write it to a file first")
        if info.st_size > max_bytes:
            raise refuse(f"is too big: {info.st_size:,} bytes, at most {max_bytes:,} are read", "give the right file")
        with Path(path).open("rb") as stream:
            data = stream.read(max_bytes + 1)
    except FileNotFoundError:
        raise refuse("no such file", "check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise refuse(f"cannot be read: {reason}", "check the path and its permissions") from None
    if len(data) > max_bytes:
        raise refuse(f"is too big: more than {max_bytes:,} bytes", "give the right file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(f"is not UTF-8 text (byte {error.start})", "save it as UTF-8, or give the right file") from None
    if "\0" in text:
        raise refuse("is binary, not text", "give the right file")
    if not text.strip():
        raise refuse("is empty", _SECTION if what == "SCENARIO" else "give the right file")
    return text
