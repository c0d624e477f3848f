"""What a new weight version means to the instances that load it, and to admission once all of them have it."""

from __future__ import annotations

from fleetsim.engine.kernel.tables import ALL, CMD_NEW_EPOCH, CMD_RECOMPUTE
from fleetsim.policies.samples import IN_FLIGHT
from fleetsim.sim.admission import begin_window
from fleetsim.sim.buffer import Ids
from fleetsim.sim.run_state import RunState


def to_work_in_flight(job: RunState, unfinished: Ids, which: int = int(ALL)) -> int:
    """What the policy does to the work on an instance (or on all); returns how many groups were thrown away."""
    fleet, sync = job.fleet, job.scenario.sync
    discarded = 0
    policy = IN_FLIGHT[sync.in_flight]
    if policy.discards:
        discarded = job.discard(unfinished)
    elif policy.recomputes:
        fleet.command(CMD_RECOMPUTE, which, job.now)
    if sync.reset_prefix_cache:
        fleet.command(CMD_NEW_EPOCH, which)
    return discarded


def published(job: RunState, version: int) -> None:
    """Every instance serves `version` or a newer one."""
    job.progress.version = version
    begin_window(job.fleet, job.progress)
    job.top_up()
