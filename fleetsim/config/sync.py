"""The `sync` section: when new weights reach the engines, what it costs, and what happens to work in flight."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fleetsim.config.base import ConfigSection, Count, Seconds
from fleetsim.config.link import LinkConfig
from fleetsim.policies.samples import InFlightName

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
    link: LinkConfig = LinkConfig()
