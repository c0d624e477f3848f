"""One cell to one row: simulated as often as the design says, or the reason why it could not be."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, StuckError
from fleetsim.estimates import Estimate, estimate
from fleetsim.job.trials import flat
from fleetsim.quantities import METRICS
from fleetsim.sim.engines import in_engine
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from fleetsim.sweep.design import Design, sources_digest

Status = Literal["ok", "invalid", "stuck"]


@dataclass(frozen=True, slots=True)
class SweepRow:
    """What became of a cell.

    status: ok, invalid (its values do not fit together) or stuck (its run blocks itself); then reason says why and
    values is empty. values: one tuple a replication, in the order of `METRICS`. binding: the most frequent one.
    """

    cell: int
    status: Status
    reason: str = ""
    binding: str = ""
    values: tuple[tuple[float, ...], ...] = ()

    def estimates(self) -> dict[str, Estimate]:
        """Quantity -> mean and interval over the replications; empty where the cell has none."""
        return {name: estimate([run[i] for run in self.values]) for i, name in enumerate(METRICS) if self.values}


@dataclass(frozen=True, slots=True)
class CellChunk:
    """Cells that a worker has run. seconds: of all of them together. sources: digest of the code that ran them."""

    rows: tuple[SweepRow, ...]
    seconds: float
    sources: str


def run_cell(design: Design, cell: int) -> SweepRow:
    """Simulates one cell."""
    scenario = None
    try:
        scenario = design.scenario(cell)
        runs = [flat(metrics_of(simulate(scenario, replication=r))) for r in range(design.replications)]
    except InputError as error:
        problems = error.problems if scenario is None else in_engine(scenario, error)
        return SweepRow(cell, "invalid", "; ".join(map(str, problems)))
    except StuckError as error:
        return SweepRow(cell, "stuck", "; ".join(str(error).splitlines()))
    binding = Counter(str(run["binding"]) for run in runs).most_common(1)[0][0]
    return SweepRow(cell, "ok", "", binding, tuple(tuple(float(run[name]) for name in METRICS) for run in runs))


def run_cells(design: Design, cells: Sequence[int]) -> CellChunk:
    """Simulates some cells, one after the other."""
    start = time.perf_counter()
    rows = tuple(run_cell(design, cell) for cell in cells)
    return CellChunk(rows, time.perf_counter() - start, sources_digest())
