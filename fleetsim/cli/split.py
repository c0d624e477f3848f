"""`fleetsim split`: one set of GPUs, shared by rollout and trainer or split between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fleetsim.cli.planned import SavedOutput, checked
from fleetsim.job.fields import RUN
from fleetsim.job.question import Option
from fleetsim.split.ask import Split
from fleetsim.split.ask import split as ask

if TYPE_CHECKING:
    from pathlib import Path

    from fleetsim.split.ask import SplitResult


@dataclass(frozen=True, kw_only=True)
class AdvisedOutput(SavedOutput):
    """What `split` does with its answer."""

    save: Annotated[
        str | None, Option("Write the advised way as a scenario file.", RUN, metavar="FILE", after="json_")
    ] = None


def split(asked: Split, output: AdvisedOutput) -> None:
    """Share these GPUs between rollout and trainer, or split them, and how: every way simulated and ranked.

    Examples:

    [bold]fleetsim split --gpus 16 --batch 512 --len 1536[/bold]

    [bold]fleetsim split --gpus 64 --model Qwen/Qwen3-32B --tp 4 --trainer-step-s 90 --trainer-gpus 32[/bold]

    [bold]fleetsim split --gpus 32 --trainer-point 8:41 --trainer-point 16:23 --by cost_per_step[/bold]

    [bold]fleetsim split --gpus 32 --preset verl-fully-async --len 3000[/bold]

    [bold]fleetsim split --gpus 16 --scenario job.yaml --html split.html[/bold]

    The trainer's seconds are those on --trainer-gpus; on other counts they follow a law, or measured points.

    Whatever is not given is assumed, as in parentheses below, and the answer lists it.
    """
    from fleetsim.cli.interrupted import if_interrupted
    from fleetsim.cli.output import finish, show_result
    from fleetsim.cli.pages import write_page
    from fleetsim.cli.progress import progress

    asked, places = checked(asked, output, ("rollout_gpus", "trainer_gpus"))
    with if_interrupted(lambda known, _: show_result(known, output.json_)), progress("loading the simulator") as watch:
        result = ask(asked, watch)
    if places.save is not None:
        _save(places.save, result)
    show_result(result, output.json_, output.explain)
    if places.page is not None:
        with progress("for the page: the best ways step by step") as watch:
            page = result.page(watch)
        write_page(places.page, page)
    finish(result, places.gate, output.strict)


def _save(place: Path, result: SplitResult) -> None:
    """Writes the advised way as the job had asked for it. Raises OutsideError."""
    from fleetsim.config.load import dump_short
    from fleetsim.files import write_text
    from fleetsim.job.length_growth import as_asked

    said = {*result.asked.given, "fleet.instances", "fleet.placement", "trainer.gpus", "engine.tp"}
    chosen = as_asked(result.advice.chosen.arrangement.scenario, result.asked.scenario)
    write_text(place, dump_short(chosen, said))
