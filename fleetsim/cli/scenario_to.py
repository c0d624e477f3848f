"""`fleetsim scenario to`: a scenario as a framework's own configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim.cli.lines import say
from fleetsim.cli.scenario_options import FRAMEWORKS, ConfigFile, Force, OutputFile, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fleetsim.config.scenario import Scenario
    from fleetsim.frameworks.export import Exported
    from fleetsim.frameworks.patch import ConfigPatch


def to(
    framework: Annotated[str, typer.Argument(help=FRAMEWORKS)],
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="Scenario file, or the name of a shipped one.")],
    config: ConfigFile = None,
    output: OutputFile = None,
    set_: Settings = None,
    force: Force = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document: text, settings, what is left out.")] = False,
) -> None:
    """Write a scenario as a framework's own configuration, ready to paste; say what cannot be told to it.

    The mode of the framework is the one that can say most of the scenario. What is written, `fleetsim scenario from`
    reads as the same scenario, but for what is listed.

    With --config, your own file: only the settings that say something else change. A YAML, TOML or Python file is
    shown as a diff, which [bold]patch[/bold] takes, and written whole with -o; of a script, the words for its command
    are shown.

    Examples:

    [bold]fleetsim scenario to verl job.yaml -o run.sh[/bold]

    [bold]fleetsim scenario to prime-rl job.yaml --set fleet.instances=6 -o rl.toml[/bold]

    [bold]fleetsim scenario to verl job.yaml --config run.yaml | patch run.yaml[/bold]
    """
    import json

    from fleetsim.config.load import load_scenario
    from fleetsim.files import new_file, write_text
    from fleetsim.frameworks.export import to_document

    place = None if output is None else new_file("--output", output, force)
    if config is not None:
        _patched(patched(framework, load_scenario(scenario, set_ or ()), config), place, json_)
        return
    result = _made(framework, scenario, set_ or ())
    if place is not None:
        write_text(place, result.text)
    if json_:
        say(json.dumps(to_document(result), indent=2, sort_keys=True))
        return
    say(result.text if place is None else f"wrote {place}", nl=place is not None, err=place is not None)
    _tell(result)


def patched(framework: str, scenario: Scenario, config: str) -> ConfigPatch:
    """What of a framework's own configuration must change to say a scenario. Raises InputError."""
    from fleetsim.frameworks.patch import patch_of
    from fleetsim.job.nameplate import limits_of

    return patch_of(framework, scenario, limits_of, config)


def _patched(patch: ConfigPatch, place: Path | None, as_json: bool) -> None:
    """The changed file in its place, the diff, and what there is to say."""
    import json

    from fleetsim.files import write_text

    if place is not None:
        write_text(place, patch.text)
    if as_json:
        say(json.dumps(patch.document(), indent=2, sort_keys=True))
        return
    if place is None:
        say(patch.diff, nl=False)
    for line in patch.lines():
        say(line, err=True)
    if place is not None:
        say(f"wrote {place}", err=True)


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
