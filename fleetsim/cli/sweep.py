"""`fleetsim sweep`: a grid of scenarios, every combination simulated under the same draws."""

from __future__ import annotations

from fleetsim.cli.answer import answer
from fleetsim.cli.flags import Printed
from fleetsim.sweep.ask import Sweep, ask


def sweep(asked: Sweep, output: Printed) -> None:
    """Simulate every combination of some values, and say which are worth a look.

    Examples:
    fleetsim sweep job.yaml --grid fleet.instances=4:32:2 --grid admission.max_staleness=0,0.5,1,2
    fleetsim sweep --batch 512 --len 1536 --grid fleet.instances=4:32 --out sweep.parquet
    fleetsim sweep job.yaml --grid fleet.instances=4:32:2 --html sweep.html
    fleetsim sweep job.yaml --grid engine.gpu=H100,H200 --objective goodput --objective step_s --json
    fleetsim sweep job.yaml --grid fleet.instances=100:1000:10 --out sweep.parquet --ray auto

    The first --objective orders the cells, and --fail-if asks of the best; the front is over all of them:
    cost_per_step, step_s and staleness_steps.mean unless you say otherwise. A combination that cannot be simulated is a
    row with its reason.

    The same command goes on where a killed one stopped, if there is an --out.
    """
    answer(ask, asked, output, searches=False)
