"""The standing signals: each as one formula, for a recording rule in PromQL and for simulated samples; what it is for.

The order is that of blame: a signal comes before those that it can move. An alert is silent while one before it, that
explains it, has just been over its own threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from fleetsim import units
from fleetsim.alerts.metric_names import MetricNames, Query
from fleetsim.alerts.signal_values import Expected
from fleetsim.quantities import quantity
from fleetsim.replay.observe.paces import SLOW

# Of what a View of samples or a Query of PromQL reads: numbers of the one, text of the other.
Formula = Callable[[Any], Any]


class StandingSignal(Struct, frozen=True):
    """A standing signal and its alert.

    name: fleetsim's word. alert: its alert. record: name of the recording rule up to the window. alerts_when: above or
    below the threshold. source: whose metrics it needs. per_step: it grows once a step, so its window must hold
    several. fault: what it is there to find (a name in `faults.py`). unit, title: for people. severity: of the alert.
    least: the smallest distance between threshold and healthy level that means anything. summary, advice: of the alert;
    the advice says what to do first.
    """

    name: str
    alert: str
    record: str
    formula: Formula
    alerts_when: Literal["above", "below"]
    source: Literal["engines", "trainer", "both"]
    fault: str
    unit: str
    title: str
    least: float
    summary: str
    advice: str
    per_step: bool = False
    severity: Literal["critical", "warning"] = "warning"

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


def _of(name: str) -> str:
    """What a value of a quantity is of: "tokens", "of its time"."""
    return quantity(name).of


def _title(name: str) -> str:
    """The title of a quantity, without what its values are of."""
    q = quantity(name)
    return units.capital(q.title.removesuffix(f", {q.of}"))


STANDING: tuple[StandingSignal, ...] = (
    StandingSignal(
        name="instances",
        alert="RolloutInstanceLost",
        record="job:rollout_instances:count",
        formula=lambda v: v.instances(),
        alerts_when="below",
        source="engines",
        fault="instance_lost",
        unit="instances",
        title="Instances scraped",
        severity="critical",
        least=0.5,
        summary="Fewer rollout instances answer than the plan has",
        advice="Look for the pod that is gone (or for Prometheus losing its target) before anything else.",
    ),
    StandingSignal(
        name="trainer_pace",
        alert="RolloutTrainerSlow",
        record="job:trainer_train_seconds:ratio_rate",
        formula=_trainer_pace,
        alerts_when="above",
        source="trainer",
        per_step=True,
        fault="trainer_slow",
        unit="of the plan",
        title="Trainer compute seconds / plan",
        least=0.02,
        summary="The trainer computes longer than the plan expects of its steps and tokens",
        advice="The trainer is the problem, not the fleet: rule out a slow node or collective before resizing.",
    ),
    StandingSignal(
        name="sync_seconds",
        alert="RolloutSyncOverrun",
        record="job:trainer_sync_seconds:per_step_rate",
        formula=_ratio("trainer.sync_s_total", "trainer.steps"),
        alerts_when="above",
        source="trainer",
        per_step=True,
        fault="sync_slow",
        unit="s/step",
        title="Weight sync holds the trainer",
        least=0.05,
        summary="Weight sync holds the trainer longer than planned",
        advice="Change transport or cadence of the sync; more instances do not help.",
    ),
    StandingSignal(
        name="output_length",
        alert="RolloutLengthsDrift",
        record="job:rollout_output_tokens:mean_rate",
        formula=_ratio("output_tokens", "output_tokens", ("_sum", "_count")),
        alerts_when="above",
        source="engines",
        fault="lengths_drift",
        unit=_of("response_tokens.mean"),
        title=_title("response_tokens.mean"),
        least=1.0,
        summary="Responses are longer than the plan was made for",
        advice="The plan is stale: run fleetsim replay --recommend, or fleetsim size with the lengths of now.",
    ),
    StandingSignal(
        name="queue_depth",
        alert="RolloutQueueDeep",
        record="job:rollout_queue_samples:max_avg",
        formula=lambda v: v.mean("queue.samples"),
        alerts_when="above",
        source="trainer",
        fault="no_backpressure",
        unit=_of("queue_depth"),
        title=_title("queue_depth"),
        least=1.0,
        summary="More finished samples wait for the trainer than the plan allows",
        advice="Backpressure does not hold, or the fleet is too large: cap the queue, then size again.",
    ),
    StandingSignal(
        name="straggler_pace",
        alert="RolloutStraggler",
        record="job:rollout_pace:min_over_median_rate",
        formula=lambda v: v.straggler(),
        alerts_when="below",
        source="engines",
        fault="straggler",
        unit="of the median",
        title="Slowest instance's tok/s per decoding request / median",
        least=1.0 - SLOW,  # healthy instances of one kind differ by less
        summary="One instance generates slower than the others at the same load",
        advice="A placement or hardware problem, not a sizing problem: find the instance and replace it.",
    ),
    StandingSignal(
        name="preemptions",
        alert="RolloutPreemptions",
        record="job:rollout_preemptions:per_request_rate",
        formula=_ratio("preemptions", "finished"),
        alerts_when="above",
        source="engines",
        fault="kv_short",
        unit="per request",
        title="Preemptions per finished request",
        least=0.01,
        summary="The engines throw requests out of their batch for want of KV blocks",
        advice="Lower max_num_seqs or the client's in-flight cap, or give the KV cache more memory.",
    ),
    StandingSignal(
        name="prefix_hits",
        alert="RolloutPrefixHitsDropped",
        record="job:rollout_prefix_hits:ratio_rate",
        formula=_ratio("prefix_hits", "prompt_tokens"),
        alerts_when="below",
        source="engines",
        fault="cache_off",
        unit=_of("prefix_hit"),
        title=_title("prefix_hit"),
        least=0.02,
        summary="The engines find less of their prompts in the prefix cache",
        advice="Configuration, not capacity: check that prefix caching is on and groups stay together.",
    ),
    StandingSignal(
        name="oldest_age",
        alert="RolloutSamplesStale",
        record="job:rollout_oldest_sample_age_steps:max_avg",
        formula=lambda v: v.mean("queue.oldest_age_steps"),
        alerts_when="above",
        source="trainer",
        fault="weights_late",
        unit=_of("oldest_sample_age_steps"),
        title=_title("oldest_sample_age_steps"),
        least=0.1,
        summary="Queued samples are older, in optimizer steps, than the plan allows",
        advice="Check that new weights reach the engines at every publication, then the queue's order and cap.",
    ),
    StandingSignal(
        name="generated_per_trained",
        alert="RolloutTokensWasted",
        record="job:rollout_generated_per_trained:ratio_rate",
        formula=_ratio("generation_tokens", "trainer.trained_tokens"),
        alerts_when="above",
        source="both",
        per_step=True,
        fault="groups_dropped",
        unit=_of("tokens_per_trained_token"),
        title=_title("tokens_per_trained_token"),
        least=0.02,
        summary="The fleet generates more tokens for each one that is trained",
        advice="Find where samples go: dropped as stale, filtered, aborted at syncs, or lost with an instance.",
    ),
    StandingSignal(
        name="trainer_idle",
        alert="RolloutTrainerIdle",
        record="job:trainer_idle:ratio_rate",
        formula=_idle,
        alerts_when="above",
        source="trainer",
        per_step=True,
        fault="engines_slow",
        unit=_of("trainer_idle_fraction"),
        title=_title("trainer_idle_fraction"),
        least=0.01,
        summary="The trainer waits for samples longer than planned, and no other alert says why",
        advice="Run fleetsim replay: recover free throughput first, then add rollout instances.",
    ),
)
BY_STANDING_NAME = {signal.name: signal for signal in STANDING}
