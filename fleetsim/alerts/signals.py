"""The standing signals: each as one formula, for a recording rule in PromQL and for simulated samples; what it is for.

The order is that of blame: a signal comes before those that it can move. An alert is silent while one before it, that
explains it, has just been over its own threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from fleetsim import units
from fleetsim.alerts.metric_names import MetricNames, Query
from fleetsim.alerts.signal_values import Expected
from fleetsim.quantities import quantity
from fleetsim.records import table_rows
from fleetsim.replay.observe.paces import SLOW

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
