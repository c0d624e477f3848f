"""What rollout and trainer exchange: sections `admission` and `buffer` (samples), `sync` (weights), `evaluation`."""

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from fleetsim.config.base import ConfigSection, Count, CountOrZero, Fraction, Interval, PositiveSeconds, Seconds, unsaid
from fleetsim.config.pools import Backend, TrainerConfig
from fleetsim.config.workload import Length
from fleetsim.policies.law import LawName
from fleetsim.policies.samples import AgeActionName, BatchRuleName, InFlightName

# Counted in weight versions.
Age = Annotated[float, Field(ge=0, le=1e6)]


class AdaptiveConfig(ConfigSection):
    """Law adaptive: additive-increase, multiplicative-decrease on the KV cache, as prime-rl's orchestrator does it."""

    start_samples: Count = Field(default=64, description="samples in flight at the start")
    most_samples: Count = Field(default=1024, description="samples in flight at most")
    grow: Annotated[float, Field(gt=1, le=100)] = Field(default=1.25, description="factor of a step up")
    grow_below_kv: Fraction = Field(default=0.6, description="KV use under which the pool grows, once a turnover")
    trim_above_kv: Fraction = Field(default=0.8, description="KV use above which nothing new starts")
    cancel_above_kv: Fraction = Field(default=0.9, description="KV use above which the youngest groups are cancelled")
    target_kv: Fraction = Field(default=0.7, description="KV use that trimming and cancelling aim at")
    interval_s: Interval = Field(default=1.0, description="seconds between two looks at the engines")


class AdmissionConfig(ConfigSection):
    """The law that lets groups start, and what an old sample means."""

    law: LawName = Field(default="version_window", description="which group may start, and when")
    batches_ahead: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, description="law batches_ahead: batches that generation may be ahead of training"
    )
    # 4 as TRL (AsyncGRPOConfig.max_staleness) and SkyRL (fully_async.max_staleness_steps) have it, whose laws this one
    # is; AReaL's examples take 2, its paper 4 and 8 (arXiv 2505.24298). The repositories stand in the presets.
    max_staleness: Age = Field(
        default=4.0, description="laws version_window and target_step: eta, in weight versions; may be fractional"
    )
    staleness_threshold: Age = Field(
        default=0.1, description="law per_sync_window: share of a sync window's samples that may start beyond it (verl)"
    )
    async_ratio: Age = Field(
        default=0.0, description="law cumulative_ratio: batches that may start ahead of training (ROLL's alpha)"
    )
    extra_groups: CountOrZero = Field(
        default=0,
        description="law cumulative_ratio: groups that are kept running when the law's count is used up (ROLL's "
        "max_additional_running_prompts)",
    )
    adaptive: AdaptiveConfig = unsaid(AdaptiveConfig)
    pool_samples: Count | None = Field(default=None, description="law fixed_pool: samples in flight at all times")
    age_reference: Literal["submission", "oldest_token", "creation"] = Field(
        default="submission",
        description="whose weight version a group's age is counted from: when it was sent, of its oldest token, or "
        "when admission let it in",
    )
    age_action: AgeActionName = Field(
        default="train_anyway",
        description="what happens to a group older than max_age: it is trained; dropped when the trainer comes upon "
        "it; dropped at the publication that makes it too old; cancelled then, even in flight; the trainer waits for "
        "the groups that the next publication would make too old; or it fills its place in the batch and is masked",
    )
    max_age: Age | None = Field(
        default=None, description="age limit in weight versions, for every age_action but train_anyway"
    )


class BufferConfig(ConfigSection):
    """Finished samples between the fleet and the trainer."""

    capacity_samples: Count | None = Field(default=None, description="samples that fit; null = no limit")
    on_full: Literal["block", "drop_oldest"] = Field(default="block", description="what happens when it is full")
    batch_rule: BatchRuleName = Field(
        default="oldest_version_first", description="which finished samples make the next batch"
    )
    wait_for_oldest: bool = Field(
        default=False,
        description="oldest_version_first: an older version's unfinished groups are waited for before a newer is taken",
    )
    oversampling: Annotated[float, Field(ge=1, le=1000)] = Field(
        default=1.0, description="first_finished: groups started per group trained"
    )
    group_oversampling: Annotated[float, Field(ge=1, le=1000)] = Field(
        default=1.0, description="samples started per sample kept of a group: its first group_size to finish count"
    )
    leftover: Literal["abort", "carry_over", "defer"] = Field(
        default="abort",
        description="first_finished: groups that came too late are thrown away, kept for the next batch, or deferred "
        "to a long round of their own that starts once they fill a batch (tail batching)",
    )


# --- The `sync.link` section: what a weight sync moves, over what. Read only where `sync.transport` is given.
# The defaults are figures of vendors, of published measurements (docs/transports.md says which, and what was fitted on
# what), or assumed; each description ends with which of them it is.

Bytes = Annotated[int, Field(ge=1, le=10**18)]
Rate = Annotated[float, Field(gt=0, le=1e18)]

# A fully sharded trainer collects every tensor from all its ranks, one after the other, on the one that sends. Under
# Megatron each pipeline stage has its own layers whole within a few ranks, collects them in buckets while another stage
# sends, and sends them itself; stages take turns at the wire (radixark/miles, update_weight_from_distributed).
GATHER_BYTES_S: Mapping[Backend, float] = {"fsdp": 5.1e9, "megatron": 22.6e9}


class LinkConfig(ConfigSection):
    """Bytes, bandwidths in bytes per second, and seconds per tensor or message of one weight sync."""

    model_bytes: Bytes | None = Field(
        default=None, description="bytes of all weights as they travel; null = from engine.model and engine.dtype"
    )
    tensors: Count | None = Field(
        default=None, description="tensors of the checkpoint, a scale counted with its weight; null = from engine.model"
    )
    source: Literal["gather", "stage", "sharded"] | None = Field(
        default=None,
        description="the trainer puts full tensors together on one rank that sends them all; or every rank first "
        "collects its pipeline stage through its own card, in 16 bits (rdma_p2p of miles); or every rank sends its own "
        "share in the engine's format; null = gather for collective_broadcast, else sharded",
    )
    stages: Count | None = Field(
        default=None, description="source stage: pipeline stages of the trainer; null = trainer.recipe.pp, else 1"
    )
    fetch: Literal["slice", "whole"] = Field(
        default="slice",
        description="rdma_p2p: a GPU of an engine fetches what it keeps; or all weights, and its loader takes its part "
        "(NeMo-RL's nixl without shard_expert_weights)",
    )
    gather_bytes_s: Rate | None = Field(
        default=None,
        description="source gather: bytes that are put together per second for the rank that sends; null = 5.1 GB/s "
        "from a fully sharded trainer, 22.6 GB/s from Megatron (trainer.recipe.backend); fitted",
    )
    offloaded: bool = Field(
        default=False, description="the trainer's weights are in host memory and are copied back for the sync"
    )
    offload_bytes_s: Rate = Field(
        default=0.75e9, description="that copy, per trainer GPU, from pageable memory; published (verl issue 7060)"
    )
    pipelined: bool = Field(
        default=False,
        description="a process beside the engine takes the next bucket in while the engine loads one, as in "
        "checkpoint-engine; else the engine receives and loads in turns",
    )
    load: Literal["per_tensor", "in_place"] = Field(
        default="per_tensor",
        description="the engine loads tensor by tensor (load_weights); or the bytes land where it uses them",
    )
    tensor_s: Seconds = Field(
        default=0.16e-3, description="load per_tensor: seconds of an engine's host per tensor; fitted"
    )
    calls: Literal["batched", "per_tensor"] = Field(
        default="batched", description="one call for many tensors, or a call (RPC, HTTP, IPC handle) for each"
    )
    call_s: Seconds = Field(
        default=1.6e-3, description="calls per_tensor: seconds of one; published (huggingface/trl pull request 5249)"
    )
    latency_s: Seconds = Field(
        default=0.5, description="pausing, control messages and resuming, once a sync; assumed (hundreds of ms)"
    )
    nic_bytes_s: Rate = Field(
        default=50e9, description="network per GPU, one direction; vendor (ConnectX-7, 400 Gb/s, one per GPU)"
    )
    link_bytes_s: Rate | None = Field(
        default=None, description="between the GPUs of a node, one direction; null = engine.gpu's data sheet"
    )
    node_gpus: Count | None = Field(default=None, description="GPUs of a node; null = engine.gpu's usual server")
    pcie_bytes_s: Rate = Field(default=63e9, description="host to GPU, per GPU; vendor (PCIe 5.0 x16)")
    efficiency: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.88,
        description="share of the network's, the links' and PCIe's rates that large transfers reach; published "
        "(44.26 of 50 GB/s, PrimeIntellect-ai/prime-rl pull request 3341)",
    )
    changed_share: Fraction = Field(
        default=0.02, description="sparse_delta: share of the weights that a step changes; published (1 to 3 %)"
    )
    index_bytes: CountOrZero = Field(default=4, description="sparse_delta: bytes of a changed weight's position")
    delta_bytes_s: Rate = Field(
        default=0.86e9, description="sparse_delta: bytes of changes found, packed and applied per second; fitted"
    )
    delta_over: Literal["network", "storage"] = Field(
        default="network", description="sparse_delta: sent to the engines, or put into shared storage"
    )
    storage_write_bytes_s: Rate = Field(default=2e9, description="shared storage: written per trainer node; assumed")
    storage_read_bytes_s: Rate = Field(default=4e9, description="shared storage: read per rollout node; assumed")
    storage_total_bytes_s: Rate | None = Field(
        default=None, description="shared storage: read or written by all nodes together; null = no limit"
    )
    storage_latency_s: Seconds = Field(
        default=1.0, description="shared storage: from written to seen by the engines; assumed"
    )
    prefetch: bool = Field(
        default=False, description="shared storage: each node copies to its own memory before its engines pause"
    )
    relay_bytes_s: Rate = Field(
        default=102e9, description="relay: bytes that the trainer hands to the relay workers per second; fitted"
    )
    chunk_bytes: Bytes = Field(default=2**28, description="relay: bytes that a worker passes on at a time; assumed")


Transport = Literal["collective_broadcast", "rdma_p2p", "cuda_ipc", "checkpoint_shuttle", "sparse_delta", "relay"]


class SyncConfig(ConfigSection):
    """Three times, not one: publish is off the critical path, pause stops the engines, trainer_block the trainer."""

    trigger: Literal["steps", "pulls", "samples"] = Field(
        default="steps",
        description="what is counted between two publications: optimizer steps, the trainer's pulls (mini-batches of "
        "a streamed batch), or trained samples (then at the end of a step)",
    )
    every_steps: Count = Field(default=1, description="optimizer steps between two weight publications")
    every_pulls: Count | None = Field(default=None, description="trigger pulls: pulls between two publications")
    every_samples: Count | None = Field(default=None, description="trigger samples: samples between two publications")
    publish_s: Seconds | None = Field(
        default=None, description="seconds from the update to the weights being available; null = by transport, else 0"
    )
    pause_s: Seconds | None = Field(
        default=None,
        description="seconds that the engines stand still to load the weights; null = by transport, else 1",
    )
    trainer_block_s: Seconds | None = Field(
        default=None, description="seconds that the trainer waits for the hand-over; null = by transport, else 1"
    )
    in_flight: InFlightName = Field(default="keep", description="what happens to unfinished samples at a sync")
    reset_prefix_cache: bool = Field(default=True, description="cached prompts are forgotten at a sync")
    scope: Literal["global", "rolling"] = Field(
        default="global", description="all instances load at once, or some at a time while the others go on"
    )
    at_once: Count = Field(default=1, description="scope rolling: instances that load at the same time")
    transport: Transport | None = Field(
        default=None,
        description="how the weights travel: gives the times above that are null, from bytes and bandwidths (link)",
    )
    link: LinkConfig = unsaid(LinkConfig)


class EvaluationConfig(ConfigSection):
    """An evaluation after every `every_steps`-th optimizer step, with the weights of that step."""

    every_steps: Count | None = Field(default=None, description="optimizer steps between evaluations; null = never")
    samples: Count = Field(default=512, description="responses of one evaluation: prompts x tries of each")
    prompt_tokens: Length | None = Field(default=None, description="tokens of a prompt; null = as in training")
    output_tokens: Length | None = Field(default=None, description="tokens of a response; null = as in training")
    at: Literal["rollout", "trainer", "own"] = Field(
        default="rollout",
        description="engines: the rollout instances, beside their other requests; the trainer's GPUs, which train "
        "nothing meanwhile; or instances of its own, which are paid for the whole run",
    )
    instances: Count | None = Field(
        default=None, description="of at: own (null = 1), or at: trainer (null = as many as fit on trainer.gpus)"
    )
    blocking: bool = Field(
        default=True,
        description="the trainer waits for its end (at: trainer, always); else only where the next one is due earlier",
    )
    seconds: PositiveSeconds | None = Field(
        default=None, description="as measured; no engine is simulated for it then, and none is busy with it"
    )

    @property
    def own_instances(self) -> int:
        """Instances that do nothing else, and are paid for the whole run."""
        return (self.instances or 1) if self.every_steps is not None and self.at == "own" else 0

    @property
    def on_fleet(self) -> bool:
        """Whether its requests go through the rollout instances."""
        return self.every_steps is not None and self.at == "rollout" and self.seconds is None


def period_steps(trainer: TrainerConfig, evaluation: EvaluationConfig) -> int:
    """Optimizer steps after which evaluations and checkpoints come round again together; 1 without either."""
    saving = trainer.checkpoint
    return math.lcm(evaluation.every_steps or 1, (saving.every_steps or 1) if saving.costs else 1)
