"""`--html FILE`: checked before the work, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import typer

from fleetsim.cli.files import new_file, write_text


def new_page(html: str | None) -> Path | None:
    """Where the page goes, None where none is asked for. Raises InputError for a wrong place, OutsideError where the
    libraries that draw it are missing."""
    if html is None:
        return None
    place = new_file("--html", html)
    from fleetsim.report.page import check_installed

    check_installed()
    return place


def write_page(place: Path, page: str) -> None:
    """The page. Raises OutsideError."""
    write_text(place, page)


def say_page(place: Path | None) -> None:
    """Where it is, after everything else was said."""
    if place is not None:
        typer.echo(f"wrote {place}; it opens in any browser, offline", err=True)
