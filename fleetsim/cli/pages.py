"""The page of `--html`: checked before the work, written after it."""

from __future__ import annotations

from pathlib import Path

from fleetsim.cli.say import say
from fleetsim.files import new_file, write_text


def new_page(flag: str, output: str | None) -> Path | None:
    """The page that a flag asks for, if it does: a usable path, and all that pages need is installed.

    Raises InputError, OutsideError.
    """
    if output is None:
        return None
    from fleetsim.tell.page import check_installed

    place = new_file(flag, output)
    check_installed()
    return place


def write_page(place: Path, text: str) -> None:
    """A page, and a line on stderr that says where it is. Raises OutsideError."""
    write_text(place, text)
    say(f"wrote {place}; it opens in any browser, offline", err=True)
