"""What can be asked of `compare`: the two sides, what is simulated, which windows, what is of interest, a condition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fleetsim.compare.inputs import GivenSide
from fleetsim.errors import InputError, Problem, Problems
from fleetsim.faces import Text
from fleetsim.job.fields import CountedFlags
from fleetsim.job.settings import RUN, SIMULATED, Argument, Lends, Option
from fleetsim.replay.history_fields import SOURCE, AccessFields, step_of


@dataclass(frozen=True, kw_only=True)
class Compare:
    """What changed between A and B, by how much, and is it more than luck?

    job: what flags say of both jobs. given: A and B where they are no texts; one where both are of one history. labels:
    what the two are called. counts: whether every query of a server is told.
    """

    a: Annotated[str | None, Argument("A scenario, a result (--json of simulate), or history.", "A")] = None
    b: Annotated[str | None, Argument("The other; A again if --set-b is given.", "B")] = None
    set_: Annotated[list[str] | None, Option("Of both scenarios. Repeatable.", SIMULATED, metavar="KEY=VALUE")] = None
    set_a: Annotated[list[str] | None, Option("Of A alone.", SIMULATED, metavar="KEY=VALUE")] = None
    set_b: Annotated[list[str] | None, Option("Of B alone.", SIMULATED, metavar="KEY=VALUE")] = None
    job: Annotated[CountedFlags, Lends(CountedFlags)] = field(default_factory=CountedFlags)
    steps: Annotated[int | None, Option("Optimizer steps of each run.", SIMULATED)] = None
    seed: Annotated[int | None, Option("Random seed of both: luck then cancels out.", SIMULATED)] = None
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
    given: tuple[GivenSide, ...] = ()
    labels: tuple[str, str] | None = None
    counts: bool = False

    def label(self, where: str) -> str:
        """What somebody called this side; "" where nobody did."""
        return "" if self.labels is None else self.labels["AB".index(where)]


# --- The windows, START..END, and the other options that say how history is read, checked.

Span = tuple[str, str]
IN_PYTHON = '"START..END", for example windows=("-6h..-3h", "-3h..now")'
FORM = Text("write START..END, for example -6h..-3h", f"write {IN_PYTHON}")


def spans_of(asked: Compare, one_history: bool) -> dict[str, Span | None]:
    """Start and end of A and of B as they were written, "" for an open end; None where all of it is meant.

    one_history: both are windows of it. Raises InputError for what is no span, no step and no --map, all problems at
    once.
    """
    from fleetsim.history.prometheus import Prometheus
    from fleetsim.history.selection import parse_map

    wrong = Problems()
    spans: dict[str, Span | None] = {"A": None, "B": None}
    for where, flag, text in (
        ("A", Text("--a", "windows A"), asked.window_a),
        ("B", Text("--b", "windows B"), asked.window_b),
    ):
        with wrong.check():
            spans[where] = None if text is None else _span(flag, text)
        if asked.prometheus is not None and text is not None and text.startswith(".."):
            wrong.append(Problem(flag, text, "begins when?", FORM))
    if one_history and spans["B"] is None:
        spans["B"] = spans["A"]  # the same time, other instances
    url = asked.prometheus
    with wrong.check():
        step_of(asked.step)
    with wrong.check():
        parse_map(asked.map_ or (), known=url is not None)
    with wrong.check():
        if url is not None:
            Prometheus(url, asked.access.access()).close()
    if url is not None and asked.framework:
        wrong.append(Problem("--framework", asked.framework, "means something for run logs only", "drop it"))
    wrong.stop()
    return spans


def _span(flag: str, text: str) -> Span:
    from fleetsim.history.window import parse_time

    start, dots, end = (part.strip() for part in text.partition(".."))
    if not dots or not (start or end):
        raise InputError([Problem(flag, text, "is no window", FORM)])
    wrong = Problems()
    at: list[float] = []
    for part in (start, end):
        with wrong.check():
            at += [parse_time(part, 0.0, flag)] if part else []
    wrong.stop()
    # Relative ends count from the same now; a relative end beside an absolute one is judged when there is a now.
    if len(at) == 2 and at[0] >= at[1] and _relative(start) == _relative(end):
        raise InputError([Problem(flag, text, "ends before it starts", "swap the two")])
    return start, end


def _relative(text: str) -> bool:
    return text.startswith(("-", "now"))
