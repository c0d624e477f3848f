"""Lines of text on stdout and stderr: the one way out for what is no view (`output.show`)."""

from __future__ import annotations

import typer

from fleetsim.visible import visible


def say(text: str = "", err: bool = False, nl: bool = True) -> None:
    """One or more lines, with control characters written out. err: on stderr. nl: ends the last line."""
    typer.echo(visible(text), err=err, nl=nl)
