"""Tail batching (RollPacker): short rounds train what finishes first, long rounds train what was put off."""

from __future__ import annotations

import numpy as np

from fleetsim.sim.run_state import Job


def begin_round(job: Job) -> None:
    """Begins a round. It is a long one when the groups that were put off fill a batch: then it has these groups and no
    others."""
    batch = job.scenario.groups_per_step
    job.progress.round_groups = None
    if job.scenario.buffer.leftover == "defer" and len(job.deferred) >= batch:
        again, job.deferred = job.deferred[:batch], job.deferred[batch:]
        job.fleet.draws.repeat(np.array(again, np.int64))
        job.progress.round_groups = batch


def put_off(job: Job) -> None:
    """The round has its batch: unfinished groups are aborted and wait for a long round."""
    late = job.fleet.unfinished()
    job.deferred.extend(int(g) for g in late)
    job.discard(late)
