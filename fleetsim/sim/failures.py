"""Instances fail and come back; the fleet is resized."""

from __future__ import annotations

import numpy as np

from fleetsim.engine.kernel.tables import ACC_OFF, CMD_CLOSE, CMD_KILL, CMD_REOPEN, CMD_REVIVE, CMD_SWITCH_OFF, DOWN
from fleetsim.errors import Problem, StuckError
from fleetsim.sim.fleet_settings import most_groups
from fleetsim.sim.run_state import Process, RunState
from fleetsim.workload.streams import stream

# Losses of an instance within one step, beyond which nothing will ever be complete.
_HOPELESS = 200


def fail(job: RunState, i: int) -> Process:
    """Instance i fails at exponential intervals; its work is queued again, and it serves again after restart_s.

    Instances that were given back do not fail. Every instance has its own stream, so adding one does not move the
    failures of the others.
    """
    failures = job.scenario.fleet.failures
    assert failures.mtbf_s is not None
    draws: np.random.Generator = stream(job.scenario.run.seed, job.replication, f"failure {i}")
    while True:
        yield job.env.timeout(float(draws.exponential(failures.mtbf_s)))
        if not job.has(i) or job.fleet.world.instances["kind"][i] == DOWN:
            continue
        row, down = len(job.failures), job.now
        job.failures.append((i, down, np.inf))
        job.under_way += 1
        job.fleet.command(CMD_KILL, i, down)
        count_loss(job, "fleet.failures.mtbf_s", failures.mtbf_s)
        yield job.env.timeout(failures.restart_s)
        again = job.has(i) and i not in job.lost and i not in job.reclaimed
        if again and job.fleet.world.instances["kind"][i] == DOWN:
            revive(job, i)
        job.under_way -= 1
        job.failures[row] = (i, down, job.now)


def revive(job: RunState, i: int) -> None:
    """The instance comes up, with the newest weights that it can load; it is a new process."""
    if job.scraper is not None:
        job.scraper.begin_again(i, job.now)
    job.fleet.serve_version(max(job.progress.version, job.loadable), i)
    job.fleet.command(CMD_REVIVE, i, job.now)


def count_loss(job: RunState, path: str, mean_s: float) -> None:
    """An instance lost its work. path, mean_s: the setting of the mean seconds between two losses.

    Raises StuckError once every instance was lost so often in one step that no batch will ever be complete.
    """
    step, lost = job.losses
    job.losses = (len(job.steps), lost + 1 if step == len(job.steps) else 1)
    if job.losses[1] > _HOPELESS * job.size:
        rule = f"step {job.losses[0]} began {job.losses[1]:,} losses ago: what is generated never gets to its end"
        remedy = "at least the seconds of a long response"
        raise StuckError("instances are lost before they finish anything", [Problem(path, mean_s, rule, remedy)])


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
        elif i in job.reclaimed:  # its machine comes back by itself
            job.lost.discard(i)
        elif rows["kind"][i] == DOWN:
            job.lost.discard(i)
            revive(job, i)
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
