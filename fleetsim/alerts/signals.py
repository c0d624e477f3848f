"""The standing signals: each as one formula, for a recording rule in PromQL and for simulated samples; what it is for.

The order is that of blame: a signal comes before those that it can move. An alert is silent while one before it, that
explains it, has just been over its own threshold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from fleetsim import units
from fleetsim.alerts.signal_values import PRESENT, Expected
from fleetsim.errors import Problem, Problems
from fleetsim.faces import flag
from fleetsim.history.catalogue import unknown_signals
from fleetsim.history.option_names import MAP, SELECTOR
from fleetsim.history.selection import wrong
from fleetsim.history.signals import BY_NAME
from fleetsim.quantities import quantity
from fleetsim.records import table_rows
from fleetsim.replay.observe.paces import SLOW

# --- Which exposed metrics the standing rules read: names of the engine in use, the trainer's, the user's, and
# selectors.
#
# Where a release renamed a metric, old and new stand side by side, joined by `or`: rules outlive upgrades.

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
    problems = Problems()
    if names.engine not in PREFIXES:
        rule = f"must be one of {', '.join(PREFIXES)}"
        problems.append(Problem("--engine", names.engine, rule, "name the engine of the fleet"))
    problems += [*wrong(names.selector, SELECTOR), *wrong(names.trainer_selector, flag("trainer_selector"))]
    problems += unknown_signals(names.mapping)
    for metric in names.mapping.values():
        if not _METRIC.fullmatch(metric):
            problems.append(Problem(MAP, metric, "is no metric name", "letters, digits, _ and :"))
    problems.stop()
    return names


# --- The signals themselves.

# Of what a View of samples or a Query of PromQL reads: numbers of the one, text of the other.
Formula = Callable[[Any], Any]
Source = Literal["engines", "trainer", "both"]
_WHOSE: Mapping[str, Source] = {"engines": "engines", "trainer": "trainer", "both": "both"}


class StandingSignal(Struct, frozen=True):
    """A standing signal and its alert.

    name: fleetsim's word. alert: its alert. record: name of the recording rule up to the window. alerts_when: above or
    below the threshold. source: whose metrics it needs. per_step: it grows once a step, so its window must hold
    several. fault: what it is there to find (a name in `faults.py`). unit, title: for people; figure: the format of its
    values, as Go and Python both know it ("": a share, shown in percent). least: the smallest distance between
    threshold and healthy level that means anything. summary, advice: of the alert; the advice says what to do first.
    severity: of the alert.
    """

    name: str
    alert: str
    record: str
    formula: Formula
    alerts_when: Literal["above", "below"]
    source: Source
    per_step: bool
    fault: str
    unit: str
    title: str
    figure: str
    least: float
    summary: str
    advice: str
    severity: Literal["critical", "warning"]

    def expression(self, names: MetricNames, window: str, plan: Expected) -> str:
        """The signal as PromQL."""
        text: str = self.formula(Query(names, window, plan)).text
        return text


def _trainer_pace(v: Any) -> Any:
    """The trainer's compute seconds / those that the plan expects of the steps and tokens that it did."""
    want = v.expected.step_s * v.rate("trainer.steps")
    if v.expected.token_s > 0:
        prompts = v.expected.prompt_tokens * v.rate("trainer.trained_samples")
        want = want + v.expected.token_s * (v.rate("trainer.trained_tokens") + prompts)
    return v.rate("trainer.train_s_total") / want


def _idle(v: Any) -> Any:
    """Share of the trainer's seconds in which it waited for samples."""
    wait = v.rate("trainer.wait_s_total")
    return wait / (wait + v.rate("trainer.train_s_total") + v.rate("trainer.sync_s_total"))


def _ratio(of: str, to: str, ends: tuple[str, str] = ("", "")) -> Formula:
    """How much a counter grows for each unit by which another one does."""
    return lambda v: v.rate(of, ends[0]) / v.rate(to, ends[1])


_FORMULAS: Mapping[str, Formula] = {
    "instances": lambda v: v.instances(),
    "trainer_pace": _trainer_pace,
    "sync_seconds": _ratio("trainer.sync_s_total", "trainer.steps"),
    "output_length": _ratio("output_tokens", "output_tokens", ("_sum", "_count")),
    "oldest_age": lambda v: v.highest("queue.oldest_age_steps"),
    "queue_depth": lambda v: v.highest("queue.samples"),
    "straggler_pace": lambda v: v.straggler(),
    "preemptions": _ratio("preemptions", "finished"),
    "prefix_hits": _ratio("prefix_hits", "prompt_tokens"),
    "generated_per_trained": _ratio("generation_tokens", "trainer.trained_tokens"),
    "trainer_idle": _idle,
}

# A row a signal: name | alert | record | above or below | whose metrics | fault | unit | title | format | least |
# summary | advice. Without a title the unit is a quantity of the catalogue, which has both. SLOW: healthy instances of
# one kind differ by less than what makes a straggler.
_TABLE = """
instances | RolloutInstanceLost | job:rollout_instances:count | below | engines | instance_lost | instances |
    Instances scraped | .0f | 0.5 | Fewer rollout instances answer than the plan has |
    Look for the pod that is gone (or for Prometheus losing its target) before anything else.
trainer_pace | RolloutTrainerSlow | job:trainer_train_seconds:ratio_rate | above | trainer, per step | trainer_slow |
    of the plan | Trainer compute seconds / plan | | 0.02 |
    The trainer computes longer than the plan expects of its steps and tokens |
    The trainer is the problem, not the fleet: rule out a slow node or collective before resizing.
sync_seconds | RolloutSyncOverrun | job:trainer_sync_seconds:per_step_rate | above | trainer, per step | sync_slow |
    s/step | Weight sync holds the trainer | .2f | 0.05 | Weight sync holds the trainer longer than planned |
    Change transport or cadence of the sync; more instances do not help.
output_length | RolloutLengthsDrift | job:rollout_output_tokens:mean_rate | above | engines | lengths_drift |
    response_tokens.mean | | .0f | 1 | Responses are longer than the plan was made for |
    The plan is stale: run fleetsim replay --recommend, or fleetsim size with the lengths of now.
oldest_age | RolloutSamplesStale | job:rollout_oldest_sample_age_steps:max_max | above | trainer | weights_late |
    oldest_sample_age_steps | | .1f | 0.1 | Queued samples are older, in optimizer steps, than the plan allows |
    Check that new weights reach the engines at every publication, then the queue's order and cap.
queue_depth | RolloutQueueDeep | job:rollout_queue_samples:max_max | above | trainer | no_backpressure |
    queue_depth | | .0f | 1 | More finished samples wait for the trainer than the plan allows |
    Backpressure does not hold, or the fleet is too large: cap the queue, then size again.
straggler_pace | RolloutStraggler | job:rollout_pace:min_over_median_rate | below | engines | straggler |
    of the median | Slowest instance's tok/s per decoding request / median | | SLOW |
    One instance generates slower than the others at the same load |
    A placement or hardware problem, not a sizing problem: find the instance and replace it.
preemptions | RolloutPreemptions | job:rollout_preemptions:per_request_rate | above | engines | kv_short | per request |
    Preemptions per finished request | .3f | 0.01 |
    The engines throw requests out of their batch for want of KV blocks |
    Lower max_num_seqs or the client's in-flight cap, or give the KV cache more memory.
prefix_hits | RolloutPrefixHitsDropped | job:rollout_prefix_hits:ratio_rate | below | engines | cache_off |
    prefix_hit | | | 0.02 | The engines find less of their prompts in the prefix cache |
    Configuration, not capacity: check that prefix caching is on and groups stay together.
generated_per_trained | RolloutTokensWasted | job:rollout_generated_per_trained:ratio_rate | above | both, per step |
    groups_dropped | tokens_per_trained_token | | .2f | 0.02 |
    The fleet generates more tokens for each one that is trained |
    Find where samples go: dropped as stale, filtered, aborted at syncs, or lost with an instance.
trainer_idle | RolloutTrainerIdle | job:trainer_idle:ratio_rate | above | trainer, per step | engines_slow |
    trainer_idle_fraction | | | 0.01 |
    The trainer waits for samples longer than planned, and no other alert says why |
    Run fleetsim replay: recover free throughput first, then add rollout instances.
"""


def _standing(cells: Sequence[str]) -> StandingSignal:
    name, alert, record, when, source, fault, unit, title, figure, least, summary, advice = cells
    whose, _, per_step = source.partition(", ")
    if not title:
        q = quantity(unit)
        unit, title = q.of, units.capital(q.title.removesuffix(f", {q.of}"))
    return StandingSignal(
        name, alert, record, _FORMULAS[name], "above" if when == "above" else "below", _WHOSE[whose], bool(per_step),
        fault, unit, title, figure, 1.0 - SLOW if least == "SLOW" else float(least), summary, advice,
        "critical" if name == "instances" else "warning",
    )  # fmt: skip


STANDING = tuple(map(_standing, table_rows(_TABLE)))
BY_STANDING_NAME = {signal.name: signal for signal in STANDING}
