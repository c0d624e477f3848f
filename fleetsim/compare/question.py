"""What can be asked of `compare`, and what A and B are: sides, runs, windows, what is of interest, a condition."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Struct

from fleetsim.errors import InputError, Problem, Problems
from fleetsim.faces import Text
from fleetsim.job.fields import CountedFlags
from fleetsim.job.settings import RUN, SIMULATED, Argument, Lends, Option
from fleetsim.json_text import from_json
from fleetsim.records import replace
from fleetsim.replay.history_fields import SOURCE, AccessFields, step_of

# --- What A and B of `compare` are, told by their content: a scenario, a result, or history.

What = Literal["scenario", "result", "history"]
LOOKED_FOR = (
    "a scenario is YAML or JSON with sections such as workload and fleet; a result is what simulate, size or split "
    "--json wrote; a history is a dump of replay --save, OpenMetrics text with timestamps, or a step log (JSONL, JSON, "
    "CSV)"
)
_FIRST_LINES = 200


class GivenSide(Struct, frozen=True):
    """where: A or B. text: as the user wrote it. held: what it stands for, where that is known by now: of a result its
    JSON, in Python a job or a history that was read."""

    where: str
    text: str
    what: What
    held: Any = None

    @property
    def is_address(self) -> bool:
        """Whether the text may be that of a Prometheus."""
        return self.text.startswith(("http://", "https://"))


T = TypeVar("T")


def told_apart(sides: Mapping[str, T], what: Callable[[str, T], GivenSide]) -> tuple[tuple[GivenSide, ...], Problems]:
    """What each side is by its letter, and what is wrong with those of which it cannot be told."""
    given: list[GivenSide] = []
    wrong = Problems()
    for where, side in sides.items():
        with wrong.check():
            given.append(what(where, side))
    return tuple(given), wrong


def given_of(where: str, text: str, mapped: bool = False, addresses: bool = False) -> GivenSide:
    """mapped: somebody said how to read a step log, so that any text with columns may be one. addresses: that of a
    Prometheus is a side.

    Raises InputError for what is none of the three.
    """
    from fleetsim.config.data_files import find_scenario

    history = GivenSide(where, text, "history")
    if addresses and history.is_address:
        return history
    path = Path(text)
    if "\0" in text or not text or not os.path.lexists(path):
        try:
            find_scenario(text)
        except InputError as error:
            problem = error.problems[0]
            rule = "no such file, and no shipped scenario of this name"
            raise InputError([Problem(where, text, rule, problem.remedy)]) from None
        return GivenSide(where, text, "scenario")
    if path.is_dir():
        return history
    if path.suffix in (".yaml", ".yml"):
        return GivenSide(where, text, "scenario")
    return _by_content(where, text, path, mapped)


def _by_content(where: str, text: str, path: Path, mapped: bool) -> GivenSide:
    from fleetsim.compare.saved_result import MAX_BYTES, is_result
    from fleetsim.config.data_files import read_text
    from fleetsim.config.yaml_text import MAX_BYTES as MAX_YAML
    from fleetsim.config.yaml_text import from_yaml
    from fleetsim.history.files import form_of

    try:
        form = form_of(path) if path.is_file() else "unknown"
        if form == "table":
            return GivenSide(where, text, "history")
        size = path.stat().st_size
    except OSError as error:
        rule = f"cannot be read: {error.strerror or error}"
        raise InputError([Problem(where, text, rule, "check the path and its permissions")]) from None
    if size > MAX_BYTES:
        return GivenSide(where, text, "history")
    if path.is_file() and not size:
        raise InputError([Problem(where, text, "is empty", LOOKED_FOR)])
    try:
        content = read_text(path, where, MAX_BYTES)
    except InputError as error:
        if path.is_file() and form != "unknown" and ("binary" in str(error) or "UTF-8" in str(error)):
            return GivenSide(where, text, "history")  # packed, perhaps: its reader says what it is not
        # what the reader of scenarios says of a file that need not be one
        other = [p.rule == "is empty" or "text" in p.rule for p in error.problems]
        told = zip(error.problems, other, strict=True)
        raise InputError([replace(p, remedy=LOOKED_FOR) if o else p for p, o in told]) from None
    if content.lstrip().startswith(("{", "[")):
        document = _read(from_json, content)
        if isinstance(document, Mapping) and is_result(document):
            return GivenSide(where, text, "result", document)
        # a log of one object a line does not begin as JSON of many lines does
        if document is None and content.lstrip().partition("\n")[0].strip() == "{":
            rule, remedy = "is no valid JSON: cut off, or edited by hand", "write the result again"
            raise InputError([Problem(where, text, rule, remedy)])
        if _is_scenario(document):
            return GivenSide(where, text, "scenario")
        if document is None or mapped or _has_numbers(document):
            return GivenSide(where, text, "history")
    elif size <= MAX_YAML and _is_scenario(_read(lambda text: from_yaml(text, "file"), content)):
        return GivenSide(where, text, "scenario")
    elif form == "openmetrics" or mapped or (form == "step log" and _is_log(content)):
        return GivenSide(where, text, "history")
    raise InputError([Problem(where, text, "neither a scenario, a result nor a history", LOOKED_FOR)])


def _is_log(content: str) -> bool:
    """Whether a text is a step log: a framework's console, or a table with a number in it."""
    from fleetsim.history.step_logs.console import shape_of
    from fleetsim.history.text import number

    lines = content.splitlines()
    if shape_of(lines) is not None:
        return True
    rows = csv.reader(lines[1:_FIRST_LINES])
    try:
        return any(number(cell) is not None for row in rows for cell in row)
    except csv.Error:
        return False


def _has_numbers(document: Any) -> bool:
    """Whether there is a number in it, as every step log has."""
    if isinstance(document, Mapping):
        document = list(document.values())
    if isinstance(document, list):
        return any(_has_numbers(value) for value in document)
    return isinstance(document, (int, float)) and not isinstance(document, bool)


def _read(reader: Callable[[str], Any], content: str) -> Any:
    """The value; None for what is no single document (a run log has one JSON object a line)."""
    try:
        return reader(content)
    except (ValueError, InputError):
        return None


def _is_scenario(document: Any) -> bool:
    """Whether most of its keys are a scenario's; the reader of scenarios says which are not."""
    from fleetsim.config.scenario import Scenario

    if not isinstance(document, Mapping) or not document:
        return False
    return 2 * len(set(document) & set(Scenario.model_fields)) >= len(document)


# --- The question.


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
        list[str] | None, Option('Exit 10: regression, "ratio.step_s>1.05".', RUN, metavar="CONDITION", after="json_")
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
        spans[where] = None if text is None else wrong.made(_span, flag, text)
        if asked.prometheus is not None and text is not None and text.startswith(".."):
            wrong.append(Problem(flag, text, "begins when?", FORM))
    if one_history and spans["B"] is None:
        spans["B"] = spans["A"]  # the same time, other instances
    url = asked.prometheus
    wrong.made(step_of, asked.step)
    wrong.made(parse_map, asked.map_ or (), known=url is not None)
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
    alike = len({part.startswith(("-", "now")) for part in (start, end)}) == 1
    if len(at) == 2 and at[0] >= at[1] and alike:
        raise InputError([Problem(flag, text, "ends before it starts", "swap the two")])
    return start, end
