"""The catalogue of quantities: what each is called, in which unit it is written, which way is better, what it means.

One list for everybody who names a quantity: `--fail-if`, comparisons, sweeps, tables, charts, alerts, pages and the
reference. A view lists the names of what it shows and reads the rest here, so that a quantity has one title and one
unit in every face. `sim/metrics.py` computes them of a run, `replay/observe/window_metrics.py` of a window of history.
Nothing heavy is imported here: the command line reads the names before it knows what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, get_args

from msgspec import Struct

from fleetsim.records import table_rows
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


# A row a quantity: name | title | unit | better | short | of | formula.
_OF_RUNS = """
step_s | optimizer step | seconds | less | step, s | | window / optimizer steps
trainer_idle_fraction | trainer idle | share | less | | of its time | seconds that the trainer waits for samples,
    those of a drain included / window
rollout_idle_fraction | rollout idle | share | less | | | idle / (busy + idle + paused + down) instance-seconds
rollout_utilization | rollout utilization | share | more | rollout use | | output tokens / what the same instances
    would make full: as many requests each as max_num_seqs and the KV cache hold, at this mix of lengths
sync_fraction | trainer held by weight sync | share | less | held by sync | | seconds held by weight sync, a drain
    apart / window
switch_fraction | GPUs changing hands | share | less | | | seconds of handing shared GPUs over / window (colocated)
checkpoint_fraction | trainer held by checkpoints | share | less | held by checkpoints | | seconds in which
    checkpoints hold the trainer / window
evaluation_fraction | trainer held by evaluations | share | less | held by evaluations | | seconds in which
    evaluations hold the trainer / window
not_training_fraction | trainer not training | share | less | not training | | seconds that the trainer waits for
    samples, is held by weight sync, hands GPUs over, saves a checkpoint or waits for an evaluation / window
lent_fraction | trainer GPUs lent to rollout | share | | | | seconds lent / (lent instances x window)
queue_depth | samples in the queue | number | | queue | samples | mean over time of finished samples not yet trained,
    those before a full buffer included
queue_growth | growth of the queue, samples per step | number | | | | finished samples not yet trained, at the last
    step less at the first / steps between; around 0 where the trainer keeps up
oldest_sample_age_steps | oldest queued sample, steps | number | less | oldest, steps | steps | mean over steps of its
    age, when the batch is taken
staleness_steps.mean | staleness mean, steps | number | less | stale mean | | mean over trained samples of: step that
    trained it - optimizer steps in its oldest weights
staleness_steps.p50 | staleness p50, steps | number | less | stale p50 | | median over trained samples of: step that
    trained it - optimizer steps in its oldest weights
staleness_steps.p99 | staleness p99, steps | number | less | stale p99 | | 99th percentile over trained samples of:
    step that trained it - optimizer steps in its oldest weights
staleness_steps.max | staleness max, steps | number | less | stale max | | largest over trained samples of: step that
    trained it - optimizer steps in its oldest weights
tokens_per_trained_token | tokens generated per trained token | number | less | made per trained | tokens | output
    tokens generated / output tokens trained
waste.stale | waste: too old | share | less | too old | | output tokens of groups that became stale or were pushed out
    of the buffer / output tokens trained
waste.filtered | waste: filtered | share | less | filtered | | output tokens of groups that the reward filter removed
    / output tokens trained
waste.aborted | waste: aborted | share | less | aborted | | output tokens of requests aborted in flight / output
    tokens trained
waste.recomputed | waste: recomputed | share | less | recomputed | | tokens computed again after preemption, sync or a
    move / output tokens trained
waste.lost | waste: lost to failures | share | less | lost to failures | | output tokens of failed instances,
    retried and masked rollouts / output tokens trained
generated_tok_s | generated tok/s | number | more | tok/s | | output tokens / window, whole fleet
completions_per_s | completions per second | number | more | completions/s | | samples whose generation is complete,
    whatever becomes of them / window, whole fleet
iterations_per_day | iterations (optimizer steps) per day | number | more | steps/day | | 86,400 x optimizer steps /
    window
goodput | goodput, trained tok/GPU-s | number | more | tok/GPU-s | | output tokens trained / GPU-seconds of both pools
    (shared GPUs once) and of judges
cost_per_step | cost per step | money | less | $/step | | US dollars: (GPU-hours of rollout, trainer and judges x
    their prices, with workers and rented tokens) / steps
preemptions | preemptions per step | number | less | | | preempted requests / steps
trained_length_bias | trained length / sent length | number | | | | mean output tokens of trained samples / of all
    samples sent in the window; below 1, long samples are lost
samples_lost.all | samples lost, of all | share | less | lost | | generated for nothing / (trained + generated for
    nothing), of all
samples_lost.longest_tenth | samples lost, of the longest tenth | share | less | long lost | | generated for nothing /
    (trained + generated for nothing), of the longest tenth
kv_use | KV cache in use while computing | share | | | | KV blocks in use over busy time / (blocks x busy time)
instance_tok_s | tok/s per instance | number | more | tok/s each | | output tokens / instance-seconds that are up
    (busy, idle or paused)
"""
# What only a window of history shows, of engines and trainers as they export it (`replay/observe/window_metrics.py`).
_OF_WINDOWS = """
train_s | trainer computes per step | seconds | less | | | seconds of compute / optimizer steps
instance_s_per_step | instance-seconds per step | number | less | | | seconds in which instances were there /
    optimizer steps
trained_samples | samples trained per step | number | | | | samples trained on / optimizer steps
pause_share | engines paused | share | | | | seconds in which the whole fleet stood still / window
running | requests running | number | | | | mean over time, whole fleet
waiting | requests waiting in the engines | number | less | | | mean over time, whole fleet
preemptions_per_s | preemptions per second | number | less | | | preempted requests / window
prefix_hit | prefix cache hits | share | more | | of prompt tokens | prompt tokens found in the cache / looked up
finished_s | requests finished per second | number | | | | requests that ended / window
aborted_share | requests aborted | share | less | | | requests that the client aborted / ended
length_share | requests cut by the length cap | share | | | | requests that reached max_tokens / ended
dropped_share | samples dropped | share | less | | | thrown away / (thrown away + trained)
response_tokens.mean | response tokens, mean | number | | | tokens | output tokens / requests that ended
response_tokens.p99 | response tokens, 99th percentile | number | | | | interpolated inside its bucket
mfu | trainer's model FLOPs utilization | share | more | | | mean over time
"""
_UNITS: Mapping[str, Unit] = {unit: unit for unit in get_args(Unit)}
_BETTER: Mapping[str, Better | None] = {"": None, "less": "less", "more": "more"}


def _read(table: str) -> Iterator[Quantity]:
    for name, title, unit, better, short, of, formula in table_rows(table):
        yield Quantity(name, title, _UNITS[unit], formula, _BETTER[better], short, of)


CATALOGUE: tuple[Quantity, ...] = tuple(_read(_OF_RUNS))
OBSERVED: tuple[Quantity, ...] = tuple(_read(_OF_WINDOWS))
WASTE: tuple[str, ...] = tuple(m.name for m in CATALOGUE if m.name.startswith("waste."))
METRICS: tuple[str, ...] = tuple(m.name for m in CATALOGUE)
BY_NAME: dict[str, Quantity] = {m.name: m for m in CATALOGUE}

# The order in which a window's metrics are shown.
_IN_A_WINDOW = """
step_s trainer_idle_fraction sync_fraction train_s instance_s_per_step trained_samples generated_tok_s
instance_tok_s tokens_per_trained_token pause_share running waiting queue_depth oldest_sample_age_steps kv_use
preemptions_per_s prefix_hit finished_s aborted_share length_share dropped_share response_tokens.mean
response_tokens.p99 mfu
"""
WINDOW_METRICS: tuple[str, ...] = tuple(_IN_A_WINDOW.split())
# Of runs of disaggregated engines alone, with evaluations alone, and of engines whose host keeps copies of KV blocks.
PREFILL_BUSY, EVALUATION_S, CACHE_HIT, HOST_HIT = _read("""
prefill_busy_fraction | prefill engines busy | share | | prefill busy | | seconds in which they compute prompts /
    seconds that they are up (engine.disaggregation)
evaluation_s | an evaluation | seconds | less | | | mean of last answer - first request, of evaluations
cache_hit | prompt tokens found in the KV cache | share | more | in cache | | found in the cache / prompt tokens
host_hit | prompt tokens that came from the host | share | more | from host | | loaded from host memory / prompt tokens
""")
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
# Of runs with time limits.
OF_LIMITS: tuple[Quantity, ...] = tuple(
    Quantity(f"stations.{what}.{name}", f"{what}s {title}", unit, formula.format(what), "less")
    for what in ("turn", "episode")
    for name, title, unit, formula in (
        ("late", "over time", "share", "{0}s whose time is over / {0}s that ended"),
        ("lost", "over time: rollouts lost per step", "number", "rollouts lost by it / steps"),
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
        ("usd", "cost per step", "money", "(GPU-hours of its engines x their price + an API's tokens) / steps", "less"),
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
# Of runs with an overflow alone.
OF_OVERFLOW: tuple[Quantity, ...] = tuple(
    Quantity(f"stations.{station}.{name}", f"{station}: {title}", unit, formula, "less")
    for station in ("tools", "reward", "judge", "teacher", "reference")
    for name, title, unit, formula in (
        ("overflow_share", "calls that overflow", "share", "calls that went to its overflow / calls made"),
        ("overflow_in_use", "places of its overflow in use", "number", "seconds of calls in its overflow / window"),
        ("overflow_usd", "cost of its overflow per step", "money", "price of what went to its overflow / steps"),
    )
)
# Of runs whose samples may be lost without another in their place.
(WHOLE,) = _read("""
whole_share | samples trained whole | share | more | whole | of the batch | samples learned from, not cut / batch
""")
# What some runs have alone.
RARE: tuple[Quantity, ...] = (*STATIONS, *OF_LIMITS, *OF_JUDGES, *OF_SPOT, *OF_OVERFLOW, WHOLE)
RARE_METRICS: tuple[str, ...] = tuple(m.name for m in RARE)
# All that a run may have; those of stations and of spot machines only where there are any.
RUN_METRICS: tuple[str, ...] = (*METRICS, *RARE_METRICS)
_ALL: dict[str, Quantity] = {
    m.name: m for m in (*CATALOGUE, *OBSERVED, PREFILL_BUSY, EVALUATION_S, CACHE_HIT, HOST_HIT, *RARE)
}

# What a user pays for, in money, time or quality of training; the other metrics say where it comes from. Throughput of
# an instance or a GPU falls by itself when a fleet grows, and is no regression if what the step costs is none.
_PAID_FOR = """
step_s trainer_idle_fraction cost_per_step instance_s_per_step oldest_sample_age_steps staleness_steps.mean
staleness_steps.p99 samples_lost.all samples_lost.longest_tenth dropped_share
"""
PAID_FOR: tuple[str, ...] = tuple(_PAID_FOR.split())


def quantity(name: str) -> Quantity:
    """The quantity of a name, of a run or of a window."""
    return _ALL[name]
