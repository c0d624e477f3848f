"""The figures of a window that was read: what `fleetsim replay --fail-if` can ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetsim.replay.backtest import Backtest
    from fleetsim.replay.diagnose.finding import Verdict
    from fleetsim.replay.observe.observed import Observed, Quantity

# Name -> what it is, over the window that was read. `--fail-if` and the reference know these names.
FORMULAS: Mapping[str, str] = {
    "step_s": "mean seconds of an optimizer step",
    "trainer_idle_fraction": "seconds of a step that the trainer waits for samples / seconds of a step",
    "sync_fraction": "seconds of a step that weight sync holds the trainer / seconds of a step",
    "pause_share": "seconds in which the whole fleet stood still / window",
    "generated_tok_s": "output tokens / window, whole fleet",
    "instance_tok_s": "output tokens / instance-seconds in which an instance was scraped",
    "instance_spread": "standard deviation / mean of the instances' tok/s outside pauses",
    "instances": "instances present at the end of the window",
    "stragglers": "number of instances that are slow at their own load",
    "kv_use_peak": "99th percentile of KV cache use over instances and time",
    "preemptions_per_s": "preempted requests / second, whole fleet",
    "prefix_hit": "prompt tokens found in the prefix cache / prompt tokens looked up",
    "queue_depth": "mean of finished samples that wait for the trainer",
    "oldest_sample_age_steps": "largest age of the oldest queued sample, steps",
    "tokens_per_trained_token": "output tokens generated / output tokens trained",
    "gap_share": "instance-time in which nothing was read / instance-time",
    "model_error": "largest error of the back-test: |predicted / observed - 1|, and the like for idle and queue",
    "faults": "number of findings that are faults",
    "lost_gpu_h_per_day": "GPU-hours per day that all findings cost together",
}
METRICS = tuple(FORMULAS)


def figures(observed: Observed, verdict: Verdict, backtest: Backtest | None) -> dict[str, float | None]:
    """A number for each of METRICS (FORMULAS says what each is), None where the window does not have it."""
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


def _value(quantity: Quantity | None) -> float | None:
    return None if quantity is None else quantity.value
