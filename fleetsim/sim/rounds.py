"""Tail batching (RollPacker): short rounds that keep what finishes first, and long rounds for what was put off."""

from __future__ import annotations

import numpy as np

from fleetsim.sim.run_state import Job


def begin_round(job: Job) -> None:
    """A round is long once the groups put off fill a batch: those groups again, and nothing beside them."""
    batch = job.scenario.groups_per_step
    job.progress.round_groups = None
    if job.scenario.buffer.leftover == "defer" and len(job.deferred) >= batch:
        again, job.deferred = job.deferred[:batch], job.deferred[batch:]
        job.fleet.draws.repeat(np.array(again, np.int64))
        job.progress.round_groups = batch


def put_off(job: Job) -> None:
    """The round has its batch: what is unfinished is aborted, and waits for a long round."""
    late = job.fleet.unfinished()
    job.deferred.extend(int(g) for g in late)
    job.discard(late)
