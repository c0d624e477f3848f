"""`fleetsim split`: one set of GPUs, shared by rollout and trainer or split between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetsim.cli.options import (
    ENGINE,
    JOB,
    RUN,
    TRAINER,
    Batch,
    FailIf,
    GroupSize,
    Html,
    InstanceRate,
    Json,
    LengthSpread,
    LongestLength,
    MaxStaleness,
    MeanLength,
    Model,
    Preset,
    ProfileFile,
    PromptLength,
    Replications,
    ScenarioFile,
    Seed,
    Settings,
    Strict,
    SyncPause,
    TensorParallel,
)

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.errors import Problem
    from fleetsim.plan.arrangements import Rules
    from fleetsim.plan.job import Job
    from fleetsim.plan.split import Outcome, SplitResult

RULES = "Ranking and prices"
MEASURES = ("step_s", "goodput", "cost_per_step")


def split(
    context: typer.Context,
    gpus: Annotated[int, typer.Option(help="GPUs of both pools together.", rich_help_panel=JOB)],
    batch: Batch = None,
    len_: MeanLength = None,
    max_len: LongestLength = None,
    len_cv: LengthSpread = None,
    group_size: GroupSize = None,
    prompt_len: PromptLength = None,
    scenario: ScenarioFile = None,
    preset: Preset = None,
    set_: Settings = None,
    gpu: Annotated[
        str | None, typer.Option(help="The GPU: H100, H200, A100... (H100).", rich_help_panel=ENGINE)
    ] = None,
    model: Model = None,
    tp: TensorParallel = None,
    profile: ProfileFile = None,
    instance_tok_s: InstanceRate = None,
    trainer_step_s: Annotated[
        float | None, typer.Option(help="Trainer compute seconds per step (20)...", rich_help_panel=TRAINER)
    ] = None,
    trainer_gpus: Annotated[
        int | None, typer.Option(help="...on so many GPUs (8); they scale from there.", rich_help_panel=TRAINER)
    ] = None,
    trainer_point: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GPUS:SECONDS", help="A measured step, instead of the law. Repeatable.", rich_help_panel=TRAINER
        ),
    ] = None,
    parallel_share: Annotated[
        float | None, typer.Option(help="Share of those seconds that more GPUs divide.", rich_help_panel=TRAINER)
    ] = None,
    trainer_min_gpus: Annotated[
        int | None, typer.Option(help="Fewest trainer GPUs; else what Adam's states need.", rich_help_panel=TRAINER)
    ] = None,
    trainer_unit: Annotated[
        int | None, typer.Option(help="Trainer GPUs come in multiples of this.", rich_help_panel=TRAINER)
    ] = None,
    switch_s: Annotated[
        float | None, typer.Option(help="Colocated: seconds to switch, each way.", rich_help_panel=TRAINER)
    ] = None,
    max_staleness: MaxStaleness = None,
    sync_pause_s: SyncPause = None,
    by: Annotated[
        str, typer.Option(metavar="MEASURE", help="step_s, goodput or cost_per_step.", rich_help_panel=RULES)
    ] = "step_s",
    instance_price: Annotated[
        float | None, typer.Option(help="USD per rollout GPU-hour (3).", rich_help_panel=RULES)
    ] = None,
    trainer_price: Annotated[
        float | None, typer.Option(help="USD per trainer GPU-hour (3).", rich_help_panel=RULES)
    ] = None,
    replications: Replications = None,
    seed: Seed = None,
    json_: Json = False,
    save: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the advised way as a scenario file.", rich_help_panel=RUN),
    ] = None,
    html: Html = None,
    fail_if: FailIf = None,
    strict: Strict = False,
) -> None:
    """Share these GPUs between rollout and trainer, or split them, and how: every way simulated and ranked.

    Examples:

    [bold]fleetsim split --gpus 16 --batch 512 --len 1536[/bold]

    [bold]fleetsim split --gpus 64 --model Qwen/Qwen3-32B --tp 4 --trainer-step-s 90 --trainer-gpus 32[/bold]

    [bold]fleetsim split --gpus 32 --trainer-point 8:41 --trainer-point 16:23 --by cost_per_step[/bold]

    [bold]fleetsim split --gpus 32 --preset verl-fully-async --len 3000[/bold]

    [bold]fleetsim split --gpus 16 --scenario job.yaml --html split.html[/bold]

    The trainer's seconds are those on --trainer-gpus; on other counts they follow a law, or measured points.

    Whatever is not given is assumed, as in parentheses below, and the answer lists it.
    """
    from fleetsim.cli.interrupted import if_interrupted
    from fleetsim.cli.output import show_split, stop_if_tripped, stop_if_unmeasured
    from fleetsim.cli.pages import new_page, write_page
    from fleetsim.cli.progress import progress
    from fleetsim.cli.start import scenario_or_preset
    from fleetsim.cli.starting import loaded
    from fleetsim.cli.together import together
    from fleetsim.files import apart, new_file, write_text
    from fleetsim.job.gate import METRICS, parse_conditions

    flags = {name.rstrip("_"): value for name, value in context.params.items()}
    with together() as wrong:
        with wrong.check():
            apart({"--save": save, "--html": html})
        with wrong.check():
            place = None if save is None else new_file("--save", save)
        with wrong.check():
            page = new_page("--html", html)
        with wrong.check():
            conditions = parse_conditions(fail_if or (), (*METRICS, "rollout_gpus", "trainer_gpus"))
        with wrong.check():
            job, rules = _asked(scenario_or_preset(scenario, preset, "--scenario"), set_ or (), flags)
    with if_interrupted(_so_far(json_)), progress("loading the simulator") as tell:
        from fleetsim.config.load import dump_scenario
        from fleetsim.plan.split import split as plan_split

        loaded()
        result = plan_split(
            job.scenario,
            gpus,
            by=by,  # type: ignore[arg-type]  # one of MEASURES
            rules=rules,
            given=job.given,
            notes=job.notes,
            tell=tell,
        )
    if place is not None:
        from fleetsim.plan.growth import as_asked

        write_text(place, dump_scenario(as_asked(result.chosen.arrangement.scenario, job.scenario)))
    show_split(result, json_)
    if page is not None:
        write_page(page, _page(result))
    stop_if_unmeasured(result.profile, strict)
    way = result.chosen.arrangement
    values = {name: e.mean for name, e in result.chosen.estimates.items()}
    counts = {"rollout_gpus": float(way.rollout_gpus), "trainer_gpus": float(way.trainer_gpus)}
    stop_if_tripped(conditions, {**values, **counts})


def _so_far(as_json: bool) -> Callable[[tuple[Scenario, tuple[Outcome, ...]], str], None]:
    """Shows the ways that were simulated, after Ctrl-C."""

    def show(known: tuple[Scenario, tuple[Outcome, ...]], missing: str) -> None:
        from fleetsim.cli import output

        job, outcomes = known
        if as_json:
            from fleetsim.report.json import ways_document

            output.show_json(ways_document(job, outcomes, missing))
        else:
            from fleetsim.report.blocks import section
            from fleetsim.report.split_view import ways_table

            output.show(
                section("ways that were simulated (rollout + trainer GPUs), best first so far", ways_table(outcomes))
            )

    return show


def _page(result: SplitResult) -> str:
    """The page of an advice; the best split and the best colocated way are simulated once more for it."""
    from fleetsim.cli.progress import progress
    from fleetsim.report.split_page import split_page
    from fleetsim.sim.run import simulate

    ways = [o.arrangement for o in (result.best_split, result.best_colocated) if o is not None]
    with progress("for the page: the best ways step by step"):
        return split_page(result, {way.label: simulate(way.scenario, activity=True) for way in ways})


def _asked(scenario: str | None, sets: Sequence[str], flags: dict[str, Any]) -> tuple[Job, Rules]:
    """The job and the trainer's rules of a command line. Raises InputError with the problems of all flags."""
    from fleetsim.config.tree import did_you_mean
    from fleetsim.errors import InputError, Problem
    from fleetsim.plan.arrangements import MOST_GPUS, Rules
    from fleetsim.plan.job import job_from_flags

    problems: list[Problem] = []
    if flags["by"] not in MEASURES:
        problems.append(Problem("--by", flags["by"], "is no measure to rank by", did_you_mean(flags["by"], MEASURES)))
    for name, least in (("gpus", 1), ("trainer_min_gpus", 1), ("trainer_unit", 1)):
        value = flags[name]
        if value is not None and not least <= value <= MOST_GPUS:
            flag = f"--{name.replace('_', '-')}"
            problems.append(Problem(flag, value, f"must be between {least} and {MOST_GPUS:,}", f"for example {flag} 8"))
    found, points = _points(flags["trainer_point"] or ())
    try:
        job = job_from_flags(scenario, sets, {**flags, "trainer_point": points or None})
    except InputError as error:
        raise InputError([*problems, *found, *error.problems]) from None
    if problems or found:
        raise InputError([*problems, *found])
    return job, Rules(flags["trainer_min_gpus"], flags["trainer_unit"] or 1)


def _points(texts: Sequence[str]) -> tuple[list[Problem], list[list[float]]]:
    """The --trainer-point flags as [GPUs, seconds]."""
    from fleetsim.config.base import MAX_COUNT, MAX_SECONDS
    from fleetsim.errors import Problem

    problems, points = [], []
    for text in texts:
        before, colon, after = text.partition(":")
        try:
            gpus, seconds = int(before), float(after)
        except ValueError:
            gpus, seconds = 0, 0.0
        if colon and 1 <= gpus <= MAX_COUNT and 0.0 < seconds <= MAX_SECONDS:
            points.append([gpus, seconds])
        else:
            rule = "must read GPUS:SECONDS, a whole count and a positive time"
            problems.append(Problem("--trainer-point", text, rule, "for example --trainer-point 16:23.5"))
    return problems, points
