"""`fleetsim replay`: history in; diagnosis, back-test and what-if out."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetsim.cli.history_options import (
    SOURCE,
    AccessFlags,
    BasicAuthFile,
    CaFile,
    ClientCert,
    ClientKey,
    End,
    Mapping_,
    OrgId,
    PrometheusUrl,
    Selector,
    SkipVerify,
    Start,
    Step,
    Timeout,
    TokenFile,
)
from fleetsim.cli.options import RUN, FailIf, Html, Json

FLEET, CHANGE = "What is known of the fleet", "Another fleet on the same history"


def replay(
    prometheus: PrometheusUrl = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="PATH", help="Or: what --save wrote, OpenMetrics text, a run log.", rich_help_panel=SOURCE
        ),
    ] = None,
    start: Start = None,
    end: End = None,
    step: Step = "auto",
    selector: Selector = "",
    map_: Mapping_ = None,
    framework: Annotated[
        str | None,
        typer.Option(help="Whose run log it is: verl, trl, nemo-rl... (else: found out).", rich_help_panel=SOURCE),
    ] = None,
    save: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Keep the window: folder, .parquet, .csv, .json.", rich_help_panel=SOURCE),
    ] = None,
    scenario: Annotated[
        str | None, typer.Option(metavar="SCENARIO", help="The job's own policies and prices.", rich_help_panel=FLEET)
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Or those of a framework: verl-fully-async...", rich_help_panel=FLEET)
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A fact: engine.tp=4, cost... Repeatable.", rich_help_panel=FLEET),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="A measured engine: profile name or file.", rich_help_panel=FLEET)
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="What if: fleet.instances=10. Repeatable.", rich_help_panel=CHANGE
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=LO:HI[:STEP]", help="What if, for several values; or A,B,C.", rich_help_panel=CHANGE),
    ] = None,
    recommend: Annotated[
        bool, typer.Option("--recommend", help="The smallest fleet that holds the targets.", rich_help_panel=CHANGE)
    ] = False,
    plan_out: Annotated[
        str | None, typer.Option(metavar="PLAN.json", help="Write it, for --verify.", rich_help_panel=CHANGE)
    ] = None,
    patch: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write it as a patch of the deployment.", rich_help_panel=CHANGE),
    ] = None,
    deployment: Annotated[
        str | None, typer.Option(metavar="NAME", help="The deployment's name.", rich_help_panel=CHANGE)
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(metavar="PLAN.json", help="Did the change do what the plan said?", rich_help_panel=CHANGE),
    ] = None,
    no_backtest: Annotated[
        bool, typer.Option("--no-backtest", help="Observe and judge; simulate nothing.", rich_help_panel=RUN)
    ] = False,
    html: Html = None,
    json_: Json = False,
    fail_if: FailIf = None,
    token_file: TokenFile = None,
    basic_auth_file: BasicAuthFile = None,
    org_id: OrgId = None,
    ca_file: CaFile = None,
    client_cert: ClientCert = None,
    client_key: ClientKey = None,
    insecure_skip_verify: SkipVerify = False,
    timeout: Timeout = 60.0,
) -> None:
    """What did the fleet do, which side starves, and what would another fleet have done? From its own metrics.

    Examples:

    [bold]fleetsim replay --prometheus http://localhost:9090[/bold]

    [bold]fleetsim replay --prometheus http://localhost:9090 --start -1d --save day.parquet[/bold]

    [bold]fleetsim replay --from day.parquet --scenario job.yaml --set fleet.instances=10[/bold]

    [bold]fleetsim replay --from day.parquet --recommend --plan-out plan.json --patch patch.yaml[/bold]

    [bold]fleetsim replay --prometheus http://localhost:9090 --start -2h --verify plan.json[/bold]

    [bold]fleetsim replay --from day.parquet --sweep fleet.instances=6:16:2 --html day.html[/bold]

    Reads only. Nothing is written but what --save, --html, --plan-out and --patch name.
    """
    from dataclasses import replace

    from fleetsim.cli.output import show, show_json, stop_at, warn
    from fleetsim.cli.pages import new_page, write_page
    from fleetsim.cli.progress import progress
    from fleetsim.cli.replay_call import known_words, source_words, verify_words
    from fleetsim.cli.replay_changes import (
        ChangeFlags,
        applied,
        one_sweep,
        questions_of,
        stop_if_unverified,
        stop_if_withheld,
        write_plan,
    )
    from fleetsim.cli.replay_known import known_of
    from fleetsim.cli.replay_source import Source, mapping_of, new_dump, read
    from fleetsim.files import apart
    from fleetsim.job.gate import parse_gate
    from fleetsim.replay.figures import METRICS, figures

    gate = parse_gate(fail_if or (), METRICS, "window")
    access = AccessFlags(
        token_file, basic_auth_file, org_id, ca_file, client_cert, client_key, insecure_skip_verify, timeout
    )
    source = Source(prometheus, from_, start, end, step, selector, mapping_of(map_ or (), from_), framework, access)
    known = known_of(scenario, preset, given or (), profile)
    changes = ChangeFlags(set_ or (), one_sweep(sweep or ()), recommend, plan_out, patch, deployment, verify)
    questions = questions_of(changes)
    apart({"--save": save, "--html": html, "--plan-out": plan_out, "--patch": patch})
    dump = new_dump(save)
    page = new_page("--html", html)
    with progress("starting", aloud=True) as tell:
        history = read(source, tell)
        if dump is not None:
            from fleetsim.history.dump import save_history

            save_history(history, dump)
        from fleetsim.replay.answers import answer
        from fleetsim.replay.diagnose.addressed import addressed
        from fleetsim.replay.run import replay as replayed

        asked = questions.simulates
        result = replayed(
            history, known.scenario if known.given else None, given=known.given, facts=known.facts,
            from_file=known.from_file, model=asked, back_test=not no_backtest, progress=tell,
        )  # fmt: skip
        answers = applied(answer(questions, result, known.given, tell), patch)
        call = (*source_words(source), *known_words(scenario, preset, given or (), profile))
        result = replace(result, verdict=addressed(result.verdict, call))
    if json_:
        from fleetsim.replay.data import replay_document

        show_json(replay_document(result, answers))
    else:
        from fleetsim.replay.told import replay_report

        show(replay_report(result, answers))
    warn(known.warnings)
    if page is not None:
        from fleetsim.replay.page import replay_page

        write_page(page, replay_page(history, result, answers))
    write_plan(changes, answers, None if plan_out is None else verify_words(source, plan_out))
    stop_if_unverified(answers)
    stop_if_withheld(changes, answers)
    stop_at(gate.tripped(figures(result.observed, result.verdict, result.backtest)))
