"""`--fail-if "trainer_idle_fraction>0.1"`: a result as a gate, for CI and for scripts."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError, Problem
from fleetsim.quantities import METRICS

__all__ = ["METRICS", "Condition", "Gate", "parse_conditions", "parse_gate", "tripped"]


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """A metric, a comparison and a number; it trips when the comparison is true."""

    metric: str
    sign: str
    limit: float

    def trips(self, value: float) -> bool:
        """Whether this value fails the run."""
        return _COMPARE[self.sign](value, self.limit)


def parse_conditions(
    texts: Iterable[str], known: Sequence[str], example: str = "trainer_idle_fraction>0.1"
) -> tuple[Condition, ...]:
    """The conditions of all `--fail-if`, before any work is done. example: of a condition.

    Raises InputError with all that is wrong: no condition, an unknown metric ("did you mean"), no number.
    """
    from fleetsim.config.tree import did_you_mean

    conditions, problems = [], []
    for text in texts:
        match = _CONDITION.fullmatch(text)
        if match is None:
            problems.append(Problem("--fail-if", text, "must read METRIC OPERATOR NUMBER", f'e.g. "{example}"'))
            continue
        metric, sign, number = match.groups()
        if metric not in known:
            problems.append(Problem("--fail-if", metric, "unknown metric", did_you_mean(metric, known)))
        try:
            limit = float(number)
        except ValueError:
            limit = math.nan
        if not math.isfinite(limit):
            problems.append(Problem("--fail-if", number, "must be a finite number", 'e.g. "step_s>30"'))
        conditions.append(Condition(metric, sign, limit))
    if problems:
        raise InputError(problems)
    return tuple(conditions)


def tripped(conditions: Iterable[Condition], values: Mapping[str, float]) -> list[str]:
    """A line for every condition that trips."""
    return [
        f"--fail-if {c.metric}{c.sign}{c.limit:g} tripped: {c.metric} is {values[c.metric]:.6g}"
        for c in conditions
        if c.trips(values[c.metric])
    ]


@dataclass(frozen=True, slots=True)
class Gate:
    """All conditions of a command line on the numbers of one answer. source: what the numbers come from, for words."""

    conditions: tuple[Condition, ...]
    source: str = "answer"

    def tripped(self, values: Mapping[str, float | None]) -> list[str]:
        """A line for every condition that is true, and for every one on a number that the answer lacks."""
        known = {name: value for name, value in values.items() if value is not None}
        unknown = [c for c in self.conditions if c.metric not in known]
        return tripped([c for c in self.conditions if c.metric in known], known) + [
            f"--fail-if {c.metric}{c.sign}{c.limit:g} tripped: {c.metric} is not known from this {self.source}"
            for c in unknown
        ]


def parse_gate(texts: Iterable[str], known: Sequence[str], source: str = "answer") -> Gate:
    """The gate of all `--fail-if`, before any work is done. Raises InputError as `parse_conditions`."""
    return Gate(parse_conditions(texts, known), source)
