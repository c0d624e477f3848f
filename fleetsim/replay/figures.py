"""The figures of a window that was read: what `fleetsim replay --fail-if` can ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleetsim.quantities import quantity

if TYPE_CHECKING:
    from fleetsim.replay.backtest import Backtest
    from fleetsim.replay.diagnose.finding import Verdict
    from fleetsim.replay.observe.observed import Observed, Reading

# What `--fail-if` can ask, over the window that was read, in the order of the reference.
METRICS = (
    "step_s",
    "trainer_idle_fraction",
    "sync_fraction",
    "pause_share",
    "generated_tok_s",
    "instance_tok_s",
    "instance_spread",
    "instances",
    "stragglers",
    "kv_use_peak",
    "preemptions_per_s",
    "prefix_hit",
    "queue_depth",
    "oldest_sample_age_steps",
    "tokens_per_trained_token",
    "gap_share",
    "model_error",
    "faults",
    "lost_gpu_h_per_day",
)
# What no other answer has; of the oldest sample the largest age, where a run's metric is the mean.
_OWN: Mapping[str, str] = {
    "instance_spread": "standard deviation / mean of the instances' tok/s outside pauses",
    "instances": "instances present at the end of the window",
    "stragglers": "number of instances that are slow at their own load",
    "kv_use_peak": "99th percentile of KV cache use over instances and time",
    "oldest_sample_age_steps": "largest age of the oldest queued sample, steps",
    "gap_share": "instance-time in which nothing was read / instance-time",
    "model_error": "largest error of the back-test: |predicted / observed - 1|, and the like for idle and queue",
    "faults": "number of findings that are faults",
    "lost_gpu_h_per_day": "GPU-hours per day that all findings cost together",
}


def formula(name: str) -> str:
    """What one of METRICS is."""
    return _OWN[name] if name in _OWN else quantity(name).formula


def figures(observed: Observed, verdict: Verdict, backtest: Backtest | None) -> dict[str, float | None]:
    """A number for each of METRICS (`formula` says what each is), None where the window does not have it."""
    f, t, q = observed.fleet, observed.trainer, observed.queue
    held = None if t.sync_s is None or t.step_s is None else t.sync_s.value / t.step_s.value
    worst = None if backtest is None else backtest.worst
    return {
        "step_s": _value(t.step_s),
        "trainer_idle_fraction": _value(t.idle_fraction),
        "sync_fraction": held,
        "pause_share": None if observed.pauses is None else observed.pauses.share,
        "generated_tok_s": None if f is None else f.tok_s,
        "instance_tok_s": None if f is None else f.instance_tok_s,
        "instance_spread": None if f is None else f.tok_s_cv,
        "instances": None if f is None else float(f.instances_now),
        "stragglers": float(sum(i.straggler for i in observed.instances)) if observed.instances else None,
        "kv_use_peak": None if f is None else f.kv_use_peak,
        "preemptions_per_s": None if f is None else f.preemptions_per_s,
        "prefix_hit": None if f is None else f.prefix_hit,
        "queue_depth": q.depth,
        "oldest_sample_age_steps": q.oldest_age_max_steps,
        "tokens_per_trained_token": q.generated_per_trained,
        "gap_share": observed.gap_share,
        "model_error": None if worst is None else abs(worst.error),
        "faults": float(sum(x.state == "fault" for x in verdict.findings)),
        "lost_gpu_h_per_day": sum(x.gpu_h_per_day or 0.0 for x in verdict.findings),
    }


def _value(quantity: Reading | None) -> float | None:
    return None if quantity is None else quantity.value
