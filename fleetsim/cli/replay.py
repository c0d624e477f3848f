"""`fleetsim replay`: history in; diagnosis, back-test and what-if out."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim import units
from fleetsim.cli.flags import Printed
from fleetsim.cli.terminal import say
from fleetsim.errors import NOT_HELD, InputError, Problem, Problems
from fleetsim.files import new_file, reason, write_text
from fleetsim.job.settings import Option
from fleetsim.records import replace
from fleetsim.replay.ask import Replay, ask
from fleetsim.replay.history_fields import SOURCE, AccessFields
from fleetsim.replay.questions import CHANGE, ChangeFields

if TYPE_CHECKING:
    from fleetsim.job.metrics import Gate
    from fleetsim.replay.answers import Answers
    from fleetsim.replay.history_fields import HistoryWindow
    from fleetsim.replay.questions import Questions


# --- What `fleetsim replay` writes: the window, a page, a plan and its patch; checked before, written after the work.


@dataclass(frozen=True, kw_only=True)
class ReplayOutput(Printed):
    """What `replay` does with its answer, and with the window."""

    save: Annotated[
        str | None, Option("Keep the window: one Parquet file.", SOURCE, metavar="PATH", after="framework")
    ] = None


@dataclass(frozen=True, kw_only=True)
class PlanFiles:
    """Files of a recommendation: whoever names one asks for it."""

    plan_out: Annotated[
        str | None, Option("Write what is recommended, for --verify.", CHANGE, metavar="PLAN.json", after="recommend")
    ] = None
    patch: Annotated[
        str | None, Option("Write what is recommended as a patch.", CHANGE, metavar="FILE", after="plan_out")
    ] = None
    job_out: Annotated[
        str | None, Option("Write the window's job as a scenario, for simulate.", CHANGE, metavar="FILE", after="patch")
    ] = None

    to: Annotated[
        str | None, Option("Say what is recommended to a framework.", CHANGE, metavar="FRAMEWORK", after="job_out")
    ] = None
    config: Annotated[
        str | None, Option("Your own configuration of that framework.", CHANGE, metavar="FILE", after="to")
    ] = None

    def asked(self) -> bool:
        """Whether there is one of the recommendation's."""
        return any(file is not None for file in (self.plan_out, self.patch, self.to))


def checked(
    asked: Replay, output: ReplayOutput, files: PlanFiles, access: AccessFields
) -> tuple[Replay, Path | None, Gate]:
    """The question, the page and the condition, checked. Raises InputError with all that is wrong, OutsideError."""
    from fleetsim.cli.output import new_page
    from fleetsim.files import apart
    from fleetsim.job.metrics import parse_gate
    from fleetsim.replay.answers import profile_beside
    from fleetsim.replay.result import METRICS

    outputs = {"--save": output.save, "--html": output.html, "--plan-out": files.plan_out, "--patch": files.patch}
    beside = None if files.job_out is None else profile_beside(files.job_out)
    outputs |= {"--job-out": files.job_out, "--job-out (its engine)": beside}
    wrong = Problems()
    gate = wrong.made(parse_gate, output.fail_if or (), METRICS, "window")
    # Elsewhere than on a terminal a line for every query would be too many.
    window = wrong.made(lambda: replace(asked.history.ready().through(access), counts=sys.stderr.isatty()))
    fleet = wrong.made(asked.fleet.ready)
    questions = wrong.made(_questions, asked, files)
    wrong.made(apart, outputs)
    dump = wrong.made(new_dump, output.save)
    for file in (files.job_out, beside):
        with wrong.check():
            if file is not None:
                new_file("--job-out", file)
    page = wrong.made(new_page, "--html", output.html)
    wrong.stop()

    read = None
    if dump is not None:
        from fleetsim.history.saved_window import save_history

        read = partial(save_history, path=dump)
    asked = replace(asked, history=window, fleet=fleet, changes=questions, read=read, as_job=files.job_out is not None)
    return asked, page, gate


def _questions(asked: Replay, files: PlanFiles) -> Questions:
    """What is asked beyond the diagnosis. Raises InputError, with what is wrong with the files of a plan."""
    from fleetsim.cli.answer import check_config

    wrong = Problems()
    questions = wrong.made(asked.changes.ready)
    wrong.made(check_config, files.to, files.config)
    for name, output in (("--plan-out", files.plan_out), ("--patch", files.patch)):
        with wrong.check():
            if output is not None:
                new_file(name, output)
    with wrong.check():
        assert isinstance(asked.changes, ChangeFields)
        name = asked.changes.deployment
        if files.patch is not None and name is None:
            rule = "is a patch, and no deployment is named"
            raise InputError([Problem("--patch", files.patch, rule, "add --deployment NAME")])
        if name is not None and not (asked.changes.recommend or files.asked()):
            raise InputError([Problem("--deployment", name, "names whom a plan is for", "add --patch FILE")])
    wrong.stop()
    return replace(questions, recommend=questions.recommend or files.asked())


def new_dump(path: str | None) -> Path | None:
    """Where --save writes: something that does not exist yet. Raises InputError before anything is read."""
    if path is None:
        return None
    place = Path(path)
    if not path or path == "-" or "\0" in path:
        raise InputError([Problem("--save", path, "is no file name", "give one, for example window.parquet")])
    try:
        if place.exists():
            raise InputError([Problem("--save", path, "exists already", "choose another name, or remove it")])
    except OSError as error:
        raise InputError([Problem("--save", path, f"is no usable path: {reason(error)}", "give a file")]) from None
    if place.suffix in (".csv", ".json"):
        rule = "is no name for a Parquet file, which a window is saved as"
        raise InputError([Problem("--save", path, rule, f"give {place.with_suffix('.parquet')}")])
    from fleetsim.history.long_table import need_pyarrow

    need_pyarrow(place, "--save")
    return place


def write_plan(files: PlanFiles, answers: Answers, window: HistoryWindow) -> None:
    """The files that were asked for. window: that the plan is made from. Raises OutsideError."""
    from fleetsim.replay.change.plan import plan_text

    held = answers.withheld
    if held is not None:
        for output in (files.plan_out, files.patch, files.config):
            if output is not None:
                say(f"{output} is not written: nothing is recommended now: {held.why}", err=True)
        return
    if files.plan_out is not None and answers.plan is not None:
        write_text(Path(files.plan_out), plan_text(answers.plan))
        where, later = window.server_words(), ("--start", "-2h", "--verify", files.plan_out)
        how = f" replay a window of it with --verify {files.plan_out}"  # a file says nothing of later
        if where is not None:
            how = f"\n  {shlex.join(('fleetsim', 'replay', *where, *later))}"
        say(f"wrote {files.plan_out}; after the change:{how}", err=True)
    found = answers.recommendation
    if files.patch is not None and found is not None and not found.resized:
        count = units.plural(found.was, "instance")
        say(f"{files.patch} is not written: the fleet is to keep its {count}", err=True)
    elif files.patch is not None and answers.patch is not None:
        write_text(Path(files.patch), answers.patch.yaml)
        say(f"wrote {files.patch}: {answers.patch.command}", err=True)


def _stop(files: PlanFiles, answers: Answers) -> None:
    """Exit 10 with a line for every item of the plan's list that does not hold, or where a file of the recommendation
    was asked for and there is none: a pipeline must not go on. Raises InfeasibleError for a target that the user gave
    and no fleet of the recommendation's holds."""
    from fleetsim.errors import InfeasibleError
    from fleetsim.size.words import why_infeasible

    failed = () if answers.verification is None else answers.verification.failed
    for check in failed:
        say(f"--verify: {check.name} failed: {check.text}", err=True)
    if failed or (answers.withheld is not None and files.asked()):
        raise typer.Exit(NOT_HELD)
    found = answers.recommendation
    if found is not None and not found.size.feasible:
        raise InfeasibleError(f"{why_infeasible(found.size)}; the best that was found is printed above")


def replay(asked: Replay, output: ReplayOutput, files: PlanFiles, access: AccessFields) -> None:
    """What did the fleet do, which side starves, and what would another fleet have done? From its own metrics.

    Examples:
    fleetsim replay --prometheus http://localhost:9090
    fleetsim replay --prometheus http://localhost:9090 --start -1d --save day.parquet
    fleetsim replay --from day.parquet --scenario job.yaml --set fleet.instances=10
    fleetsim replay --from day.parquet --recommend --plan-out plan.json --patch patch.yaml
    fleetsim replay --from day.parquet --to verl --config run.sh
    fleetsim replay --prometheus http://localhost:9090 --start -2h --verify plan.json
    fleetsim replay --from day.parquet --sweep fleet.instances=6:16:2 --html day.html

    Reads only. Nothing is written but what --save, --html, --plan-out, --patch and --job-out name.
    """
    from fleetsim.cli.answer import show_patch
    from fleetsim.cli.output import show_result, stop_at, write_page
    from fleetsim.cli.progress import progress

    asked, page, gate = checked(asked, output, files, access)
    with progress("starting", aloud=True) as watch:
        result = ask(asked, watch)
    patch, job_file = result.answers.patch, files.job_out
    if patch is not None and files.patch is not None:  # its name in the command that applies it
        named = replace(patch, command=patch.command.replace("FILE", shlex.quote(files.patch)))
        result = replace(result, answers=replace(result.answers, patch=named))
    if job_file is not None and result.replayed.implied is not None:  # the window says enough for one
        result = result.with_job_file(job_file)
        say(f"wrote {job_file}; next: {shlex.join(['fleetsim', 'simulate', job_file])}", err=True)
    show_result(result, output.form, output.explain)
    if files.to is not None and files.config is not None and result.answers.recommendation is not None:
        show_patch(result.to(files.to, files.config), err=output.form != "table")
    if page is not None:
        write_page(page, result.page())
    write_plan(files, result.answers, asked.history.ready())
    if job_file is not None and result.job_file is None:
        result.with_job_file(job_file)  # raises: the window does not say enough for it
    _stop(files, result.answers)
    stop_at(gate.tripped(result.numbers()))
