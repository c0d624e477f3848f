"""`fleetsim compare`: two scenarios, two results, or two windows of history."""

from __future__ import annotations

import sys

from fleetsim.cli.flags import Drawn
from fleetsim.cli.terminal import say
from fleetsim.compare.ask import CompareResult, ask
from fleetsim.compare.checked_question import checked
from fleetsim.compare.question import Compare
from fleetsim.records import replace


def compare(asked: Compare, output: Drawn) -> None:
    """What changed between A and B, by how much, and is it more than luck? Scenarios, results or windows of history.

    Examples:
    fleetsim compare job.yaml --set-b fleet.instances=8
    fleetsim compare verl-sync verl-fully-async --len 4000
    fleetsim compare before.json after.json --fail-if regression
    fleetsim compare before.om after.om --html changes.html
    fleetsim compare --prometheus http://localhost:9090 --a -6h..-3h --b -3h..now

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
    from fleetsim.cli.interrupts import working
    from fleetsim.cli.output import if_interrupted, new_page, show_result, stop_at, write_page
    from fleetsim.cli.progress import progress

    # Elsewhere than on a terminal a line for every query would be too many.
    question = checked(replace(asked, counts=sys.stderr.isatty()))
    page = new_page("--html", output.html)
    reads = question.windows is not None
    if reads:
        working()
    watching = progress(
        "reading" if reads else "loading the simulator", aloud=reads, simulates=not reads, searches=not reads
    )

    def so_far(known: CompareResult, missing: str) -> None:
        """Shows the comparison of the pairs that were simulated, after Ctrl-C."""
        if output.form == "table":
            say(f"Interrupted: {missing}.")
        noted = known.noting(f"interrupted: {missing}") if output.form == "json" else known
        show_result(noted, output.form, output.explain)

    with if_interrupted(so_far), watching as watch:
        result = ask(question, watch)
    show_result(result, output.form, output.explain)
    if page is not None:
        write_page(page, result.page())
    stop_at(question.gate.tripped(result.comparison))
