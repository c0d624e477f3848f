"""`fleetsim size`: the smallest rollout fleet that keeps the trainer busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim.cli.options import (
    ENGINE,
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
    from fleetsim.plan.size import SizeResult
    from fleetsim.plan.trials import Measure, Trial

TARGETS = "Targets and prices"


def size(
    context: typer.Context,
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
        str | None, typer.Option(help="Rollout GPU: H100, H200, A100... (H100).", rich_help_panel=ENGINE)
    ] = None,
    model: Model = None,
    tp: TensorParallel = None,
    profile: ProfileFile = None,
    instance_tok_s: InstanceRate = None,
    trainer_step_s: Annotated[
        float | None, typer.Option(help="Trainer compute seconds per step (20).", rich_help_panel=TRAINER)
    ] = None,
    trainer_gpus: Annotated[int | None, typer.Option(help="GPUs of the trainer (8).", rich_help_panel=TRAINER)] = None,
    max_staleness: MaxStaleness = None,
    sync_pause_s: SyncPause = None,
    target_idle: Annotated[
        float | None, typer.Option(help="Trainer idle at most, as a share (0.05).", rich_help_panel=TARGETS)
    ] = None,
    headroom: Annotated[
        float | None, typer.Option(help="Derate of the arithmetic answer (0.8).", rich_help_panel=TARGETS)
    ] = None,
    instance_price: Annotated[
        float | None, typer.Option(help="USD per rollout GPU-hour (3).", rich_help_panel=TARGETS)
    ] = None,
    trainer_price: Annotated[
        float | None, typer.Option(help="USD per trainer GPU-hour (3).", rich_help_panel=TARGETS)
    ] = None,
    replications: Replications = None,
    seed: Seed = None,
    json_: Json = False,
    save: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the job, sized, as a scenario file.", rich_help_panel=RUN),
    ] = None,
    html: Html = None,
    fail_if: FailIf = None,
    strict: Strict = False,
) -> None:
    """The smallest rollout fleet that keeps the trainer busy.

    Examples:

    [bold]fleetsim size --batch 512 --len 1536[/bold]

    [bold]fleetsim size --batch 256 --len 6000 --gpu H200 --model Qwen/Qwen3-32B[/bold]

    [bold]fleetsim size --batch 512 --len 1536 --instance-tok-s 4000[/bold]

    [bold]fleetsim size --scenario job.yaml --set workload.reward.latency_s=2[/bold]

    [bold]fleetsim size --preset trl-async-grpo --len 3000 --batch 1024[/bold]

    [bold]fleetsim size --batch 512 --len 1536 --html size.html[/bold]

    Whatever is not given is assumed, as in parentheses below, and the answer lists it.

    A flag wins over a FLEETSIM_* variable, that over the scenario, that over the default.
    """
    from fleetsim.cli.interrupted import if_interrupted
    from fleetsim.cli.output import end, show_size
    from fleetsim.cli.pages import new_page, write_page
    from fleetsim.cli.progress import progress
    from fleetsim.cli.start import scenario_or_preset
    from fleetsim.cli.starting import loaded
    from fleetsim.cli.together import together
    from fleetsim.errors import Interrupted
    from fleetsim.files import apart, new_file, write_text
    from fleetsim.job.gate import METRICS, parse_conditions
    from fleetsim.plan.job import job_from_flags

    flags = {name.rstrip("_"): value for name, value in context.params.items()}
    with together() as wrong:
        with wrong.check():
            apart({"--save": save, "--html": html})
        with wrong.check():
            place = None if save is None else new_file("--save", save)
        with wrong.check():
            page = new_page("--html", html)
        with wrong.check():
            conditions = parse_conditions(fail_if or (), (*METRICS, "instances"))
        with wrong.check():
            job = job_from_flags(scenario_or_preset(scenario, preset, "--scenario"), set_ or (), flags)
    with if_interrupted(_tried_so_far(json_)), progress("loading the simulator") as tell:
        from fleetsim.config.load import dump_scenario
        from fleetsim.plan.size import size as plan_size
        from fleetsim.plan.trials import remembered, with_instances
        from fleetsim.plan.tried import Tried

        loaded()
        tried = Tried()
        measure = remembered(tried)
        try:
            result = plan_size(job.scenario, given=job.given, tell=tell, notes=job.notes, measure=measure)
        except KeyboardInterrupt:
            missing = "these fleets were tried, none is recommended yet"
            raise Interrupted((job.scenario, tried.trials()), missing) from None
    if place is not None:
        write_text(place, dump_scenario(with_instances(job.scenario, result.instances)))
    show_size(result, json_)
    if page is not None:
        write_page(page, _page(result, measure))
    end(result, conditions, strict)


def _page(result: SizeResult, measure: Measure) -> str:
    """The page of a plan; fleets around the answer, and one run of it, are simulated for it."""
    from fleetsim.cli.progress import progress
    from fleetsim.plan.around import around
    from fleetsim.plan.trials import with_instances
    from fleetsim.report.size_page import size_page
    from fleetsim.sim.run import simulate

    with progress("for the page") as tell:
        also = [c.instances for c in result.candidates]
        near = around(result.scenario, result.instances, measure, also=also, tell=tell)
        tell("for the page: the recommended fleet step by step")
        return size_page(result, near, simulate(with_instances(result.scenario, result.instances), activity=True))


def _tried_so_far(as_json: bool) -> Callable[[tuple[Scenario, tuple[Trial, ...]], str], None]:
    """Shows the fleets that were tried, after Ctrl-C."""

    def show(known: tuple[Scenario, tuple[Trial, ...]], missing: str) -> None:
        from fleetsim.cli import output

        scenario, tried = known
        if as_json:
            from fleetsim.report.json import tried_document

            output.show_json(tried_document(scenario, tried, missing))
        elif tried:
            from fleetsim.report.blocks import section
            from fleetsim.report.terminal import trials_table

            output.show(section("fleets that were tried (mean ± half of the 95 % interval)", trials_table(tried)))

    return show
