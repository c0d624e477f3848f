"""The trainer's GPUs serve rollout while it waits for samples (verl's hybrid rollout with step switching)."""

from __future__ import annotations

import math

from fleetsim.engine.kernel.tables import CMD_MOVE, CMD_REVIVE, CMD_SWITCH_OFF
from fleetsim.sim.buffer import pick
from fleetsim.sim.records import SWITCH, WAIT
from fleetsim.sim.run_state import Process, RunState
from fleetsim.sim.waiting import wait_for_groups


def threshold_groups(job: RunState) -> int:
    """Groups that are ready when the trainer calls its GPUs back: return_at of a batch, one at least."""
    return max(1, math.ceil(job.scenario.fleet.lending.return_at * job.scenario.groups_per_step - 1e-9))


def _enough(job: RunState, step: int, wanted: int) -> bool:
    """Whether the rules would let the trainer take so many groups now."""
    batch, _ = pick(job.scenario, job.fleet, job.progress, wanted, step)
    return len(batch) == wanted


def lend(job: RunState, step: int) -> Process:
    """Lends the GPUs until enough groups are ready, if fewer are now; returns the seconds that the switching took.

    Each of the two switches takes switch_s. After the first, all requests in flight are routed again, to the lent
    instances too, and their prompts are computed again. When the GPUs are called back, their requests go to the other
    instances in the same way, and the GPUs switch once their last iteration has ended.
    """
    scenario, fleet, env = job.scenario, job.fleet, job.env
    wanted = threshold_groups(job)
    if _enough(job, step, wanted):
        return 0.0
    job.under_way += 1
    job.trainer_does(SWITCH, step)
    yield env.timeout(scenario.fleet.switch_s)
    job.under_way -= 1
    lent = range(fleet.own, fleet.own + fleet.lent)
    since = job.now
    for i in lent:
        fleet.serve_version(max(job.progress.version, job.loadable), i)
        fleet.command(CMD_REVIVE, i, job.now)
    for i in range(fleet.own):  # what is in flight spreads over them too: verl aborts it and routes it anew
        fleet.command(CMD_MOVE, i, job.now, -1)
    job.trainer_does(WAIT, step)
    yield from wait_for_groups(job, step, wanted)
    empty = [job.instance_empty(i) for i in lent]  # none of them takes the others' requests
    for i in lent:
        fleet.command(CMD_MOVE, i, job.now, -1)
    for i, emptied in zip(lent, empty, strict=True):
        if not emptied.processed:
            yield emptied
        fleet.command(CMD_SWITCH_OFF, i, job.now)
        job.lent_s += job.now - since
    job.under_way += 1
    job.trainer_does(SWITCH, step)
    yield env.timeout(scenario.fleet.switch_s)
    job.under_way -= 1
    return 2 * scenario.fleet.switch_s
