"""`fleetsim compare`: two scenarios, two results, or two windows of history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim.cli.history_options import (
    BasicAuthFile,
    CaFile,
    ClientCert,
    ClientKey,
    Mapping_,
    OrgId,
    PrometheusUrl,
    Selector,
    SkipVerify,
    Step,
    Timeout,
    TokenFile,
)
from fleetsim.cli.options import RUN, SIMULATED, Html, Json
from fleetsim.cli.say import say
from fleetsim.job.history_fields import SOURCE, AccessFields

if TYPE_CHECKING:
    from fleetsim.compare.compare import Comparison


def compare(
    a: Annotated[
        str | None, typer.Argument(metavar="A", help="A scenario, a result (--json of simulate), or history.")
    ] = None,
    b: Annotated[str | None, typer.Argument(metavar="B", help="The other; A again if --set-b is given.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Of both scenarios. Repeatable.", rich_help_panel=SIMULATED),
    ] = None,
    set_a: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Of A alone.", rich_help_panel=SIMULATED)
    ] = None,
    set_b: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Of B alone.", rich_help_panel=SIMULATED)
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps of each run.", rich_help_panel=SIMULATED)] = None,
    seed: Annotated[int | None, typer.Option(help="Of both: then luck cancels out.", rich_help_panel=SIMULATED)] = None,
    replications: Annotated[
        int | None, typer.Option(help="Runs of each; 10 if not given.", rich_help_panel=SIMULATED)
    ] = None,
    prometheus: PrometheusUrl = None,
    window_a: Annotated[
        str | None, typer.Option("--a", metavar="START..END", help="Window of A: -6h..-3h.", rich_help_panel=SOURCE)
    ] = None,
    window_b: Annotated[
        str | None, typer.Option("--b", metavar="START..END", help="Window of B: -3h..now.", rich_help_panel=SOURCE)
    ] = None,
    selector: Selector = "",
    selector_a: Annotated[
        str, typer.Option(metavar="LABELS", help="Of A alone, beside --selector.", rich_help_panel=SOURCE)
    ] = "",
    selector_b: Annotated[str, typer.Option(metavar="LABELS", help="Of B alone.", rich_help_panel=SOURCE)] = "",
    step: Step = "auto",
    map_: Mapping_ = None,
    framework: Annotated[
        str | None, typer.Option(help="Whose run logs they are (else: found out).", rich_help_panel=SOURCE)
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this one. Repeatable.", rich_help_panel=RUN)
    ] = None,
    min_change: Annotated[
        float, typer.Option(help="Smallest change of interest; 0.01 = 1 %.", rich_help_panel=RUN)
    ] = 0.01,
    html: Html = None,
    json_: Json = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help='Exit 10: regression, "ratio.step_s>1.05".', rich_help_panel=RUN),
    ] = None,
    token_file: TokenFile = None,
    basic_auth_file: BasicAuthFile = None,
    org_id: OrgId = None,
    ca_file: CaFile = None,
    client_cert: ClientCert = None,
    client_key: ClientKey = None,
    insecure_skip_verify: SkipVerify = False,
    timeout: Timeout = 60.0,
) -> None:
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
    from fleetsim.cli.compare_call import Call, question_of
    from fleetsim.cli.interrupted import if_interrupted
    from fleetsim.cli.interrupts import loaded, working
    from fleetsim.cli.output import stop_at
    from fleetsim.cli.pages import new_page, write_page
    from fleetsim.cli.progress import progress

    access = AccessFields(
        token_file, basic_auth_file, org_id, ca_file, client_cert, client_key, insecure_skip_verify, timeout
    )
    call = Call(
        a, b, set_ or (), set_a or (), set_b or (), steps, seed, replications, prometheus, window_a, window_b, step,
        selector, selector_a, selector_b, map_ or (), framework, access, metric or (), min_change, fail_if or (),
    )  # fmt: skip
    question = question_of(call)
    page = new_page("--html", html)
    if question.what == {"history"}:
        from fleetsim.cli.compare_windows import compare_windows

        working()
        with progress("reading", aloud=True, simulates=False) as tell:
            found = compare_windows(call, question, tell)
    else:
        from fleetsim.cli.compare_runs import compare_runs, jobs_of, results_of

        jobs, results = jobs_of(call, question), results_of(question)
        with if_interrupted(_so_far(json_)), progress("loading the simulator") as tell:
            loaded()
            tell("simulating, runs")
            found = compare_runs(call, question, jobs, results, tell)
    _show(found, json_)
    if page is not None:
        from fleetsim.compare.page import compare_page

        write_page(page, compare_page(found))
    stop_at(question.gate.tripped(found))


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
