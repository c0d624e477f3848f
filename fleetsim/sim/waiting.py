"""The trainer waits for samples: until the buffer holds what the rules let it take."""

from __future__ import annotations

import numpy as np

from fleetsim.engine.kernel.tables import G_FILTERED
from fleetsim.sim import buffer
from fleetsim.sim.deadlock import wasting_error
from fleetsim.sim.run_state import MOST_WASTED_BATCHES, Process, RunState


def wait_for_groups(job: RunState, step: int, want: int) -> Process:
    """Waits until the buffer holds `want` groups that the rules let the trainer take; returns them, still in it.

    Groups too old to train are dropped whenever the trainer comes upon them. What a drop lets in from the door is
    looked at at once: nothing else may ever happen, because a full buffer stops generation.

    Raises StuckError when nothing but waste comes.
    """
    scenario, fleet = job.scenario, job.fleet
    retry_limit = scenario.workload.filter.retry_limit
    most = MOST_WASTED_BATCHES * scenario.groups_per_step
    dropped, before = 0, _filtered(job)
    job.begin_wait()
    while True:
        if fleet.get("n_ready") < want:
            yield job.batch_of(want)
        if retry_limit is not None and _filtered(job) - before > retry_limit:
            raise wasting_error(scenario, fleet)
        batch, old = buffer.pick(scenario, fleet, job.progress, want, step)
        if len(old):
            buffer.drop(fleet, old, job.now)
            dropped += len(old)
            if len(batch) < want and dropped > most:
                raise wasting_error(scenario, fleet)
            job.top_up()
        if len(batch) == want:
            return batch
        if not len(old) and fleet.get("n_ready") >= want:  # enough, but not those that are wanted
            yield job.next_group()


def _filtered(job: RunState) -> int:
    """Groups filtered so far; counted only where a retry limit asks for it."""
    if job.scenario.workload.filter.retry_limit is None:
        return 0
    return int(np.count_nonzero(job.fleet.world.groups["status"][: job.fleet.started()] == G_FILTERED))
