"""`fleetsim compare`: two scenarios, two results, or two windows of history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetsim.cli.compare_flags import Compare, ComparedOutput
from fleetsim.cli.say import say

if TYPE_CHECKING:
    from fleetsim.cli.compare_call import Question
    from fleetsim.compare.compare import Comparison


def compare(asked: Compare, output: ComparedOutput) -> None:
    """What changed between A and B, by how much, and is it more than luck? Scenarios, results or windows of history.

    Examples:

    [bold]fleetsim compare job.yaml --set-b fleet.instances=8[/bold]

    [bold]fleetsim compare verl-sync verl-fully-async --set workload.output_tokens.mean=4000[/bold]

    [bold]fleetsim compare before.json after.json --fail-if regression[/bold]

    [bold]fleetsim compare before.om after.om --html changes.html[/bold]

    [bold]fleetsim compare --prometheus http://localhost:9090 --a -6h..-3h --b -3h..now[/bold]

    A metric changed if that is told from luck and from --min-change (of shares: points), however many are looked at.

    \b
    --fail-if regression            step, trainer idle, cost, staleness or lost
                                    samples are worse, beyond luck and
                                    --min-change; with --metric: any named one
    --fail-if regression.step_s     this one is; with --metric step_s it need not
                                    stand out among others
    --fail-if "ratio.step_s>1.05"   B / A; ratio.step_s.low and .high are the ends
                                    of its interval; difference.step_s: B - A
    --fail-if "step_s>30"           the mean of B
    """
    from fleetsim.cli.compare_call import question_of
    from fleetsim.cli.output import stop_at
    from fleetsim.cli.pages import new_page, write_page

    question = question_of(asked, output.fail_if or ())
    page = new_page("--html", output.html)
    found = _of_windows(asked, question) if question.what == {"history"} else _of_runs(asked, question, output.json_)
    _show(found, output.json_)
    if page is not None:
        from fleetsim.compare.page import compare_page

        write_page(page, compare_page(found))
    stop_at(question.gate.tripped(found))


def _of_windows(asked: Compare, question: Question) -> Comparison:
    """Two windows of history, read and compared."""
    from fleetsim.cli.compare_windows import compare_windows
    from fleetsim.cli.interrupts import working
    from fleetsim.cli.progress import progress

    working()
    with progress("reading", aloud=True, simulates=False) as watch:
        return compare_windows(asked, question, watch)


def _of_runs(asked: Compare, question: Question, as_json: bool) -> Comparison:
    """Two scenarios or results, simulated where need be and compared; after Ctrl-C what is known by then is shown."""
    from fleetsim.cli.compare_runs import compare_runs, jobs_of, results_of
    from fleetsim.cli.interrupted import if_interrupted
    from fleetsim.cli.progress import progress

    jobs, results = jobs_of(asked, question), results_of(question)
    with if_interrupted(_so_far(as_json)), progress("loading the simulator") as watch:
        watch.loaded()
        watch("simulating, runs")
        return compare_runs(asked, question, jobs, results, watch)


def _show(found: Comparison, as_json: bool) -> None:
    from fleetsim.cli.output import show, show_json

    if as_json:
        from fleetsim.compare.data import compare_document

        show_json(compare_document(found))
    else:
        from fleetsim.compare.told import compare_report

        show(compare_report(found))


def _so_far(as_json: bool) -> Callable[[Comparison, str], None]:
    """Shows the comparison of the pairs that were simulated, after Ctrl-C."""

    def show(found: Comparison, missing: str) -> None:
        if not as_json:
            say(f"Interrupted: {missing}.")
        _show(replace(found, notes=(*found.notes, f"interrupted: {missing}")) if as_json else found, as_json)

    return show
