"""`fleetsim scenario`: start a scenario file, check it, look up what may stand in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import typer

from fleetsim.cli.flags import Formed, command
from fleetsim.cli.frameworks import Force, OutputFile, from_, to
from fleetsim.cli.terminal import say, say_json

app = typer.Typer(no_args_is_help=True, help="Scenario files: start one, check it, see what may stand in it.")
app.command("from")(from_)
app.command("to")(to)

_FOLDERS = {
    "presets": "Presets, one per framework and mode: fleetsim simulate --preset NAME",
    "": "Examples to start from: fleetsim simulate NAME",
    "published": "Published runs: fleetsim simulate NAME",
}
_STARTED_WITH = (
    "workload.prompt_tokens",
    "workload.output_tokens",
    "workload.group_size",
    "engine.gpu",
    "engine.model",
    "fleet.placement",
    "fleet.instances",
    "trainer.gpus",
    "trainer.batch_samples",
    "sync.in_flight",
    "admission.law",
    "admission.max_staleness",
)
_HEADER = """\
# A fleetsim scenario: what most jobs set, as the defaults have it. Every other section and key has a default, too.
# What may stand here: fleetsim scenario schema. Is it right: fleetsim scenario check FILE.
"""


@app.command("init")
def init(
    name: Annotated[str | None, typer.Argument(help="A preset or shipped scenario; the defaults if left out.")] = None,
    output: OutputFile = None,
    force: Force = False,
) -> None:
    """Print a scenario to start from, or write it to a file.

    Examples:
    fleetsim scenario init -o new.yaml
    fleetsim scenario init verl-fully-async -o verl.yaml
    """
    from fleetsim.cli.output import put
    from fleetsim.config.data_files import find_scenario
    from fleetsim.config.load import default_scenario, dump_short, load_scenario
    from fleetsim.files import new_file

    place = None if output is None else new_file("--output", output, force)
    if name is None:
        text = _HEADER + dump_short(default_scenario(), _STARTED_WITH)
    else:
        load_scenario(name)  # never hand out a file that is wrong
        text = find_scenario(name).read_text(encoding="utf-8")
    put(place, text, f"; next: fleetsim size --scenario {place}")


@app.command("check")
def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Scenario files, or names of shipped ones.")],
    json_: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Check scenario files: all problems of all files at once, exit code 2 if there are any.

    Examples:
    fleetsim scenario check job.yaml
    fleetsim scenario check scenarios/*.yaml --json
    """
    from fleetsim.config.load import load_scenario
    from fleetsim.errors import InputError, Problem
    from fleetsim.records import as_dict

    found: dict[str, tuple[Problem, ...]] = {}
    for file in files:
        try:
            load_scenario(file)
            found[file] = ()
        except InputError as error:
            found[file] = error.problems
    if json_:
        checked = [
            {"file": file, "ok": not problems, "problems": list(map(as_dict, problems))}
            for file, problems in found.items()
        ]
        say_json({"schema_version": 1, "command": "scenario check", "files": checked})
    for file, problems in found.items():
        if not problems and not json_:
            say(f"{file}: ok")
        for problem in problems:
            say(f"{file}: {problem}", err=True)
    if any(found.values()):
        raise typer.Exit(InputError.exit_code)


@app.command("schema")
def schema(
    log: Annotated[
        str | None, typer.Option("--log", metavar="FRAMEWORK", help="Instead: what is read of a framework's step log.")
    ] = None,
    result: Annotated[
        str | None, typer.Option("--result", metavar="COMMAND", help="Instead: what its --json prints, as size.")
    ] = None,
) -> None:
    """Print the JSON schema of scenario files, or of a command's --json, for editors and validators.

    Examples:
    fleetsim scenario schema > scenario.schema.json
    fleetsim scenario schema --result size
    fleetsim scenario schema --log verl
    """
    from fleetsim.config.load import json_schema
    from fleetsim.tell.data import result_schema

    if result is not None:
        say(result_schema(result), nl=False)
        return
    if log is None:
        say_json(json_schema())
        return
    from fleetsim.history.run_log import log_schema

    say("\n".join(log_schema(log)))


def ls(output: Formed) -> None:
    """List what comes with fleetsim: presets of RL frameworks, examples, published runs.

    Each with where it runs, what may start, and how many weight versions old a trained group may be.

    Examples:
    fleetsim scenario ls
    fleetsim scenario ls -o csv
    """
    from fleetsim.cli.output import show_listed
    from fleetsim.config.data_files import shipped_scenarios
    from fleetsim.config.load import load_scenario
    from fleetsim.job.grounds import kind_words

    listed = []
    for name, path in shipped_scenarios().items():
        s, of = load_scenario(path), {"name": name, "folder": name.rpartition("/")[0]}
        listed.append({**of, "kind": kind_words(s), "description": s.description, "source": s.source})
    data = {"schema_version": 1, "command": "scenario ls", "scenarios": listed}
    show_listed(output.form, data, "scenarios", lambda: _lines(listed))


app.command("ls")(command(ls))


def _lines(listed: Sequence[Mapping[str, str]]) -> Iterator[str]:
    from fleetsim.cli.terminal import beside, columns, wrapped

    width = columns()
    folders = {one["folder"] for one in listed}
    for folder in (*(f for f in _FOLDERS if f in folders), *sorted(folders - _FOLDERS.keys())):
        rows = [(one["name"].rpartition("/")[2], one["kind"]) for one in listed if one["folder"] == folder]
        yield from (*wrapped(_FOLDERS.get(folder, folder), width), *beside(rows, width, "  "), "")
    yield from wrapped("Read one with its sources: fleetsim scenario init NAME", width)
