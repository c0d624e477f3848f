"""`fleetsim calibrate`: measure an engine, fit its step time, check it on batches kept out of the fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim.cli.say import say

if TYPE_CHECKING:
    from fleetsim.calibrate.run import Calibrated

WHAT, ENGINE, SERVER, RUN, OUTPUT = "What is measured", "The engine", "A server", "The measurement", "Output"


def calibrate(
    context: typer.Context,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="More files, as --from.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Hugging Face id, or a folder with a config.json.", rich_help_panel=WHAT),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="Measure a running OpenAI-compatible server instead.", rich_help_panel=WHAT),
    ] = None,
    from_: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Fit what exists: raw measurements, vllm bench or guidellm JSON, a CSV, aiconfigurator:SYSTEM. "
            "Repeatable.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="Which engine runs in process.", rich_help_panel=ENGINE)] = "vllm",
    tp: Annotated[int | None, typer.Option(help="GPUs per instance.", rich_help_panel=ENGINE)] = None,
    dtype: Annotated[str | None, typer.Option(help="Type of the weights.", rich_help_panel=ENGINE)] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="Running requests.", rich_help_panel=ENGINE)] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(help="Tokens per iteration.", rich_help_panel=ENGINE)
    ] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Longest context.", rich_help_panel=ENGINE)] = None,
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(help="Share of the GPU's memory.", rich_help_panel=ENGINE)
    ] = None,
    quantization: Annotated[str | None, typer.Option(help="As the engine names it.", rich_help_panel=ENGINE)] = None,
    load_format: Annotated[
        str, typer.Option(help="dummy: random weights, as fast as real ones.", rich_help_panel=ENGINE)
    ] = "dummy",
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="Any engine argument, value as JSON. Repeatable.", rich_help_panel=ENGINE),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="GPU type, where a file or server does not say.", rich_help_panel=SERVER)
    ] = None,
    kv_blocks: Annotated[
        int | None, typer.Option(help="KV blocks, where it does not say.", rich_help_panel=SERVER)
    ] = None,
    block_size: Annotated[
        int | None, typer.Option(help="Tokens per block, where it does not say.", rich_help_panel=SERVER)
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="FLEETSIM_API_KEY", help="Bearer token of the server.", rich_help_panel=SERVER),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Measure although the server may serve others.", rich_help_panel=SERVER)
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points, two minutes.", rich_help_panel=RUN)] = False,
    budget_s: Annotated[
        float | None, typer.Option(help="Seconds for everything: 600, 120 with --quick.", rich_help_panel=RUN)
    ] = None,
    measure_sync: Annotated[
        bool, typer.Option("--measure-sync", help="Also pause, update weights, resume.", rich_help_panel=RUN)
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what an earlier run measured.", rich_help_panel=RUN)
    ] = False,
    measure_only: Annotated[
        bool, typer.Option("--measure-only", help="Keep raw measurements, fit elsewhere.", rich_help_panel=RUN)
    ] = False,
    seed: Annotated[int, typer.Option(help="Of prompts, lengths and order.", rich_help_panel=RUN)] = 0,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="The profile: NAME.profile.json.", rich_help_panel=OUTPUT),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The profile's name.", rich_help_panel=OUTPUT)] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.", rich_help_panel=OUTPUT)] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """Measure an engine under RL-like load and write a profile that size and simulate use.

    Examples:

    [bold]fleetsim calibrate --model Qwen/Qwen2.5-7B[/bold]

    [bold]fleetsim calibrate --model Qwen/Qwen2.5-32B --tp 2 --quick -o h200-32b.profile.json[/bold]

    [bold]fleetsim calibrate --url http://localhost:8000[/bold]

    [bold]fleetsim calibrate --from bench-1.json --from bench-2.json --gpu H100 --model Qwen/Qwen2.5-7B[/bold]

    Sweeps decodes, prompts and mixtures, then runs batches that stay out of the fit and predicts them. Needs a GPU box
    with vLLM, a server to reach, or files. Interrupted, it keeps what it measured; --resume goes on.
    """
    from fleetsim.calibrate.ask import request_from
    from fleetsim.cli.progress import progress

    request = request_from(context.params)
    with progress("starting", aloud=True, simulates=False) as tell:
        from fleetsim.calibrate.run import run

        result = run(request, tell)
    _show(result, json_)


def _show(result: Calibrated, as_json: bool) -> None:
    """The profile as `profile show` has it, where the files are, and what to do next; warnings on stderr."""
    from fleetsim.cli.output import show, show_json, warn

    profile = result.profile
    if as_json:
        document = {
            "schema_version": 1,
            "command": "calibrate",
            "path": None if result.path is None else str(result.path),
            "raw": None if result.raw is None else str(result.raw),
            "profile": None if profile is None else profile.model_dump(mode="json"),
            "warnings": list(result.warnings),
        }
        show_json(document)
    elif profile is not None:
        from fleetsim.calibrate.told import profile_report

        show(profile_report(profile, str(result.path)))
    if profile is None:
        say(f"measured; next, where fleetsim is installed: fleetsim calibrate --from {result.raw}", err=True)
    else:
        say(f"wrote {result.path}", err=True)
    warn(result.warnings)
