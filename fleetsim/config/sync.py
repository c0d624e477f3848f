"""The `sync` section: when new weights reach the engines, what it costs, and what happens to work in flight."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleetsim.config.base import Count, Seconds, Section, unsupported

TRANSPORTS = ("collective_broadcast", "rdma_p2p", "cuda_ipc", "checkpoint_shuttle", "sparse_delta", "relay")


class SyncConfig(Section):
    """Three times, not one: publish is off the critical path, pause stops the engines, trainer_block the trainer."""

    trigger: Literal["steps", "pulls", "samples"] = Field(
        default="steps",
        description="what is counted between two publications: optimizer steps, the trainer's pulls (mini-batches of "
        "a streamed batch), or trained samples (then at the end of a step)",
    )
    every_steps: Count = Field(default=1, description="optimizer steps between two weight publications")
    every_pulls: Count | None = Field(default=None, description="trigger pulls: pulls between two publications")
    every_samples: Count | None = Field(default=None, description="trigger samples: samples between two publications")
    publish_s: Seconds = Field(default=0.0, description="seconds from the update to the weights being available")
    pause_s: Seconds = Field(default=1.0, description="seconds that the engines stand still to load the weights")
    trainer_block_s: Seconds = Field(default=1.0, description="seconds that the trainer waits for the hand-over")
    in_flight: Literal["drain", "abort_discard", "abort_resume", "keep", "keep_recompute", "finish_on_old_weights"] = (
        Field(default="keep", description="what happens to unfinished samples at a sync")
    )
    reset_prefix_cache: bool = Field(default=True, description="cached prompts are forgotten at a sync")
    scope: Literal["global", "rolling"] = Field(
        default="global", description="all instances load at once, or some at a time while the others go on"
    )
    at_once: Count = Field(default=1, description="scope rolling: instances that load at the same time")
    transport: (
        Annotated[
            Literal["collective_broadcast", "rdma_p2p", "cuda_ipc", "checkpoint_shuttle", "sparse_delta", "relay"],
            unsupported(*TRANSPORTS),
        ]
        | None
    ) = Field(default=None, description="how the weights travel; null = the three times above are given")
