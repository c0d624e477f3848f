"""Options that the planning commands share: one wording and one type for each, whoever asks."""

from __future__ import annotations

from typing import Annotated

import typer

JOB, RUN = "The job", "Run and output"

ScenarioFile = Annotated[
    str | None,
    typer.Option(metavar="SCENARIO", help="Start from a scenario file, or a shipped one.", rich_help_panel=JOB),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any key of a scenario. Repeatable.", rich_help_panel=JOB),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document.", rich_help_panel=RUN)]
