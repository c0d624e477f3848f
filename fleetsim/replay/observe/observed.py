"""`Observed`: what a window of history shows, as numbers; the back-test predicts the same ones."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from fleetsim.history.history import InstanceId, Note
from fleetsim.records import replace
from fleetsim.replay.observe.interruptions import Hole, Pause, Pauses, Rolling
from fleetsim.replay.observe.phases import Account

From = Literal["exported", "log", "inferred"]
Moving = Literal["response_tokens", "step_s"]


class Reading(Struct, frozen=True):
    """A number and where it comes from: exported by the trainer, from a run log, or inferred from the engines."""

    value: float
    source: From


def value_of(reading: Reading | None) -> float | None:
    """The number, None where there is none."""
    return None if reading is None else reading.value


class InstanceView(Struct, frozen=True):
    """One instance over the window.

    present_s: seconds in which it was scraped. generated_tokens: growth of its counter, resets mended. tok_s: of its
    present seconds. active_tok_s: of the present seconds outside fleet-wide pauses. spread: standard deviation / mean
    of its rate over the active intervals. running, waiting, kv_use: means, kv_use_peak the highest; None = not
    exported. preemptions: in the window. prefix_hit: hits / queries. restarts: counter resets. pace: its active rate at
    its own load / the median instance's at that load (below 1 = slow). straggler: pace beyond the limit of
    `replay/observe/paces.py`. running_peak: the most requests that ran. full_share: of the times at which requests
    waited, those at which as many ran. scraped: of the window's scrapes, those that it answered.
    """

    id: InstanceId
    present_s: float
    generated_tokens: float
    tok_s: float
    active_tok_s: float
    spread: float
    running: float | None
    waiting: float | None
    kv_use: float | None
    kv_use_peak: float | None
    preemptions: float | None
    prefix_hit: float | None
    restarts: int
    pace: float
    straggler: bool
    running_peak: float | None = None
    full_share: float | None = None
    scraped: float = 1.0


# Variance / mean of what is in flight, and deviation / mean, of samples that come and go at random. Where batches are
# let in one by one it swings with them: by 20 % and more.
SCATTER, SWING = 4.0, 0.15


class FleetView(Struct, frozen=True):
    """All instances together.

    instances: mean number present; instances_now: present at the end (within two steps of it); instances_min,
    _max over time. tok_s: all output tokens / window. instance_tok_s: generated / present instance-seconds.
    tok_s_cv: of active_tok_s over instances. running, waiting: mean totals. in_flight_mean, in_flight_peak
    (99th percentile): running + waiting outside pauses. kv_use_peak: 99th percentile over instances and time.
    idle_share: of instance-time outside pauses, running = 0. finished_s: requests that ended per second.
    aborted_share, length_share: of the ended requests. in_flight_scatter: variance of what is in flight / its mean, 1
    of requests that come at random. waiting_behind: mean total of those that wait in engines that run others.
    """

    instances: float
    instances_now: int
    instances_min: int
    instances_max: int
    tok_s: float
    instance_tok_s: float
    tok_s_cv: float
    running: float | None
    waiting: float | None
    in_flight_mean: float | None
    in_flight_peak: float | None
    kv_use: float | None
    kv_use_peak: float | None
    idle_share: float | None
    preemptions_per_s: float | None
    prefix_hit: float | None
    finished_s: float | None
    aborted_share: float | None
    length_share: float | None
    in_flight_scatter: float | None = None
    waiting_behind: float | None = None

    @property
    def steady(self) -> bool:
        """Whether what is in flight keeps a level, about which samples come and go at random."""
        scatter, mean = self.in_flight_scatter, self.in_flight_mean
        return bool(scatter is not None and mean and scatter <= SCATTER and math.sqrt(scatter / mean) <= SWING)


class LoggedLaw(Struct, frozen=True):
    """A lognormal law of lengths: mean (tokens) and deviation / mean before the cap: the framework's, else the longest
    response; None where the log says neither."""

    mean: float
    cv: float
    cap: float | None


class LoggedRollout(Struct, frozen=True):
    """Means over the steps of a run log; None = the log does not say.

    idle_share: of the time, engines without work. in_flight, in_flight_cap: samples in generation, and the most that
    the client keeps there. group_size: samples per prompt. queue_cap: samples. sample_s: seconds from a sample's begin
    to its end (mean, p50, p90, p95, p99, max; those that the log has); group_s: until its
    group is complete. running, waiting, kv_use: of an instance, means. prefix_hit: 0 to 1. preemptions: per sample.
    stale_share, partial_share: of the samples trained on, older than the trainer's weights, and made by more than one
    version of them. turns, tool_calls, tool_s: per sample. tok_s: output tokens per second, all instances.
    """

    idle_share: float | None
    in_flight: float | None
    in_flight_cap: float | None
    group_size: float | None
    queue_cap: float | None
    sample_s: tuple[tuple[str, float], ...]
    group_s: tuple[tuple[str, float], ...]
    running: float | None
    waiting: float | None
    kv_use: float | None
    prefix_hit: float | None
    preemptions: float | None
    stale_share: float | None
    partial_share: float | None
    turns: float | None
    tool_calls: float | None
    tool_s: float | None
    tok_s: float | None


class LengthHistogram(Struct, frozen=True):
    """Output lengths of the requests that finished: bucket bounds and counts (not cumulative), mean = sum / count.

    quantiles: interpolated inside a bucket. prompt_mean: mean prompt tokens. group_size: samples per prompt, from
    params_n or, with prefix caching, from the hit ratio; source says which, None = unknown. drift_per_h: relative
    growth of the mean length per hour (slope over the hours of the window / mean), None below three hours. law: of a
    run log, from which the buckets were made; None = they were counted.
    """

    le: tuple[float, ...]
    count: tuple[float, ...]
    mean: float
    p50: float
    p90: float
    p99: float
    prompt_mean: float | None
    group_size: Reading | None
    drift_per_h: float | None
    law: LoggedLaw | None = None

    def unbounded(self, q: float) -> bool:
        """Whether the quantile q lies beyond the last finite bound: what stands for it is that bound."""
        return math.isinf(self.le[-1]) and self.count[-1] > (1.0 - q) * sum(self.count)


class TrainerView(Struct, frozen=True):
    """The trainer over the window; None where it is neither exported nor to be inferred.

    step_s: mean seconds of an optimizer step. wait_s, train_s, sync_s: of them, waiting for samples, computing, held by
    weight sync. idle_fraction: wait_s / step_s. ready_share: of wait_s, beside a queue that held a batch or more, at
    least. steps: completed in the window. batch_samples: samples per step.
    batch_tokens: trained output tokens per step. mfu: mean. other_s, unnamed_s: of step_s, in the log's other timers
    (rewards, saving, switching), and in none that has a name; a run log alone says so.
    """

    step_s: Reading | None
    wait_s: Reading | None
    train_s: Reading | None
    sync_s: Reading | None
    idle_fraction: Reading | None
    steps: Reading | None
    batch_samples: Reading | None
    batch_tokens: Reading | None
    mfu: Reading | None
    ready_share: float | None = None
    other_s: Reading | None = None
    unnamed_s: Reading | None = None

    def of_step(self, part: Reading | None) -> float | None:
        """Seconds of a step as a share of it; None where one of the two is not known."""
        if part is None or self.step_s is None or self.step_s.value <= 0:
            return None
        return part.value / self.step_s.value

    @property
    def rest_s(self) -> float | None:
        """Seconds of a step in no counter: neither wait, nor compute, nor sync; None where one is not known."""
        if self.unnamed_s is not None:
            return self.unnamed_s.value
        parts = (self.step_s, self.wait_s, self.train_s, self.sync_s)
        if any(part is None for part in parts):
            return None
        step, *known = (part.value for part in parts if part is not None)
        return max(0.0, step - sum(known))


class QueueView(Struct, frozen=True):
    """Finished samples that wait for the trainer. depth and age: mean, 95th percentile, highest; growth_per_h: slope of
    the depth, samples per hour. dropped_share: of finished samples, thrown away. generated_per_trained: output tokens
    generated per output token trained. dropped_at_steps: 1 = samples are thrown away in intervals alone in which a step
    ended, 0 = evenly; age is found out there, and filters throw away all the time; not known where most intervals have
    a step. came_late: of the samples that came, those that did while no engine had a request. None = not exported and
    not to be inferred."""

    depth: float | None
    depth_p95: float | None
    depth_max: float | None
    growth_per_h: float | None
    oldest_age_steps: float | None
    oldest_age_max_steps: float | None
    dropped_share: float | None
    generated_per_trained: float | None
    dropped_at_steps: float | None = None
    came_late: float | None = None


class Hour(Struct, frozen=True):
    """One slice of the window (an hour, or a part of a short window): what the back-test is held against.

    instances, instance_tok_s: None for a run log, or where nothing was read. tok_s: generated; of a run log, trained.
    idle_fraction, sync_fraction: of the trainer's time, waiting for samples and held by weight sync.
    """

    start_s: float
    end_s: float
    instances: float | None
    tok_s: float | None
    instance_tok_s: float | None
    step_s: float | None
    idle_fraction: float | None
    queue: float | None
    sync_fraction: float | None = None


class Departure(Struct, frozen=True):
    """An instance that was there all along and is read no more although the others are.

    at_s: its last sample, unix seconds. of: instances there until then, itself with them. replaced_by: one that
    appeared soon after, None = nobody. waits: shares of its time that the trainer waited for samples, before and after;
    None where too few steps show it.
    """

    id: InstanceId
    at_s: float
    of: int
    replaced_by: InstanceId | None
    waits: tuple[float, float] | None = None


class Trend(Struct, frozen=True):
    """What moved over the window by more than its own noise: means of its first and of its last quarter.

    what: response_tokens | step_s. from_s: unix seconds at which the last quarter begins.
    """

    what: Moving
    first: float
    last: float
    from_s: float

    @property
    def growth(self) -> float:
        """Relative to the first quarter."""
        return self.last / self.first - 1.0


class Observed(Struct, frozen=True):
    """A window, observed. engine: vllm | sglang; model: served name, as labelled. placement: how the pools look from
    the on/off pattern: colocated (engines stand empty while the trainer works) | disaggregated | None = cannot say.
    kv_blocks, block_size, prefix_caching: from cache_config. gap_share: of instance-time, nothing was read. departed:
    instances that went and did not come back. trends: what moved over the window. holes: times of which nothing was
    read, in the order of time. rolling: the instances' own stops, in no pause, where they are those of a rolling weight
    sync. logged: what a run log says of the rollout side, where that is all there is. account: where the seconds of a
    step go."""

    start_s: float
    end_s: float
    step_s: float
    source: str
    trainer: TrainerView
    queue: QueueView
    hours: tuple[Hour, ...]
    notes: tuple[Note, ...]
    engine: str | None = None
    model: str | None = None
    kv_blocks: int | None = None
    block_size: int | None = None
    prefix_caching: bool | None = None
    placement: Literal["colocated", "disaggregated"] | None = None
    instances: tuple[InstanceView, ...] = ()
    fleet: FleetView | None = None
    lengths: LengthHistogram | None = None
    pauses: Pauses | None = None
    gap_share: float = 0.0
    departed: tuple[Departure, ...] = ()
    trends: tuple[Trend, ...] = ()
    holes: tuple[Hole, ...] = ()
    rolling: Rolling | None = None
    logged: LoggedRollout | None = None
    account: Account | None = None

    def without_trained_tokens(self) -> Observed:
        """Where the trainer's tokens are no output tokens: neither per step, nor held against what is generated."""
        trainer = replace(self.trainer, batch_tokens=None)
        return replace(self, trainer=trainer, queue=replace(self.queue, generated_per_trained=None))

    def trend(self, what: Moving) -> Trend | None:
        """What moved, None where it did not."""
        return next((t for t in self.trends if t.what == what), None)

    @property
    def held(self) -> tuple[Pause, ...]:
        """The pauses with work in hand."""
        return () if self.pauses is None else self.pauses.held

    @property
    def logs_alone(self) -> bool:
        """Whether a run log, whose steps are parted into phases, is all there is: then its account decides."""
        return not self.instances and self.account is not None and self.account.framework is not None

    @property
    def span_s(self) -> float:
        """Seconds from start to end."""
        return self.end_s - self.start_s
