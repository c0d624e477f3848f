"""Adaptive concurrency: the client's pool of samples in flight follows the engines' KV use (prime-rl's AIMD)."""

from __future__ import annotations

import math

from fleetsim.sim.run_state import Process, RunState


def steer(job: RunState) -> Process:
    """Looks at the fullest engine in every interval and moves the in-flight cap, for the whole run.

    The cap goes up by `grow` when the pool is full, but only after as many samples have finished as the pool holds. It
    goes down to in_flight * target / use when an engine is too full; nothing new starts until no more than that are in
    flight. Above cancel_above_kv the youngest groups are cancelled too, until no more than that are in flight.
    """
    scenario, fleet = job.scenario, job.fleet
    settings, size = scenario.admission.adaptive, scenario.workload.group_size
    hard = scenario.fleet.max_in_flight_samples or math.inf
    pool = min(float(settings.start_samples), hard)
    fleet.set(cap=max(size, int(pool)))
    turned = fleet.get("completed_groups")
    while True:
        yield job.env.timeout(settings.interval_s)
        use = max((fleet.kv_use(int(i)) for i in fleet.up()), default=0.0)
        in_flight, completed = fleet.get("in_flight"), fleet.get("completed_groups")
        if use > settings.trim_above_kv:
            pool = max(float(size), min(pool, in_flight * settings.target_kv / use))
            if use > settings.cancel_above_kv:
                excess = math.ceil((in_flight - pool) / size)
                running = fleet.unfinished()
                job.discard(running[len(running) - min(max(0, excess), len(running)) :])
        elif use < settings.grow_below_kv and (completed - turned) * size >= pool and in_flight > pool - size:
            pool = min(pool * settings.grow, float(settings.most_samples), hard)
            turned = completed
        fleet.set(cap=max(size, int(pool)))
