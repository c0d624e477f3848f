"""`fleetsim calibrate`: measure an engine, fit its step time, check it on batches kept out of the fit."""

from __future__ import annotations

from typing import Annotated

from fleetsim.calibrate.ask import OUTPUT, Calibrate
from fleetsim.cli.terminal import say
from fleetsim.dataclass import dataclass
from fleetsim.job.settings import Option


@dataclass(frozen=True, kw_only=True)
class ProfileOutput:
    """What `calibrate` does with its answer beside writing it."""

    json_: Annotated[bool, Option("One JSON document.", OUTPUT)] = False


def calibrate(asked: Calibrate, output: ProfileOutput) -> None:
    """Measure an engine under RL-like load and write a profile that size and simulate use.

    Examples:

    [bold]fleetsim calibrate --model Qwen/Qwen2.5-7B[/bold]

    [bold]fleetsim calibrate --model Qwen/Qwen2.5-32B --tp 2 --quick -o h200-32b.profile.json[/bold]

    [bold]fleetsim calibrate --url http://localhost:8000[/bold]

    [bold]fleetsim calibrate --from bench-1.json --from bench-2.json --gpu H100 --model Qwen/Qwen2.5-7B[/bold]

    Sweeps decodes, prompts and mixtures, then runs batches that stay out of the fit and predicts them. Needs a GPU box
    with vLLM, a server to reach, or files. Interrupted, it keeps what it measured; --resume goes on.
    """
    from fleetsim.cli.output import show, show_json, warn
    from fleetsim.cli.progress import progress

    asked = asked.ready()
    with progress("starting", aloud=True, simulates=False) as watch:
        from fleetsim.calibrate.run import run

        result = run(asked, watch)
    if output.json_:
        from fleetsim.calibrate.known_profiles import calibrated_data

        show_json(calibrated_data(result))
    elif result.profile is not None:
        from fleetsim.calibrate.told import document
        from fleetsim.tell.terminal import draw

        show(draw(document(result.profile, str(result.path))))
    if result.profile is None:
        say(f"measured; next, where fleetsim is installed: fleetsim calibrate --from {result.raw}", err=True)
    else:
        say(f"wrote {result.path}", err=True)
    warn(result.warnings)
