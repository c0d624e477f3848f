"""`fleetsim scenario from`: a framework's own configuration as a scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetsim.cli.lines import say
from fleetsim.cli.scenario_options import FRAMEWORKS, Force, OutputFile, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fleetsim.frameworks.convert import Imported

# How a model without a built-in shape is given.
_MODEL_FILE = "engine.model=PATH/config.json"


def from_(
    framework: Annotated[str | None, typer.Argument(help=FRAMEWORKS)] = None,
    config: Annotated[
        list[str] | None,
        typer.Argument(help="Its file or launch script; - is standard input. Its own flags go after --."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="PATH|URL", help="What a run showed: its log, tracker, dump or Prometheus."),
    ] = None,
    output: OutputFile = None,
    set_: Settings = None,
    force: Force = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document: scenario and report.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="List every key that was not looked at.")] = False,
) -> None:
    """Make a scenario of a framework's own configuration; say what was taken, assumed and left out.

    Examples:

    [bold]fleetsim scenario from verl run_dapo.sh -o job.yaml[/bold]

    [bold]fleetsim scenario from verl config.yaml -- trainer.nnodes=2 actor_rollout_ref.rollout.n=16[/bold]

    [bold]fleetsim scenario from openrlhf -- --rollout.batch_size 128 --rollout.n_samples_per_prompt 8 ...[/bold]

    [bold]fleetsim scenario from --run train.log --set engine.gpu=H100 -o job.yaml[/bold]

    [bold]fleetsim scenario from prime-rl rl.toml --set workload.output_tokens.mean=2100 --json[/bold]
    """
    if framework is None:
        _of_run(run, output, set_ or (), force, json_)
        return
    result = _of_framework(framework, config or (), set_ or ())
    if run is not None:
        _of_run(run, output, set_ or (), force, json_, result.raw)
        return
    _tell(result, output, force, json_, verbose)


def _of_framework(framework: str, config: Sequence[str], sets: Sequence[str]) -> Imported:
    """The job of a configuration. Raises InputError."""
    from fleetsim.frameworks.convert import framework_name, scenario_from
    from fleetsim.frameworks.source import settings_from
    from fleetsim.trainer.estimate import token_seconds

    name = framework_name(framework)
    shown, settings = settings_from(config)
    return scenario_from(name, settings, shown, sets, token_seconds)


def _tell(result: Imported, output: str | None, force: bool, as_json: bool, verbose: bool) -> None:
    """Writes the scenario where it was asked for, else shows it, and what there is to say about it."""
    from fleetsim.files import new_file, write_text

    place = None if output is None else new_file("--output", output, force)
    if place is not None:
        write_text(place, result.text)
    _show(result, place, as_json, verbose)


def _of_run(
    run: str | None,
    output: str | None,
    sets: Sequence[str],
    force: bool,
    as_json: bool,
    start: Mapping[str, Any] | None = None,
) -> None:
    """The job of a run. start: the configuration of the framework that was named. Raises InputError without a run."""
    import json

    from fleetsim.errors import InputError, Problem
    from fleetsim.files import new_file, write_text
    from fleetsim.replay.shown.file import run_file

    if run is None:
        remedy = "fleetsim scenario from verl CONFIG, or --run LOG"
        raise InputError([Problem("FRAMEWORK", None, "nothing to make a scenario of", remedy)])
    place = None if output is None else new_file("--output", output, force)
    found = run_file(start, sets, run)
    if as_json:
        say(json.dumps({"scenario": found.raw, "notes": list(found.notes)}, indent=2, sort_keys=True))
        return
    for note in found.notes:
        say(f"warning: {note}", err=True)
    if place is None:
        say(found.text, nl=False)
        return
    write_text(place, found.text)
    say(f"wrote {place}; next: fleetsim size --scenario {place}", err=True)


def _show(result: Imported, place: Path | None, as_json: bool, verbose: bool) -> None:
    """The scenario, unless it is in a file by now, and what there is to say about it."""
    import json

    from fleetsim.frameworks.convert import report_document, report_lines

    if as_json:
        say(json.dumps(report_document(result), indent=2, sort_keys=True))
        return
    if place is None:
        say(result.text, nl=False)
    for line in report_lines(result, verbose):
        say(line, err=True)
    unknown = _unknown_model(result.scenario.engine.model)
    if unknown:
        say(f"warning: {unknown}", err=True)
    if place is not None:
        needs = f" --set {_MODEL_FILE}" if unknown else ""
        say(f"wrote {place}; next: fleetsim simulate {place}{needs}", err=True)


def _unknown_model(model: str) -> str | None:
    """What is wrong with a model that the simulator has no shape for."""
    from fleetsim.engine.model.names import model_shape
    from fleetsim.errors import InputError

    try:
        model_shape(model)
    except InputError as error:
        return f"engine.model: {error.problems[0].remedy}: --set {_MODEL_FILE}"
    return None
