"""`fleetsim scenario`: start a scenario file, check it, look up what may stand in it."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Scenario files: start one, check it, see what may stand in it.")

_HEADER = """\
# A fleetsim scenario. Every section and key may be left out; these are the defaults.
# What may stand here: fleetsim scenario schema. Is it right: fleetsim scenario check FILE.
"""


@app.command("init")
def init(
    name: Annotated[str | None, typer.Argument(help="A shipped scenario; the defaults if left out.")] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write it there instead of to stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if there is one.")] = False,
) -> None:
    """Print a scenario to start from, or write it to a file.

    Examples:

    [bold]fleetsim scenario init -o job.yaml[/bold]

    [bold]fleetsim scenario init published/trl-async-grpo -o job.yaml[/bold]
    """
    from fleetsim.cli.files import new_file, write_text

    place = None if output is None else new_file("--output", output, force)
    text = _text_of(name)
    if place is None:
        typer.echo(text, nl=False)
        return
    write_text(place, text)
    typer.echo(f"wrote {place}; next: fleetsim size --scenario {place}", err=True)


@app.command("check")
def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Scenario files, or names of shipped ones.")],
    json_: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Check scenario files: all problems of all files at once, exit code 2 if there are any.

    Examples:

    [bold]fleetsim scenario check job.yaml[/bold]

    [bold]fleetsim scenario check scenarios/*.yaml --json[/bold]
    """
    from fleetsim.config.load import load_scenario
    from fleetsim.errors import InputError, Problem

    found: dict[str, tuple[Problem, ...]] = {}
    for file in files:
        try:
            load_scenario(file)
            found[file] = ()
        except InputError as error:
            found[file] = error.problems
    if json_:
        _echo_json(
            {"schema_version": 1, "command": "scenario check", "files": [_checked(f, p) for f, p in found.items()]}
        )
    for file, problems in found.items():
        if not problems and not json_:
            typer.echo(f"{file}: ok")
        for problem in problems:
            typer.echo(f"{file}: {problem}", err=True)
    if any(found.values()):
        raise typer.Exit(InputError.exit_code)


@app.command("schema")
def schema() -> None:
    """Print the JSON schema of scenario files, for editors and validators.

    Example:

    [bold]fleetsim scenario schema > scenario.schema.json[/bold]
    """
    from fleetsim.config.load import json_schema

    _echo_json(json_schema())


@app.command("ls")
def ls(json_: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """List the scenarios that come with fleetsim.

    Example:

    [bold]fleetsim scenario ls[/bold]
    """
    from fleetsim.config.load import load_scenario
    from fleetsim.config.shipped import shipped_scenarios

    found = {name: load_scenario(path) for name, path in shipped_scenarios().items()}
    if json_:
        listed = [{"name": n, "description": s.description, "source": s.source} for n, s in found.items()]
        _echo_json({"schema_version": 1, "command": "scenario ls", "scenarios": listed})
        return
    width = max(map(len, found), default=0)
    for name, scenario in found.items():
        typer.echo(f"{name:<{width}}  {' '.join(scenario.description.split())}".rstrip())


def _text_of(name: str | None) -> str:
    from fleetsim.config.load import default_scenario, dump_scenario, load_scenario
    from fleetsim.config.shipped import find_scenario

    if name is None:
        return _HEADER + dump_scenario(default_scenario())
    load_scenario(name)  # never hand out a file that is wrong
    return find_scenario(name).read_text(encoding="utf-8")


def _checked(file: str, problems: tuple[object, ...]) -> dict[str, object]:
    from dataclasses import asdict

    return {"file": file, "ok": not problems, "problems": [asdict(p) for p in problems]}  # type: ignore[call-overload]


def _echo_json(document: object) -> None:
    import json

    typer.echo(json.dumps(document, indent=2, sort_keys=True, default=str))
