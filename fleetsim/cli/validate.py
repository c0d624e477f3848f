"""`fleetsim validate`: published runs, predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from fleetsim.cli.flags import Form, Formed
from fleetsim.cli.terminal import say
from fleetsim.errors import NOT_HELD
from fleetsim.job.settings import Option

if TYPE_CHECKING:
    from fleetsim.validate.ask import ValidateResult


OUTPUT = "Output"


@dataclass(frozen=True, kw_only=True)
class Validation(Formed):
    """Which cases, and what is done with their verdicts."""

    case: Annotated[list[str] | None, Option("Only this case, as C01. Repeatable.", None, metavar="ID")] = None
    cases: Annotated[str | None, Option("Cases of this folder instead (*.case.yaml).", None, metavar="DIR")] = None
    write: Annotated[str | None, Option("Write validation.md and validation.svg there.", OUTPUT, metavar="DIR")] = None
    check: Annotated[str | None, Option("Exit 10 if the page there would change.", OUTPUT, metavar="DIR")] = None
    ranges: Annotated[bool, Option("Do 80 % ranges hold what was published?", None)] = False
    predictions: Annotated[str | None, Option("Open frozen predictions: docs/predictions.", None, metavar="DIR")] = None
    html: Annotated[str | None, Option("Write a page with charts there.", OUTPUT, metavar="FILE")] = None
    strict: Annotated[bool, Option("Exit 10 if a gate does not hold.", OUTPUT)] = False


def validate(asked: Validation) -> None:
    """How far is the simulation from what real projects published? One scalar fitted, everything else predicted.

    Examples:
    fleetsim validate
    fleetsim validate --case C02 --json
    fleetsim validate --cases my-runs --json
    fleetsim validate --ranges --html validation.html
    fleetsim validate --write docs
    fleetsim validate --predictions docs/predictions
    """
    from fleetsim.cli.output import if_interrupted, new_page, show_told, write_page
    from fleetsim.cli.progress import progress
    from fleetsim.validate.ask import checked_folder
    from fleetsim.validate.ask import validate as ask_validate

    if asked.predictions is not None:
        _predictions(asked.predictions, asked.form)
        return
    folder = checked_folder(asked.case or (), asked.cases, asked.write, asked.check)
    page, ranges = new_page("--html", asked.html), asked.ranges or folder is not None

    def show(result: ValidateResult, missing: str = "") -> None:
        if missing and asked.form == "table":
            say(f"Interrupted: {missing}; what follows is of those alone.")
        show_told(asked.form, result.document, result.told, result.rows)

    with if_interrupted(show), progress("loading the simulator", searches=True) as watch:
        result = ask_validate(asked.case or (), asked.cases, ranges=ranges, watch=watch)
    show(result)
    if page is not None:
        write_page(page, result.page())
    if folder is not None and asked.write is not None:
        result.write_docs(folder)
    elif folder is not None and result.drifted(folder):
        _failed(f"the page in {asked.check} has drifted: run fleetsim validate --write {asked.check}")
    if asked.strict and not result.summary.holds:
        _failed("error: --strict: a gate does not hold")


def _predictions(folder: str, form: Form) -> None:
    """Frozen predictions, told; exit 10 where a seal is broken."""
    from pathlib import Path

    from fleetsim.cli.output import show_told
    from fleetsim.validate.predictions import data, document, opened

    files = opened(Path(folder))
    show_told(form, lambda: data(files), lambda: document(files))
    broken = [file.name for file in files if not file.intact]
    if broken:
        _failed(f"error: changed since it was sealed: {', '.join(broken)}")


def _failed(why: str) -> NoReturn:
    """Ends with the exit code of a check that failed."""
    say(why, err=True)
    raise typer.Exit(NOT_HELD)
