"""`fleetsim size`: the smallest rollout fleet that keeps the trainer busy."""

from __future__ import annotations

from typing import Annotated

import typer

JOB, ENGINE, TRAINER, TARGETS, RUN = "The job", "The engine", "Trainer and sync", "Targets and prices", "Run and output"


def size(
    context: typer.Context,
    batch: Annotated[int | None, typer.Option(help="Samples per optimizer step.", rich_help_panel=JOB)] = None,
    len_: Annotated[
        float | None, typer.Option("--len", help="Mean generated tokens per sample.", rich_help_panel=JOB)
    ] = None,
    max_len: Annotated[
        float | None, typer.Option(help="Longest response, tokens (max_tokens).", rich_help_panel=JOB)
    ] = None,
    len_cv: Annotated[
        float | None,
        typer.Option(help="Spread of the lengths: deviation / mean; 0 = all equal.", rich_help_panel=JOB),
    ] = None,
    group_size: Annotated[int | None, typer.Option(help="Samples per prompt (G).", rich_help_panel=JOB)] = None,
    prompt_len: Annotated[int | None, typer.Option(help="Tokens per prompt.", rich_help_panel=JOB)] = None,
    scenario: Annotated[
        str | None,
        typer.Option(metavar="SCENARIO", help="Start from a scenario file, or a shipped one.", rich_help_panel=JOB),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Start from a framework: verl-fully-async, areal...", rich_help_panel=JOB)
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key of a scenario. Repeatable.", rich_help_panel=JOB),
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="Rollout GPU: H100, H200, A100...", rich_help_panel=ENGINE)] = None,
    model: Annotated[
        str | None, typer.Option(help="Hugging Face id, or a config.json.", rich_help_panel=ENGINE)
    ] = None,
    tp: Annotated[int | None, typer.Option(help="GPUs per instance.", rich_help_panel=ENGINE)] = None,
    profile: Annotated[
        str | None, typer.Option(help="A measured engine: profile name or file.", rich_help_panel=ENGINE)
    ] = None,
    instance_tok_s: Annotated[
        float | None,
        typer.Option(help="Output tok/s of one instance, as measured; prompts free.", rich_help_panel=ENGINE),
    ] = None,
    trainer_step_s: Annotated[
        float | None, typer.Option(help="Trainer compute seconds per step.", rich_help_panel=TRAINER)
    ] = None,
    trainer_gpus: Annotated[int | None, typer.Option(help="GPUs of the trainer.", rich_help_panel=TRAINER)] = None,
    max_staleness: Annotated[
        float | None, typer.Option(help="Weight versions a sample may lag.", rich_help_panel=TRAINER)
    ] = None,
    sync_pause_s: Annotated[
        float | None, typer.Option(help="Seconds engines pause per weight sync.", rich_help_panel=TRAINER)
    ] = None,
    target_idle: Annotated[
        float | None, typer.Option(help="Trainer idle at most: 0.05 = 5 %.", rich_help_panel=TARGETS)
    ] = None,
    headroom: Annotated[
        float | None, typer.Option(help="Derate of the arithmetic answer.", rich_help_panel=TARGETS)
    ] = None,
    instance_price: Annotated[
        float | None, typer.Option(help="USD per rollout GPU-hour.", rich_help_panel=TARGETS)
    ] = None,
    trainer_price: Annotated[
        float | None, typer.Option(help="USD per trainer GPU-hour.", rich_help_panel=TARGETS)
    ] = None,
    replications: Annotated[
        int | None, typer.Option(help="Simulated runs behind each interval.", rich_help_panel=RUN)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same bytes.", rich_help_panel=RUN)] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document.", rich_help_panel=RUN)] = False,
    save: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the job, sized, as a scenario file.", rich_help_panel=RUN),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION", help='Exit 10 if true: "step_s>30". Repeatable.', rich_help_panel=RUN),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 12 outside the measured range.", rich_help_panel=RUN)
    ] = False,
) -> None:
    """The smallest rollout fleet that keeps the trainer busy.

    Examples:

    [bold]fleetsim size --batch 512 --len 1536[/bold]

    [bold]fleetsim size --batch 256 --len 6000 --gpu H200 --model Qwen/Qwen3-32B[/bold]

    [bold]fleetsim size --batch 512 --len 1536 --instance-tok-s 4000[/bold]

    [bold]fleetsim size --scenario job.yaml --set workload.reward.latency_s=2[/bold]

    [bold]fleetsim size --preset trl-async-grpo --len 3000 --batch 1024[/bold]

    Whatever is not given is assumed, and the answer lists it.

    A flag wins over a FLEETSIM_* variable, that over the scenario, that over the default.
    """
    from fleetsim.cli.fail_if import METRICS, parse_conditions
    from fleetsim.cli.files import new_file, write_text
    from fleetsim.cli.flags import job_from_flags
    from fleetsim.cli.output import end, show_size
    from fleetsim.cli.progress import spinner
    from fleetsim.cli.start import scenario_or_preset

    place = None if save is None else new_file("--save", save)
    conditions = parse_conditions(fail_if or (), (*METRICS, "instances"))
    flags = {name.rstrip("_"): value for name, value in context.params.items()}
    job = job_from_flags(scenario_or_preset(scenario, preset, "--scenario"), set_ or (), flags)
    with spinner("loading the simulator") as tell:
        from fleetsim.config.load import dump_scenario
        from fleetsim.plan.size import size as plan_size
        from fleetsim.plan.trials import with_instances

        result = plan_size(job.scenario, given=job.given, tell=tell, notes=job.notes)
    if place is not None:
        write_text(place, dump_scenario(with_instances(job.scenario, result.instances)))
    show_size(result, json_)
    end(result, conditions, strict)
