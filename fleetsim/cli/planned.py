"""What `size` and `split` do with their answers: a page, a scenario file, a condition; each checked before the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from fleetsim.errors import Problems
from fleetsim.job.fields import RUN, BriefOutput
from fleetsim.job.question import Option, Question

if TYPE_CHECKING:
    from fleetsim.job.gate import Gate

Q = TypeVar("Q", bound=Question)


@dataclass(frozen=True, kw_only=True)
class SavedOutput(BriefOutput):
    """The output of a command whose answer is a scenario."""

    save: Annotated[
        str | None, Option("Write the job, sized, as a scenario file.", RUN, metavar="FILE", after="json_")
    ] = None


@dataclass(frozen=True, slots=True)
class Places:
    """Where the answer goes, each None where it is not asked for, and the condition on it."""

    save: Path | None
    page: Path | None
    gate: Gate


def checked(asked: Q, output: SavedOutput, more: Sequence[str]) -> tuple[Q, Places]:
    """The question with its job, and where the answer goes. more: what a condition can name beside the metrics.

    Raises InputError with all that is wrong, OutsideError.
    """
    from fleetsim.cli.pages import new_page
    from fleetsim.files import apart, new_file
    from fleetsim.job.gate import METRICS, parse_gate

    wrong = Problems()
    with wrong.check():
        apart({"--save": output.save, "--html": output.html})
    with wrong.check():
        place = None if output.save is None else new_file("--save", output.save)
    with wrong.check():
        page = new_page("--html", output.html)
    with wrong.check():
        gate = parse_gate(output.fail_if or (), (*METRICS, *more))
    with wrong.check():
        asked = asked.ready()
    wrong.stop()
    return asked, Places(place, page, gate)
