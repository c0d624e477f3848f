"""The catalogue of quantities: what each is called, in which unit it is written, which way is better, what it means.

One list for everybody who names a quantity: `--fail-if`, comparisons, sweeps, tables, charts, alerts, pages and the
reference. A view lists the names of what it shows and reads the rest here, so that a quantity has one title and one
unit in every face. `sim/metrics.py` computes them of a run, `replay/observe/window_metrics.py` of a window of history.
Nothing heavy is imported here: the command line reads the names before it knows what to do.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from fleetsim.units import Unit

Better = Literal["less", "more"]


class Quantity(Struct, frozen=True):
    """name: dotted, as in JSON. unit: how a value is written (`units.written`).

    formula: over the window that is left after warm-up. better: None where neither way is good as such. short: the
    heading of a narrow column, with the unit where the cells have none; the title where that is short enough. of: what
    a value is of, for a sentence about the value alone ("12 samples", "3.1 % of its time").
    """

    name: str
    title: str
    unit: Unit
    formula: str
    better: Better | None = None
    short: str = ""
    of: str = ""

    @property
    def heading(self) -> str:
        """What stands above a narrow column of values."""
        return self.short or self.title


CATALOGUE: tuple[Quantity, ...] = (
    Quantity("step_s", "optimizer step", "seconds", "window / optimizer steps", "less", "step, s"),
    Quantity(
        "trainer_idle_fraction",
        "trainer idle",
        "share",
        "seconds that the trainer waits for samples, those of a drain included / window",
        "less",
        of="of its time",
    ),
    Quantity(
        "rollout_idle_fraction",
        "rollout idle",
        "share",
        "idle / (busy + idle + paused + down) instance-seconds",
        "less",
    ),
    Quantity(
        "rollout_utilization",
        "rollout utilization",
        "share",
        "output tokens / what the same instances would make full: as many requests each as max_num_seqs and the KV "
        "cache hold, at this mix of lengths",
        "more",
        "rollout use",
    ),
    Quantity(
        "sync_fraction",
        "trainer held by weight sync",
        "share",
        "seconds held by weight sync, a drain apart / window",
        "less",
        "held by sync",
    ),
    Quantity(
        "switch_fraction",
        "GPUs changing hands",
        "share",
        "seconds of handing shared GPUs over / window (colocated)",
        "less",
    ),
    *(
        Quantity(
            f"{what}_fraction",
            f"trainer held by {what}s",
            "share",
            f"seconds in which {what}s hold the trainer / window",
            "less",
            f"held by {what}s",
        )
        for what in ("checkpoint", "evaluation")
    ),
    Quantity(
        "not_training_fraction",
        "trainer not training",
        "share",
        "seconds that the trainer waits for samples, is held by weight sync, hands GPUs over, saves a checkpoint or "
        "waits for an evaluation / window",
        "less",
        "not training",
    ),
    Quantity("lent_fraction", "trainer GPUs lent to rollout", "share", "seconds lent / (lent instances x window)"),
    Quantity(
        "queue_depth",
        "samples in the queue",
        "number",
        "mean over time of finished samples not yet trained, those before a full buffer included",
        short="queue",
        of="samples",
    ),
    Quantity(
        "queue_growth",
        "growth of the queue, samples per step",
        "number",
        "finished samples not yet trained, at the last step less at the first / steps between; around 0 where the "
        "trainer keeps up",
    ),
    Quantity(
        "oldest_sample_age_steps",
        "oldest queued sample, steps",
        "number",
        "mean over steps of its age, when the batch is taken",
        "less",
        "oldest, steps",
        "steps",
    ),
    *(
        Quantity(
            f"staleness_steps.{of}",
            f"staleness {of}, steps",
            "number",
            f"{word} over trained samples of: step that trained it - optimizer steps in its oldest weights",
            "less",
            f"stale {of}",
        )
        for of, word in (("mean", "mean"), ("p50", "median"), ("p99", "99th percentile"), ("max", "largest"))
    ),
    Quantity(
        "tokens_per_trained_token",
        "tokens generated per trained token",
        "number",
        "output tokens generated / output tokens trained",
        "less",
        "made per trained",
        "tokens",
    ),
    *(
        Quantity(f"waste.{of}", f"waste: {word}", "share", f"{formula} / output tokens trained", "less", word)
        for of, word, formula in (
            ("stale", "too old", "output tokens of groups that became stale or were pushed out of the buffer"),
            ("filtered", "filtered", "output tokens of groups that the reward filter removed"),
            ("aborted", "aborted", "output tokens of requests aborted in flight"),
            ("recomputed", "recomputed", "tokens computed again after preemption, sync or a move"),
            ("lost", "lost to failures", "output tokens that failed instances had made"),
        )
    ),
    Quantity("generated_tok_s", "generated tok/s", "number", "output tokens / window, whole fleet", "more", "tok/s"),
    Quantity(
        "completions_per_s",
        "completions per second",
        "number",
        "samples whose generation is complete, whatever becomes of them / window, whole fleet",
        "more",
        "completions/s",
    ),
    Quantity(
        "iterations_per_day",
        "iterations (optimizer steps) per day",
        "number",
        "86,400 x optimizer steps / window",
        "more",
        "steps/day",
    ),
    Quantity(
        "goodput",
        "goodput, trained tok/GPU-s",
        "number",
        "output tokens trained / GPU-seconds of both pools (shared GPUs once) and of judges",
        "more",
        "tok/GPU-s",
    ),
    Quantity(
        "cost_per_step",
        "cost per step",
        "money",
        "US dollars: (GPU-hours of rollout, trainer and judges x their prices, with workers and rented tokens) / steps",
        "less",
        "$/step",
    ),
    Quantity("preemptions", "preemptions per step", "number", "preempted requests / steps", "less"),
    Quantity(
        "trained_length_bias",
        "trained length / sent length",
        "number",
        "mean output tokens of trained samples / of all samples sent in the window; below 1, long samples are lost",
    ),
    *(
        Quantity(
            f"samples_lost.{of}",
            f"samples lost, {word}",
            "share",
            f"generated for nothing / (trained + generated for nothing), {word}",
            "less",
            short,
        )
        for of, word, short in (("all", "of all", "lost"), ("longest_tenth", "of the longest tenth", "long lost"))
    ),
    Quantity(
        "kv_use", "KV cache in use while computing", "share", "KV blocks in use over busy time / (blocks x busy time)"
    ),
    Quantity(
        "instance_tok_s",
        "tok/s per instance",
        "number",
        "output tokens / instance-seconds that are up (busy, idle or paused)",
        "more",
        "tok/s each",
    ),
)
WASTE: tuple[str, ...] = tuple(m.name for m in CATALOGUE if m.name.startswith("waste."))
METRICS: tuple[str, ...] = tuple(m.name for m in CATALOGUE)
BY_NAME: dict[str, Quantity] = {m.name: m for m in CATALOGUE}

# What only a window of history shows, of engines and trainers as they export it (`replay/observe/window_metrics.py`).
OBSERVED: tuple[Quantity, ...] = (
    Quantity("train_s", "trainer computes per step", "seconds", "seconds of compute / optimizer steps", "less"),
    Quantity(
        "instance_s_per_step",
        "instance-seconds per step",
        "number",
        "seconds in which instances were there / optimizer steps",
        "less",
    ),
    Quantity("trained_samples", "samples trained per step", "number", "samples trained on / optimizer steps"),
    Quantity("pause_share", "engines paused", "share", "seconds in which the whole fleet stood still / window"),
    Quantity("running", "requests running", "number", "mean over time, whole fleet"),
    Quantity("waiting", "requests waiting in the engines", "number", "mean over time, whole fleet", "less"),
    Quantity("preemptions_per_s", "preemptions per second", "number", "preempted requests / window", "less"),
    Quantity(
        "prefix_hit",
        "prefix cache hits",
        "share",
        "prompt tokens found in the cache / looked up",
        "more",
        of="of prompt tokens",
    ),
    Quantity("finished_s", "requests finished per second", "number", "requests that ended / window"),
    Quantity("aborted_share", "requests aborted", "share", "requests that the client aborted / ended", "less"),
    Quantity("length_share", "requests cut by the length cap", "share", "requests that reached max_tokens / ended"),
    Quantity("dropped_share", "samples dropped", "share", "thrown away / (thrown away + trained)", "less"),
    Quantity(
        "response_tokens.mean", "response tokens, mean", "number", "output tokens / requests that ended", of="tokens"
    ),
    Quantity("response_tokens.p99", "response tokens, 99th percentile", "number", "interpolated inside its bucket"),
    Quantity("mfu", "trainer's model FLOPs utilization", "share", "mean over time", "more"),
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
# Of runs of disaggregated engines alone.
PREFILL_BUSY = Quantity(
    "prefill_busy_fraction",
    "prefill engines busy",
    "share",
    "seconds in which they compute prompts / seconds that they are up (engine.disaggregation)",
    short="prefill busy",
)
# Of runs with evaluations alone.
EVALUATION_S = Quantity(
    "evaluation_s", "an evaluation", "seconds", "mean of last answer - first request, of evaluations", "less"
)
# Of runs with stations alone: whose workers, start-up or patience is limited (`sim/stations.py`).
STATIONS: tuple[Quantity, ...] = tuple(
    Quantity(f"stations.{station}.{name}", f"{station}: {title}", unit, formula, better)
    for station in ("tools", "reward")
    for name, title, unit, formula, better in (
        ("waiting", "calls that wait", "number", "mean over time of calls that wait for a worker", "less"),
        ("in_service", "calls in service", "number", "mean over time of calls that a worker starts or serves", None),
        ("busy_fraction", "workers in use", "share", "worker-seconds in use or kept / (workers x window)", None),
        ("wait_s", "wait of a call", "seconds", "seconds that calls wait for a worker / calls made", "less"),
        ("wait_p50_s", "wait of a call, median", "seconds", "half of the calls wait no longer", "less"),
        ("wait_p99_s", "wait of a call, p99", "seconds", "99 % of the calls wait no longer", "less"),
        ("workers_p99", "workers in use, p99", "number", "for 99 % of the time no more are in use", None),
        ("workers_most", "workers in use, most", "number", "the most in use at once, to a sixteenth", None),
        ("calls", "calls per step", "number", "calls that ended / steps", None),
        ("failed", "calls that fail", "share", "calls that failed / calls that ended", "less"),
        ("late", "calls timed out", "share", "calls timed out, waiting or in service / calls that ended", "less"),
        ("lost", "rollouts lost per step", "number", "rollouts whose last try was in vain / steps", "less"),
    )
)
# Of runs with judges alone (`sim/judges.py`).
OF_JUDGES: tuple[Quantity, ...] = tuple(
    Quantity(f"stations.{judge}.{name}", f"{judge}: {title}", unit, formula, better)
    for judge in ("judge", "teacher", "reference")
    for name, title, unit, formula, better in (
        ("waiting", "requests that wait", "number", "mean over time of requests that wait for a place", "less"),
        ("in_service", "requests in service", "number", "mean over time of requests that run", None),
        ("busy_fraction", "engines at work", "share", "seconds in which they compute / (engines x window)", None),
        ("wait_s", "wait of a request", "seconds", "seconds that requests wait for a place / requests", "less"),
        ("calls", "requests per step", "number", "requests that were answered / steps", None),
        ("usd", "cost per step", "money", "GPU-hours of its engines x their price, or an API's tokens / steps", "less"),
    )
)
# Of runs with instances on spot machines alone (`sim/spot.py`).
OF_SPOT: tuple[Quantity, ...] = tuple(
    Quantity(f"spot.{name}", f"spot: {title}", unit, formula, better)
    for name, title, unit, formula, better in (
        ("serving", "instances that serve", "share", "seconds that they serve / (spot instances x window)", "more"),
        ("reclaims_per_h", "reclaims an hour", "number", "machines that were reclaimed / hours of the window", "less"),
        ("worst_hour", "worst hour", "number", "longest mean step of an hour's steps in a row / mean step", "less"),
    )
)  # fmt: skip
RARE_METRICS: tuple[str, ...] = tuple(m.name for m in (*STATIONS, *OF_JUDGES, *OF_SPOT))
# All that a run may have; those of stations and of spot machines only where there are any.
RUN_METRICS: tuple[str, ...] = (*METRICS, *RARE_METRICS)
_ALL: dict[str, Quantity] = {
    m.name: m for m in (*CATALOGUE, *OBSERVED, PREFILL_BUSY, EVALUATION_S, *STATIONS, *OF_JUDGES, *OF_SPOT)
}

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


def quantity(name: str) -> Quantity:
    """The quantity of a name, of a run or of a window."""
    return _ALL[name]
