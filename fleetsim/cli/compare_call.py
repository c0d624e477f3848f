"""The command line of `fleetsim compare`, checked as a whole before anything is read or simulated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetsim.cli.compare_flags import Compare
from fleetsim.cli.compare_gate import ComparisonGate, comparison_gate
from fleetsim.cli.compare_spans import Span, spans_of
from fleetsim.compare.inputs import Given, What, given_of
from fleetsim.errors import InputError, Problem
from fleetsim.quantities import METRICS, WINDOW_METRICS

FIRST = "give two: fleetsim compare A B, or one and what to change in it: fleetsim compare A --set-b fleet.instances=8"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. a, b: None for a Prometheus. metrics: those to compare. spans: of A and of B (`spans_of`)."""

    what: frozenset[What]
    a: Given | None
    b: Given | None
    metrics: tuple[str, ...]
    gate: ComparisonGate
    spans: Mapping[str, Span | None] = field(default_factory=dict)


def question_of(call: Compare, fail_if: Sequence[str] = ()) -> Question:
    """Raises InputError with all that is wrong with the flags, and with what A and B are."""
    given, wrong = _given(call)
    problems = [*_numbers(call), *wrong]
    kinds: frozenset[What] = frozenset(("history",) if call.prometheus is not None else (g.what for g in given))
    problems += _misplaced(call, kinds, given)
    metrics, wrong = _metrics(call.metric or (), WINDOW_METRICS if kinds == {"history"} else METRICS)
    problems += wrong
    spans: dict[str, Span | None] = {}
    gate = comparison_gate((), metrics)
    if kinds == {"history"}:
        try:
            spans = spans_of(call)
        except InputError as error:
            problems += error.problems
    try:
        gate = comparison_gate(fail_if, metrics, bool(call.metric))
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    if call.prometheus is not None:
        return Question(kinds, None, None, metrics, gate, spans)
    return Question(kinds, given[0], given[-1], metrics, gate, spans)


def _given(call: Compare) -> tuple[list[Given], list[Problem]]:
    """What A and B are, those that are told by their content, and what is wrong with them."""
    given: list[Given] = []
    problems: list[Problem] = []
    mapped = bool(call.framework or call.map_)
    for where, text in (("A", call.a), ("B", call.b)):
        try:
            given += [] if text is None else [given_of(where, text, mapped)]
        except InputError as error:
            problems += error.problems
    return given, problems


def _misplaced(call: Compare, kinds: frozenset[What], given: Sequence[Given]) -> list[Problem]:
    """What does not go together: sides with each other, flags with the sides."""
    problems = []
    if call.prometheus is not None:
        problems += [
            Problem("--prometheus", call.prometheus, f"{g.where} {g.text} is given as well", "give one") for g in given
        ]
    known = len(given) == (call.a is not None) + (call.b is not None)
    if known:
        problems += _one_sided(call, kinds)
    if "history" in kinds and len(kinds) > 1:
        rule = "one is a window of history and the other is not"
        remedy = "hold a window against a scenario with fleetsim replay --from WINDOW --scenario FILE"
        problems.append(Problem("A, B", " and ".join(g.text for g in given), rule, remedy))
    elif known and kinds:
        problems += [*([] if "history" in kinds else _of_history(call)), *_of_scenarios(call, kinds, given)]
    return problems


def _numbers(call: Compare) -> list[Problem]:
    problems = []
    if not (math.isfinite(call.min_change) and 0.0 <= call.min_change <= 10.0):
        rule, remedy = "must be a fraction of at least 0", "0.01 is 1 %"
        problems.append(Problem("--min-change", call.min_change, rule, remedy))
    if call.replications is not None and call.replications < 2:
        rule, remedy = "one run of each has no interval", "take at least 2, better 10"
        problems.append(Problem("--replications", call.replications, rule, remedy))
    return problems


def _one_sided(call: Compare, kinds: frozenset[What]) -> list[Problem]:
    """What is missing to have two sides."""
    if call.prometheus is not None or (call.a is not None and call.b is None and "history" in kinds):
        differ = bool(call.selector_a) != bool(call.selector_b) or call.selector_a != call.selector_b
        if call.window_a is None or (call.window_b is None and not differ):
            rule, remedy = "which two windows?", "for example --a -6h..-3h --b -3h..now"
            return [Problem("--a, --b", call.window_a or call.window_b or call.prometheus or call.a, rule, remedy)]
        return []
    if call.a is None:
        return [Problem("A, B", "fleetsim compare", "nothing to compare", FIRST)]
    if call.b is None and not (call.set_a or call.set_b):
        return [Problem("B", f"fleetsim compare {call.a}", "compare with what?", FIRST)]
    return []


def _of_history(call: Compare) -> list[Problem]:
    """Flags that mean something for windows only."""
    flags = (
        ("--a", call.window_a),
        ("--b", call.window_b),
        ("--selector", call.selector),
        ("--selector-a", call.selector_a),
        ("--selector-b", call.selector_b),
        ("--map", ", ".join(call.map_ or ())),
        ("--framework", call.framework),
        ("--step", None if call.step == "auto" else call.step),
    )
    rule = "means something for windows of history only"
    return [
        Problem(flag, value, rule, "drop it, or give --prometheus or files of history")
        for flag, value in flags
        if value
    ]


def _of_scenarios(call: Compare, kinds: frozenset[What], given: Sequence[Given]) -> list[Problem]:
    """Flags that mean something for what is simulated only, and --set of a result, which is what it is."""
    problems = []
    results = [g for g in given if g.what == "result"]
    sides = {"A": bool(call.set_a), "B": bool(call.set_b)}
    simulated = "scenario" in kinds
    for flag, sets in (("--set", call.set_ or ()), ("--set-a", call.set_a or ()), ("--set-b", call.set_b or ())):
        if sets and not simulated:
            rule = "changes what is simulated: there is no scenario among A and B"
            problems.append(Problem(flag, sets[0], rule, "drop it, or give a scenario"))
    if simulated:
        for g in results:
            if sides[g.where]:
                flag = f"--set-{g.where.lower()}"
                problems.append(Problem(flag, f"{g.where} {g.text}", "a result stays what it is", "drop it"))
    for flag, value in (("--steps", call.steps), ("--seed", call.seed), ("--replications", call.replications)):
        if value is not None and kinds != {"scenario"}:
            rule = "a result was run already" if results else "nothing is simulated"
            problems.append(Problem(flag, value, f"{rule}: it means something for two scenarios only", "drop it"))
    for flag, sets in (("--set", call.set_ or ()), ("--set-a", call.set_a or ()), ("--set-b", call.set_b or ())):
        for text in sets:
            path = text.partition("=")[0].strip()
            if path in _RUN:
                rule = "must be the same on both sides"
                problems.append(Problem(flag, text, rule, f"give {_RUN[path]} N for both"))
    return problems


_RUN = {"run.steps": "--steps", "run.replications": "--replications"}


def _metrics(asked: Sequence[str], there: Sequence[str]) -> tuple[tuple[str, ...], list[Problem]]:
    """Those asked for, in the catalogue's order; all of them where none was."""
    from fleetsim.config.tree import did_you_mean

    problems = [Problem("--metric", m, "unknown metric", did_you_mean(m, there)) for m in asked if m not in there]
    return tuple(m for m in there if not asked or m in asked), problems
