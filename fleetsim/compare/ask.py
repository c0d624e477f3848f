"""`compare`: what can be asked of two jobs, results or windows of history, and what may be said of each metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from fleetsim.compare.gate import ComparisonGate, comparison_gate
from fleetsim.compare.inputs import Given, What, given_of, told_apart
from fleetsim.compare.spans import IN_PYTHON, Span, spans_of
from fleetsim.errors import InputError, Interrupted, Problem, problems_of
from fleetsim.job.fields import RUN, SIMULATED
from fleetsim.job.history_fields import SOURCE, AccessFields
from fleetsim.job.keywords import keywords
from fleetsim.job.question import Argument, Lends, Option
from fleetsim.job.result import Result
from fleetsim.job.unchanging import unchanging
from fleetsim.job.watch import SILENT, Watch, told

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group

    from fleetsim.compare.compare import Change, Comparison
    from fleetsim.compare.read import Part
    from fleetsim.compare.runs import ToRun
    from fleetsim.compare.saved_result import Result as Written
    from fleetsim.compare.sides import Comparable
    from fleetsim.job.job_face import Tell

Windows = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class Checked:
    """A question that can be answered: two windows of history, or two sides of runs and what is odd about them."""

    metrics: tuple[str, ...]
    gate: ComparisonGate
    windows: tuple[Part, Part] | None = None
    sides: tuple[ToRun | Written, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Compare:
    """What changed between A and B, by how much, and is it more than luck?

    given: A and B where they are no texts; one where both are of one history. labels: what the two are called. counts:
    whether every query of a server is told. checked: what `ready` makes of it.
    """

    a: Annotated[str | None, Argument("A scenario, a result (--json of simulate), or history.", "A")] = None
    b: Annotated[str | None, Argument("The other; A again if --set-b is given.", "B")] = None
    set_: Annotated[list[str] | None, Option("Of both scenarios. Repeatable.", SIMULATED, metavar="KEY=VALUE")] = None
    set_a: Annotated[list[str] | None, Option("Of A alone.", SIMULATED, metavar="KEY=VALUE")] = None
    set_b: Annotated[list[str] | None, Option("Of B alone.", SIMULATED, metavar="KEY=VALUE")] = None
    steps: Annotated[int | None, Option("Optimizer steps of each run.", SIMULATED)] = None
    seed: Annotated[int | None, Option("Of both: then luck cancels out.", SIMULATED)] = None
    replications: Annotated[int | None, Option("Runs of each; 10 if not given.", SIMULATED)] = None
    prometheus: Annotated[
        str | None, Option("Prometheus, Thanos, Mimir or VictoriaMetrics.", SOURCE, metavar="URL")
    ] = None
    window_a: Annotated[str | None, Option("Window of A: -6h..-3h.", SOURCE, flag="--a", metavar="START..END")] = None
    window_b: Annotated[str | None, Option("Window of B: -3h..now.", SOURCE, flag="--b", metavar="START..END")] = None
    selector: Annotated[str, Option("""Which engines: 'job="rollout"'.""", SOURCE, metavar="LABELS")] = ""
    selector_a: Annotated[str, Option("Of A alone, beside --selector.", SOURCE, metavar="LABELS")] = ""
    selector_b: Annotated[str, Option("Of B alone.", SOURCE, metavar="LABELS")] = ""
    step: Annotated[str, Option("Grid, as 15s; auto = the scrape interval.", SOURCE, metavar="SPAN")] = "auto"
    map_: Annotated[list[str] | None, Option("A metric of yours. Repeatable.", SOURCE, metavar="SIGNAL=METRIC")] = None
    framework: Annotated[str | None, Option("Whose run logs they are (else: found out).", SOURCE)] = None
    metric: Annotated[list[str] | None, Option("Only this one. Repeatable.", RUN, metavar="NAME")] = None
    min_change: Annotated[float, Option("Smallest change of interest; 0.01 = 1 %.", RUN)] = 0.01
    access: Annotated[AccessFields, Lends(AccessFields)] = field(default_factory=AccessFields)
    fail_if: Annotated[
        list[str] | None,
        Option('Exit 10: regression, "ratio.step_s>1.05".', RUN, metavar="CONDITION", after="json_"),
    ] = None
    given: tuple[Given, ...] = ()
    labels: tuple[str, str] | None = None
    counts: bool = False
    checked: Checked | None = None

    def label(self, where: str) -> str:
        """What somebody called this side; "" where nobody did."""
        return "" if self.labels is None else self.labels["AB".index(where)]

    def ready(self) -> Self:
        """The same question, checked. Raises InputError with all that is wrong with the options and with what A and B
        are; else with what is wrong with their jobs and files."""
        return self if self.checked is not None else replace(self, checked=self._checked())

    def _checked(self) -> Checked:
        from fleetsim.compare import checks
        from fleetsim.quantities import METRICS, WINDOW_METRICS

        mapped = bool(self.framework or self.map_)
        texts = {where: text for where, text in (("A", self.a), ("B", self.b)) if text is not None}
        given, wrong = told_apart(texts, lambda where, text: given_of(where, text, mapped))
        given = self.given or given
        server = self.prometheus is not None
        kinds: frozenset[What] = frozenset(("history",) if server else (one.what for one in given))
        there = WINDOW_METRICS if kinds == {"history"} else METRICS
        metrics = tuple(name for name in there if not self.metric or name in self.metric)
        spans: dict[str, Span | None] = {}
        gates: list[ComparisonGate] = []
        problems = [*checks.numbers(self), *wrong, *checks.misplaced(self, kinds, given, not wrong)]
        problems += checks.unknown(self.metric or (), there)
        if kinds == {"history"}:
            problems += problems_of(lambda: spans.update(spans_of(self, len(given) < 2)))
        problems += problems_of(lambda: gates.append(comparison_gate(self.fail_if or (), metrics, bool(self.metric))))
        if problems:
            raise InputError(problems)
        if kinds == {"history"}:
            from fleetsim.compare.read import parts_of

            return Checked(metrics, gates[0], windows=parts_of(self, given, spans))
        from fleetsim.compare.sides import sides_of

        sides, notes = sides_of(self, given)
        return Checked(metrics, gates[0], sides=sides, notes=notes)


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

    @property
    def warnings(self) -> tuple[str, ...]:
        """None: what is to be known of it stands in its notes."""
        return ()

    def noting(self, note: str) -> CompareResult:
        """The same with a note more."""
        return CompareResult(replace(self.comparison, notes=(*self.comparison.notes, note)))

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


def ask(asked: Compare, watch: Watch = SILENT) -> CompareResult:
    """Reads or simulates both sides where that is to be done, and compares them.

    Raises InputError with all that is wrong, StuckError where a job blocks itself, OutsideError where a server did not
    do its part; Interrupted with the CompareResult of the pairs of runs so far on Ctrl-C.
    """
    checked = asked.ready().checked
    assert checked is not None
    try:
        if checked.windows is not None:
            return CompareResult(_of_windows(checked.windows, checked.metrics, asked.min_change, watch))
        return CompareResult(_of_runs(checked, asked.replications, asked.min_change, watch))
    except Interrupted as cut:
        raise Interrupted(None if cut.known is None else CompareResult(cut.known), cut.missing) from None


def _of_windows(parts: tuple[Part, Part], metrics: Sequence[str], min_change: float, watch: Watch) -> Comparison:
    from fleetsim.compare.read import read, same_history
    from fleetsim.compare.windows import compare_windows, overlap

    a, b = parts
    left, right = read(parts, watch)
    shared = overlap(left, right) if same_history(a.window, b.window) else ()
    return compare_windows((a.label, left), (b.label, right), min_change=min_change, metrics=metrics, notes=shared)


def _of_runs(checked: Checked, replications: int | None, min_change: float, watch: Watch) -> Comparison:
    from fleetsim.compare.result_pair import compare_results
    from fleetsim.compare.runs import REPLICATIONS, ToRun, compare_scenarios

    watch.loaded()
    a, b = checked.sides
    metrics, notes = checked.metrics, checked.notes
    if not (isinstance(a, ToRun) and isinstance(b, ToRun)):
        return compare_results(a, b, min_change=min_change, metrics=metrics, notes=notes, tell=watch)
    wanted = replications or max(REPLICATIONS, *(side.scenario.run.replications for side in (a, b)))

    def progress(done: int, of: int) -> None:
        if watch.counts:
            watch("simulating, runs")
            watch.at(done, of)
        else:
            watch(f"simulating: {done} of {of} runs")

    return compare_scenarios(a, b, wanted, min_change=min_change, metrics=metrics, notes=notes, progress=progress)


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
    from fleetsim.compare.sides import given_in_python

    if not isinstance(windows, tuple) or len(windows) != 2:
        raise InputError([Problem("windows", windows, "must be a pair, of A and of B", f"each {IN_PYTHON}")])
    given, problems = told_apart({"A": a} if b is None else {"A": a, "B": b}, given_in_python)
    if problems:
        raise InputError(problems)
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
