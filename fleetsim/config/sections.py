"""What a scenario is made of: its keys and sections, each right by itself. Whether they fit together: `rules.py`."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import TypeIs

from fleetsim.config.base import (
    MAX_COUNT,
    ConfigSection,
    CountOrZero,
    Factor,
    Fraction,
    Name,
    PositiveSeconds,
    Price,
    unsaid,
    wrong,
)
from fleetsim.config.engine import EngineConfig
from fleetsim.config.exchange import AdmissionConfig, BufferConfig, EvaluationConfig, SyncConfig, period_steps
from fleetsim.config.pools import FleetConfig, Instances, TrainerConfig
from fleetsim.config.stations import StationsConfig
from fleetsim.config.tree import is_given, tree_of, unknown_path
from fleetsim.config.workload import WorkloadConfig

# --- The `cost` section: what a GPU-hour of either pool costs.


class CostConfig(ConfigSection):
    """Prices of both pools. A null price is that of the pool's GPU type."""

    instance_price_usd_per_gpu_h: Price | None = Field(
        default=None, description="US dollars per rollout GPU and hour; null = of its type, from a table"
    )
    trainer_price_usd_per_gpu_h: Price | None = Field(
        default=None, description="US dollars per trainer GPU and hour; null = of its type, from the table"
    )
    spot_price_usd_per_gpu_h: Price | None = Field(
        default=None, description="US dollars per rollout GPU and hour on spot; null = 0.4 of the price on demand"
    )
    market: Literal["neocloud", "hyperscaler"] = Field(
        default="neocloud", description="whose list prices on demand stand in: calibration/gpu_prices.csv"
    )
    prices: Name | None = Field(
        default=None, description="a CSV file with the columns gpu and usd_per_gpu_h, which goes before the shipped one"
    )


# --- The `published` section: what a real run came to, to be printed beside the prediction.


class PublishedConfig(ConfigSection):
    """A published outcome, printed beside the prediction."""

    step_s: PositiveSeconds | None = Field(default=None, description="seconds per optimizer step, as published")
    tok_s_per_gpu: Annotated[float, Field(gt=0, le=1e12)] | None = Field(
        default=None, description="tokens per second and GPU, as published (say in note which tokens and GPUs)"
    )
    bottleneck: str | None = Field(default=None, max_length=1000, description="what the authors found to bind")
    note: str = Field(default="", max_length=10_000, description="how the figures were read")


# --- What a run showed of a value of a scenario: beside the value itself, how sure it is, and where it was read.

_Number = Annotated[float, Field(ge=0, le=1e15)]


class ObservedConfig(ConfigSection):
    """One quantity that a run showed. The interval holds the truth in eight of ten cases."""

    path: Annotated[str, Field(max_length=1000)] = Field(description="dotted path of the value that it became")
    what: Name = Field(description="as reports call it")
    value: _Number = Field(description="as observed, in `unit`; what the path holds follows from it")
    low: _Number = Field(description="lower end of the interval")
    high: _Number = Field(description="upper end of the interval")
    unit: Annotated[str, Field(max_length=40)] = Field(default="", description="s, tokens...; empty = a plain number")
    source: Annotated[str, Field(max_length=1000)] = Field(description="the file or server, and the metric in it")
    steps: CountOrZero = Field(default=0, description="optimizer steps that it is the mean of; 0 = not counted so")

    @property
    def factors(self) -> tuple[float, float]:
        """The ends of the interval over the value."""
        return (self.low / self.value, self.high / self.value) if self.value > 0 else (1.0, 1.0)


# --- The `targets` section: what a recommended fleet must hold.

# The share of its cycle that the runbook lets a trainer wait.
RUNBOOK_IDLE = 0.05


class TargetsConfig(ConfigSection):
    """What a recommended fleet must hold; null = not asked for."""

    trainer_idle_fraction: Fraction | None = Field(default=None, description="sample-wait / cycle, at most")
    staleness_p99_steps: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        default=None, description="99th percentile of the trained samples' staleness in steps, at most"
    )
    step_s: PositiveSeconds | None = Field(default=None, description="seconds per optimizer step, at most")
    cost_per_step: Annotated[float, Field(gt=0, le=1e12)] | None = Field(
        default=None, description="US dollars per optimizer step, at most"
    )
    worth: Annotated[float, Field(ge=0, le=10)] = Field(
        default=1.0,
        description="per cent of a step's cost that one per cent of its time is worth, where counts are held "
        "against each other",
    )
    headroom: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.8, description="the runbook's derate of an instance's rate, for the rate-matching arithmetic"
    )

    @property
    def idle_limit(self) -> float:
        """The share of its cycle that a trainer may wait before it is worth a word: the target, else the runbook's."""
        return RUNBOOK_IDLE if self.trainer_idle_fraction is None else self.trainer_idle_fraction


# --- The `run` section: how much is simulated, and what changes on the way.

Steps = Annotated[int, Field(ge=1, le=10_000_000)]


class EventConfig(ConfigSection):
    """One change during the run: the rebalance, or something that becomes slower, longer, or is lost.

    Factors are of what the scenario says, not of what an earlier event has made of it.
    """

    step: CountOrZero = Field(description="takes place when this optimizer step (from 0) begins")
    instances: Instances | None = Field(default=None, description="resize the fleet to this many instances")
    trainer_slowdown: Factor | None = Field(default=None, description="multiply the trainer's compute time by this")
    sync_slowdown: Factor | None = Field(default=None, description="multiply all times of a weight sync by this")
    length_factor: Factor | None = Field(
        default=None, description="multiply the output tokens of what is sent from now on by this; the cap still holds"
    )
    lose_instance: CountOrZero | None = Field(
        default=None, description="this instance (from 0) fails and does not come back; its work is queued again"
    )

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        changes = sorted(EventConfig.model_fields.keys() - {"step"})
        if all(getattr(self, name) is None for name in changes):
            raise wrong("an event must change something", f"give one of {', '.join(changes)}")
        return self


class RunConfig(ConfigSection):
    """How much is simulated."""

    steps: Steps | None = Field(
        default=None, description="optimizer steps to simulate; null = until the mean of its steps is known"
    )
    warmup_steps: CountOrZero | None = Field(
        default=None, description="first steps left out of the metrics; null = by the stated rule"
    )
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(default=0, description="same seed, same result")
    replications: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=5, description="independent runs behind every interval"
    )
    events: tuple[EventConfig, ...] = Field(
        default=(), strict=False, max_length=10_000, description="changes during the run, sorted by step"
    )


# --- Values that follow another one: a system whose queue holds two batches holds two of every other batch as well.

BATCH, GROUP, STALENESS = "trainer.batch_samples", "workload.group_size", "admission.max_staleness"
Follower = Literal[
    "fleet.max_in_flight_samples",
    "fleet.max_in_flight_samples_per_instance",
    "admission.pool_samples",
    "admission.adaptive.start_samples",
    "admission.adaptive.most_samples",
    "buffer.capacity_samples",
]
Followers = Annotated[tuple[Follower, ...], Field(strict=False, max_length=10)]


class FollowConfig(ConfigSection):
    """Values of this file that change with another batch, group size or staleness, unless they are given beside it."""

    batch: Followers = Field(default=(), description="values in multiples of trainer.batch_samples")
    group: Followers = Field(default=(), description="values in multiples of workload.group_size")
    at_least_batch: Followers = Field(default=(), description="values of their own that hold at least one whole batch")
    staleness: Followers = Field(default=(), description="values in multiples of admission.max_staleness")
    window: Followers = Field(default=(), description="values in multiples of admission.max_staleness + 1")


# What each kind of them follows, and what is added to it.
_REFERENCES = (
    ("batch", BATCH, 0),
    ("group", GROUP, 0),
    ("at_least_batch", BATCH, 0),
    ("staleness", STALENESS, 0),
    ("window", STALENESS, 1),
)


def followed(before: Mapping[str, Any], after: Mapping[str, Any], said: Collection[str]) -> dict[str, Any]:
    """`after`, a raw scenario, with the values that follow what changed since `before`; they become assumed.

    Whole groups, rounded up. said: paths that were given for `after`: those stay. What is no number stays as well:
    the validation tells about it.
    """
    changes: dict[str, int] = {}
    follow, group = _at(after, "follow"), _count(after, GROUP)
    for kind, reference, more in _REFERENCES:
        names = follow.get(kind) if isinstance(follow, Mapping) else None
        if not names or not isinstance(names, (list, tuple)):
            continue
        old, new = (_reference(raw, reference, more) for raw in (before, after))
        if not old or not new or group is None or old == new:
            continue
        for path in names:
            value = changes.get(path, _at(after, path)) if isinstance(path, str) else None
            if is_count(value) and not is_given(path, said):
                there = max(value, new) if kind == "at_least_batch" else -(-value * new // (old * group)) * group
                if there != value:
                    changes[path] = int(there)
    result = dict(after)
    for path, count in changes.items():
        here = result
        *above, last = path.split(".")
        for key in above:
            here[key] = dict(here[key])
            here = here[key]
        here[last] = count
    assumed = result.get("assumed") or ()
    if changes and isinstance(assumed, (list, tuple)):
        result["assumed"] = [*assumed, *(path for path in changes if path not in assumed)]
    return result


def is_count(value: Any) -> TypeIs[int]:
    """Whether a raw value is a whole number above 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _at(raw: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of a raw mapping, None where there is none."""
    value: Any = raw
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _count(raw: Mapping[str, Any], path: str) -> int | None:
    """The batch or the group size, the default where it is not given; None where it is no count."""
    value = _at(raw, path)
    if value is None:
        return unsaid(TrainerConfig).batch_samples if path == BATCH else unsaid(WorkloadConfig).group_size
    return value if is_count(value) else None


def _reference(raw: Mapping[str, Any], path: str, more: int) -> float | None:
    """What a value follows, None where it is no number."""
    if path != STALENESS:
        return _count(raw, path)
    value = _at(raw, path)
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    return value + more if number else None


def _names_a_value(path: str) -> str:
    """The path, if a scenario has such a key."""
    problem = unknown_path(tree_of(Sections), path)
    if problem is not None:
        remedy = problem.remedy if problem.rule == "unknown key" else f"name the list as a whole ({problem.rule})"
        raise wrong("names no value of a scenario", remedy)
    return path


def _of_a_value(observed: ObservedConfig) -> ObservedConfig:
    """The record, if a scenario has the key that it speaks of."""
    _names_a_value(observed.path)
    return observed


AssumedPath = Annotated[str, Field(max_length=1000), AfterValidator(_names_a_value)]
Observed = Annotated[ObservedConfig, AfterValidator(_of_a_value)]


class Sections(ConfigSection):
    """The keys and sections of a scenario, before anybody asked whether they fit together."""

    schema_version: Literal[1] = Field(default=1, description="version of this file format")
    name: Annotated[str, Field(max_length=1000)] = Field(default="scenario", description="as reports call it")
    description: Annotated[str, Field(max_length=100_000)] = Field(default="", description="what it is for")
    source: Annotated[str, Field(max_length=100_000)] = Field(default="", description="where its figures come from")
    published: PublishedConfig | None = Field(default=None, description="published outcome, if it is a real run")
    assumed: tuple[AssumedPath, ...] = Field(
        default=(),
        strict=False,
        max_length=1000,
        description="dotted paths (workload.output_tokens.mean) of values in this file that nobody measured: reports "
        "name them as assumed; take a path out when its value is yours",
    )
    observed: tuple[Observed, ...] = Field(
        default=(),
        strict=False,
        max_length=100,
        description="what a run showed of values in this file, with intervals: plans take these for how far an input "
        "may be off; a value that is given anew loses its record",
    )
    follow: FollowConfig = unsaid(FollowConfig)
    workload: WorkloadConfig = unsaid(WorkloadConfig)
    stations: StationsConfig = unsaid(StationsConfig)
    engine: EngineConfig = unsaid(EngineConfig)
    fleet: FleetConfig = unsaid(FleetConfig)
    trainer: TrainerConfig = unsaid(TrainerConfig)
    sync: SyncConfig = unsaid(SyncConfig)
    admission: AdmissionConfig = unsaid(AdmissionConfig)
    buffer: BufferConfig = unsaid(BufferConfig)
    evaluation: EvaluationConfig = unsaid(EvaluationConfig)
    targets: TargetsConfig = unsaid(TargetsConfig)
    cost: CostConfig = unsaid(CostConfig)
    run: RunConfig = unsaid(RunConfig)

    @property
    def groups_per_step(self) -> int:
        """Prompt groups that one optimizer step trains."""
        return self.trainer.batch_samples // self.workload.group_size

    @property
    def period_steps(self) -> int:
        """Optimizer steps after which what happens every N steps comes round again; 1 where nothing does."""
        return period_steps(self.trainer, self.evaluation)
