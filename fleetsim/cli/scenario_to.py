"""`fleetsim scenario to`: a scenario as a framework's own configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim.cli.lines import say
from fleetsim.cli.scenario_options import FRAMEWORKS, Force, OutputFile, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetsim.frameworks.export import Exported


def to(
    framework: Annotated[str, typer.Argument(help=FRAMEWORKS)],
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="Scenario file, or the name of a shipped one.")],
    output: OutputFile = None,
    set_: Settings = None,
    force: Force = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document: text, settings, what is left out.")] = False,
) -> None:
    """Write a scenario as a framework's own configuration, ready to paste; say what cannot be told to it.

    The mode of the framework is the one that can say most of the scenario. What is written, `fleetsim scenario from`
    reads as the same scenario, but for what is listed.

    Examples:

    [bold]fleetsim scenario to verl job.yaml -o run.sh[/bold]

    [bold]fleetsim scenario to prime-rl job.yaml --set fleet.instances=6 -o rl.toml[/bold]
    """
    import json

    from fleetsim.files import new_file, write_text
    from fleetsim.frameworks.export import to_document

    place = None if output is None else new_file("--output", output, force)
    result = _made(framework, scenario, set_ or ())
    if place is not None:
        write_text(place, result.text)
    if json_:
        say(json.dumps(to_document(result), indent=2, sort_keys=True))
        return
    say(result.text if place is None else f"wrote {place}", nl=place is not None, err=place is not None)
    _tell(result)


def _made(framework: str, scenario: str, sets: Sequence[str]) -> Exported:
    """The scenario of a file in the framework's words. Raises InputError."""
    import os

    from fleetsim.config.load import load_scenario
    from fleetsim.frameworks.export import scenario_to
    from fleetsim.job.derived_values import training_step_s
    from fleetsim.job.nameplate import generated_mean, limits_of

    job = load_scenario(scenario, sets)
    means = generated_mean(job), training_step_s(job)
    return scenario_to(framework, job, limits_of, os.path.basename(scenario), *means)


def _tell(result: Exported) -> None:
    """What was written, what could not be said, and what is still to add."""
    from fleetsim import units
    from fleetsim.frameworks.export import left_out_words

    say(f"{result.framework}: {result.mode}; {units.plural(len(result.settings), 'setting')}", err=True)
    if result.left_out:
        say("cannot be told to it:", err=True)
    for left in result.left_out:
        say(f"  {left_out_words(result.framework, left)}", err=True)
    say(f"the plan holds for {'; '.join(result.facts)}", err=True)
    say(f"yours to add: {result.yours}", err=True)
    for note in result.notes:
        say(f"note: {note}", err=True)
