"""Weight sync: publish (off the critical path), pause (engines stand still), and what happens to work in flight."""

from __future__ import annotations

from fleetsim.engine.kernel.tables import CMD_DISCARD, CMD_NEW_EPOCH, CMD_RECOMPUTE
from fleetsim.sim.job import Job, Process


def synchronise(job: Job, step: int) -> Process:
    """Publishes the weights after optimizer step `step`.

    publish_s pass while the engines go on; then, by `sync.in_flight`:
    drain: nothing new is sent, the pause starts when the last sample in flight has ended.
    abort_discard: unfinished groups are thrown away, their credits return.
    abort_resume, keep_recompute: running requests lose their cache and prefill prompt + generated tokens again.
    keep: running requests stand still and go on with their old cache.
    finish_on_old_weights: no engine stops; what is in flight stays on its version.
    Groups sent after the pause belong to the new version.
    """
    env, fleet, sync = job.env, job.fleet, job.scenario.sync
    job.under_way += 1
    trigger = job.now
    if sync.publish_s > 0:
        yield env.timeout(sync.publish_s)
    if sync.in_flight == "drain" and fleet.get("in_flight") > 0:
        fleet.set(halted=1)
        job.under_way -= 1  # the drain is the fleet's own work: a fleet that cannot drain is stuck
        yield job.fleet_empty()
        job.under_way += 1
    start, in_flight, discarded = job.now, fleet.get("in_flight"), 0
    fleet.set(halted=1)
    if sync.in_flight == "abort_discard":
        discarded = int(fleet.command(CMD_DISCARD, fleet.started(), start))
    elif sync.in_flight in ("abort_resume", "keep_recompute"):
        fleet.command(CMD_RECOMPUTE, 0, start)
    if sync.reset_prefix_cache:
        fleet.command(CMD_NEW_EPOCH)
    if sync.in_flight != "finish_on_old_weights" and job.scenario.fleet.placement == "disaggregated":
        fleet.hold(start, start + sync.pause_s)
    if sync.pause_s > 0:
        yield env.timeout(sync.pause_s)
    job.progress.version += 1
    fleet.set(version=job.progress.version, halted=0)
    job.top_up()
    job.syncs.append((job.progress.version, step, trigger, start, job.now, in_flight, discarded))
    job.under_way -= 1
