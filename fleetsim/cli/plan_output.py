"""What `size`, `split` and `plan` do with their answers: text or JSON, a page, a scenario file, the exit code.

Where something is to be written is checked before the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from msgspec import Struct

from fleetsim.cli.flags import BriefOutput
from fleetsim.cli.terminal import say
from fleetsim.errors import Problems
from fleetsim.job.settings import RUN, Option, Question

if TYPE_CHECKING:
    from fleetsim.frameworks.patch import ConfigPatch
    from fleetsim.job.metrics import Gate
    from fleetsim.job.result import Recommendation, SoFar, Watch

Q = TypeVar("Q", bound=Question)


@dataclass(frozen=True, kw_only=True)
class SavedOutput(BriefOutput):
    """The output of a command whose answer is a scenario."""

    save: Annotated[
        str | None, Option("Write the job, sized, as a scenario file.", RUN, metavar="FILE", after="json_")
    ] = None
    to: Annotated[
        str | None, Option("Say it to a framework as well: what changes of --config.", RUN, metavar="FRAMEWORK")
    ] = None
    config: Annotated[str | None, Option("Your own configuration of that framework.", RUN, metavar="FILE")] = None


class Places(Struct, frozen=True):
    """Where the answer goes, each None where it is not asked for, and the condition on it."""

    save: Path | None
    page: Path | None
    gate: Gate


def checked(asked: Q, output: SavedOutput, more: Sequence[str]) -> tuple[Q, Places]:
    """The question with its job, and where the answer goes. more: what a condition can name beside the metrics.

    Raises InputError with all that is wrong, OutsideError.
    """
    from fleetsim.cli.output import new_page
    from fleetsim.files import apart, new_file
    from fleetsim.job.metrics import parse_gate
    from fleetsim.quantities import RUN_METRICS

    wrong = Problems()
    with wrong.check():
        apart({"--save": output.save, "--html": output.html})
    with wrong.check():
        place = None if output.save is None else new_file("--save", output.save)
    with wrong.check():
        page = new_page("--html", output.html)
    with wrong.check():
        gate = parse_gate(output.fail_if or (), (*RUN_METRICS, *more))
    with wrong.check():
        check_config(output.to, output.config)
    with wrong.check():
        asked = asked.ready()
    wrong.stop()
    return asked, Places(place, page, gate)


def check_config(framework: str | None, config: str | None) -> None:
    """Whether --to and --config stand together, and the file can be read. Raises InputError."""
    from fleetsim.errors import InputError, Problem

    if framework is not None and config is not None:
        from fleetsim.frameworks.patch import configuration

        configuration(framework, config)
    elif framework is not None or config is not None:
        flag, value = ("--to", framework) if config is None else ("--config", config)
        rule = "needs the other: --to FRAMEWORK --config FILE"
        raise InputError([Problem(flag, value, rule, "give both; without a file: --save, then fleetsim scenario to")])


def show_patch(patch: ConfigPatch, *, err: bool) -> None:
    """A configuration's changed lines, and what changes, behind the answer; on stderr beside a JSON document."""
    for line in ("", *patch.diff.splitlines(), *patch.lines()):
        say(line, err=err)


def answer(ask: Callable[[Q, Watch], Recommendation], asked: Q, output: SavedOutput, more: Sequence[str]) -> None:
    """Asks, shows what is recommended, writes it where it was asked for, and ends with the exit code.

    more: what a condition can name beside the metrics.
    """
    from fleetsim.cli.output import finish, if_interrupted, show_result, write_page
    from fleetsim.cli.progress import progress
    from fleetsim.errors import InfeasibleError
    from fleetsim.files import write_text

    def so_far(known: SoFar[Any], _: str) -> None:
        if output.form != "table" or known.found:
            show_result(known, output.form)

    asked, places = checked(asked, output, more)
    with if_interrupted(so_far), progress("loading the simulator", searches=True) as watch:
        result = ask(asked, watch)
    if places.save is not None:
        write_text(places.save, result.saved())
    show_result(result, output.form, output.explain)
    if output.to is not None and output.config is not None:
        from fleetsim.config.load import scenario_from_mapping
        from fleetsim.config.yaml_text import from_yaml
        from fleetsim.job.in_frameworks import patched

        scenario = scenario_from_mapping(from_yaml(result.saved(), "saved"))
        show_patch(patched(output.to, scenario, output.config), err=output.form != "table")
    if places.page is not None:
        with progress("for the page") as watch:
            page = result.page(watch)
        write_page(places.page, page)
    if result.missed():
        raise InfeasibleError(result.missed())
    finish(result, places.gate, output.strict)
