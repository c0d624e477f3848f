"""What a sweep came to: every cell of the grid, those worth a look, and the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetsim.errors import InputError, Problem
from fleetsim.job.result import SILENT, Briefed, Watch, unchanging

if TYPE_CHECKING:
    import pandas as pd

    from fleetsim.job.base_job import Job
    from fleetsim.sweep.run import SweepRows
    from fleetsim.tell.document import Document


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SweepResult(Briefed):
    """Every cell of a grid.

    job: what all of them share. swept: all that was found (fleetsim/sweep/run.py). call: the words that name the job in
    another command. stopped: what ended the sweep before its time; empty where nothing did.
    """

    job: Job
    swept: SweepRows
    call: tuple[str, ...] = ("SCENARIO",)
    stopped: str = ""

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

    def numbers(self) -> dict[str, float]:
        """What --fail-if can ask: the means of the cell that is best by the first objective."""
        row = self.swept.row(self.swept.pareto.best[0].cell)
        return {name: estimate.mean for name, estimate in row.estimates().items()}

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings that the command prints on stderr."""
        from fleetsim.sweep.remarks import engine_notes, idle_keys, stated_seconds

        keys = (*idle_keys(self.swept), *stated_seconds(self.swept))
        return (*self.job.notes, *keys, *engine_notes(self.swept, self.job.notes))

    def to_pandas(self) -> pd.DataFrame:
        """A row a cell: the keys of the grid, status, reason, pareto (front, tied, dominated), binding, replications,
        and every metric's mean with `.ci_low` and `.ci_high`. As the table of --out. Needs pandas."""
        from fleetsim.job.metrics import frame

        return frame(self.rows()).set_index("cell")

    def rows(self) -> list[dict[str, Any]]:
        """The cells, as under -o csv."""
        from fleetsim.sweep.table import columns_of

        columns = columns_of(self.swept)
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def told(self) -> Document:
        """The Document of the sweep."""
        from fleetsim.sweep.facts import document

        return document(self.swept, self.call)

    def page(self, watch: Watch = SILENT) -> str:
        """What the command writes under --html."""
        from fleetsim.sweep.facts import document
        from fleetsim.tell.page import document_page

        return document_page(document(self.swept, self.call, self.warnings))

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.sweep.facts import sweep_facts
        from fleetsim.sweep.table import sweep_document
        from fleetsim.tell.data import told

        warnings = (*self.warnings, *([self.stopped] if self.stopped else []))
        return {**sweep_document(self.swept, warnings), **told(sweep_facts(self.swept))}
