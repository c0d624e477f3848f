"""A grid of jobs: every combination of some values, simulated under the same draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from fleetsim.config.override import parse_override
from fleetsim.errors import InputError, Problem
from fleetsim.job.in_python import in_python
from fleetsim.job.job_face import Job, Start, Tell, load
from fleetsim.job.options import Options, change_texts
from fleetsim.job.result import Result
from fleetsim.job.unchanging import unchanging
from fleetsim.job.watch import SILENT, Watch

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group

    from fleetsim.sweep.grid import Axis
    from fleetsim.sweep.run import Sweep


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SweepResult(Result):
    """Every cell of a grid. job: what all of them share. swept: all that was found (fleetsim/sweep/run.py)."""

    job: Job
    swept: Sweep

    def __repr__(self) -> str:
        return f"<SweepResult: {len(self.swept.rows)} cells, {len(self.swept.pareto.front)} on the Pareto front>"

    @property
    def best(self) -> Job:
        """The job of the cell that is best by the first objective. Raises InputError where no cell could be simulated
        (the column `reason` of `to_pandas` says why)."""
        if not self.swept.pareto.best:
            rule = f"none of the {len(self.swept.rows)} cells could be simulated"
            why = next((row.reason for row in self.swept.rows if row.reason), "")
            raise InputError([Problem("best", None, rule, f"the first says: {why}" if why else "change the grid")])
        return self.job.with_(self.swept.design.grid.values(self.swept.pareto.best[0].cell))

    @property
    def warnings(self) -> tuple[str, ...]:
        """As the command prints them on stderr."""
        from fleetsim.sweep.engines import engine_notes
        from fleetsim.sweep.idle import idle_keys

        return (*self.job.notes, *idle_keys(self.swept), *engine_notes(self.swept, self.job.notes))

    def to_pandas(self) -> pd.DataFrame:
        """A row a cell: the keys of the grid, status, reason, pareto (front, tied, dominated), binding, replications,
        and every metric's mean with `.ci_low` and `.ci_high`. As the table of --out. Needs pandas."""
        from fleetsim.job.frames import frame
        from fleetsim.sweep.table import columns_of

        columns = columns_of(self.swept)
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return frame(rows).set_index("cell")

    def view(self) -> Group:
        """What the command prints."""
        from fleetsim.sweep.told import sweep_report

        return sweep_report(self.swept, ["SCENARIO"])

    def page(self, watch: Watch = SILENT) -> str:
        """What the command writes under --html."""
        from fleetsim.sweep.page import sweep_page

        return sweep_page(self.swept, ["SCENARIO"], self.warnings)

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.sweep.data import sweep_document

        return sweep_document(self.swept, self.warnings)


@in_python()
def sweep(
    job: Start,
    grid: Mapping[str, Sequence[Any]],
    *,
    objectives: Sequence[str] = (),
    workers: int | None = None,
    ray: str | None = None,
    tell: Tell | None = None,
    **options: Unpack[Options],
) -> SweepResult:
    """Simulates every combination of some values: `fleetsim sweep`.

    job: a Job, or what `load` takes. grid: dotted path -> values. objectives: metrics ("step_s", "max:queue_depth"),
    first things first. workers: processes on this machine, None = as many as pay. ray: the address of a cluster
    instead. options: as for `load`, in every cell.

        >>> import fleetsim as fs
        >>> found = fs.sweep("async-one-step", {"fleet.instances": [2, 4]}, steps=8, replications=2)
        >>> list(found.to_pandas()["fleet.instances"])
        [2, 4]

    Raises InputError with all that is wrong, or where no cell is valid; OutsideError when a worker or a cluster fails;
    Interrupted with what is known so far on Ctrl-C.
    """
    from fleetsim.sweep.grid import grid_of
    from fleetsim.sweep.objective import objectives_of
    from fleetsim.sweep.run import sweep as run

    start = load(job, **options)
    if ray is not None:
        from fleetsim.sweep.cluster import check_ray

        check_ray(ray)
    cells, wanted = grid_of(_axes(grid)), objectives_of(tuple(objectives))

    def progress(done: int, of: int, rows: object) -> None:
        if tell is not None:
            tell(f"sweeping: {done} of {of} cells")

    found = run(
        start.scenario, cells, objectives=wanted, given=start.given, workers=workers, ray=ray, progress=progress
    )
    return SweepResult(start, found)


def _axes(grid: Mapping[str, Sequence[Any]]) -> list[Axis]:
    """The axes, their values as a file would hold them. Raises InputError with all problems."""
    from fleetsim.sweep.grid import Axis

    if not isinstance(grid, Mapping) or not grid:
        example = '{"fleet.instances": [4, 8, 12]}'
        raise InputError([Problem("grid", grid, "must say what to sweep over", f"for example {example}")])
    axes: list[Axis] = []
    problems: list[Problem] = []
    for path, values in grid.items():
        try:
            if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__") or not len(values):
                raise InputError([Problem(f"grid {path}", values, "must be a list of values", "[4, 8, 12]")])
            texts = [change_texts({path: value})[path] for value in values]
            axes.append(Axis(path, tuple(parse_override(text)[1] for text in texts)))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return axes
