"""A rolling weight sync: some instances at a time load the newest version while the others go on."""

from __future__ import annotations

import numpy as np
import simpy

from fleetsim.engine.kernel.tables import CMD_REOPEN, DOWN, UNSENT
from fleetsim.policies.samples import IN_FLIGHT
from fleetsim.sim.buffer import Ids
from fleetsim.sim.run_state import Process, RunState
from fleetsim.sim.version import published, to_work_in_flight


def offer(job: RunState, version: int, step: int) -> Process:
    """A version may be loaded publish_s seconds after the trainer has made it."""
    job.under_way += 1
    publish_s = job.times.publish_s  # an event may change it meanwhile
    job.offered[version] = (step, job.now, job.now + publish_s)
    yield job.env.timeout(publish_s)
    job.under_way -= 1
    job.loadable = max(job.loadable, version)
    news(job).succeed()
    job.newer = None


def news(job: RunState) -> simpy.Event:
    """An event: another version may be loaded."""
    if job.newer is None:
        job.newer = job.env.event()
    return job.newer


def follow(job: RunState, i: int, turns: simpy.Resource) -> Process:
    """For the whole run, instance i loads the newest version whenever there is one and it is the instance's turn."""
    while True:
        if job.fleet.world.instances["version"][i] >= job.loadable:
            yield news(job)
        with turns.request() as turn:
            yield turn
            if job.fleet.world.instances["kind"][i] == DOWN:
                job.fleet.serve_version(job.loadable, i)  # it comes up with the newest weights
            else:
                yield from _load(job, i)
            _note_published(job)


def _load(job: RunState, i: int) -> Process:
    """Loads a version. `sync.in_flight` says what becomes of the work on the instance, as in a global sync; `drain`
    waits for this instance alone."""
    fleet, sync, rows = job.fleet, job.scenario.sync, job.fleet.world.instances
    drain = IN_FLIGHT[sync.in_flight].drains and bool(rows["accepting"][i])
    if drain:
        yield job.instance_empty(i)
    version, start = job.loadable, job.now
    if to_work_in_flight(job, _groups_on(job, i), i):
        job.top_up()
    if IN_FLIGHT[sync.in_flight].pauses:
        fleet.hold(start, start + job.times.pause_s, i)
    job.under_way += 1
    yield job.env.timeout(job.times.pause_s)
    job.under_way -= 1
    fleet.serve_version(version, i)
    if drain and job.has(i) and rows["kind"][i] != DOWN:
        fleet.command(CMD_REOPEN, i)


def _groups_on(job: RunState, i: int) -> Ids:
    """Unfinished groups with a sample on instance i."""
    groups = job.fleet.unfinished()
    if not IN_FLIGHT[job.scenario.sync.in_flight].discards or len(groups) == 0:
        return groups[:0]
    samples = job.fleet.world.samples.take(job.fleet.samples_of(groups))
    size = job.fleet.world.groups["size"][groups]
    here = (samples["instance"] == i) & (samples["finish_s"] < 0) & (samples["status"] != UNSENT)
    return groups[np.logical_or.reduceat(here, np.cumsum(size) - size)]


def _note_published(job: RunState) -> None:
    """A version is published once no instance that is up serves an older one."""
    up = job.fleet.up()
    up = up[np.isin(up, job.fleet.lasting)]
    version = int(job.fleet.world.instances["version"][up].min()) if len(up) else job.loadable
    if version <= job.progress.version:
        return
    for v in range(job.progress.version + 1, version + 1):
        step, trigger, loadable = job.offered.pop(v)
        start = min(loadable, job.now)  # a newer version may be there first
        job.syncs.append((v, step, job.progress.updates[v], trigger, start, job.now, job.fleet.get("in_flight"), 0))
    published(job, version)
