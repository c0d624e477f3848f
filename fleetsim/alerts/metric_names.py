"""Which exposed metrics the standing rules read: names of the engine in use, the trainer's, the user's, and selectors.

Where a release renamed a metric, old and new stand side by side, joined by `or`: rules outlive upgrades.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, field

from fleetsim.alerts.signal_values import PRESENT, Expected
from fleetsim.errors import InputError, Problem
from fleetsim.faces import flag
from fleetsim.history.catalogue import unknown_signals
from fleetsim.history.option_names import MAP, SELECTOR
from fleetsim.history.selection import wrong
from fleetsim.history.signals import BY_NAME

# Engine as a user calls it -> how its metrics begin. Under Ray vLLM's metrics carry another prefix.
PREFIXES = {"vllm": "vllm:", "vllm-ray": "ray_vllm_", "sglang": "sglang:"}
# Only the first tensor-parallel rank of SGLang counts; an engine without the label matches, too.
_ALWAYS = {"sglang": ('tp_rank=~"|0"',)}
# One engine: a scrape target and its data-parallel rank. Labels that are not there do not matter.
INSTANCE = "by (pod, instance, engine)"

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class MetricNames(Struct, frozen=True):
    """How signals are found in Prometheus.

    engine: one of PREFIXES. selector, trainer_selector: label matchers as in PromQL, without braces. mapping: signal
    name -> the user's metric, in place of those that fleetsim knows.
    """

    engine: str = "vllm"
    selector: str = ""
    trainer_selector: str = ""
    mapping: Mapping[str, str] = field(default_factory=dict)

    def metrics(self, signal: str) -> tuple[str, ...]:
        """Exposed names of a signal, best first, matchers of their own included (`name{label="value"}`)."""
        known = BY_NAME[signal]
        if signal in self.mapping:
            return (self.mapping[signal],)
        if known.scope == "fleet":
            return known.metrics
        return tuple(name for name in known.metrics if name.startswith(PREFIXES[self.engine]))

    def series(self, signal: str, suffix: str = "") -> tuple[str, ...]:
        """Selectors of a signal, `name{matchers}`. suffix: `_sum` or `_count` of a histogram."""
        fleet = BY_NAME[signal].scope == "fleet"
        common = (self.trainer_selector,) if fleet else (self.selector, *_ALWAYS.get(self.engine, ()))
        found = []
        for metric in self.metrics(signal):
            name, _, own = metric.partition("{")
            matchers = ", ".join(m for m in (own.rstrip("}"), *common) if m)
            found.append(f"{name}{suffix}{{{matchers}}}" if matchers else f"{name}{suffix}")
        return tuple(found)

    def over(self, function: str, signal: str, window: str, suffix: str = "") -> str:
        """`function(series[window])`, joined by `or` where the signal has several names."""
        parts = [f"{function}({series}[{window}])" for series in self.series(signal, suffix)]
        return parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"


class Promql(Struct, frozen=True):
    """An expression that formulas add, multiply and divide. compound: it needs brackets inside another one."""

    text: str
    compound: bool = False

    @property
    def inner(self) -> str:
        """As a factor or divisor."""
        return f"({self.text})" if self.compound else self.text

    def __add__(self, other: Promql) -> Promql:
        return Promql(f"{self.text} + {other.text}", True)

    def __rmul__(self, factor: float) -> Promql:
        return Promql(f"{factor!r} * {self.inner}", True)

    def __truediv__(self, other: Promql) -> Promql:
        return Promql(f"{self.text} / {other.inner}", True)


class Query(Struct, frozen=True):
    """What `signal_values.View` reads of samples, as PromQL over a window."""

    names: MetricNames
    window: str
    expected: Expected

    def rate(self, signal: str, suffix: str = "") -> Promql:
        """Growth per second of a counter, summed over the fleet."""
        return Promql(f"sum({self.names.over('rate', signal, self.window, suffix)})")

    def highest(self, signal: str) -> Promql:
        """The highest sample of a gauge."""
        return Promql(f"max({self.names.over('max_over_time', signal, self.window)})")

    def instances(self) -> Promql:
        """Instances that were scraped."""
        return Promql(
            f"count(count {INSTANCE} ({self.names.over('count_over_time', 'running', self.window)})) or vector(0)"
        )

    def straggler(self) -> Promql:
        """Pace of the slowest instance / that of the median one."""

        def each(function: str, signal: str) -> str:
            return f"sum {INSTANCE} ({self.names.over(function, signal, self.window)})"

        held = each("count_over_time", "running")
        pace = f"({each('rate', 'generation_tokens')} / {each('rate', 'decoding_s')})"
        pace = f"({pace} and ({held} > {PRESENT} * scalar(max({held}))))"
        return Promql(f"min({pace}) / quantile(0.5, {pace})")


def checked(names: MetricNames) -> MetricNames:
    """Returns the names if PromQL can take them. Raises InputError with everything that is wrong."""
    problems = []
    if names.engine not in PREFIXES:
        rule = f"must be one of {', '.join(PREFIXES)}"
        problems.append(Problem("--engine", names.engine, rule, "name the engine of the fleet"))
    problems += [*wrong(names.selector, SELECTOR), *wrong(names.trainer_selector, flag("trainer_selector"))]
    problems += unknown_signals(names.mapping)
    for metric in names.mapping.values():
        if not _METRIC.fullmatch(metric):
            problems.append(Problem(MAP, metric, "is no metric name", "letters, digits, _ and :"))
    if problems:
        raise InputError(problems)
    return names
