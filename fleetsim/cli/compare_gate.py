"""What `fleetsim compare --fail-if` can ask: a regression, a ratio, a difference, a value of B."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from fleetsim.cli.fail_if import EXIT_CODE, Condition, parse_conditions, tripped
from fleetsim.errors import InputError, Problem

if TYPE_CHECKING:
    from fleetsim.plan.compare import Change, Comparison

REGRESSION = "regression"
_PARTS = ("ratio", "difference")
_ENDS = ("", ".low", ".high")


@dataclass(frozen=True, slots=True)
class Gate:
    """regressions: metrics that must not be worse, "" for any. conditions: on numbers."""

    regressions: tuple[str, ...]
    conditions: tuple[Condition, ...]


def parse_gate(texts: Iterable[str], metrics: Sequence[str]) -> Gate:
    """All `--fail-if`, before any work is done. metrics: those that are compared. Raises InputError, all problems."""
    from fleetsim.config.tree import did_you_mean

    regressions, rest = [], []
    problems: list[Problem] = []
    for text in texts:
        word, dot, metric = text.strip().partition(".")
        if word != REGRESSION:
            rest.append(text)
            continue
        if dot and metric not in metrics:
            problems.append(Problem("--fail-if", text, "unknown metric", did_you_mean(metric, metrics)))
        regressions.append(metric)
    known = [*metrics, *(f"{part}.{m}{end}" for m in metrics for part in _PARTS for end in _ENDS)]
    conditions: tuple[Condition, ...] = ()
    try:
        conditions = parse_conditions(rest, known)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    return Gate(tuple(regressions), conditions)


def gate_values(found: Comparison) -> dict[str, float]:
    """The numbers that conditions are on: METRIC is B's mean, ratio.METRIC and difference.METRIC with .low and .high,
    the ends of the interval. What cannot be compared is not there."""
    values: dict[str, float] = {}
    for change in found.changes:
        if change.b is not None:
            values[change.metric] = change.b.mean
        for part, estimate in (("ratio", change.ratio), ("difference", change.difference)):
            if estimate is not None and change.verdict != "not comparable":
                ends = (estimate.mean, estimate.ci_low, estimate.ci_high)
                values |= {f"{part}.{change.metric}{end}": x for end, x in zip(_ENDS, ends, strict=True)}
    return values


def stop_if_tripped(gate: Gate, found: Comparison) -> None:
    """Exit 10 with a line for every condition that is true, or that nobody can answer: unknown is not passed."""
    values = gate_values(found)
    lines = [line for metric in gate.regressions for line in _regressed(metric, found)]
    lines += tripped([c for c in gate.conditions if c.metric in values], values)
    lines += [
        f"--fail-if {c.metric}{c.sign}{c.limit:g} tripped: {c.metric} is not known from this comparison"
        for c in gate.conditions
        if c.metric not in values
    ]
    for line in lines:
        typer.echo(line, err=True)
    if lines:
        raise typer.Exit(EXIT_CODE)


def _regressed(metric: str, found: Comparison) -> list[str]:
    from fleetsim.plan.compare_words import change_words

    changes: list[Change] = [c for c in found.changes if metric in ("", c.metric)]
    worse = [c for c in changes if c.verdict == "worse"]
    lines = [f"--fail-if {REGRESSION} tripped: {change_words(c)}" for c in worse]
    if all(c.verdict == "not comparable" for c in changes):
        lines.append(f"--fail-if {REGRESSION}{'.' if metric else ''}{metric} tripped: it cannot be compared")
    return lines
