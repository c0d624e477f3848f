"""Options that the planning commands share: one wording and one type for each, whoever asks."""

from __future__ import annotations

from typing import Annotated

import typer

JOB, ENGINE, TRAINER, RUN = "The job", "The engine", "Trainer and sync", "Run and output"
SIMULATED = "What is simulated"

Batch = Annotated[int | None, typer.Option(help="Samples per optimizer step (512).", rich_help_panel=JOB)]
MeanLength = Annotated[
    float | None, typer.Option("--len", help="Mean generated tokens per sample (1,536).", rich_help_panel=JOB)
]
LongestLength = Annotated[
    float | None, typer.Option(help="Longest response, tokens: max_tokens (8,192).", rich_help_panel=JOB)
]
LengthSpread = Annotated[
    float | None, typer.Option(help="Spread of the lengths: deviation / mean (1).", rich_help_panel=JOB)
]
GroupSize = Annotated[int | None, typer.Option(help="Samples per prompt, G (8).", rich_help_panel=JOB)]
PromptLength = Annotated[int | None, typer.Option(help="Tokens per prompt (512).", rich_help_panel=JOB)]
ScenarioFile = Annotated[
    str | None,
    typer.Option(metavar="SCENARIO", help="Start from a scenario file, or a shipped one.", rich_help_panel=JOB),
]
Preset = Annotated[
    str | None, typer.Option(help="Start from a framework: verl-fully-async, areal...", rich_help_panel=JOB)
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any key of a scenario. Repeatable.", rich_help_panel=JOB),
]
Model = Annotated[
    str | None, typer.Option(help="Hugging Face id, or a config.json (Qwen/Qwen2.5-7B).", rich_help_panel=ENGINE)
]
TensorParallel = Annotated[int | None, typer.Option(help="GPUs per instance (1).", rich_help_panel=ENGINE)]
ProfileFile = Annotated[
    str | None, typer.Option(help="A measured engine: profile name or file.", rich_help_panel=ENGINE)
]
InstanceRate = Annotated[
    float | None, typer.Option(help="Output tok/s of one instance, as measured; prompts free.", rich_help_panel=ENGINE)
]
MaxStaleness = Annotated[
    float | None, typer.Option(help="Weight versions a sample may lag (1).", rich_help_panel=TRAINER)
]
SyncPause = Annotated[
    float | None, typer.Option(help="Seconds engines pause per weight sync.", rich_help_panel=TRAINER)
]
Replications = Annotated[int | None, typer.Option(help="Simulated runs behind each interval (5).", rich_help_panel=RUN)]
Seed = Annotated[int | None, typer.Option(help="Same seed, same bytes (0).", rich_help_panel=RUN)]
Json = Annotated[bool, typer.Option("--json", help="One JSON document.", rich_help_panel=RUN)]
Html = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write a page with charts there; it opens offline.", rich_help_panel=RUN),
]
FailIf = Annotated[
    list[str] | None,
    typer.Option(metavar="CONDITION", help='Exit 10 if true: "step_s>30". Repeatable.', rich_help_panel=RUN),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 12 outside the measured range.", rich_help_panel=RUN)]
