"""`--set`, `--sweep`, `--recommend`, `--plan-out`, `--patch`, `--verify`: checked before, written after the work."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fleetsim.cli.say import say
from fleetsim.cli.sweep_values import parse_sweep
from fleetsim.config.override import parse_override
from fleetsim.errors import InputError, Problem
from fleetsim.files import new_file, write_text
from fleetsim.job.gate import EXIT_CODE

if TYPE_CHECKING:
    from fleetsim.replay.answers import Answers, Questions


@dataclass(frozen=True, slots=True)
class ChangeFlags:
    """What a command line asks about other fleets, as it was written."""

    sets: Sequence[str] = ()
    sweep: str | None = None
    recommend: bool = False
    plan_out: str | None = None
    patch: str | None = None
    deployment: str | None = None
    verify: str | None = None

    @property
    def plans(self) -> bool:
        """Whether a plan is asked for: --plan-out and --patch are of one, so they ask for it."""
        return self.recommend or self.plan_out is not None or self.patch is not None


def questions_of(flags: ChangeFlags) -> Questions:
    """The questions, every flag checked. Raises InputError, all problems at once."""
    from fleetsim.replay.answers import Questions
    from fleetsim.replay.change.patch import parse_deployment
    from fleetsim.replay.change.plan_fields import load_plan

    problems: list[Problem] = []
    changes: dict[str, Any] = {}
    swept = deployment = plan = None
    for text in flags.sets:
        try:
            path, value = parse_override(text)
            changes[path] = value
        except InputError as error:
            problems += error.problems
    try:
        swept = None if flags.sweep is None else parse_sweep(flags.sweep)
    except InputError as error:
        problems += error.problems
    try:
        deployment = None if flags.deployment is None else parse_deployment(flags.deployment)
    except InputError as error:
        problems += error.problems
    try:
        plan = None if flags.verify is None else load_plan(flags.verify)
    except InputError as error:
        problems += error.problems
    for flag, output in (("--plan-out", flags.plan_out), ("--patch", flags.patch)):
        try:
            if output is not None:
                new_file(flag, output)
        except InputError as error:
            problems += error.problems
    if flags.patch is not None and flags.deployment is None:
        problems.append(Problem("--patch", flags.patch, "is a patch of which deployment?", "add --deployment NAME"))
    if flags.deployment is not None and not flags.plans:
        problems.append(Problem("--deployment", flags.deployment, "names whom a plan is for", "add --patch FILE"))
    if problems:
        raise InputError(problems)
    return Questions(changes, swept, flags.plans, deployment, plan)


def one_sweep(texts: Sequence[str]) -> str | None:
    """The sweep that was asked for. Raises InputError for a second one: one table has one key."""
    if len(texts) > 1:
        rule = "one sweep at a time"
        remedy = "run it again for the other key, or hold that key with --set"
        raise InputError([Problem("--sweep", " and ".join(texts), rule, remedy)])
    return texts[0] if texts else None


def applied(answers: Answers, file: str | None) -> Answers:
    """With the name of the patch's file in the command that applies it."""
    if answers.patch is None or file is None:
        return answers
    command = answers.patch.command.replace("FILE", shlex.quote(file))
    return replace(answers, patch=replace(answers.patch, command=command))


def write_plan(flags: ChangeFlags, answers: Answers, verify: Sequence[str] | None = None) -> None:
    """The files that were asked for. verify: the command that holds a later window against the plan, None where there
    is no telling. Raises OutsideError."""
    from fleetsim.replay.change.plan_fields import plan_text

    held = answers.withheld
    if held is not None:
        for output in (flags.plan_out, flags.patch):
            if output is not None:
                say(f"{output} is not written: nothing is recommended now: {held.why}", err=True)
        return
    if flags.plan_out is not None and answers.plan is not None:
        write_text(Path(flags.plan_out), plan_text(answers.plan))
        how = f"\n  {shlex.join(verify)}" if verify else f" replay a window of it with --verify {flags.plan_out}"
        say(f"wrote {flags.plan_out}; after the change:{how}", err=True)
    found = answers.recommendation
    if flags.patch is not None and found is not None and not found.resized:
        count = f"{found.was:,} instance{'' if found.was == 1 else 's'}"
        say(f"{flags.patch} is not written: the fleet is to keep its {count}", err=True)
    elif flags.patch is not None and answers.patch is not None:
        write_text(Path(flags.patch), answers.patch.yaml)
        say(f"wrote {flags.patch}: {answers.patch.command}", err=True)


def stop_if_withheld(flags: ChangeFlags, answers: Answers) -> None:
    """Exit 10 where a file of the recommendation was asked for and there is none: a pipeline must not go on."""
    if answers.withheld is not None and (flags.plan_out is not None or flags.patch is not None):
        raise typer.Exit(EXIT_CODE)


def stop_if_unverified(answers: Answers) -> None:
    """Exit 10 with a line for every item of the plan's list that does not hold."""
    failed = () if answers.verification is None else answers.verification.failed
    for check in failed:
        say(f"--verify: {check.name} failed: {check.text}", err=True)
    if failed:
        raise typer.Exit(EXIT_CODE)
