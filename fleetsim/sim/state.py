"""What a step's record says of the fleet: its state when the batch was taken, and totals since the start."""

from __future__ import annotations

import numpy as np

from fleetsim.engine.kernel.tables import ACC_BUSY, ACC_DOWN, ACC_IDLE, ACC_OFF, ACC_PAUSED
from fleetsim.sim.buffer import ready_groups
from fleetsim.sim.run_state import Job

# The method `sum` of so few rows takes twice as long.
_sum = np.add.reduce


def fleet_state(job: Job) -> tuple[float, ...]:
    """What the fleet looks like when the batch is complete: columns version .. credits of STEP."""
    fleet, rows = job.fleet, job.fleet.world.both_sides()
    size = job.scenario.workload.group_size
    buffered = ready_groups(fleet)
    versions = fleet.world.groups["version"][buffered]
    oldest = job.steps_behind(int(versions.min())) if len(buffered) else 0.0
    return (
        job.progress.version,
        len(buffered) * size,
        fleet.get("n_blocked") * size,
        float(oldest),
        fleet.get("in_flight"),
        int(_sum(rows["running"])),
        int(_sum(rows["waiting"])),
        int(_sum(rows["kv_sum"])),
        fleet.mean_kv_use(),
        fleet.get("credits"),
    )


def totals(job: Job) -> tuple[float, ...]:
    """Totals since the start of the run: columns instances .. preemptions of STEP."""
    fleet = job.fleet
    fleet.advance(job.now)
    rows = fleet.world.both_sides()
    return (
        int(np.count_nonzero(rows["account"] != ACC_OFF)),
        *(fleet.seconds(account, job.now) for account in (ACC_BUSY, ACC_PAUSED, ACC_IDLE, ACC_DOWN)),
        job.lent_s,
        float(_sum(rows["block_s"])),
        int(_sum(rows["generated"])),
        int(_sum(rows["prefilled"])),
        int(_sum(rows["hit_tokens"])),
        fleet.prefill_busy_s(),
        fleet.get("aborted_tokens"),
        fleet.get("lost_tokens"),
        fleet.get("recomputed_tokens"),
        int(_sum(rows["preemptions"])),
    )
