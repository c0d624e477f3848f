"""Instances fail and come back; the fleet is resized."""

from __future__ import annotations

import numpy as np

from fleetsim.engine.kernel.tables import ACC_OFF, CMD_CLOSE, CMD_KILL, CMD_REOPEN, CMD_REVIVE, CMD_SWITCH_OFF, DOWN
from fleetsim.sim.fleet_settings import most_groups
from fleetsim.sim.run_state import Process, RunState
from fleetsim.workload.streams import stream


def fail(job: RunState, i: int) -> Process:
    """Instance i fails at exponential intervals; its work is queued again, and it serves again after restart_s.

    Instances beyond `job.size` do not fail. Every instance has its own stream, so adding one does not move the
    failures of the others.
    """
    failures = job.scenario.fleet.failures
    assert failures.mtbf_s is not None
    draws: np.random.Generator = stream(job.scenario.run.seed, job.replication, f"failure {i}")
    while True:
        yield job.env.timeout(float(draws.exponential(failures.mtbf_s)))
        if i >= job.size or job.fleet.world.instances["kind"][i] == DOWN:
            continue
        down = job.now
        job.under_way += 1
        job.fleet.command(CMD_KILL, i, down)
        yield job.env.timeout(failures.restart_s)
        if i < job.size and i not in job.lost and job.fleet.world.instances["kind"][i] == DOWN:
            _revive(job, i)
        job.under_way -= 1
        job.failures.append((i, down, job.now))


def _revive(job: RunState, i: int) -> None:
    """The instance comes up, with the newest weights that it can load; it is a new process."""
    if job.scraper is not None:
        job.scraper.begin_again(i, job.now)
    job.fleet.serve_version(max(job.progress.version, job.loadable), i)
    job.fleet.command(CMD_REVIVE, i, job.now)


def lose(job: RunState, i: int) -> None:
    """Instance i fails for good: its work is queued again, its GPUs stay on the bill."""
    job.lost.add(i)
    job.fleet.command(CMD_KILL, i, job.now)


def resize(job: RunState, instances: int) -> None:
    """The rebalance: instances beyond the new count take no more work and are given back once empty."""
    rows = job.fleet.world.instances
    for i in range(min(job.size, instances), max(job.size, instances)):
        if i >= instances:
            job.fleet.command(CMD_CLOSE, i)
        elif rows["kind"][i] == DOWN:
            job.lost.discard(i)
            _revive(job, i)
        else:  # it was about to be given back
            job.fleet.command(CMD_REOPEN, i, job.now)
    job.size = instances
    job.fleet.set(cap_groups=most_groups(job.scenario, instances))


def give_back_closed(job: RunState) -> None:
    """Closed instances that have finished their work leave the bill."""
    rows = job.fleet.world.instances
    for i in range(job.size, job.fleet.own):
        if rows["account"][i] != ACC_OFF:
            job.fleet.command(CMD_SWITCH_OFF, i, job.now)
