"""The two pools: the `fleet` section, its instances and what goes wrong with them; the `trainer` section, its steps."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from fleetsim.config.base import (
    MAX_SECONDS,
    ConfigSection,
    Count,
    CountOrZero,
    Factor,
    Fraction,
    Interval,
    Name,
    Named,
    PositiveSeconds,
    Price,
    Seconds,
    beside_the_scenario,
    unsaid,
    wrong,
)
from fleetsim.config.spot_trace import most_machines, paid_share

# --- The `fleet` section: how many instances, how samples reach them, and what goes wrong with them.

Instances = Annotated[int, Field(ge=1, le=1_000_000)]
InstancesOrZero = Annotated[int, Field(ge=0, le=1_000_000)]
_POOL_NAME, _MOST_POOLS = re.compile(r"[\w-]{1,100}"), 16


class FailuresConfig(ConfigSection):
    """Instance failures: exponential times between them; lost work is queued again and counted."""

    mtbf_s: Annotated[float, Field(ge=1, le=MAX_SECONDS)] | None = Field(
        default=None, description="mean seconds between failures of one instance; null = never"
    )
    restart_s: Seconds = Field(default=300.0, description="seconds until a failed instance serves again")


class SpotConfig(ConfigSection):
    """Instances on spot machines: each is reclaimed after a notice, found again after a while, and started."""

    share: Fraction = Field(default=0.0, description="share of the instances (rounded) on spot machines")
    mean_life_s: Annotated[float, Field(ge=1, le=MAX_SECONDS)] = Field(
        default=14400.0, description="mean seconds that one serves before its notice; exponential"
    )
    notice_s: Seconds = Field(default=120.0, description="seconds from notice to end (AWS 120, Google and Azure 30)")
    mean_absence_s: Seconds = Field(default=600.0, description="mean seconds until another is found; exponential")
    start_s: Seconds = Field(default=180.0, description="seconds that one is paid before it serves (image, weights)")
    on_notice: Literal["finish", "move"] = Field(
        default="finish",
        description="work goes on to the end, and what is unfinished then begins again; or moves at once (re-prefill)",
    )
    zones: Count = Field(default=1, description="zones over which spot instances are spread")
    together: Fraction = Field(default=0.0, description="share of the others of its zone that one takes along")
    trace: Name | None = Field(
        default=None,
        description="instead of life and absence: a CSV (time_s, instances that can be had) or SkyPilot's JSON; it "
        "repeats, and each replication begins somewhere in it",
    )

    @model_validator(mode="before")
    @classmethod
    def _trace_beside_the_scenario(cls, given: Any, info: ValidationInfo) -> Any:
        return beside_the_scenario(given, "trace", info)

    def of(self, instances: int) -> int:
        """How many of so many instances are on spot machines."""
        return round(self.share * instances)

    def held_share(self, count: int) -> float:
        """The part of the time in which one of so many spot machines is paid for, in the long run of laws or trace.

        Raises InputError for a trace that is none.
        """
        notice_s = self.notice_s if self.on_notice == "finish" else 0.0  # a machine whose work moves is empty at once
        if self.trace is not None:
            return paid_share(self.trace, max(1, count), notice_s)
        paid = self.mean_life_s + notice_s + self.start_s
        return paid / (paid + self.mean_absence_s)


class LendingConfig(ConfigSection):
    """Placement colocated_lending: the trainer's GPUs serve rollout while it waits for samples."""

    instances: Count | None = Field(
        default=None, description="instances that the trainer's GPUs make; null = as many as fit on trainer.gpus"
    )
    return_at: Fraction = Field(
        default=1.0,
        description="share of the batch that is ready when the trainer calls its GPUs back; below 1 for a trainer that "
        "streams mini-batches",
    )


class RepackConfig(ConfigSection):
    """Tail consolidation (Laminar): the requests of nearly empty instances move to fuller ones that have room."""

    every_s: Interval | None = Field(default=None, description="seconds between two looks; null = never")
    below_kv_use: Fraction = Field(default=0.5, description="instances under this KV use, nothing waiting, are emptied")
    up_to_kv_use: Fraction = Field(default=0.9, description="KV use up to which a receiving instance is filled")


class PoolConfig(ConfigSection):
    """Instances of another make behind the same router, by the pool's name: other GPUs, or more of them each. All else
    is as in `engine`."""

    instances: InstancesOrZero = Field(default=1, description="how many; 0 = none")
    gpu: Name | None = Field(default=None, description="GPU type; null = engine.gpu")
    tp: Annotated[int, Field(ge=1, le=1024)] | None = Field(default=None, description="its GPUs; null = engine.tp")
    profile: Name | None = Field(default=None, description="for kind measured")
    instance_tok_s: Annotated[float, Field(gt=0, le=1e12)] | None = Field(default=None, description="for kind constant")
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="null = as in `engine`"
    )
    max_num_seqs: Count | None = Field(default=None, description="null = the default for its GPU")
    max_num_batched_tokens: Count | None = Field(default=None, description="null = likewise")
    kv_blocks: Count | None = Field(default=None, description="null = from its memory")
    weight: Factor | None = Field(
        default=None,
        description="samples that it is sent for each of a first instance; null = by tokens per second when full; 1 = "
        "the router knows no difference",
    )
    price_usd_per_gpu_h: Price | None = Field(default=None, description="US dollars; null = its list price")
    on_spot: bool = Field(default=False, description="all on spot machines, as fleet.spot says")


def _there(pools: dict[str, PoolConfig]) -> Named[PoolConfig]:
    """Those that have instances."""
    return Named({name: pool for name, pool in pools.items() if pool.instances})


class FleetConfig(ConfigSection):
    """The rollout instances and the client in front of them."""

    placement: Literal["disaggregated", "colocated", "colocated_lending"] = Field(
        default="disaggregated",
        description="own GPUs for rollout; the trainer's GPUs in turn; or own ones, and the trainer's while it waits",
    )
    instances: InstancesOrZero = Field(
        default=8,
        description="rollout engine replicas of engine.tp x engine.pp GPUs each, or of engine.disaggregation; 0 = the "
        "first of `pools` instead",
    )
    max_in_flight_samples: Count | None = Field(
        default=None, description="samples that the client keeps in flight over the whole fleet; null = no cap"
    )
    max_in_flight_samples_per_instance: Count | None = Field(
        default=None, description="samples in flight on one instance; null = no cap"
    )
    in_flight_unit: Literal["samples", "groups", "environments"] = Field(
        default="samples",
        description="what holds a place under these caps: a sample, until it is generated; or a group, which holds "
        "group_size places until its last sample has its reward (the cap per instance then counts over the whole "
        "fleet: so many for each instance); environments: a sample, but the places stand in groups of group_size, each "
        "with its own share of all that is let in (ROLL's agents)",
    )
    group_placement: Literal["together", "spread"] = Field(
        default="together", description="the samples of a group go to one instance, or anywhere"
    )
    routing: Literal["round_robin", "least_loaded", "prefix_affinity"] = Field(
        default="least_loaded", description="which instance takes the next sample or group"
    )
    imbalance_limit: CountOrZero = Field(
        default=8, description="prefix_affinity: samples above the least loaded instance before affinity gives way"
    )
    switch_s: Seconds = Field(default=0.0, description="colocated and lending: seconds to hand the GPUs over, each way")
    lending: LendingConfig = unsaid(LendingConfig)
    repack: RepackConfig = unsaid(RepackConfig)
    pools: Annotated[dict[str, PoolConfig], AfterValidator(_there), Field(max_length=_MOST_POOLS)] = Field(
        default_factory=Named, description="instances of other makes behind the same router"
    )
    first: Name | None = Field(default=None, description="the pool in the first one's place, where `instances` was 0")
    speed_factors: tuple[Factor, ...] = Field(
        default=(),
        strict=False,
        max_length=1_000_000,
        description="iteration time multiplier per instance (1.2 = 20 % slower); missing ones are 1.0",
    )
    straggler_share: Fraction = Field(default=0.0, description="share of the instances (rounded) that are slow")
    straggler_slowdown: Annotated[float, Field(ge=1, le=1e6)] = Field(
        default=1.0, description="iteration time multiplier of the slow instances"
    )
    failures: FailuresConfig = unsaid(FailuresConfig)
    spot: SpotConfig = unsaid(SpotConfig)

    @field_validator("pools", mode="before")
    @classmethod
    def _pools_have_names(cls, given: Any) -> Any:
        """Those that are there: one that is set to null is not."""
        if not isinstance(given, dict):
            return {} if given is None else given
        if not all(isinstance(name, str) and _POOL_NAME.fullmatch(name) for name in given):
            raise wrong("a pool's name has letters, digits, - and _ only", "rename it")
        return {name: pool for name, pool in given.items() if pool is not None}

    @property
    def pooled(self) -> int:
        """Instances of all other makes."""
        return sum(pool.instances for pool in self.pools.values())

    @property
    def on_spot(self) -> int:
        """How many of the instances are on spot machines: the last ones."""
        return self.spot.of(self.instances)

    @property
    def all_on_spot(self) -> int:
        """How many of all makes are."""
        return self._all_on_spot(self.instances)

    def _all_on_spot(self, instances: int) -> int:
        return self.spot.of(instances) + sum(pool.instances for pool in self.pools.values() if pool.on_spot)

    def held_share(self, instances: int) -> float:
        """`SpotConfig.held_share` where the first make has so many instances."""
        return self.spot.held_share(self._all_on_spot(instances))

    def never_had(self, instances: int) -> int:
        """Of these spot machines, those that the trace never has."""
        trace = self.spot.trace
        return max(0, self._all_on_spot(instances) - most_machines(trace)) if trace is not None else 0


# --- The `trainer` section: what one optimizer step costs.

Backend = Literal["fsdp", "megatron"]
ScalingPoint = Annotated[tuple[Count, PositiveSeconds], Field(strict=False)]


class PhaseConfig(ConfigSection):
    """One pass before the update (log-probs, reference model), named in the report."""

    name: Name = Field(description="as it appears in the report")
    fixed_s: Seconds = Field(default=0.0, description="seconds per optimizer step")
    per_token_s: Seconds = Field(default=0.0, description="seconds per trained token (prompt + output) of the batch")


class CheckpointConfig(ConfigSection):
    """Saving the trainer's state: seconds that are given, and those of writing its bytes."""

    every_steps: Count | None = Field(default=None, description="optimizer steps between checkpoints; null = never")
    stall_s: Seconds = Field(default=0.0, description="seconds that the trainer stands still for one, whoever writes")
    write_bytes_s: Annotated[float, Field(gt=0, le=1e15)] | None = Field(
        default=None, description="bytes per second that all ranks together write; null = no seconds beyond stall_s"
    )
    state_bytes: Annotated[float, Field(gt=0, le=1e18)] | None = Field(
        default=None,
        description="bytes of one; null = 14 a weight of trainer.recipe.model: itself 2, its master copy 4, Adam 8",
    )
    background: bool = Field(
        default=False,
        description="the bytes are written while the trainer goes on (asynchronous): it waits only where the one "
        "before is not written yet",
    )

    @property
    def costs(self) -> bool:
        """Whether there are checkpoints that take time."""
        return self.every_steps is not None and (self.stall_s > 0 or self.write_bytes_s is not None)


class TrainerFailuresConfig(ConfigSection):
    """Failures of the trainer, read by `fleetsim forecast`: it begins again from its last checkpoint."""

    mtbf_s: Annotated[float, Field(ge=1, le=MAX_SECONDS)] | None = Field(
        default=None, description="mean seconds between failures of the whole trainer; null = never"
    )
    restart_s: Seconds = Field(default=600.0, description="seconds until it trains again, from its last checkpoint")


class ScalingConfig(ConfigSection):
    """How the compute seconds change with the trainer's GPUs; they are given at trainer.gpus.

    Only plans that move GPUs between the pools use it. Checkpoints and weight sync do not scale.
    """

    parallel_share: Fraction | None = Field(
        default=None,
        description="share p of the seconds at trainer.gpus that more GPUs divide: on g GPUs they take "
        "(1 - p) + p * gpus / g times as long; null = 1 / (1 + gpus / 90), from published verl runs",
    )
    points: tuple[ScalingPoint, ...] = Field(
        default=(),
        strict=False,
        max_length=1000,
        description="measured [GPUs, seconds of a step]: between them a power law, beyond them the law above",
    )

    @field_validator("points")
    @classmethod
    def _every_count_once(cls, points: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
        """Sorted by GPUs. Two times for one count cannot both hold."""
        counts = [gpus for gpus, _ in points]
        if len(set(counts)) < len(counts):
            raise wrong("a GPU count stands there twice", "give one time for each GPU count")
        return tuple(sorted(points))


class RecipeConfig(ConfigSection):
    """How the batch is trained: read where the trainer's seconds are estimated (fleetsim/trainer)."""

    framework: Name | None = Field(
        default=None, description="whose trainer: verl, nemo-rl, prime-rl, skyrl, areal, trl...; null = any"
    )
    backend: Backend | None = Field(
        default=None,
        description="fully sharded weights (FSDP2, DTensor, ZeRO 3), or Megatron; null = fsdp up to 40 billion weights "
        "(mixtures: 20), else megatron",
    )
    model: Name | None = Field(default=None, description="what is trained; null = engine.model")
    gpu: Name | None = Field(default=None, description="the trainer's GPU; null = engine.gpu")
    tune: Literal["full", "lora"] | None = Field(
        default=None, description="all weights, or adapters; null = adapters where engine.lora is given"
    )
    recompute: bool = Field(default=True, description="activations are computed again in the backward pass")
    packing: bool = Field(default=True, description="sequences are packed; else padded to the longest")
    epochs: Count = Field(default=1, description="times that a batch is trained on")
    optimizer_steps: Count = Field(default=1, description="optimizer steps per epoch: equal parts of the batch")
    micro_tokens: Count = Field(default=16384, description="tokens of a micro-batch, per GPU")
    old_log_probs: bool = Field(default=True, description="a pass for log-probs of the policy before the update")
    reference: bool = Field(default=False, description="a pass for log-probs of a reference model")
    critic: bool = Field(default=False, description="a critic of the same size is trained as well")
    offload: Literal["none", "states", "adam"] = Field(
        default="none", description="optimizer states in host memory between updates; adam: its arithmetic, too"
    )
    precision: Literal["bf16", "fp8"] = Field(default="bf16", description="of matrix products")
    tp: Count | None = Field(default=None, description="tensor parallel ranks; null = the fastest that fit")
    pp: Count | None = Field(default=None, description="pipeline parallel ranks; null = the fastest that fit")
    cp: Count | None = Field(default=None, description="context parallel ranks; null = as few as fit")
    ep: Count | None = Field(default=None, description="expert parallel ranks; null = the fastest that fit")
    shards: Count | None = Field(
        default=None, description="GPUs that share fully sharded weights, of which the others hold copies; null = all"
    )
    experts: Literal["grouped", "looped"] = Field(
        default="grouped", description="a sharded mixture's experts: one product, or a visit each (transformers < 5)"
    )


class TrainerConfig(ConfigSection):
    """The trainer's GPUs, batch and compute time."""

    gpus: Count = Field(default=8, description="GPUs of the trainer")
    batch_samples: Count = Field(default=512, description="samples per optimizer step (B), a multiple of group_size")
    fixed_s: Seconds = Field(default=20.0, description="compute seconds per optimizer step, whatever the batch holds")
    per_token_s: Seconds = Field(default=0.0, description="seconds per trained token (prompt + output) of the batch")
    phases: tuple[PhaseConfig, ...] = Field(
        default=(), strict=False, max_length=100, description="passes before the update, in order"
    )
    minibatches: Count = Field(
        default=1,
        description="streaming: equal parts of the batch, each trained as soon as it is complete; fixed seconds are "
        "spread evenly over them",
    )
    recipe: RecipeConfig = unsaid(RecipeConfig)
    checkpoint: CheckpointConfig = unsaid(CheckpointConfig)
    failures: TrainerFailuresConfig = unsaid(TrainerFailuresConfig)
    scaling: ScalingConfig = unsaid(ScalingConfig)
