"""What `compare --fail-if` can ask: a regression, a ratio, a difference, a value of B."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fleetsim.dataclass import dataclass
from fleetsim.errors import Problem, Problems
from fleetsim.job.metrics import Gate, parse_conditions
from fleetsim.quantities import PAID_FOR, quantity

if TYPE_CHECKING:
    from fleetsim.compare.compare import Comparison, MetricChange

REGRESSION = "regression"
_PARTS = ("ratio", "difference")
_ENDS = ("", ".low", ".high")
_SIGN = re.compile(r"[<>=!]")
_EXAMPLE = "ratio.step_s>1.05"


@dataclass(frozen=True, slots=True)
class ComparisonGate:
    """regressions: metrics that must not be worse, "" for any of `watched`. numbers: conditions on numbers."""

    regressions: tuple[str, ...]
    numbers: Gate
    watched: tuple[str, ...] = ()

    def tripped(self, found: Comparison) -> list[str]:
        """A line for every condition that is true, or that nobody can answer: unknown is not passed."""
        regressed = [line for metric in self.regressions for line in _regressed(metric, self.watched, found)]
        return regressed + self.numbers.tripped(gate_values(found))


def comparison_gate(texts: Iterable[str], metrics: Sequence[str], named: bool = False) -> ComparisonGate:
    """All `--fail-if`, before any work is done. metrics: those that are compared. named: somebody chose them, and a
    regression of any counts; else of those that a user pays for. Raises InputError, all problems."""
    from fleetsim.config.tree import did_you_mean

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
    with problems.check():
        conditions = parse_conditions(rest, known, _EXAMPLE)
    problems.stop()
    return ComparisonGate(tuple(regressions), Gate(conditions, "comparison"), watched)


def _in_order(name: str) -> str:
    """ "step_s.low.ratio" as it is written here: "ratio.step_s.low"."""
    words = name.split(".")
    first = [w for w in words if w in _PARTS]
    last = [w for w in words if f".{w}" in _ENDS]
    return ".".join([*first, *(w for w in words if w not in first and w not in last), *last])


def gate_values(found: Comparison) -> dict[str, float | None]:
    """The numbers that conditions are on: METRIC is B's mean, ratio.METRIC and difference.METRIC with .low and .high,
    the ends of the interval. What cannot be compared is not there."""
    values: dict[str, float | None] = {}
    for change in found.changes:
        if change.b is not None:
            values[change.metric] = change.b.mean
        for part, estimate in (("ratio", change.ratio), ("difference", change.difference)):
            if estimate is not None and change.verdict != "not comparable":
                ends = (estimate.mean, estimate.ci_low, estimate.ci_high)
                values |= {f"{part}.{change.metric}{end}": x for end, x in zip(_ENDS, ends, strict=True)}
    return values


def _regressed(metric: str, watched: Sequence[str], found: Comparison) -> list[str]:
    from fleetsim.compare.words import change_words

    changes: list[MetricChange] = [c for c in found.changes if c.metric in ((metric,) if metric else watched)]
    tripped_ = f"--fail-if {REGRESSION}{'.' if metric else ''}{metric} tripped:"
    if all(c.verdict == "not comparable" for c in changes):
        by_why: dict[str, list[str]] = {}
        for c in changes:
            by_why.setdefault(c.why, []).append(c.metric)
        reasons = "; ".join(f"{', '.join(names)} cannot be compared ({why})" for why, names in by_why.items())
        return [f"{tripped_} {reasons}"]
    return [f"{tripped_} {change_words(c)}" for c in changes if c.verdict == "worse"]
