"""Options that several commands of `fleetsim scenario` take."""

from __future__ import annotations

from typing import Annotated

import typer

FRAMEWORKS = "verl, roll, openrlhf, open-instruct, trl, areal, nemo-rl, slime, skyrl, prime-rl or ms-swift."

OutputFile = Annotated[
    str | None, typer.Option("-o", "--output", metavar="FILE", help="Write it there instead of to stdout.")
]
ConfigFile = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="Your own configuration: what must change of it.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key of the scenario. Repeatable.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if there is one.")]
