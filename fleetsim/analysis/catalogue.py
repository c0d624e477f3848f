"""The metrics of a run by name: what each is, how it is computed, in which unit, and which way is better.

One list for everybody who names a metric: `--fail-if`, comparisons, sweeps, pages and the reference. `metrics_of`
computes them. Nothing heavy is imported here: the command line reads the names before it knows what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Better = Literal["less", "more"]


@dataclass(frozen=True, slots=True)
class Metric:
    """name: dotted, as in JSON. how: how a value is written (`units`): seconds, share or number.

    formula: over the window that is left after warm-up. better: None where neither way is good as such.
    """

    name: str
    title: str
    how: Literal["seconds", "share", "number"]
    formula: str
    better: Better | None = None


CATALOGUE: tuple[Metric, ...] = (
    Metric("step_s", "optimizer step", "seconds", "window / optimizer steps", "less"),
    Metric(
        "trainer_idle_fraction",
        "trainer idle",
        "share",
        "seconds that the trainer waits for samples / window (weight sync apart)",
        "less",
    ),
    Metric(
        "rollout_idle_fraction",
        "rollout idle",
        "share",
        "idle / (busy + idle + paused + down) instance-seconds",
        "less",
    ),
    Metric(
        "rollout_utilization",
        "rollout utilization",
        "share",
        "output tokens / what the same instances would make full: as many requests each as max_num_seqs and the KV "
        "cache hold, at this mix of lengths",
        "more",
    ),
    Metric("sync_fraction", "trainer held by weight sync", "share", "seconds held by weight sync / window", "less"),
    Metric(
        "trainer_idle_with_sync_fraction",
        "trainer idle, weight sync included",
        "share",
        "seconds that the trainer waits for samples or is held by weight sync / window",
        "less",
    ),
    Metric(
        "switch_fraction",
        "GPUs changing hands",
        "share",
        "seconds of handing shared GPUs over / window (colocated)",
        "less",
    ),
    Metric("lent_fraction", "trainer GPUs lent to rollout", "share", "seconds lent / (lent instances x window)"),
    Metric(
        "queue_depth",
        "samples in the buffer",
        "number",
        "mean over time of finished samples not yet trained, those before a full buffer included",
    ),
    Metric(
        "queue_growth",
        "growth of the buffer, samples per step",
        "number",
        "finished samples not yet trained, at the last step less at the first / steps between; around 0 where the "
        "trainer keeps up",
    ),
    Metric(
        "oldest_sample_age_steps",
        "age of the oldest buffered sample, steps",
        "number",
        "mean over steps, when the batch is taken",
        "less",
    ),
    *(
        Metric(
            f"staleness_steps.{of}",
            f"staleness of trained samples, {word}, steps",
            "number",
            f"{word} over trained samples of: step that trained it - optimizer steps in its oldest weights",
            "less",
        )
        for of, word in (("mean", "mean"), ("p50", "median"), ("p99", "99th percentile"), ("max", "largest"))
    ),
    Metric(
        "tokens_per_trained_token",
        "tokens generated per trained token",
        "number",
        "output tokens generated / output tokens trained",
        "less",
    ),
    *(
        Metric(f"waste.{of}", f"waste: {word}", "share", f"{formula} / output tokens trained", "less")
        for of, word, formula in (
            ("stale", "too old", "output tokens of groups that became stale or were pushed out of the buffer"),
            ("filtered", "filtered", "output tokens of groups that the reward filter removed"),
            ("aborted", "aborted", "output tokens of requests aborted in flight"),
            ("recomputed", "recomputed", "tokens computed again after preemption, sync or a move"),
            ("lost", "lost to failures", "output tokens that failed instances had made"),
        )
    ),
    Metric("generated_tok_s", "generated tok/s", "number", "output tokens / window, whole fleet", "more"),
    Metric(
        "goodput",
        "goodput, trained tok per GPU-second",
        "number",
        "output tokens trained / GPU-seconds of both pools (shared GPUs once)",
        "more",
    ),
    Metric(
        "cost_per_step",
        "US dollars per step",
        "number",
        "(rollout GPU-hours x their price + trainer GPU-hours x theirs) / steps",
        "less",
    ),
    Metric("preemptions", "preemptions per step", "number", "preempted requests / steps", "less"),
    Metric(
        "trained_length_bias",
        "trained length / sent length",
        "number",
        "mean output tokens of trained samples / of all samples sent in the window; below 1, long samples are lost",
    ),
    *(
        Metric(
            f"samples_lost.{of}",
            f"samples lost, {word}",
            "share",
            f"generated for nothing / (trained + generated for nothing), {word}",
            "less",
        )
        for of, word in (("all", "of all"), ("longest_tenth", "of the longest tenth"))
    ),
    Metric(
        "kv_use", "KV cache in use while computing", "share", "KV blocks in use over busy time / (blocks x busy time)"
    ),
    Metric(
        "instance_tok_s",
        "tok/s per instance",
        "number",
        "output tokens / instance-seconds that are up (busy, idle or paused)",
        "more",
    ),
)
METRICS: tuple[str, ...] = tuple(m.name for m in CATALOGUE)
BY_NAME: dict[str, Metric] = {m.name: m for m in CATALOGUE}

# What only a window of history shows, of engines and trainers as they export it (`replay/window_metrics.py`).
OBSERVED: tuple[Metric, ...] = (
    Metric("train_s", "trainer computes per step", "seconds", "seconds of compute / optimizer steps", "less"),
    Metric(
        "instance_s_per_step",
        "instance-seconds per step",
        "number",
        "seconds in which instances were there / optimizer steps",
        "less",
    ),
    Metric("trained_samples", "samples trained per step", "number", "samples trained on / optimizer steps"),
    Metric("pause_share", "engines paused", "share", "seconds in which the whole fleet stood still / window"),
    Metric("running", "requests running", "number", "mean over time, whole fleet"),
    Metric("waiting", "requests waiting in the engines", "number", "mean over time, whole fleet", "less"),
    Metric("preemptions_per_s", "preemptions per second", "number", "preempted requests / window", "less"),
    Metric("prefix_hit", "prefix cache hits", "share", "prompt tokens found in the cache / looked up", "more"),
    Metric("finished_s", "requests finished per second", "number", "requests that ended / window"),
    Metric("aborted_share", "requests aborted", "share", "requests that the client aborted / ended", "less"),
    Metric("length_share", "requests cut by the length cap", "share", "requests that reached max_tokens / ended"),
    Metric("dropped_share", "samples dropped", "share", "thrown away / (thrown away + trained)", "less"),
    Metric("response_tokens.mean", "response tokens, mean", "number", "output tokens / requests that ended"),
    Metric("response_tokens.p99", "response tokens, 99th percentile", "number", "interpolated inside its bucket"),
    Metric("mfu", "trainer's model FLOPs utilization", "share", "mean over time", "more"),
)
# The order in which a window's metrics are shown.
WINDOW_METRICS: tuple[str, ...] = (
    "step_s",
    "trainer_idle_fraction",
    "sync_fraction",
    "train_s",
    "instance_s_per_step",
    "trained_samples",
    "generated_tok_s",
    "instance_tok_s",
    "tokens_per_trained_token",
    "pause_share",
    "running",
    "waiting",
    "queue_depth",
    "oldest_sample_age_steps",
    "kv_use",
    "preemptions_per_s",
    "prefix_hit",
    "finished_s",
    "aborted_share",
    "length_share",
    "dropped_share",
    "response_tokens.mean",
    "response_tokens.p99",
    "mfu",
)
_ALL: dict[str, Metric] = {m.name: m for m in (*CATALOGUE, *OBSERVED)}


# What a user pays for, in money, time or quality of training; the other metrics say where it comes from. Throughput of
# an instance or a GPU falls by itself when a fleet grows, and is no regression if what the step costs is none.
PAID_FOR: tuple[str, ...] = (
    "step_s",
    "trainer_idle_fraction",
    "cost_per_step",
    "instance_s_per_step",
    "oldest_sample_age_steps",
    "staleness_steps.mean",
    "staleness_steps.p99",
    "samples_lost.all",
    "samples_lost.longest_tenth",
    "dropped_share",
)


def described(name: str) -> Metric:
    """The metric of a name, of a run or of a window."""
    return _ALL[name]
