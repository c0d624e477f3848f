"""`fleetsim profile`: what was measured of which engine, how good it is, and whether it still holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetsim import units
from fleetsim.cli.say import say

if TYPE_CHECKING:
    from pathlib import Path

    from fleetsim.config.profile import BatchCheck, Profile

app = typer.Typer(no_args_is_help=True, help="Profiles of engines: list them, look at one, check it, estimate one.")

ABOVE_LIMIT = 10

NAME = Annotated[str, typer.Argument(metavar="PROFILE", help="The name of a shipped profile, or a file.")]
JSON = Annotated[bool, typer.Option("--json", help="One JSON document.")]


@app.command("ls")
def ls(json_: JSON = False) -> None:
    """List the profiles that come with fleetsim, and those in this folder (*.profile.json).

    Examples:

    [bold]fleetsim profile ls[/bold]

    [bold]fleetsim profile ls --json[/bold]
    """
    from pathlib import Path

    from fleetsim.calibrate.told import Listed, list_lines
    from fleetsim.cli.output import show_json
    from fleetsim.config.profile_files import load_profile, shipped_profiles
    from fleetsim.errors import InputError

    here = {str(path): path for path in sorted(Path().glob("*.profile.json"))}
    listed, wrong = [], []
    for give, path in {**shipped_profiles(), **here}.items():
        try:
            listed.append(Listed(give, load_profile(path)))
        except InputError as error:
            wrong += [(give, str(problem)) for problem in error.problems]
    if json_:
        profiles = [{"profile": one.give, **_summary(one.profile)} for one in listed]
        unreadable = [{"profile": give, "problem": problem} for give, problem in wrong]
        show_json({"schema_version": 1, "command": "profile ls", "profiles": profiles, "unreadable": unreadable})
    elif listed:
        say("\n".join(list_lines(listed)))
    else:
        say("no profiles here; measure one with fleetsim calibrate, or see fleetsim profile estimate --help")
    for give, problem in wrong:
        say(f"warning: {give} cannot be used: {problem}", err=True)


@app.command("show")
def show_(
    name: NAME,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page with charts there.")] = None,
    json_: JSON = False,
) -> None:
    """Show a profile: its errors, its numbers, what was measured and what is predicted.

    Examples:

    [bold]fleetsim profile show h200-7b.profile.json[/bold]

    [bold]fleetsim profile show h200-7b.profile.json --html profile.html[/bold]
    """
    from fleetsim.config.profile_files import load_profile
    from fleetsim.files import new_file, write_text

    place = None if html is None else new_file("--html", html)
    profile = load_profile(name)
    if place is not None:
        from fleetsim.calibrate.pictures import profile_page

        write_text(place, profile_page(profile))
    _show(profile, name, "profile show", json_)
    if place is not None:
        say(f"wrote {place}; it opens in any browser, offline", err=True)


@app.command("check")
def check(
    name: NAME,
    raw: Annotated[
        str | None, typer.Option(metavar="FILE", help="The raw measurements, if not beside the profile.")
    ] = None,
    limit: Annotated[float, typer.Option(help="Largest error that passes: 0.05 = 5 %.")] = 0.05,
    json_: JSON = False,
) -> None:
    """Predict the batches that were kept out of the fit once more; exit code 10 if an error is above the limit.

    Examples:

    [bold]fleetsim profile check h200-7b.profile.json[/bold]

    [bold]fleetsim profile check h200-7b.profile.json --limit 0.03 --raw other-box.raw.jsonl.gz[/bold]

    Both errors count: of the makespan, and the median one of the requests' finish times.
    """
    from fleetsim.calibrate.profile_check import check_document, check_report, compared
    from fleetsim.cli.output import show, show_json, warn
    from fleetsim.cli.progress import progress
    from fleetsim.config.profile_files import find_profile, load_profile
    from fleetsim.errors import InputError, Problem

    if not 0 < limit <= 1:
        meant = f"for {units.limit(limit / 100)} give --limit {limit / 100:g}"
        remedy = meant if 1 < limit <= 100 else "0.05 allows errors of 5 %"
        raise InputError([Problem("--limit", limit, "a share above 0, at most 1", remedy)])
    profile = load_profile(name)
    place = _raw_file(profile, find_profile(name), raw)
    with progress("predicting the batches that were kept out of the fit"):
        checks, notes = _predicted_anew(profile, place)
    checked = compared(checks, profile.checks, limit)
    if json_:
        show_json(check_document(profile, checked, limit))
    else:
        show(check_report(profile, checked, limit))
    warn(notes)
    failed = [one for one in checked if not one.passed]
    if failed:
        names = ", ".join(one.now.name for one in failed)
        say(f"error: above the limit of {limit:g}: {names}", err=True)
        raise typer.Exit(ABOVE_LIMIT)


@app.command("estimate")
def estimate(
    gpu: Annotated[str, typer.Option(help="GPU: H100, H200, A100...")],
    model: Annotated[str, typer.Option(help="Hugging Face id, or a config.json.")],
    tp: Annotated[int, typer.Option(help="GPUs per instance.")] = 1,
    dtype: Annotated[str, typer.Option(help="Type of the weights: bfloat16, float16, fp8, auto.")] = "auto",
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write it there: NAME.profile.json.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if there is one.")] = False,
    json_: JSON = False,
) -> None:
    """Estimate a profile from the data sheet of a GPU and the shape of a model, where nobody measured one.

    Examples:

    [bold]fleetsim profile estimate --gpu H100 --model Qwen/Qwen2.5-7B[/bold]

    [bold]fleetsim profile estimate --gpu H200 --model Qwen/Qwen2.5-32B --tp 2 -o h200-32b.profile.json[/bold]

    It is what `size` uses where no profile is given. Saved, it can be compared with a measured one.
    """
    from dataclasses import replace

    from fleetsim.calibrate.derive import estimate_profile
    from fleetsim.config.profile_files import profile_text
    from fleetsim.errors import InputError
    from fleetsim.files import new_file, write_text

    place = None if output is None else new_file("--output", output, force)
    try:
        profile = estimate_profile(gpu, model, tp=tp, dtype=dtype)
    except InputError as error:
        flags = ("gpu", "model", "tp", "dtype")
        raise InputError(
            [replace(p, path=f"--{p.path}" if p.path in flags else p.path) for p in error.problems]
        ) from None
    if place is not None:
        write_text(place, profile_text(profile))
    _show(profile, str(place or "FILE"), "profile estimate", json_)
    if place is not None:
        say(f"wrote {place}", err=True)


def _show(profile: Profile, give: str, command: str, as_json: bool) -> None:
    from fleetsim.cli.output import show, show_json

    if as_json:
        from fleetsim.calibrate.points import document

        show_json(document(profile, command))
    else:
        from fleetsim.calibrate.told import profile_report

        show(profile_report(profile, give))


def _summary(profile: Profile) -> dict[str, Any]:
    p = profile.provenance
    return {
        "name": profile.name,
        "kind": profile.kind,
        "gpu": p.gpu,
        "model": p.model,
        "tp": p.tp,
        "engine": p.engine,
        "engine_version": p.engine_version,
        "date": p.date,
        "error": profile.error.model_dump(mode="json"),
    }


def _raw_file(profile: Profile, place: Path, given: str | None) -> Path:
    """The raw measurements of a profile. Raises InputError where there are none."""
    from pathlib import Path

    from fleetsim.errors import InputError, Problem

    if given is not None:
        if not os.path.isfile(given):
            raise InputError([Problem("--raw", given, "no such file", "give the .raw.jsonl.gz of the calibration")])
        return Path(given)
    if profile.raw is None:
        what = "was derived, nothing was measured for it" if profile.kind == "derived" else "names no raw measurements"
        raise InputError([Problem("profile", profile.name, what, "give the measurements to check it on: --raw FILE")])
    # Shipped profiles keep theirs in a folder of their own.
    for folder in (place.parent, place.parent.parent / "raw"):
        if os.path.isfile(folder / profile.raw):
            return folder / profile.raw
    remedy = "say where it is: --raw FILE (of shipped profiles: calibration/raw/ in fleetsim's repository)"
    raise InputError([Problem("profile.raw", profile.raw, f"is not beside {place}", remedy)])


def _predicted_anew(profile: Profile, raw_file: Path) -> tuple[tuple[BatchCheck, ...], tuple[str, ...]]:
    """The kept-out batches of the raw measurements as the profile predicts them today, and what is odd about them.

    Raises InputError for measurements that cannot be read or hold no such batch.
    """
    from fleetsim.calibrate.check import check_batches
    from fleetsim.calibrate.facts import facts_of
    from fleetsim.calibrate.raw import read_raw
    from fleetsim.errors import InputError, Problem
    from fleetsim.sim.engines import step_time_of

    raw = read_raw(raw_file)
    facts = facts_of(raw)
    overhead_s = profile.fit.overhead_s if profile.fit is not None else 0.0
    checks = check_batches(raw, facts, step_time_of(profile), overhead_s=overhead_s)
    if not checks:
        remedy = "measure with fleetsim calibrate: its RL-like batches stay out of the fit"
        raise InputError([Problem("--raw", str(raw_file), "holds no batch that was kept out of the fit", remedy)])
    p = profile.provenance
    notes = [
        f"{what} of the measurements is {there or 'not known'}, of the profile {mine}"
        for what, there, mine in (
            ("the GPU", facts.gpu, p.gpu),
            ("the model", facts.model, p.model),
            ("the engine", f"{facts.engine} {facts.version}".strip(), f"{p.engine} {p.engine_version}".strip()),
            ("the tensor-parallel size", str(facts.tp), str(p.tp or "")),
        )
        if mine and there != mine
    ]
    return checks, tuple(notes)
