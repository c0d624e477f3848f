"""`--fail-if "trainer_idle_fraction>0.1"`: a result as a gate, for CI and for scripts."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleetsim.errors import InputError, Problem

EXIT_CODE = 10

# Dotted names of all metrics of a run that are numbers.
METRICS = (
    "step_s",
    "trainer_idle_fraction",
    "rollout_idle_fraction",
    "sync_fraction",
    "switch_fraction",
    "lent_fraction",
    "queue_depth",
    "oldest_sample_age_steps",
    "staleness_steps.mean",
    "staleness_steps.p50",
    "staleness_steps.p99",
    "staleness_steps.max",
    "tokens_per_trained_token",
    "waste.stale",
    "waste.filtered",
    "waste.aborted",
    "waste.recomputed",
    "waste.lost",
    "generated_tok_s",
    "goodput",
    "cost_per_step",
    "preemptions",
    "trained_length_bias",
    "samples_lost.all",
    "samples_lost.longest_tenth",
    "kv_use",
    "instance_tok_s",
)

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


def parse_conditions(texts: Iterable[str], known: Sequence[str]) -> tuple[Condition, ...]:
    """The conditions of all `--fail-if`, before any work is done.

    Raises InputError with all that is wrong: no condition, an unknown metric ("did you mean"), no number.
    """
    from fleetsim.config.tree import did_you_mean

    conditions, problems = [], []
    for text in texts:
        match = _CONDITION.fullmatch(text)
        if match is None:
            problems.append(
                Problem("--fail-if", text, "must read METRIC OPERATOR NUMBER", 'e.g. "trainer_idle_fraction>0.1"')
            )
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
