"""What commands do with an answer that was searched for: text or JSON, a page, a scenario file, the exit code.

Where something is to be written is checked before the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from fleetsim.cli.flags import Output, Printed
from fleetsim.cli.terminal import say
from fleetsim.errors import Problems
from fleetsim.job.settings import RUN, Option, Question

if TYPE_CHECKING:
    from fleetsim.frameworks.patch import ConfigPatch
    from fleetsim.job.metrics import Gate
    from fleetsim.job.result import Gated, Recommendation, Watch

Q = TypeVar("Q", bound=Question)


@dataclass(frozen=True, kw_only=True)
class SavedOutput(Output):
    """The output of a command whose answer is a scenario."""

    save: Annotated[
        str | None, Option("Write what is recommended as a scenario file.", RUN, metavar="FILE", after="json_")
    ] = None
    to: Annotated[
        str | None, Option("Say it to a framework as well: what changes of --config.", RUN, metavar="FRAMEWORK")
    ] = None
    config: Annotated[str | None, Option("Your own configuration of that framework.", RUN, metavar="FILE")] = None


def checked(asked: Q, output: Printed, names: Sequence[str]) -> tuple[Q, Gate, Path | None, Path | None]:
    """The question with its job, the condition, and where page and scenario go. names: what a condition can name.

    Raises InputError with all that is wrong, OutsideError.
    """
    from fleetsim.cli.output import new_page
    from fleetsim.files import apart, new_file
    from fleetsim.job.metrics import parse_gate

    saved = output if isinstance(output, SavedOutput) else SavedOutput()
    wrong = Problems()
    wrong.made(apart, {"--save": saved.save, "--html": output.html})
    save = wrong.made(lambda: None if saved.save is None else new_file("--save", saved.save))
    page = wrong.made(new_page, "--html", output.html)
    gate = wrong.made(parse_gate, output.fail_if or (), names)
    wrong.made(check_config, saved.to, saved.config)
    asked = wrong.made(asked.ready)
    wrong.stop()
    return asked, gate, page, save


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


def _patch(saved: str, framework: str, config: str) -> ConfigPatch:
    """What a saved scenario changes in a framework's own configuration."""
    from fleetsim.config.load import scenario_from_mapping
    from fleetsim.config.yaml_text import from_yaml
    from fleetsim.job.in_frameworks import patched

    return patched(framework, scenario_from_mapping(from_yaml(saved, "saved")), config)


def answer(
    ask: Callable[[Q, Watch], Gated],
    asked: Q,
    output: Printed,
    more: Sequence[str] = (),
    only: Sequence[str] = (),
    searches: bool = True,
) -> None:
    """Asks, shows what was found, writes it where it was asked for, and ends with the exit code.

    more: what a condition can name beside the metrics of a run, only: in their place. searches: whether it makes dozens
    of runs, by processes of its own.
    """
    from fleetsim.cli.output import if_interrupted, show_result, stop_at, stop_if_unmeasured, warn, write_page
    from fleetsim.cli.progress import progress
    from fleetsim.errors import InfeasibleError
    from fleetsim.files import write_text
    from fleetsim.quantities import RUN_METRICS

    def so_far(known: Any, _: str) -> None:
        if output.form != "table" or known.found:
            show_result(known, output.form, output.explain)
        else:
            warn(known.warnings)

    asked, gate, page, save = checked(asked, output, only or (*RUN_METRICS, *more))
    with if_interrupted(so_far), progress("loading the simulator", searches=searches) as watch:
        result = ask(asked, watch)
    if save is not None:
        write_text(save, cast("Recommendation", result).saved())
    show_result(result, output.form, output.explain)
    if isinstance(output, SavedOutput) and output.to is not None and output.config is not None:
        patch = _patch(cast("Recommendation", result).saved(), output.to, output.config)
        show_patch(patch, err=output.form != "table")
    if page is not None:
        with progress("for the page") as watch:
            text = result.page(watch)
        write_page(page, text)
    if result.missed():
        raise InfeasibleError(result.missed())
    if isinstance(output, Output):
        stop_if_unmeasured(cast("Recommendation", result).profile, output.strict)
    stop_at(gate.tripped(result.numbers()))
