"""`fleetsim calibrate` and `profile`: measure an engine; what was measured, how good it is, whether it holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from fleetsim import units
from fleetsim.calibrate.ask import Calibrate
from fleetsim.cli.flags import AsJson, Formed, command
from fleetsim.cli.terminal import say
from fleetsim.errors import NOT_HELD
from fleetsim.job.fields import JobFields, ready
from fleetsim.job.settings import TRAINER, AnyJob, Lends, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetsim.calibrate.one_load import ClientView, SeenLoad
    from fleetsim.config.engine_profile import Profile
    from fleetsim.job.base_job import Job
    from fleetsim.trainer.estimate import TrainerEstimate


# --- `fleetsim calibrate`: measure an engine, fit its step time, check it on batches kept out of the fit.


def calibrate(asked: Calibrate, output: AsJson) -> None:
    """Measure an engine under RL-like load and write a profile that size and simulate use.

    Examples:
    fleetsim calibrate --model Qwen/Qwen2.5-7B
    fleetsim calibrate --model Qwen/Qwen2.5-7B --gpu H200 --dry-run
    fleetsim calibrate --model Qwen/Qwen2.5-32B --tp 2 --quick -o h200-32b.profile.json
    fleetsim calibrate --url http://localhost:8000
    fleetsim calibrate --from bench-1.json --from bench-2.json --gpu H100 --model Qwen/Qwen2.5-7B
    fleetsim calibrate --gpu H100 --model M --point 'concurrency=64 isl=1000 osl=1000 tok_s=4100'

    Sweeps decodes, prompts and mixtures, then runs batches that stay out of the fit and predicts them. Needs a GPU box
    with vLLM, a server to reach, or files. Interrupted, it keeps what it measured; --resume goes on.
    """
    from fleetsim.calibrate.dry_run import DryRun
    from fleetsim.calibrate.run import calibrate
    from fleetsim.cli.output import show, show_json, warn
    from fleetsim.cli.progress import progress

    asked = asked.ready()
    with progress("starting", aloud=True, simulates=False) as watch:
        result = calibrate(asked, watch)
    if output.json_:
        show_json(result.document())
    elif isinstance(result, DryRun):
        say("\n".join(result.lines()))
    elif result.profile is not None:
        from fleetsim.calibrate.facts import document
        from fleetsim.tell.terminal import draw

        show(draw(document(result.profile, str(result.path))))
    if isinstance(result, DryRun):
        return
    if result.profile is None:
        say(f"measured; next, where fleetsim is installed: fleetsim calibrate --from {result.raw}", err=True)
    else:
        say(f"wrote {result.path}", err=True)
    warn(result.warnings)


app = typer.Typer(no_args_is_help=True, help="Profiles of engines: list them, look at one, check it, estimate one.")


NAME = Annotated[str, typer.Argument(metavar="PROFILE", help="The name of a shipped profile, or a file.")]
JSON = Annotated[bool, typer.Option("--json", help="One JSON document.")]


@dataclass(frozen=True, kw_only=True)
class TrainedJob(JobFields):
    """The job that is trained."""

    batch: Annotated[int | None, said("batch")] = None
    len_: Annotated[float | None, said("len")] = None
    max_len: Annotated[float | None, said("max_len")] = None
    len_cv: Annotated[float | None, said("len_cv")] = None
    prompt_len: Annotated[int | None, said("prompt_len")] = None
    model: Annotated[str | None, said("model", TRAINER)] = None
    gpu: Annotated[str | None, said("gpu", TRAINER, "Its GPU: H100, H200, A100...")] = None
    trainer_gpus: Annotated[int | None, said("trainer_gpus")] = None


@dataclass(frozen=True, kw_only=True)
class TrainerStep:
    """How long is a training step, and how large must its trainer be?"""

    job: Annotated[AnyJob, Lends(TrainedJob)]

    def answer(self) -> tuple[Job, TrainerEstimate]:
        """The job and its trainer. Raises InputError with all that is wrong, and for a trainer that is too small."""
        from fleetsim.job.derived_values import trainer_estimate

        job = ready(self.job)
        return job, trainer_estimate(job.scenario, job.given)


def ls(output: Formed) -> None:
    """List the profiles that come with fleetsim, and those in this folder (*.profile.json).

    Examples:
    fleetsim profile ls
    fleetsim profile ls -o csv
    """
    from fleetsim.calibrate.facts import listed_words
    from fleetsim.calibrate.known_profiles import known_profiles, listed_data
    from fleetsim.cli.output import show_listed
    from fleetsim.cli.terminal import beside, columns, wrapped

    listed, wrong = known_profiles()
    rows = [(one.give, listed_words(one)) for one in listed]
    width, after = columns(), "Take one with --profile NAME. Measure yours: fleetsim calibrate --model MODEL"
    lines = [*beside(rows, width), *([""] if rows else []), *wrapped(after, width)]
    show_listed(output.form, listed_data(listed, wrong), "profiles", lambda: lines)
    for give, problem in wrong:
        say(f"warning: {give} cannot be used: {problem}", err=True)


app.command("ls")(command(ls))


@app.command("show")
def show_(
    name: NAME,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page with charts there.")] = None,
    json_: JSON = False,
) -> None:
    """Show a profile: its errors, its numbers, what was measured and what is predicted.

    Examples:
    fleetsim profile show engine.profile.json
    fleetsim profile show engine.profile.json --html profile.html
    """
    from fleetsim.cli.output import new_page, write_page
    from fleetsim.config.engine_profile import load_profile

    place = new_page("--html", html)
    profile = load_profile(name)
    _show(profile, name, "profile show", json_)
    if place is not None:
        from fleetsim.calibrate.facts import document
        from fleetsim.tell.page import document_page

        write_page(place, document_page(document(profile, name)))


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
    fleetsim profile check h200-7b.profile.json
    fleetsim profile check h200-7b.profile.json --limit 0.03 --raw other-box.raw.jsonl.gz

    Both errors count: of the makespan, and the median one of the requests' finish times.
    """
    from fleetsim.calibrate.facts import checked_document
    from fleetsim.calibrate.known_profiles import checked_data, compared, predicted_anew, raw_file
    from fleetsim.cli.output import show_told, warn
    from fleetsim.cli.progress import progress
    from fleetsim.config.engine_profile import find_profile, load_profile
    from fleetsim.errors import InputError, Problem

    if not 0 < limit <= 1:
        meant = f"for {units.limit(limit / 100)} give --limit {limit / 100:g}"
        remedy = meant if 1 < limit <= 100 else "0.05 allows errors of 5 %"
        raise InputError([Problem("--limit", limit, "must be a share above 0, at most 1", remedy)])
    profile = load_profile(name)
    place = raw_file(profile, find_profile(name), raw)
    with progress("predicting the batches that were kept out of the fit"):
        checks, notes = predicted_anew(profile, place)
    checked = compared(checks, profile.checks, limit)
    data, document = partial(checked_data, profile, checked, limit), partial(checked_document, profile, checked, limit)
    show_told("json" if json_ else "table", data, document)
    warn(notes)
    failed = [one for one in checked if not one.passed]
    if failed:
        names = ", ".join(one.now.name for one in failed)
        say(f"error: above the limit of {limit:g}: {names}", err=True)
        raise typer.Exit(NOT_HELD)


LOAD = "The engine and the load that are told"


SIDES = Annotated[
    str | None,
    typer.Option(
        metavar="KEY=N ...",
        help="Prompts on engines of their own: 'prefill=2 decode=1', and prefill_tp, prefill_dp, decode_dp.",
        rich_help_panel=LOAD,
    ),
]
ENGINE_SETS = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any key of engine: --set engine.max_num_seqs=512. Repeatable.",
        rich_help_panel=LOAD,
    ),
]
_ESTIMATED = ("gpu", "model", "tp", "dtype", "kv_dtype", "dp", "engine", "disaggregation")


@app.command("estimate")
def estimate(
    gpu: Annotated[str, typer.Option(help="GPU: H100, H200, A100...")],
    model: Annotated[str, typer.Option(help="Hugging Face id, or a config.json.")],
    tp: Annotated[int, typer.Option(help="GPUs per instance.")] = 1,
    dtype: Annotated[str, typer.Option(help="Type of the weights: bfloat16, fp8, nvfp4, mxfp4, int4, auto.")] = "auto",
    kv_dtype: Annotated[str, typer.Option(help="Type of the KV cache: bfloat16, fp8, auto.")] = "auto",
    dp: Annotated[int, typer.Option(help="Ranks that share a mixture's experts.", rich_help_panel=LOAD)] = 1,
    engine: Annotated[str, typer.Option(help="vllm, sglang or tensorrt-llm.", rich_help_panel=LOAD)] = "vllm",
    disaggregation: SIDES = None,
    set_: ENGINE_SETS = None,
    concurrency: Annotated[int, typer.Option(help="Clients, one request each at a time.", rich_help_panel=LOAD)] = 64,
    isl: Annotated[int, typer.Option(help="Tokens of each prompt.", rich_help_panel=LOAD)] = 1024,
    osl: Annotated[int, typer.Option(help="Tokens of each response.", rich_help_panel=LOAD)] = 1024,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write it there: NAME.profile.json.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if there is one.")] = False,
    json_: JSON = False,
) -> None:
    """Estimate a profile from the data sheet of a GPU and the shape of a model, where nobody measured one.

    Examples:
    fleetsim profile estimate --gpu H100 --model Qwen/Qwen2.5-7B
    fleetsim profile estimate --gpu H200 --model Qwen/Qwen2.5-32B --tp 2 -o h200-32b.profile.json
    fleetsim profile estimate --gpu B200 --model Qwen/Qwen3-8B --engine sglang --concurrency 128 --json
    fleetsim profile estimate --gpu H200 --model Qwen/Qwen3.6-27B --set engine.speculation.method=mtp

    It is what `size` uses where no profile is given; saved, it can be compared with a measured one. What clients of a
    server with this engine would see is told, with the range of eight of ten engines.
    """
    from fleetsim.calibrate.one_load import ClosedLoad, check_load, estimated, seen_by_clients
    from fleetsim.config.engine_profile import profile_text
    from fleetsim.errors import InputError
    from fleetsim.files import new_file, write_text
    from fleetsim.records import replace

    place = None if output is None else new_file("--output", output, force)
    try:
        load = ClosedLoad(concurrency, isl, osl)
        check_load(load, "--concurrency, --isl, --osl:")
        which = {"name": engine, "tp": tp, "dtype": dtype, "kv_dtype": kv_dtype, "dp": dp}
        profile, told = estimated(load, gpu, model, which, set_ or (), disaggregation)
    except InputError as error:  # the same problems, by the flags that were typed
        flags = {name: f"--{name.replace('_', '-')}" for name in _ESTIMATED}
        raise InputError([replace(p, path=flags.get(p.path, p.path)) for p in error.problems]) from None
    _show(profile, str(place or "FILE"), "profile estimate", json_, seen_by_clients(profile), told)
    if place is not None:
        write_text(place, profile_text(profile))
        say(f"wrote {place}", err=True)


def trainer(asked: TrainerStep, output: AsJson) -> None:
    """Estimate a training step: its seconds, the smallest trainer, what more GPUs would do, and how sure that is.

    Examples:
    fleetsim profile trainer --batch 512 --len 1536
    fleetsim profile trainer --model Qwen/Qwen3-32B --gpu H100 --trainer-gpus 32
    fleetsim profile trainer --model Qwen/Qwen3-30B-A3B --set trainer.recipe.tune=lora
    fleetsim profile trainer --preset verl-fully-async --json

    It is fitted to published steps (docs/accuracy.md). How it trains: --set trainer.recipe.KEY=VALUE.
    """
    from fleetsim.cli.output import show_told
    from fleetsim.trainer.told import data, document

    job, found = asked.answer()
    show_told("json" if output.json_ else "table", lambda: data(found, job.scenario), lambda: document(found))


app.command("trainer")(command(trainer))


def _show(
    profile: Profile,
    give: str,
    command: str,
    as_json: bool,
    seen: Sequence[ClientView] = (),
    told: SeenLoad | None = None,
) -> None:
    from fleetsim.cli.output import show, show_json

    if as_json:
        from fleetsim.calibrate.known_profiles import profile_data

        show_json({**profile_data(profile, command, seen), **({} if told is None else told.data)})
    else:
        from fleetsim.calibrate.facts import document
        from fleetsim.tell.terminal import draw

        show(draw(document(profile, give, seen)))
        if told is not None:
            say(told.words)
