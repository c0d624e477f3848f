"""`compare`: two jobs, two results or two windows of history, and what may be said of each metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fleetsim.compare.checked_question import Checked, checked
from fleetsim.compare.question import IN_PYTHON, Compare, told_apart
from fleetsim.errors import InputError, Interrupted, Problem
from fleetsim.faces import keywords
from fleetsim.job.result import SILENT, Briefed, Watch, told, unchanging
from fleetsim.records import replace

if TYPE_CHECKING:
    from fleetsim.compare.compare import Comparison, MetricChange
    from fleetsim.compare.runs import Comparable
    from fleetsim.job.base_job import Tell
    from fleetsim.tell.document import Document

Windows = tuple[str | None, str | None]


@unchanging
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CompareResult(Briefed):
    """What changed between A and B. comparison: all of it (fleetsim/compare/compare.py)."""

    _index: ClassVar[str | None] = "metric"
    comparison: Comparison

    def __repr__(self) -> str:
        return f"<CompareResult: {self.headline}>"

    def __getitem__(self, metric: str) -> MetricChange:
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
    def significant(self) -> tuple[MetricChange, ...]:
        """The metrics that changed by more than luck and more than the smallest change of interest."""
        return self.comparison.significant

    @property
    def warnings(self) -> tuple[str, ...]:
        """Empty: the notes of the comparison say what there is to know."""
        return ()

    def noting(self, note: str) -> CompareResult:
        """A copy with one more note."""
        return CompareResult(replace(self.comparison, notes=(*self.comparison.notes, note)))

    def rows(self) -> list[dict[str, Any]]:
        """The metrics, as under -o csv."""
        from fleetsim.job.metrics import with_intervals

        rows = []
        for c in self.comparison.changes:
            parts = {"a": c.a, "b": c.b, "ratio": c.ratio, "difference": c.difference}
            cells: dict[str, Any] = with_intervals({name: e for name, e in parts.items() if e is not None})
            rows.append({"metric": c.metric, "verdict": c.verdict, "p_adjusted": c.p_adjusted, **cells})
        return rows

    def told(self) -> Document:
        """The Document of the comparison."""
        from fleetsim.compare.facts import document

        return document(self.comparison)

    def document(self) -> dict[str, Any]:
        """What the command prints under --json."""
        from fleetsim.compare.facts import compare_document

        return compare_document(self.comparison)


def ask(asked: Compare | Checked, watch: Watch = SILENT) -> CompareResult:
    """Reads or simulates both sides where that is to be done, and compares them.

    Raises InputError with all that is wrong, StuckError where a job blocks itself, OutsideError where a server did not
    do its part; Interrupted with the CompareResult of the pairs of runs so far on Ctrl-C.
    """
    question = asked if isinstance(asked, Checked) else checked(asked)
    if question.windows is not None:
        from fleetsim.compare.windows import compare_windows, overlap, read, same_history

        a, b = question.windows
        left, right = read(question.windows, watch)
        shared = overlap(left, right) if same_history(a.window, b.window) else ()
        more = {"min_change": question.asked.min_change, "metrics": question.metrics, "notes": shared}
        return CompareResult(compare_windows((a.label, left), (b.label, right), **more))
    try:
        return CompareResult(_of_runs(question, watch))
    except Interrupted as cut:
        raise Interrupted(None if cut.known is None else CompareResult(cut.known), cut.missing) from None


def _of_runs(question: Checked, watch: Watch) -> Comparison:
    from fleetsim.compare.runs import REPLICATIONS, ToRun, compare_runs, with_doubt
    from fleetsim.job.trials import remembered, simulated

    watch.loaded()
    a, b = question.sides
    jobs = [side for side in question.sides if isinstance(side, ToRun)]
    wanted = question.asked.replications or max([REPLICATIONS, *(job.scenario.run.replications for job in jobs)])

    def progress(done: int, of: int) -> None:
        if watch.counts:
            watch("simulating, runs")
            watch.at(done, of)
        else:
            watch(f"simulating: {done} of {of} runs")

    more = {"min_change": question.asked.min_change, "metrics": question.metrics, "notes": question.notes}
    found = compare_runs(a, b, wanted, progress=progress, **more)
    if len(jobs) < 2:
        return found
    watch("what doubt about inputs does")
    return with_doubt(found, jobs[0], jobs[1], remembered(simulated))


@keywords()
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
    from fleetsim.compare.runs import given_in_python

    if not isinstance(windows, tuple) or len(windows) != 2:
        raise InputError([Problem("windows", windows, "must be a pair, of A and of B", f"each {IN_PYTHON}")])
    given, wrong = told_apart({"A": a} if b is None else {"A": a, "B": b}, given_in_python)
    wrong.stop()
    if labels is None and not any(one.what == "history" for one in given):
        labels = ("A", "B")
    asked = Compare(
        given=given,
        window_a=windows[0],
        window_b=windows[1],
        replications=replications,
        min_change=min_change,
        metric=None if metrics is None else list(metrics),
        labels=labels,
    )
    return ask(asked, told(tell))
