"""A question of `compare`, checked as a whole before anything is read or simulated, and what its answer may fail on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from fleetsim.compare.question import Compare, GivenSide, What, given_of, spans_of, told_apart
from fleetsim.config.tree import did_you_mean
from fleetsim.errors import Problem, Problems
from fleetsim.faces import Text, flag
from fleetsim.job.metrics import Gate, parse_gate
from fleetsim.quantities import PAID_FOR, RUN_METRICS, WINDOW_METRICS, quantity

if TYPE_CHECKING:
    from fleetsim.compare.compare import Comparison, MetricChange
    from fleetsim.compare.runs import ToRun
    from fleetsim.compare.saved_result import SavedResult
    from fleetsim.compare.windows import HistoryPart


class Checked(Struct, frozen=True):
    """A question that can be answered: two windows of history, or two sides of runs and what is odd about them."""

    asked: Compare
    metrics: tuple[str, ...]
    gate: ComparisonGate
    windows: tuple[HistoryPart, HistoryPart] | None = None
    sides: tuple[ToRun | SavedResult, ...] = ()
    notes: tuple[str, ...] = ()


def checked(asked: Compare) -> Checked:
    """Raises InputError with all that is wrong with the options and with what A and B are; else with what is wrong with
    their jobs and files."""
    mapped = bool(asked.framework or asked.map_)
    texts = {where: text for where, text in (("A", asked.a), ("B", asked.b)) if text is not None}
    given, wrong = told_apart(texts, lambda where, text: given_of(where, text, mapped))
    given = asked.given or given
    server = asked.prometheus is not None
    kinds: frozenset[What] = frozenset(("history",) if server else (one.what for one in given))
    there = WINDOW_METRICS if kinds == {"history"} else RUN_METRICS
    metrics = tuple(name for name in there if not asked.metric or name in asked.metric)
    problems = Problems(asked.job.wrong())
    if not (math.isfinite(asked.min_change) and 0.0 <= asked.min_change <= 10.0):
        rule = "must be a fraction of at least 0"
        problems.append(Problem(flag("min_change"), asked.min_change, rule, "0.01 is 1 %"))
    if asked.replications is not None and asked.replications < 2:
        rule, remedy = "one run of each has no interval", "take at least 2, better 10"
        problems.append(Problem(flag("replications"), asked.replications, rule, remedy))
    problems += [*wrong, *misplaced(asked, kinds, given, not wrong)]
    strange = [name for name in asked.metric or () if name not in there]
    metric = Text("--metric", "metrics")
    problems += (Problem(metric, name, "unknown metric", did_you_mean(name, there)) for name in strange)
    spans = problems.made(lambda: spans_of(asked, len(given) < 2) if kinds == {"history"} else {})
    gate = problems.made(lambda: comparison_gate(asked.fail_if or (), metrics, bool(asked.metric)))
    problems.stop()
    if kinds == {"history"}:
        from fleetsim.compare.windows import parts_of

        return Checked(asked, metrics, gate, windows=parts_of(asked, given, spans))
    from fleetsim.compare.runs import sides_of

    sides, notes = sides_of(asked, given)
    return Checked(asked, metrics, gate, sides=sides, notes=notes)


FIRST = "give two: fleetsim compare A B, or one and what to change in it: fleetsim compare A --set-b fleet.instances=8"
OTHER = Text(FIRST, 'for example job.with_({"fleet.instances": 8}); fleetsim.load() is the job of all defaults')
WHICH = Text("for example --a -6h..-3h --b -3h..now", 'say which: windows=("-6h..-3h", "-3h..now")')
REPLAY = Text(
    "hold a window against a scenario with fleetsim replay --from WINDOW --scenario FILE",
    "hold a history against a job: fleetsim.replay(history, job)",
)
_RUN = {"run.steps": "--steps", "run.replications": "--replications"}


def misplaced(asked: Compare, kinds: frozenset[What], given: Sequence[GivenSide], all_known: bool) -> Iterator[Problem]:
    """What does not go together: sides with each other, options with the sides. all_known: what A and B are."""
    if asked.prometheus is not None:
        for one in given:
            yield Problem("--prometheus", asked.prometheus, f"{one.where} {one.text} is given as well", "give one")
    if not all_known:
        return
    yield from _one_sided(asked, kinds, given)
    if "history" in kinds and len(kinds) > 1:
        rule = "one is a window of history and the other is not"
        yield Problem("A, B", " and ".join(one.text for one in given), rule, REPLAY)
    elif kinds and "history" not in kinds:
        yield from _of_history(asked)
    if kinds:
        yield from _of_scenarios(asked, kinds, given)


def _one_sided(asked: Compare, kinds: frozenset[What], given: Sequence[GivenSide]) -> Iterator[Problem]:
    """What is missing to have two sides."""
    if asked.prometheus is not None or (len(given) == 1 and "history" in kinds):
        if asked.window_a is None or (asked.window_b is None and asked.selector_a == asked.selector_b):
            which = asked.window_a or asked.window_b or asked.prometheus or given[0].text
            yield Problem(Text("--a, --b", "windows"), which, "does not say which two windows", WHICH)
    elif not given:
        yield Problem("A, B", "fleetsim compare", "nothing to compare", FIRST)
    elif len(given) == 1 and not (asked.set_a or asked.set_b):
        value = None if asked.a is None else f"fleetsim compare {asked.a}"
        yield Problem(Text("B", "b"), value, "nothing to compare it with", OTHER)


def _of_history(asked: Compare) -> Iterator[Problem]:
    """Options that mean something for windows only."""
    options: tuple[tuple[str, str | None], ...] = (
        (Text("--a", "windows A"), asked.window_a),
        (Text("--b", "windows B"), asked.window_b),
        ("--selector", asked.selector),
        ("--selector-a", asked.selector_a),
        ("--selector-b", asked.selector_b),
        ("--map", ", ".join(asked.map_ or ())),
        ("--framework", asked.framework),
        ("--step", None if asked.step == "auto" else asked.step),
    )
    remedy = Text("drop it, or give --prometheus or files of history", "leave it out")
    for name, given in options:
        if given:
            yield Problem(name, given, "means something for windows of history only", remedy)


def _of_scenarios(asked: Compare, kinds: frozenset[What], given: Sequence[GivenSide]) -> Iterator[Problem]:
    """Options that mean something for what is simulated only, and --set of what must stay as it is."""
    sets = {"--set": asked.set_ or (), "--set-a": asked.set_a or (), "--set-b": asked.set_b or ()}
    flags = {str(flag(name)): [value] for name, value in asked.job.flags().items() if value is not None}
    for option, texts in (sets | flags).items():
        if texts and "scenario" not in kinds:
            rule = "changes what is simulated: there is no scenario among A and B"
            yield Problem(option, texts[0], rule, "drop it, or give a scenario")
    for one in given if "scenario" in kinds else ():
        option = f"--set-{one.where.lower()}"
        if one.what == "result" and sets[option]:
            yield Problem(option, f"{one.where} {one.text}", "a result stays what it is", "drop it")
    for name in ("steps", "seed", "replications"):
        value = getattr(asked, name)
        if value is not None and kinds != {"scenario"}:
            rule = "a result was run already" if "result" in kinds else "nothing is simulated"
            yield Problem(flag(name), value, f"{rule}: it means something for two scenarios only", "drop it")
    for option, texts in sets.items():
        for text in texts:
            path = text.partition("=")[0].strip()
            if path in _RUN:
                yield Problem(option, text, "must be the same on both sides", f"give {_RUN[path]} N for both")


REGRESSION = "regression"
_PARTS = ("ratio", "difference")
_ENDS = ("", ".low", ".high")
_SIGN = re.compile(r"[<>=!]")
_EXAMPLE = "ratio.step_s>1.05"


class ComparisonGate(Struct, frozen=True):
    """regressions: metrics that must not be worse, "" for any of `watched`. numbers: conditions on numbers."""

    regressions: tuple[str, ...]
    numbers: Gate
    watched: tuple[str, ...] = ()

    def tripped(self, found: Comparison) -> list[str]:
        """A line for every condition that is true, or that nobody can answer: unknown is not passed."""
        regressed = [line for metric in self.regressions for line in _regressed(metric, self.watched, found)]
        # METRIC is B's mean, ratio.METRIC and difference.METRIC with .low and .high the ends of the interval
        values: dict[str, float | None] = {c.metric: c.b.mean for c in found.changes if c.b is not None}
        for change in (c for c in found.changes if c.verdict != "not comparable"):
            for part, of in (("ratio", change.ratio), ("difference", change.difference)):
                ends = () if of is None else (of.mean, of.ci_low, of.ci_high)
                values |= {f"{part}.{change.metric}{end}": x for end, x in zip(_ENDS, ends, strict=False)}
        return regressed + self.numbers.tripped(values)


def comparison_gate(texts: Iterable[str], metrics: Sequence[str], named: bool = False) -> ComparisonGate:
    """All `--fail-if`, before any work is done. metrics: those that are compared. named: somebody chose them, and a
    regression of any counts; else of those that a user pays for. Raises InputError, all problems."""
    judged = [m for m in metrics if quantity(m).better is not None]
    watched = tuple(m for m in judged if named or m in PAID_FOR)
    known = [*metrics, *(f"{part}.{m}{end}" for m in metrics for part in _PARTS for end in _ENDS)]
    words = (REGRESSION, *(f"{REGRESSION}.{m}" for m in judged))
    regressions, rest = [], []
    problems = Problems()
    for text in texts:
        word, dot, metric = text.strip().partition(".")
        if not _SIGN.search(text) and word != REGRESSION:
            near, meant = did_you_mean(text.strip(), words), _in_order(text.strip())
            remedy = near if near.startswith("did you mean") else f'e.g. {REGRESSION}, or "{_EXAMPLE}"'
            if meant in known:
                remedy = f'say which value is too much: "{meant}>1.05"'
            problems.append(Problem("--fail-if", text, "is neither a regression nor METRIC OPERATOR NUMBER", remedy))
        elif word != REGRESSION:
            name = _SIGN.split(text)[0].strip()
            if name not in known and (meant := _in_order(name)) in known:
                problems.append(Problem("--fail-if", name, "unknown metric", f'did you mean "{meant}"?'))
            else:
                rest.append(text)
        else:
            if dot and metric not in metrics:
                problems.append(Problem("--fail-if", text, "unknown metric", did_you_mean(metric, metrics)))
            elif metric not in judged if dot else not watched:
                remedy = f'put a bound on the change itself: "ratio.{metric or metrics[0]}.high>1.05"'
                problems.append(Problem("--fail-if", text, "neither more nor less of it is worse", remedy))
            regressions.append(metric)
    conditions = problems.made(parse_gate, rest, known, "comparison", _EXAMPLE)
    problems.stop()
    return ComparisonGate(tuple(regressions), conditions, watched)


def _in_order(name: str) -> str:
    """ "step_s.low.ratio" as it is written here: "ratio.step_s.low"."""
    words = name.split(".")
    first = [w for w in words if w in _PARTS]
    last = [w for w in words if f".{w}" in _ENDS]
    return ".".join([*first, *(w for w in words if w not in first and w not in last), *last])


def _regressed(metric: str, watched: Sequence[str], found: Comparison) -> list[str]:
    from fleetsim.compare.compare import change_words

    changes: list[MetricChange] = [c for c in found.changes if c.metric in ((metric,) if metric else watched)]
    tripped_ = f"--fail-if {REGRESSION}{'.' if metric else ''}{metric} tripped:"
    if all(c.verdict == "not comparable" for c in changes):
        by_why: dict[str, list[str]] = {}
        for c in changes:
            by_why.setdefault(c.why, []).append(c.metric)
        reasons = "; ".join(f"{', '.join(names)} cannot be compared ({why})" for why, names in by_why.items())
        return [f"{tripped_} {reasons}"]
    return [f"{tripped_} {change_words(c)}" for c in changes if c.verdict == "worse"]
