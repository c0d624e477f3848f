"""Two jobs, or two results, compared: metric by metric, and what may be said of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetsim.api.job import Job, Start, Tell, load
from fleetsim.api.result import Result
from fleetsim.api.simulated import SimulateResult
from fleetsim.api.sized import SizeResult
from fleetsim.errors import InputError, Problem

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group

    from fleetsim.plan.compare import Change, Comparison
    from fleetsim.plan.compare_runs import ToRun
    from fleetsim.plan.results import Result as Written

Comparable = Start | SimulateResult | SizeResult


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CompareResult(Result):
    """What changed between A and B. comparison: all of it (fleetsim/plan/compare.py)."""

    comparison: Comparison

    def __repr__(self) -> str:
        return f"<CompareResult: {self.headline}>"

    def __getitem__(self, metric: str) -> Change:
        """The change of one metric: a, b, ratio, difference, verdict. Raises KeyError with the nearest name."""
        from fleetsim.config.tree import did_you_mean

        found = {change.metric: change for change in self.comparison.changes}
        if metric not in found:
            raise KeyError(f"{metric}: was not compared; {did_you_mean(metric, found)}")
        return found[metric]

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        return self.comparison.headline

    @property
    def significant(self) -> tuple[Change, ...]:
        """The metrics that changed by more than luck and more than the smallest change of interest."""
        return self.comparison.significant

    def to_pandas(self) -> pd.DataFrame:
        """A row a metric: a, b, ratio and difference with the ends of their intervals, verdict, p_adjusted."""
        from fleetsim.api.frames import frame, with_intervals

        rows = []
        for c in self.comparison.changes:
            parts = {"a": c.a, "b": c.b, "ratio": c.ratio, "difference": c.difference}
            cells: dict[str, Any] = with_intervals({name: e for name, e in parts.items() if e is not None})
            rows.append({"metric": c.metric, "verdict": c.verdict, "p_adjusted": c.p_adjusted, **cells})
        return frame(rows).set_index("metric")

    def _view(self) -> Group:
        from fleetsim.report.compare_view import compare_report

        return compare_report(self.comparison)

    def _page(self) -> str:
        from fleetsim.report.compare_page import compare_page

        return compare_page(self.comparison)

    def _document(self) -> dict[str, Any]:
        from fleetsim.report.compare_json import compare_document

        return compare_document(self.comparison)


def compare(
    a: Comparable,
    b: Comparable,
    *,
    replications: int | None = None,
    min_change: float = 0.01,
    metrics: Sequence[str] | None = None,
    labels: tuple[str, str] = ("A", "B"),
    tell: Tell | None = None,
) -> CompareResult:
    """What changed from A to B, by how much, and is it more than luck? `fleetsim compare`.

    a, b: jobs (or what `load` takes), which are simulated under the same draws; or results of `simulate` and `size`,
    whose runs are taken as they are. replications: of two jobs, at least 2; else 10, or what they ask for. min_change:
    smallest change of interest, 0.01 = 1 % (of shares: 1 point). metrics: only these.

        >>> import fleetsim as fs
        >>> job = fs.load("async-one-step", steps=10)
        >>> found = fs.compare(job, job.with_({"admission.batches_ahead": 2}), replications=4)
        >>> found["step_s"].verdict
        'better'

    Raises InputError with all that is wrong, StuckError where a job blocks itself.
    """
    from fleetsim.analysis.catalogue import METRICS
    from fleetsim.plan.compare_results import compare_results
    from fleetsim.plan.compare_runs import LEAST_REPLICATIONS, REPLICATIONS, ToRun, compare_scenarios

    names = _checked(METRICS, metrics, min_change, replications, LEAST_REPLICATIONS)
    tell = tell or (lambda text: None)
    (side_a, notes_a), (side_b, notes_b) = (
        _side(it, label, where) for it, label, where in zip((a, b), labels, "AB", strict=True)
    )
    notes = [*notes_a, *notes_b]
    if isinstance(side_a, ToRun) and isinstance(side_b, ToRun):
        most = max(side.scenario.run.replications for side in (side_a, side_b))
        wanted = replications or max(REPLICATIONS, most)

        def progress(done: int, of: int) -> None:
            tell(f"simulating: {done} of {of} runs")

        found = compare_scenarios(
            side_a, side_b, wanted, min_change=min_change, metrics=names, notes=notes, progress=progress
        )
    else:
        found = compare_results(side_a, side_b, min_change=min_change, metrics=names, notes=notes, tell=tell)
    return CompareResult(found)


def _side(it: Comparable, label: str, where: str) -> tuple[ToRun | Written, list[str]]:
    """One side as the comparison takes it, and what is odd about it."""
    from fleetsim.plan.compare_runs import ToRun
    from fleetsim.plan.results import result_of

    if isinstance(it, (SimulateResult, SizeResult)):
        return result_of(it.to_dict(), label, where), []
    job = it if isinstance(it, Job) else load(it)
    return ToRun(label, job.scenario, job.given), [f"{where}: {note}" for note in job.notes]


def _checked(
    known: Sequence[str], metrics: Sequence[str] | None, min_change: float, replications: int | None, least: int
) -> tuple[str, ...]:
    """The metrics to compare, in the catalogue's order. Raises InputError."""
    from fleetsim.config.tree import did_you_mean

    problems = [
        Problem("metrics", name, "unknown metric", did_you_mean(name, known))
        for name in metrics or ()
        if name not in known
    ]
    if not 0 <= min_change < 1:
        problems.append(Problem("min_change", min_change, "must be from 0 to below 1", "0.01 = 1 %"))
    if replications is not None and replications < least:
        problems.append(Problem("replications", replications, f"must be {least} or more", "for example 10"))
    if problems:
        raise InputError(problems)
    return tuple(name for name in known if metrics is None or name in metrics)
