"""Results on stdout, everything else on stderr, and the exit code that ends a command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import typer

from fleetsim.cli.terminal import say
from fleetsim.errors import NOT_HELD, OUTSIDE_RANGE, Interrupted, UnfinishedError
from fleetsim.files import new_file, write_text
from fleetsim.job.result import Briefed

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fleetsim.cli.flags import Form
    from fleetsim.job.engine_source import EngineSource
    from fleetsim.tell.document import Document
    from fleetsim.tell.terminal import View


class Answer(Protocol):
    """A Result with warnings, as a command shows it."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the command prints on stderr."""

    def view(self) -> View:
        """What the command prints."""

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""


def show(renderable: RenderableType) -> None:
    """A rich renderable on stdout: plain text when piped, without colour under NO_COLOR. Nothing is cut at the
    terminal's edge: a command there could not be pasted."""
    from fleetsim.tell.console import as_text, console

    stdout = console(sys.stdout)
    if stdout.is_terminal:
        stdout.print(renderable, crop=False)
    else:
        say(as_text(renderable))


def show_json(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout."""
    from fleetsim.tell.data import dumps

    say(dumps(document))


def warn(warnings: Sequence[str]) -> None:
    """Warnings on stderr, one paragraph each."""
    if not warnings:
        return
    from fleetsim.tell.console import console
    from fleetsim.tell.terminal import warning_lines

    console(stderr=True).print(warning_lines(warnings))


def show_told(
    form: Form,
    data: Callable[[], dict[str, Any]],
    document: Callable[[], Document],
    rows: Callable[[], Sequence[Mapping[str, Any]]] | None = None,
    view: Callable[[], View] | None = None,
) -> None:
    """An answer, in its form. rows: its table, else its facts. view: where not all of it is drawn."""
    from fleetsim.tell.data import csv_text, dumps

    if form == "json":
        say(dumps(data()))
    elif form == "csv":
        say(csv_text(data()["facts"] if rows is None else rows()), nl=False)
    elif form == "md":
        from fleetsim.tell.page import markdown_text

        say(markdown_text(document()), nl=False)
    else:
        from fleetsim.tell.terminal import draw

        show(draw(document()) if view is None else view())


def show_listed(form: Form, data: Mapping[str, Any], key: str, lines: Callable[[], Iterable[str]]) -> None:
    """A list, in its form. key: of the document's rows. lines: of the terminal."""
    from fleetsim.tell.data import csv_text

    if form == "json":
        show_json(data)
    elif form == "csv":
        say(csv_text(data[key]), nl=False)
    elif form == "md":
        from fleetsim.tell.page import rows_text

        say(rows_text(data[key]), nl=False)
    else:
        say("\n".join(lines()))


def show_result(result: Answer, form: Form = "table", explain: bool = False) -> None:
    """An answer, in its form, and its warnings. explain: not in brief."""
    if isinstance(result, Briefed):
        show_told(form, result.document, result.told, result.rows, lambda: result.view(explain))
    elif form == "json":  # what was found before Ctrl-C is no table yet
        show_json(result.document())
    else:
        show(result.view())
    warn(result.warnings)


def stop_at(lines: Sequence[str]) -> None:
    """Exit 10 with the lines of a gate that tripped, if there are any."""
    for line in lines:
        say(line, err=True)
    if lines:
        raise typer.Exit(NOT_HELD)


def stop_if_unmeasured(profile: EngineSource, strict: bool) -> None:
    """Exit 12 with the reason under --strict when the answer does not rest on measurements alone."""
    problem = profile.strict_problem if strict else None
    if problem is not None:
        say(f"error: --strict: {problem}", err=True)
        raise typer.Exit(OUTSIDE_RANGE)


@contextmanager
def if_interrupted(show: Callable[[Any, str], None]) -> Iterator[None]:
    """Around long work: shows what an Interrupted or an UnfinishedError knows, show(known, missing), and lets it go on
    to the exit code.

    To stand outside of the progress that the work tells, so that its line is gone by then.
    """
    try:
        yield
    except (Interrupted, UnfinishedError) as cut:
        if cut.known is not None:
            show(cut.known, cut.missing if isinstance(cut, Interrupted) else str(cut))
        raise


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
    put(place, text, "; it opens in any browser, offline")


def put(place: Path | None, text: str, then: str = "") -> None:
    """A text in its file, with a line on stderr that says so and ends with `then`; without one on stdout. Raises
    OutsideError."""
    if place is None:
        say(text, nl=False)
        return
    write_text(place, text)
    say(f"wrote {place}{then}", err=True)
