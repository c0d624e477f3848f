"""`fleetsim simulate`: one scenario as it is, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim.cli.options import JOB, RUN, SIMULATED
from fleetsim.cli.say import say

HISTORY = "Histories and traces of the first run"

if TYPE_CHECKING:
    from fleetsim.analysis.replicate import Replicated
    from fleetsim.plan.job import Job


def simulate(
    scenario: Annotated[
        str | None, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="A framework instead: verl-fully-async, areal, trl-grpo...", rich_help_panel=JOB)
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key of the scenario. Repeatable.", rich_help_panel=JOB),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(help="A measured engine instead of the scenario's: profile name or file.", rich_help_panel=JOB),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Optimizer steps to simulate (30).", rich_help_panel=SIMULATED)
    ] = None,
    hours: Annotated[
        float | None, typer.Option(help="Or as many as fill so many hours.", rich_help_panel=SIMULATED)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same bytes (0).", rich_help_panel=SIMULATED)] = None,
    replications: Annotated[
        int | None, typer.Option(help="Runs behind each interval (5).", rich_help_panel=SIMULATED)
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document.", rich_help_panel=RUN)] = False,
    parquet: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write the records there, one file a table.", rich_help_panel=RUN)
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a page with charts there; it opens offline.", rich_help_panel=RUN),
    ] = None,
    openmetrics: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write the first run there, as vLLM and a trainer export it.", rich_help_panel=HISTORY
        ),
    ] = None,
    scrape_interval: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Of that history; 15 if not given.", rich_help_panel=HISTORY)
    ] = None,
    openmetrics_end: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Its end: now, -6h, ISO or unix; else this hour's begin.", rich_help_panel=HISTORY
        ),
    ] = None,
    perfetto: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the first run there as a trace, for ui.perfetto.dev.",
            rich_help_panel=HISTORY,
        ),
    ] = None,
    perfetto_steps: Annotated[
        str | None,
        typer.Option(
            metavar="STEPS",
            help="Of that trace: 20 (after warm-up) if not given, 0:9, or all.",
            rich_help_panel=HISTORY,
        ),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION", help='Exit 10 if true: "trainer_idle_fraction>0.1". Repeatable.', rich_help_panel=RUN
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 12 outside the measured range.", rich_help_panel=RUN)
    ] = False,
) -> None:
    """Simulate a scenario: where each second of an optimizer step goes.

    Examples:

    [bold]fleetsim simulate job.yaml[/bold]

    [bold]fleetsim simulate --preset verl-fully-async --set admission.staleness_threshold=0.5[/bold]

    [bold]fleetsim simulate job.yaml --set fleet.instances=13 --steps 100 --replications 10[/bold]

    [bold]fleetsim simulate job.yaml --json --fail-if "trainer_idle_fraction>0.1"[/bold]

    [bold]fleetsim simulate job.yaml --html run.html[/bold]

    [bold]fleetsim simulate job.yaml --parquet records/[/bold]

    [bold]fleetsim simulate job.yaml --hours 6 --openmetrics history.om[/bold]

    [bold]fleetsim simulate job.yaml --perfetto trace.json.gz[/bold]

    `fleetsim scenario ls` lists the presets and the shipped scenarios.
    """
    from fleetsim.cli.interrupted import if_interrupted
    from fleetsim.cli.openmetrics import check_history, check_hours, long_enough, write_history
    from fleetsim.cli.output import run_page_of, show_run, stop_if_tripped, stop_if_unmeasured
    from fleetsim.cli.pages import new_page, write_page
    from fleetsim.cli.perfetto import check_trace, write_trace
    from fleetsim.cli.progress import progress
    from fleetsim.cli.start import scenario_or_preset
    from fleetsim.cli.starting import loaded
    from fleetsim.cli.step_so_far import StepSoFar
    from fleetsim.cli.together import together
    from fleetsim.errors import InputError, Problem
    from fleetsim.files import apart
    from fleetsim.job.gate import METRICS, parse_conditions
    from fleetsim.plan.job import job_from_flags
    from fleetsim.report.parquet import check_folder, write_parquet

    flags = {"profile": profile, "steps": steps, "seed": seed, "replications": replications}
    with together() as wrong:
        with wrong.check():
            conditions = parse_conditions(fail_if or (), METRICS)
        with wrong.check():
            start = scenario_or_preset(scenario, preset)
            if start is None:
                missing = ("nothing to simulate", "give a file or --preset NAME (fleetsim scenario ls)")
                raise InputError([Problem("SCENARIO", None, *missing)])
            job = job_from_flags(start, set_ or (), flags)
        with wrong.check():
            apart({"--html": html, "--openmetrics": openmetrics, "--perfetto": perfetto, "--parquet": parquet})
        with wrong.check():
            check_hours(hours, steps)
            history = check_history(openmetrics, scrape_interval, openmetrics_end, hours)
        with wrong.check():
            trace = check_trace(perfetto, perfetto_steps)
        with wrong.check():
            page = new_page("--html", html)
        with wrong.check():
            folder = None if parquet is None else check_folder(parquet, "--parquet")
    with if_interrupted(_so_far(job, json_)), progress("loading the simulator") as tell:
        from fleetsim.analysis.replicate import replicate
        from fleetsim.plan.engine_source import engine_source

        loaded()
        simulated = long_enough(job.scenario, hours)
        if trace is not None:
            trace.steps.check(simulated.run.steps)
        result = replicate(
            simulated,
            scrape_every_s=None if history is None else history.every_s,
            activity=page is not None,
            on_step=StepSoFar(simulated.run.steps, simulated.run.replications, tell),
        )
        if folder is not None:
            write_parquet(folder, result.runs)
        written = None if history is None else write_history(history, result.runs[0])
        if trace is not None:
            tell("simulating the trace")
        traced = None if trace is None else write_trace(trace, result.runs[0])
        source = engine_source(simulated, simulated.fleet.instances, result.runs)
    values = show_run(result, source, job.notes, job.given, json_)
    if page is not None:
        write_page(page, run_page_of(result, source, job.notes, job.given))
    for told in (written, traced):
        if told is not None:
            say(told, err=True)
    stop_if_unmeasured(source, strict)
    stop_if_tripped(conditions, values)


def _so_far(job: Job, as_json: bool) -> Callable[[Replicated, str], None]:
    """Shows the runs that were finished, or as much as there is of the first ones, after Ctrl-C."""

    def show(result: Replicated, missing: str) -> None:
        from fleetsim.analysis.warmup import least_warmup_steps
        from fleetsim.cli.output import show_run
        from fleetsim.plan.engine_source import engine_source

        steps = max(len(run.steps) for run in result.runs)
        warming = steps < result.scenario.run.steps and steps <= least_warmup_steps(result.scenario)
        if warming:
            missing += "; warm-up only, no steady value yet"
        source = engine_source(result.scenario, result.scenario.fleet.instances, result.runs)
        if not as_json:
            say(f"Interrupted: {missing}.")
        notes = (*job.notes, *([f"interrupted: {missing}"] if as_json else []))
        show_run(result, source, notes, job.given, as_json, steady=not warming)

    return show
