"""`fleetsim validate`: published runs, predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fleetsim.cli.flags import Form, Formed
from fleetsim.cli.terminal import say
from fleetsim.errors import NOT_HELD
from fleetsim.job.settings import Option

if TYPE_CHECKING:
    from pathlib import Path

    from fleetsim.validate.groups import Row
    from fleetsim.validate.run import RangedArm
    from fleetsim.validate.verdict import CaseResult


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

    [bold]fleetsim validate[/bold]

    [bold]fleetsim validate --case C02 --json[/bold]

    [bold]fleetsim validate --cases my-runs --json[/bold]

    [bold]fleetsim validate --ranges --html validation.html[/bold]

    [bold]fleetsim validate --write docs[/bold]

    [bold]fleetsim validate --predictions docs/predictions[/bold]
    """
    from pathlib import Path

    from fleetsim.cli.interrupts import loaded
    from fleetsim.cli.output import if_interrupted, new_page, write_page
    from fleetsim.cli.progress import progress
    from fleetsim.validate.documents import checked_folder, drifted, write_docs

    if asked.predictions is not None:
        _predictions(asked.predictions, asked.form)
        return
    folder = checked_folder(asked.case or (), asked.cases, asked.write, asked.check)
    place = None if asked.cases is None else Path(asked.cases)
    page = new_page("--html", asked.html)
    with if_interrupted(_so_far(place, asked.form)), progress("loading the simulator") as tell:
        from fleetsim.validate.case import case_files, load_cases
        from fleetsim.validate.run import run_cases
        from fleetsim.validate.verdict import summary

        cases = load_cases(tuple(asked.case or ()), place)
        order = [c.id for c in cases]
        loaded()
        tell("simulating published runs")
        tell.at(0, len(order))
        results = run_cases(cases, progress=lambda done: tell.at(order.index(done) + 1, len(order)))
        arms = _ranges(results, tell) if asked.ranges or folder is not None else ()
    rows = _rows(results, place)
    _show(results, asked.form, arms, rows)
    if page is not None:
        write_page(page, _page(results, len(case_files(place)), arms, rows))
    if folder is not None and asked.write is not None:
        write_docs(folder, results, arms, rows)
    elif folder is not None and drifted(folder, results, arms, rows):
        _failed(f"the page in {asked.check} has drifted: run fleetsim validate --write {asked.check}")
    if asked.strict and not summary(results).holds:
        _failed("error: --strict: a gate does not hold")


def _ranges(results: Sequence[CaseResult], tell: Callable[[str], None]) -> Sequence[RangedArm]:
    """Every arm with its range as a plan tells it."""
    from fleetsim.validate.run import ranged_arms

    tell("moving what is not certain to both ends of its interval")
    return ranged_arms(results)


def _rows(results: Sequence[CaseResult], folder: Path | None) -> Sequence[Row]:
    """A row for every arm. folder: where the cases are, None = the shipped ones."""
    from fleetsim.validate.case import shipped
    from fleetsim.validate.groups import rows_of
    from fleetsim.validate.ledger import read_ledger

    return rows_of(results, read_ledger(folder or shipped()))


def _page(results: Sequence[CaseResult], cases: int, arms: Sequence[RangedArm], rows: Sequence[Row]) -> str:
    """The page of --html. cases: how many there are in all."""
    from fleetsim.tell.page import document_page
    from fleetsim.validate.told import document

    return document_page(document(results, cases, arms, rows))


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


def _show(
    results: Sequence[CaseResult], form: Form, arms: Sequence[RangedArm], rows: Sequence[Row], **more: Any
) -> None:
    """more: of the document alone."""
    from fleetsim.cli.output import show_told
    from fleetsim.records import as_dict
    from fleetsim.validate.documents import data
    from fleetsim.validate.told import document

    show_told(
        form,
        lambda: {**data(results, rows, arms), **more},
        lambda: document(results, len(results), arms, rows),
        lambda: [as_dict(row) for row in rows],
    )


def _so_far(folder: Path | None, form: Form) -> Callable[[Sequence[CaseResult], str], None]:
    """Shows the cases that were simulated, after Ctrl-C."""

    def show(results: Sequence[CaseResult], missing: str) -> None:
        if form == "table":
            say(f"Interrupted: {missing}; what follows is of those alone.")
        _show(results, form, (), _rows(results, folder), warnings=[f"interrupted: {missing}"])

    return show
