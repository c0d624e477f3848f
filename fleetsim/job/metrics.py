"""Metrics by dotted name, each a mean with its 95 % confidence interval; as pandas tables, and as a gate.

pandas is imported here only, and only when a table is asked for.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from fleetsim import units
from fleetsim.config.tree import did_you_mean
from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.estimates import Estimate
from fleetsim.quantities import BY_NAME

if TYPE_CHECKING:
    import pandas as pd

    from fleetsim.sim.records import Records


class Metrics(Mapping[str, Estimate]):
    """Dotted metric name (`step_s`, `waste.stale`) -> Estimate(mean, ci_low, ci_high).

    docs/reference/metrics.md has each formula. `mean` has the means alone. An unknown name is a KeyError that says
    which one was meant.
    """

    __slots__ = ("_estimates",)

    def __init__(self, estimates: Mapping[str, Estimate]) -> None:
        self._estimates = dict(estimates)

    def __getitem__(self, name: str) -> Estimate:
        try:
            return self._estimates[name]
        except KeyError:
            raise KeyError(f"{name}: no such metric; {did_you_mean(str(name), self._estimates)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._estimates

    def __iter__(self) -> Iterator[str]:
        return iter(self._estimates)

    def __len__(self) -> int:
        return len(self._estimates)

    def __repr__(self) -> str:
        width = max(map(len, self._estimates), default=0)
        return "\n".join(f"{name:<{width}}  {_written(e)}" for name, e in self._estimates.items())

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._estimates)

    @property
    def mean(self) -> dict[str, float]:
        """Name -> mean."""
        return {name: e.mean for name, e in self._estimates.items()}

    def to_pandas(self) -> pd.DataFrame:
        """A row a metric: mean, ci_low, ci_high, title and better ("less", "more" or nothing). Needs pandas."""
        known = {name: BY_NAME.get(name) for name in self._estimates}
        rows = [
            {
                "metric": name,
                "mean": e.mean,
                "ci_low": e.ci_low,
                "ci_high": e.ci_high,
                "title": "" if (m := known[name]) is None else m.title,
                "better": "" if m is None else m.better or "",
            }
            for name, e in self._estimates.items()
        ]
        return frame(rows).set_index("metric")


def _written(e: Estimate) -> str:
    half = (e.ci_high - e.ci_low) / 2.0
    return f"{e.mean:.6g}" + (f" ± {half:.2g}" if units.half_width(e) > 0 else "")


# Field of a candidate of `size`, or an arrangement of `split`, and the metric that it shows.
CANDIDATE_METRICS = {
    "trainer_idle_fraction": "trainer_idle_fraction",
    "not_training_fraction": "not_training_fraction",
    "rollout_idle_fraction": "rollout_idle_fraction",
    "rollout_utilization": "rollout_utilization",
    "step_s": "step_s",
    "staleness_p99_steps": "staleness_steps.p99",
    "goodput": "goodput",
    "completions_per_s": "completions_per_s",
    "iterations_per_day": "iterations_per_day",
    "cost_per_step": "cost_per_step",
    "samples_lost": "samples_lost.all",
    "long_samples_lost": "samples_lost.longest_tenth",
}


def frame(rows: Sequence[Mapping[str, Any]], index: str | None = None) -> pd.DataFrame:
    """A table of these rows, by one of its columns. Raises OutsideError where pandas is missing."""
    found = _pandas().DataFrame(list(rows))
    return found if index is None else found.set_index(index)


def with_intervals(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """The cells of one row: every metric's mean under its name, and the ends of its interval beside it."""
    cells: dict[str, float] = {}
    for name, e in estimates.items():
        cells |= {name: e.mean, f"{name}.ci_low": e.ci_low, f"{name}.ci_high": e.ci_high}
    return cells


def records_frame(runs: Iterable[Records], name: str) -> pd.DataFrame:
    """The rows of one of the records' tables over all runs, with a column `replication`. Raises
    InputError for a table that is none, OutsideError where pandas is missing."""
    pd, parts = _pandas(), []
    for run in runs:
        tables = run.tables()
        if name not in tables:
            raise InputError([Problem("table", name, "no such table", f"one of {', '.join(tables)}")])
        part = pd.DataFrame({column: tables[name][column] for column in tables[name].dtype.names or ()})
        part.insert(0, "replication", run.replication)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        remedy = "pip install 'fleetsim[pandas]'"
        raise OutsideError(f"a table needs pandas, which is not installed; {remedy}") from None
    return pandas


# --- `--fail-if "trainer_idle_fraction>0.1"`: a result as a gate, for CI and for scripts.

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*")


class Condition(Struct, frozen=True):
    """A metric, a comparison and a number; it trips when the comparison is true."""

    metric: str
    sign: str
    limit: float

    def trips(self, value: float) -> bool:
        """Whether this value fails the run."""
        return _COMPARE[self.sign](value, self.limit)


class Gate(Struct, frozen=True):
    """All conditions of a command line on the numbers of one answer. source: what the numbers come from, for words."""

    conditions: tuple[Condition, ...]
    source: str = "answer"

    def tripped(self, values: Mapping[str, float | None]) -> list[str]:
        """A line for every condition that is true, and then one for each on a number that the answer lacks."""
        true, unknown = [], []
        for c in self.conditions:
            told, value = f"--fail-if {c.metric}{c.sign}{c.limit:g} tripped: {c.metric} is", values.get(c.metric)
            if value is None:
                unknown.append(f"{told} not known from this {self.source}")
            elif c.trips(value):
                true.append(f"{told} {value:.6g}")
        return true + unknown


def parse_gate(
    texts: Iterable[str], known: Sequence[str], source: str = "answer", example: str = "trainer_idle_fraction>0.1"
) -> Gate:
    """The gate of all `--fail-if`, before any work is done. example: of a condition.

    Raises InputError with all that is wrong: no condition, an unknown metric ("did you mean"), no number.
    """
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
    return Gate(tuple(conditions), source)
