"""Instances fail and come back; the fleet is resized."""

from __future__ import annotations

import numpy as np

from fleetsim.engine.kernel.tables import (
    ACC_OFF,
    CMD_CLOSE,
    CMD_KILL,
    CMD_REOPEN,
    CMD_REVIVE,
    CMD_SWITCH_OFF,
    DOWN,
)
from fleetsim.sim.job import Job, Process
from fleetsim.workload.streams import stream


def fail(job: Job, i: int, size: list[int]) -> Process:
    """Instance i fails at exponential intervals; its work is queued again, and it serves again after restart_s.

    size[0]: instances that the fleet should have; those beyond it do not fail. Every instance has its own stream, so
    adding one does not move the failures of the others.
    """
    failures = job.scenario.fleet.failures
    assert failures.mtbf_s is not None
    draws: np.random.Generator = stream(job.scenario.run.seed, job.replication, f"failure {i}")
    while True:
        yield job.env.timeout(float(draws.exponential(failures.mtbf_s)))
        if i >= size[0] or job.fleet.world.instances["kind"][i] == DOWN:
            continue
        down = job.now
        job.under_way += 1
        job.fleet.command(CMD_KILL, i, down)
        yield job.env.timeout(failures.restart_s)
        if i < size[0] and job.fleet.world.instances["kind"][i] == DOWN:
            job.fleet.command(CMD_REVIVE, i, job.now)
        job.under_way -= 1
        job.failures.append((i, down, job.now))


def resize(job: Job, size: list[int], instances: int) -> None:
    """The rebalance: instances beyond the new count take no more work and are given back once empty."""
    rows = job.fleet.world.instances
    for i in range(min(size[0], instances), max(size[0], instances)):
        if i >= instances:
            job.fleet.command(CMD_CLOSE, i)
        elif rows["kind"][i] == DOWN:
            job.fleet.command(CMD_REVIVE, i, job.now)
        else:  # it was about to be given back
            job.fleet.command(CMD_REOPEN, i, job.now)
    size[0] = instances


def give_back_closed(job: Job, size: list[int]) -> None:
    """Closed instances that have finished their work leave the bill."""
    rows = job.fleet.world.instances
    for i in range(size[0], len(rows)):
        if rows["account"][i] != ACC_OFF:
            job.fleet.command(CMD_SWITCH_OFF, i, job.now)
