"""`fleetsim size`: the smallest rollout fleet that keeps the trainer busy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetsim.cli.planned import SavedOutput, checked
from fleetsim.size.ask import Size
from fleetsim.size.ask import size as ask

if TYPE_CHECKING:
    from pathlib import Path

    from fleetsim.size.ask import SizeResult, SizeSoFar


def size(asked: Size, output: SavedOutput) -> None:
    """The smallest rollout fleet that keeps the trainer busy.

    Examples:

    [bold]fleetsim size --batch 512 --len 1536[/bold]

    [bold]fleetsim size --batch 256 --len 6000 --gpu H200 --model Qwen/Qwen3-32B[/bold]

    [bold]fleetsim size --batch 512 --len 1536 --instance-tok-s 4000[/bold]

    [bold]fleetsim size --scenario job.yaml --set workload.reward.latency_s=2[/bold]

    [bold]fleetsim size --preset trl-async-grpo --len 3000 --batch 1024[/bold]

    [bold]fleetsim size --batch 512 --len 1536 --html size.html[/bold]

    Whatever is not given is assumed, as in parentheses below, and the answer lists it.

    A flag wins over a FLEETSIM_* variable, that over the scenario, that over the default.
    """
    from fleetsim.cli.interrupted import if_interrupted
    from fleetsim.cli.output import finish, show_result
    from fleetsim.cli.pages import write_page
    from fleetsim.cli.progress import progress

    asked, places = checked(asked, output, ("instances",))
    asked = replace(asked, for_page=places.page is not None)
    with if_interrupted(lambda known, _: _so_far(known, output.json_)), progress("loading the simulator") as watch:
        result = ask(asked, watch)
    if places.save is not None:
        _save(places.save, result)
    show_result(result, output.json_, output.explain)
    if places.page is not None:
        with progress("for the page") as watch:
            page = result.page(watch)
        write_page(places.page, page)
    _stop_if_missed(result)
    finish(result, places.gate, output.strict)


def _save(place: Path, result: SizeResult) -> None:
    """Writes the job with the recommended fleet. Raises OutsideError."""
    from fleetsim.config.load import dump_short
    from fleetsim.files import write_text
    from fleetsim.job.trials import with_instances

    said = {*result.asked.given, "fleet.instances", "engine.tp"}
    write_text(place, dump_short(with_instances(result.asked.scenario, result.instances), said))


def _so_far(known: SizeSoFar, as_json: bool) -> None:
    """Shows the fleets that were tried, after Ctrl-C."""
    from fleetsim.cli.output import show_result

    if as_json or known.trials:
        show_result(known, as_json)


def _stop_if_missed(result: SizeResult) -> None:
    """Raises InfeasibleError for a target that the user gave and no fleet holds."""
    from fleetsim.errors import InfeasibleError
    from fleetsim.size.words import why_infeasible

    if not result.feasible:
        raise InfeasibleError(f"{why_infeasible(result.plan)}; the best that was found is printed above")
