"""The `sync` section: when new weights reach the engines, what it costs, and what happens to work in flight."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleetsim.config.base import Count, Seconds, Section, unsupported

TRANSPORTS = ("collective_broadcast", "rdma_p2p", "cuda_ipc", "checkpoint_shuttle", "sparse_delta", "relay")


class SyncConfig(Section):
    """Three times, not one: publish is off the critical path, pause stops the engines, trainer_block the trainer."""

    trigger: Annotated[Literal["steps", "pulls", "samples"], unsupported("pulls", "samples")] = Field(
        default="steps", description="what is counted between two publications"
    )
    every_steps: Count = Field(default=1, description="optimizer steps between two weight publications")
    publish_s: Seconds = Field(default=0.0, description="seconds from the update to the weights being available")
    pause_s: Seconds = Field(default=1.0, description="seconds that the engines stand still to load the weights")
    trainer_block_s: Seconds = Field(default=1.0, description="seconds that the trainer waits for the hand-over")
    in_flight: Literal["drain", "abort_discard", "abort_resume", "keep", "keep_recompute", "finish_on_old_weights"] = (
        Field(default="keep", description="what happens to unfinished samples at a sync")
    )
    reset_prefix_cache: bool = Field(default=True, description="cached prompts are forgotten at a sync")
    scope: Annotated[Literal["global", "rolling"], unsupported("rolling")] = Field(
        default="global", description="all instances load at once, or one after the other"
    )
    transport: (
        Annotated[
            Literal["collective_broadcast", "rdma_p2p", "cuda_ipc", "checkpoint_shuttle", "sparse_delta", "relay"],
            unsupported(*TRANSPORTS),
        ]
        | None
    ) = Field(default=None, description="how the weights travel; null = the three times above are given")
