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
    Metric("sync_fraction", "trainer held by weight sync", "share", "seconds held by weight sync / window", "less"),
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
