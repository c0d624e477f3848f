"""Weight sync of the whole fleet at once: publish, pause, and what happens to work in flight."""

from __future__ import annotations

import numpy as np

from fleetsim.config.law_numbers import law_of
from fleetsim.policies.samples import AGE_ACTIONS, IN_FLIGHT
from fleetsim.sim.buffer import drop, ready_groups, too_old
from fleetsim.sim.records import SYNC_HELD, WAIT
from fleetsim.sim.rolling import offer
from fleetsim.sim.run_state import Process, RunState
from fleetsim.sim.version import published, to_work_in_flight


def hand_over(job: RunState, step: int, updates: float) -> Process:
    """The trainer's part of a publication after optimizer step `step`; the version contains `updates` steps.

    An earlier global one must be over, then the trainer is held for trainer_block_s. With a barrier or on shared GPUs
    nothing else can be done until the sync is over: it is held until then. Nobody waits for a rolling one. Returns the
    seconds in which the trainer was not held by the sync, but waited for samples: for those that a drain must end.
    """
    sync, progress = job.scenario.sync, job.progress
    job.trainer_does(SYNC_HELD, step)
    drained = yield from _until_over(job, step)
    progress.triggered += 1
    progress.updates.append(updates)
    progress.contained.append(progress.taken_groups)
    job.pulls = job.samples = 0
    leave_behind(job)
    if sync.scope == "rolling":
        job.env.process(offer(job, progress.triggered, step))
        yield job.env.timeout(job.times.trainer_block_s)
        return drained
    job.sync_done = job.env.process(synchronise(job, progress.triggered, step))
    yield job.env.timeout(job.times.trainer_block_s)
    yield job.env.timeout(0)  # at one time, the publication comes before the trainer's next step
    alone = job.scenario.fleet.placement == "colocated" or law_of(job.scenario).waits_for_trainer
    if alone:
        drained += yield from _until_over(job, step)
    return drained


def _until_over(job: RunState, step: int) -> Process:
    """The trainer can go on once the last global sync is over. Returns the seconds of that in which the fleet drained.

    They are written down when they are over, for only then is it known until when they lasted."""
    if job.sync_done is None or job.sync_done.processed:
        return 0.0
    asked = job.now
    yield job.sync_done
    began, ended = max(asked, job.drain[0]), job.drain[1]
    if ended <= began:
        return 0.0
    job.trainer_does(WAIT, step, began)
    job.trainer_does(SYNC_HELD, step, ended)
    return ended - began


def leave_behind(job: RunState) -> None:
    """What the new version makes too old goes at once, if the age action is an eager one."""
    scenario, fleet, version = job.scenario, job.fleet, job.progress.triggered
    action = AGE_ACTIONS[scenario.admission.age_action]
    if not action.at_publication:
        return
    finished = np.concatenate([ready_groups(fleet), fleet.world.blocked[: fleet.get("n_blocked")].astype(np.int64)])
    drop(fleet, finished[too_old(scenario, fleet, job.progress, finished, version)], job.now)
    if action.cancels:
        running = fleet.unfinished()
        job.discard(running[too_old(scenario, fleet, job.progress, running, version)])
    job.top_up()


def synchronise(job: RunState, version: int, step: int) -> Process:
    """Publishes `version`, made by optimizer step `step`, to all instances.

    publish_s pass while the engines go on; then `sync.in_flight` says what becomes of the work in flight
    (`policies/samples.py`). Requests that keep their cache stand still and go on with it.
    Groups sent after the pause belong to the new version.
    """
    env, fleet, sync = job.env, job.fleet, job.scenario.sync
    job.under_way += 1
    trigger = job.now
    if job.times.publish_s > 0:
        yield env.timeout(job.times.publish_s)
    policy = IN_FLIGHT[sync.in_flight]
    if policy.drains and fleet.get("in_flight") > 0:
        fleet.set(halted=1)
        job.under_way -= 1  # the drain is the fleet's own work: a fleet that cannot drain is stuck
        began = job.now
        yield job.fleet_empty()
        job.drain = began, job.now
        job.under_way += 1
    start, in_flight = job.now, fleet.get("in_flight")
    fleet.set(halted=1)
    discarded = to_work_in_flight(job, fleet.unfinished())
    if policy.pauses and job.scenario.fleet.placement != "colocated":
        fleet.hold(start, start + job.times.pause_s)
    if job.times.pause_s > 0:
        yield env.timeout(job.times.pause_s)
    fleet.serve_version(version)
    fleet.set(halted=0)
    published(job, version)
    job.syncs.append((version, step, job.progress.updates[version], trigger, start, job.now, in_flight, discarded))
    job.under_way -= 1
