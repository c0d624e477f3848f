"""One run of a scenario: SimPy carries what happens per optimizer step, the kernel everything per token."""

from __future__ import annotations

import numpy as np

from fleetsim.config.scenario import Scenario
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime
from fleetsim.sim.engines import engine_of
from fleetsim.sim.failures import fail
from fleetsim.sim.fleet import Fleet
from fleetsim.sim.job import Job, drive
from fleetsim.sim.records import FAILURE, STEP, SYNC, Records
from fleetsim.sim.trainer import train


def simulate(
    scenario: Scenario, *, replication: int = 0, engine: tuple[StepTime, EngineLimits] | None = None
) -> Records:
    """Runs `scenario.run.steps` optimizer steps; the same scenario, seed and replication give the same records.

    engine: iteration times and limits of one instance, instead of those that the scenario's `engine` section names.
    Raises StuckError when nothing can ever happen again, InputError for an engine or lengths that do not fit.
    """
    step_time, limits = engine or engine_of(scenario)
    fleet = Fleet(scenario, step_time, limits, replication)
    job = Job(scenario, fleet, replication)
    size = [scenario.fleet.instances]
    job.top_up()
    if scenario.fleet.failures.mtbf_s is not None:
        for i in range(len(fleet.world.instances)):
            job.env.process(fail(job, i, size))
    training = job.env.process(train(job, size))
    job.env.process(drive(job))
    job.env.run(until=training)
    return Records(
        scenario=scenario,
        seed=scenario.run.seed,
        replication=replication,
        steps=np.array(job.steps, STEP),
        samples=fleet.world.samples[: fleet.started() * fleet.group_size],
        groups=fleet.world.groups[: fleet.started()],
        syncs=np.array(job.syncs, SYNC),
        failures=np.array(job.failures, FAILURE),
        engine=(step_time, limits),
    )
