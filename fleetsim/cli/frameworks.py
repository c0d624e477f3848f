"""`fleetsim scenario from` and `to`: a framework's own configuration as a scenario, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetsim.cli.terminal import say, say_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleetsim.frameworks.convert import Imported
    from fleetsim.frameworks.export import Exported


# --- Options that several commands of `fleetsim scenario` take.

FRAMEWORKS = (
    "verl, roll, openrlhf, open-instruct, trl, areal, nemo-rl, slime, skyrl, prime-rl, ms-swift, rlinf or tinker."
)

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


# --- `fleetsim scenario from`: a framework's own configuration as a scenario.

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
    fleetsim scenario from verl run.sh -o verl.yaml
    fleetsim scenario from verl config.yaml -- trainer.nnodes=2 actor_rollout_ref.rollout.n=16
    fleetsim scenario from openrlhf -- --rollout.batch_size 128 --rollout.n_samples_per_prompt 8 ...
    fleetsim scenario from --run train.log --set engine.gpu=H100 -o observed.yaml
    fleetsim scenario from prime-rl rl.toml --set workload.output_tokens.mean=2100 --json
    """
    if framework is None:
        _of_run(run, output, set_ or (), force, json_)
        return
    from fleetsim.job.in_frameworks import imported

    result = imported(framework, config or (), set_ or ())
    if run is not None:
        _of_run(run, output, set_ or (), force, json_, result.raw)
        return
    _tell_imported(result, output, force, json_, verbose)


def _of_run(
    run: str | None,
    output: str | None,
    sets: Sequence[str],
    force: bool,
    as_json: bool,
    start: Mapping[str, Any] | None = None,
) -> None:
    """The job of a run. start: the configuration of the framework that was named. Raises InputError without a run."""
    from fleetsim.cli.output import put
    from fleetsim.errors import InputError, Problem
    from fleetsim.files import new_file
    from fleetsim.replay.shown import run_file

    if run is None:
        remedy = "fleetsim scenario from verl CONFIG, or --run LOG"
        raise InputError([Problem("FRAMEWORK", None, "nothing to make a scenario of", remedy)])
    place = None if output is None else new_file("--output", output, force)
    found = run_file(start, sets, run)
    if as_json:
        say_json({"scenario": found.raw, "notes": list(found.notes)})
        return
    for note in found.notes:
        say(f"warning: {note}", err=True)
    put(place, found.text, f"; next: fleetsim size --scenario {place}")


def _tell_imported(result: Imported, output: str | None, force: bool, as_json: bool, verbose: bool) -> None:
    """Writes the scenario where it was asked for, else shows it, and what there is to say about it."""
    from fleetsim.engine.model.names import model_shape
    from fleetsim.errors import InputError
    from fleetsim.files import new_file, write_text
    from fleetsim.frameworks.convert import report_document, report_lines

    place = None if output is None else new_file("--output", output, force)
    if place is not None:
        write_text(place, result.text)
    if as_json:
        say_json(report_document(result))
        return
    if place is None:
        say(result.text, nl=False)
    for line in report_lines(result, verbose):
        say(line, err=True)
    needs = ""
    try:
        model_shape(result.scenario.engine.model)
    except InputError as error:  # a model that the simulator has no shape for
        needs = f" --set {_MODEL_FILE}"
        say(f"warning: engine.model: {error.problems[0].remedy}:{needs}", err=True)
    if place is not None:
        say(f"wrote {place}; next: fleetsim simulate {place}{needs}", err=True)


# --- `fleetsim scenario to`: a scenario as a framework's own configuration.


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
    fleetsim scenario to verl job.yaml -o new.sh
    fleetsim scenario to prime-rl job.yaml --set fleet.instances=6 -o rl.toml
    fleetsim scenario to verl job.yaml --config run.yaml | patch run.yaml
    """
    import os

    from fleetsim.config.load import load_scenario
    from fleetsim.files import new_file, write_text
    from fleetsim.frameworks.export import to_document
    from fleetsim.job.in_frameworks import exported, patched

    place = None if output is None else new_file("--output", output, force)
    job = load_scenario(scenario, set_ or ())
    if config is not None:
        patch = patched(framework, job, config)
        if place is not None:
            write_text(place, patch.text)
        if json_:
            say_json(patch.document())
            return
        if place is None:
            say(patch.diff, nl=False)
        for line in (*patch.lines(), *([f"wrote {place}"] if place is not None else [])):
            say(line, err=True)
        return
    result = exported(framework, job, os.path.basename(scenario))
    if place is not None:
        write_text(place, result.text)
    if json_:
        say_json(to_document(result))
        return
    say(result.text if place is None else f"wrote {place}", nl=place is not None, err=place is not None)
    _tell_exported(result)


def _tell_exported(result: Exported) -> None:
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
