"""`fleetsim plan`: which fleet, engines and split for a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fleetsim.cli.planned import SavedOutput, checked
from fleetsim.job.fields import RUN
from fleetsim.job.question import Option
from fleetsim.plan.ask import COUNTS, Plan, ask

if TYPE_CHECKING:
    from pathlib import Path

    from fleetsim.plan.ask import PlanResult


@dataclass(frozen=True, kw_only=True)
class PlanOutput(SavedOutput):
    """What `plan` does with its answer."""

    save: Annotated[
        str | None, Option("Write the recommended plan as a scenario file.", RUN, metavar="FILE", after="json_")
    ] = None


def plan(asked: Plan, output: PlanOutput) -> None:
    """Which GPUs, engines and split for a budget: every choice together, the few plans that are worth a look.

    Examples:

    [bold]fleetsim plan --gpus 64 --model Qwen/Qwen3-32B --batch 512 --len 4000[/bold]

    [bold]fleetsim plan --max-price-per-hour 200 --gpu-types H100,H200 --model Qwen/Qwen3-30B-A3B[/bold]

    [bold]fleetsim plan --step-s 60 --model Qwen/Qwen3-8B --batch 512 --len 4000 --save plan.yaml[/bold]

    [bold]fleetsim plan --gpus 64 --scenario job.yaml --allow 'fp8,staleness<=2,speculation'[/bold]

    Chosen are GPU type, GPUs of an engine, precision, drafts, staleness and sync, shares of the GPUs, and limits.

    What changes training needs --allow; the answer says what each such thing would buy.
    """
    from fleetsim.cli.interrupted import if_interrupted
    from fleetsim.cli.output import finish, show_result
    from fleetsim.cli.pages import write_page
    from fleetsim.cli.progress import progress

    asked, places = checked(asked, output, COUNTS)
    with if_interrupted(lambda known, _: show_result(known, output.json_)), progress("loading the simulator") as watch:
        result = ask(asked, watch)
    if places.save is not None:
        _save(places.save, result)
    show_result(result, output.json_)
    if places.page is not None:
        write_page(places.page, result.page())
    _stop_if_missed(result)
    finish(result, places.gate, output.strict)


def _save(place: Path, result: PlanResult) -> None:
    """Writes the recommended plan. Raises OutsideError."""
    from fleetsim.config.load import dump_short
    from fleetsim.files import write_text

    chosen = {"engine.gpu", "engine.tp", "fleet.instances", "fleet.placement", "trainer.gpus"}
    write_text(place, dump_short(result.scenario, {*result.found.given, *chosen}))


def _stop_if_missed(result: PlanResult) -> None:
    """Raises InfeasibleError for a step that no plan makes."""
    from fleetsim.errors import InfeasibleError

    if not result.feasible:
        raise InfeasibleError(
            f"no plan makes a step of {result.found.budget.step_s:g} s; the shortest is printed above"
        )
