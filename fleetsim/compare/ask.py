"""Two jobs, two results or two windows of history, compared: metric by metric, and what may be said of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetsim.compare.sides import Comparable, Windows, is_history, same_history, side_of, windows_of
from fleetsim.errors import InputError, Problem
from fleetsim.job.in_python import in_python
from fleetsim.job.job_face import Tell
from fleetsim.job.result import Result
from fleetsim.job.unchanging import unchanging
from fleetsim.job.watch import SILENT, Watch

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group

    from fleetsim.compare.compare import Change, Comparison


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CompareResult(Result):
    """What changed between A and B. comparison: all of it (fleetsim/compare/compare.py)."""

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
        from fleetsim.job.frames import frame, with_intervals

        rows = []
        for c in self.comparison.changes:
            parts = {"a": c.a, "b": c.b, "ratio": c.ratio, "difference": c.difference}
            cells: dict[str, Any] = with_intervals({name: e for name, e in parts.items() if e is not None})
            rows.append({"metric": c.metric, "verdict": c.verdict, "p_adjusted": c.p_adjusted, **cells})
        return frame(rows).set_index("metric")

    def view(self) -> Group:
        """What the command prints."""
        from fleetsim.compare.told import compare_report

        return compare_report(self.comparison)

    def page(self, watch: Watch = SILENT) -> str:
        """What the command writes under --html."""
        from fleetsim.compare.page import compare_page

        return compare_page(self.comparison)

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.compare.data import compare_document

        return compare_document(self.comparison)


@in_python()
def compare(
    a: Comparable,
    b: Comparable = None,
    *,
    windows: Windows = (None, None),
    replications: int | None = None,
    min_change: float = 0.01,
    metrics: Sequence[str] | None = None,
    labels: tuple[str, str] | None = None,
    tell: Tell | None = None,
) -> CompareResult:
    """What changed from A to B, by how much, and is it more than luck? `fleetsim compare`.

    a, b: jobs (or what `load` takes), which are simulated under the same draws; or results of `simulate` and `size`,
    whose runs are taken as they are (or the JSON files of them); or windows of history: files, the address of a
    Prometheus, results of `replay`. windows: of two histories, or of the one in a, the parts to compare:
    ("-6h..-3h", "-3h..now"), None = all of it. replications: of two jobs, at least 2; else 10, or what they ask for.
    min_change: smallest change of interest, 0.01 = 1 % (of shares: 1 point). metrics: only these. labels: what the two
    are called; else A and B, or the histories' own names.

        >>> import fleetsim as fs
        >>> job = fs.load("async-one-step", steps=10)
        >>> found = fs.compare(job, job.with_({"admission.batches_ahead": 2}), replications=4)
        >>> found["step_s"].verdict
        'better'

    Raises InputError with all that is wrong, StuckError where a job blocks itself, OutsideError where a server did not
    do its part.
    """
    from fleetsim.compare.result_pair import compare_results
    from fleetsim.compare.runs import LEAST_REPLICATIONS, REPLICATIONS, ToRun, compare_scenarios
    from fleetsim.quantities import METRICS, WINDOW_METRICS

    history = any(_histories(a, b))
    names = _checked(WINDOW_METRICS if history else METRICS, metrics, min_change, replications, LEAST_REPLICATIONS)
    tell = tell or (lambda text: None)
    if history:
        return CompareResult(_windows(a, b, windows, replications, labels, min_change, names, tell))
    if b is None:
        remedy = 'for example job.with_({"fleet.instances": 8}); fleetsim.load() is the job of all defaults'
        raise InputError([Problem("b", b, "compare with what?", remedy)])
    if windows != (None, None):
        raise InputError([Problem("windows", windows, "means something for histories only", "leave it out")])
    (side_a, notes_a), (side_b, notes_b) = (
        side_of(it, label, where) for it, label, where in zip((a, b), labels or ("A", "B"), "AB", strict=True)
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


def _histories(a: Comparable, b: Comparable) -> tuple[bool, bool]:
    """Which of the two are histories. b: None = as a. Raises InputError with the problems of both."""
    problems: list[Problem] = []
    found = []
    for where, it in (("A", a), ("B", a if b is None else b)):
        try:
            found.append(is_history(it, where))
        except InputError as error:
            problems += error.problems if where == "A" or b is not None else ()
    if problems:
        raise InputError(problems)
    return found[0], found[1]


def _windows(
    a: Comparable,
    b: Comparable,
    windows: Windows,
    replications: int | None,
    labels: tuple[str, str] | None,
    min_change: float,
    metrics: tuple[str, ...],
    tell: Tell,
) -> Comparison:
    """Two windows of history. Raises InputError, OutsideError."""
    from fleetsim.compare.windows import compare_windows, overlap

    rule, remedy = "is no history, and the other one is", "hold a history against a job: fleetsim.replay(history, job)"
    sides = zip("AB", (a, b), _histories(a, b), strict=True)
    problems = [Problem(where, it, rule, remedy) for where, it, yes in sides if not yes]
    if replications is not None:
        problems.append(Problem("replications", replications, "nothing is simulated", "leave it out"))
    if problems:
        raise InputError(problems)
    (name_a, left), (name_b, right) = windows_of(a, b, windows, tell)
    called = labels or (name_a, name_b)
    shared = overlap(left, right) if same_history(a, b) else ()
    return compare_windows((called[0], left), (called[1], right), min_change=min_change, metrics=metrics, notes=shared)


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
