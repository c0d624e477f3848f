"""The trainer's GPUs serve rollout while it waits for samples (verl's hybrid rollout with step switching)."""

from __future__ import annotations

import math

from fleetsim.engine.kernel.tables import CMD_CLOSE, CMD_MOVE, CMD_REVIVE, CMD_SWITCH_OFF
from fleetsim.sim.buffer import pick
from fleetsim.sim.job import Job, Process


def threshold_groups(job: Job) -> int:
    """Groups that are ready when the trainer calls its GPUs back: return_at of a batch, one mini-batch at least."""
    batch = job.scenario.groups_per_step
    wanted = math.ceil(job.scenario.fleet.lending.return_at * batch - 1e-9)
    return min(batch, max(wanted, batch // job.scenario.trainer.minibatches))


def _enough(job: Job, step: int, wanted: int) -> bool:
    """Whether the rules would let the trainer take so many groups now."""
    batch, _ = pick(job.scenario, job.fleet, job.progress, wanted, step)
    return len(batch) == wanted


def lend(job: Job, step: int) -> Process:
    """Lends the GPUs until enough groups are ready, if fewer are now; returns the seconds that the switching took.

    Each way takes switch_s. When they are called back their requests go to the other instances and prefill again;
    the GPUs change hands once the last iteration has ended.
    """
    scenario, fleet, env = job.scenario, job.fleet, job.env
    wanted = threshold_groups(job)
    if _enough(job, step, wanted):
        return 0.0
    job.under_way += 1
    yield env.timeout(scenario.fleet.switch_s)
    job.under_way -= 1
    lent = range(fleet.own, fleet.own + fleet.lent)
    since = job.now
    for i in lent:
        fleet.serve_version(max(job.progress.version, job.loadable), i)
        fleet.command(CMD_REVIVE, i, job.now)
    job.begin_wait()
    while not _enough(job, step, wanted):
        yield job.batch_of(wanted) if fleet.get("n_ready") < wanted else job.next_group()
    for i in lent:
        fleet.command(CMD_CLOSE, i)
        fleet.command(CMD_MOVE, i, job.now, -1)
        yield job.instance_empty(i)
        fleet.command(CMD_SWITCH_OFF, i, job.now)
    job.lent_s += fleet.lent * (job.now - since)
    job.under_way += 1
    yield env.timeout(scenario.fleet.switch_s)
    job.under_way -= 1
    return 2 * scenario.fleet.switch_s
