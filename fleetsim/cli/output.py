"""Results on stdout, everything else on stderr, and the exit code that ends a command."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from fleetsim.cli.say import say
from fleetsim.errors import InfeasibleError
from fleetsim.job import gate

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fleetsim.analysis.replicate import Replicated
    from fleetsim.plan.engine_source import EngineSource
    from fleetsim.plan.size import SizeResult
    from fleetsim.plan.split import SplitResult
    from fleetsim.report.run_view import RunView

OUTSIDE_RANGE = 12


def show(renderable: RenderableType) -> None:
    """A rich renderable on stdout: plain text when piped, without colour under NO_COLOR. Nothing is cut at the
    terminal's edge: a command there could not be pasted."""
    from fleetsim.report.shown import as_text, console

    stdout = console(sys.stdout)
    if stdout.is_terminal:
        stdout.print(renderable, crop=False)
    else:
        say(as_text(renderable))


def show_json(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout."""
    from fleetsim.report.json import dumps

    say(dumps(document))


def warn(warnings: Sequence[str]) -> None:
    """Warnings on stderr, one paragraph each."""
    if not warnings:
        return
    from fleetsim.report.blocks import warning_lines
    from fleetsim.report.shown import console

    console(stderr=True).print(warning_lines(warnings))


def show_size(result: SizeResult, as_json: bool) -> None:
    """A plan, in either form, and its warnings."""
    if as_json:
        from fleetsim.report.json import size_document

        show_json(size_document(result))
    else:
        from fleetsim.report.terminal import size_report

        show(size_report(result))
    warn(result.warnings)


def show_split(result: SplitResult, as_json: bool) -> None:
    """A split advice, in either form, and its warnings."""
    if as_json:
        from fleetsim.report.json import split_document

        show_json(split_document(result))
    else:
        from fleetsim.report.split_view import split_report

        show(split_report(result))
    warn(result.warnings)


def show_run(
    result: Replicated,
    profile: EngineSource,
    notes: Sequence[str],
    given: Collection[str],
    as_json: bool,
    steady: bool = True,
) -> dict[str, float]:
    """A simulated scenario, in either form, and its warnings. Returns the means of its metrics by dotted name.

    given: dotted paths that somebody gave; the rest are defaults. steady: False for a run that was cut off in its
    warm-up: its steps are shown, and no metric of them.
    """
    view, warnings = _viewed(result, profile, notes, given)
    if as_json:
        from fleetsim.plan.trials import flat
        from fleetsim.report.json import simulate_document

        values = [flat(run) for run in result.values] if steady else []
        metrics = result.metrics if steady else {}
        show_json(simulate_document(result.scenario, metrics, len(result.runs), profile, warnings, values))
    else:
        from fleetsim.report.run_view import run_report, warm_up_report

        show(run_report(view) if steady else warm_up_report(view))
    warn(warnings)
    return {name: e.mean for name, e in view.metrics.items()}


def run_page_of(result: Replicated, profile: EngineSource, notes: Sequence[str], given: Collection[str]) -> str:
    """The page of a simulated scenario, whose first run was recorded with its activity."""
    from fleetsim.report.run_page import run_page

    view, warnings = _viewed(result, profile, notes, given)
    return run_page(view, result.runs[0], warnings)


def _viewed(
    result: Replicated, profile: EngineSource, notes: Sequence[str], given: Collection[str]
) -> tuple[RunView, tuple[str, ...]]:
    """What is shown of a simulated scenario, and what is warned of."""
    from fleetsim.plan.run_assumptions import run_assumptions
    from fleetsim.plan.trials import flat
    from fleetsim.plan.warnings import backlog_warnings, range_warnings
    from fleetsim.report.counted import early_events, warmups_of
    from fleetsim.report.run_view import RunView, trained_staleness

    metrics = flat(result.metrics)
    binding = str(metrics.pop("binding"))
    first = result.runs[0]
    staleness = trained_staleness(first)
    warmups, assumed = warmups_of(result.runs), run_assumptions(result.scenario, given)
    view = RunView(
        result.scenario, metrics, binding, len(result.runs), first.steps, staleness, profile, warmups, assumed
    )
    backlog = backlog_warnings(result.scenario, metrics)
    return view, (*notes, *backlog, *early_events(result.scenario, warmups), *range_warnings(profile))


def end(result: SizeResult, conditions: Sequence[gate.Condition], strict: bool) -> None:
    """The exit code of a plan: 11 before 12 before 10, each with its reason on stderr.

    Raises InfeasibleError for a target that the user gave and no fleet holds, typer.Exit for the others.
    """
    if not result.feasible:
        from fleetsim.report.words import asked

        raise InfeasibleError(f"no fleet holds {asked(result, held=False)}; the best that was found is printed above")
    stop_if_unmeasured(result.profile, strict)
    values = {name: e.mean for name, e in result.recommended.estimates.items()}
    stop_if_tripped(conditions, {**values, "instances": float(result.instances)})


def stop_if_unmeasured(profile: EngineSource, strict: bool) -> None:
    """Exit 12 with the reason under --strict when the answer does not rest on measurements alone."""
    problem = profile.strict_problem if strict else None
    if problem is not None:
        say(f"error: --strict: {problem}", err=True)
        raise typer.Exit(OUTSIDE_RANGE)


def stop_if_tripped(conditions: Sequence[gate.Condition], values: Mapping[str, float]) -> None:
    """Exit 10 with a line for every condition that is true."""
    lines = gate.tripped(conditions, values)
    for line in lines:
        say(line, err=True)
    if lines:
        raise typer.Exit(gate.EXIT_CODE)
