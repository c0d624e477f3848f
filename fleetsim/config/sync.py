"""The `sync` section: when and over what new weights reach the engines, what it costs, what work in flight does."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from fleetsim.config.base import ConfigSection, Count, CountOrZero, Fraction, Seconds, plain
from fleetsim.config.pools import Backend
from fleetsim.policies.samples import InFlightName

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
    link: LinkConfig = plain(LinkConfig)
