"""`fleetsim sweep`: a grid of scenarios, every combination simulated under the same draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fleetsim.cli.answer import answer
from fleetsim.cli.flags import Printed
from fleetsim.job.settings import RUN, Option
from fleetsim.sweep.ask import Sweep, ask


@dataclass(frozen=True, kw_only=True)
class SweptOutput(Printed):
    """What `sweep` does with its answer."""

    fail_if: Annotated[
        list[str] | None,
        Option('Exit 10 if true of the best cell: "step_s>30". Repeatable.', RUN, metavar="CONDITION", after="json_"),
    ] = None
    explain: Annotated[bool, Option("Print the rest too: all cells, what each key does.", RUN, after="json_")] = False


def sweep(asked: Sweep, output: SweptOutput) -> None:
    """Simulate every combination of some values, and say which are worth a look.

    Examples:
    fleetsim sweep job.yaml --grid fleet.instances=4:32:2 --grid admission.max_staleness=0,0.5,1,2
    fleetsim sweep --batch 512 --len 1536 --grid fleet.instances=4:32 --out sweep.parquet
    fleetsim sweep job.yaml --grid fleet.instances=4:32:2 --html sweep.html
    fleetsim sweep job.yaml --grid engine.gpu=H100,H200 --objective goodput --objective step_s --json
    fleetsim sweep job.yaml --grid fleet.instances=100:1000:10 --out sweep.parquet --ray auto

    The first --objective orders the cells; the front is over all of them: cost_per_step, step_s and
    staleness_steps.mean unless you say otherwise. A combination that cannot be simulated is a row with its reason.

    The same command goes on where a killed one stopped, if there is an --out.
    """
    answer(ask, asked, output, searches=False)
