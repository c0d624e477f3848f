"""One run of a scenario: SimPy carries what happens per optimizer step, the kernel everything per token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import simpy

from fleetsim.config import with_changes
from fleetsim.config.scenario import Scenario, most_steps, settles
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime
from fleetsim.policies.law import PLENTY
from fleetsim.sim.engines import engine_of
from fleetsim.sim.failures import fail
from fleetsim.sim.fleet import Fleet
from fleetsim.sim.judges import judge_rows
from fleetsim.sim.records import EVALUATION_ROW, FAILURE, STATION_STEP, STEP, SYNC, TRAINER, Records
from fleetsim.sim.repack import repack
from fleetsim.sim.rolling import follow
from fleetsim.sim.run_state import Process, RunState, drive
from fleetsim.sim.scrape import Scraper
from fleetsim.sim.spot import spot_processes
from fleetsim.sim.steady import Steady
from fleetsim.sim.stop import stopping, watch_of
from fleetsim.sim.trainer import train
from fleetsim.sim.work import check_samples
from fleetsim.workload.turns import mean_turns

PILOT_STEPS = 8
MOST_STEPS = 10_000_000  # that a scenario may have


def simulate(
    scenario: Scenario,
    *,
    replication: int = 0,
    engine: tuple[StepTime, EngineLimits] | None = None,
    scrape_every_s: float | None = None,
    scrape_between_s: tuple[float, float] = (0.0, math.inf),
    activity: bool = False,
    on_step: Callable[[int, float], None] | None = None,
) -> Records:
    """Runs as many optimizer steps as `run.steps` says, or until it is steady (`steady.py`); the same scenario, seed
    and replication give the same records.

    engine: iteration times and limits of one instance, instead of those that the scenario's `engine` section names.
    scrape_every_s: read the fleet at these even times too (`Records.scrapes`); changes nothing else.
    scrape_between_s: from when on, and until when.
    activity: record what every instance does when (`Records.activity`); likewise.
    on_step: told after each step how many are done, and the simulated seconds.
    Raises StuckError when nothing can ever happen again, InputError for an engine or lengths that do not fit.
    """
    step_time, limits = engine or engine_of(scenario)
    fleet = Fleet(scenario, step_time, limits, replication)
    job = RunState(scenario, fleet, replication, scenario.fleet.instances)
    job.watch = watch_of(on_step, Steady(scenario) if settles(scenario) else None)
    if scrape_every_s is not None:
        job.scraper = Scraper(fleet, scenario.workload.group_size, job.steps_behind, scrape_every_s, scrape_between_s)
        fleet.look, fleet.look_s = job.scraper.look, job.scraper.due_s
    if activity:
        fleet.record_activity()
    job.top_up()
    ahead = fleet.get("credits")
    wanted = most_steps(scenario) * scenario.groups_per_step + (ahead if ahead < PLENTY else 0)
    check_samples(wanted * scenario.workload.group_size, mean_turns(scenario.workload))
    for process in _companions(job):
        job.env.process(process)
    training = job.env.process(train(job))
    job.env.process(drive(job))
    job.env.run(until=training)
    fleet.world.inspect()
    groups, samples = fleet.sent()
    steps = np.array(job.steps, STEP)
    return Records(
        scenario=scenario,
        seed=scenario.run.seed,
        replication=replication,
        steps=steps,
        samples=samples,
        groups=groups,
        syncs=np.array(job.syncs, SYNC),
        failures=np.array(job.failures, FAILURE),
        engine=(step_time, limits),
        updates=np.array(job.progress.updates),
        trainer=np.array(job.trainer, TRAINER),
        stations=np.array(job.stations, STATION_STEP),
        judges=judge_rows(fleet.judges, steps["end_s"]),
        evaluations=np.array(job.evaluations, EVALUATION_ROW),
        cut=stopping() and len(job.steps) < most_steps(scenario),
        **(job.scraper.tables() if job.scraper is not None else {}),
        **({"activity": fleet.activity.table()} if fleet.activity is not None else {}),
    )


def _companions(job: RunState) -> Iterator[Process]:
    """What goes on beside training for the whole run."""
    scenario = job.scenario
    if scenario.fleet.failures.mtbf_s is not None:
        yield from (fail(job, i) for i in job.fleet.lasting)
    yield from spot_processes(job)
    if scenario.sync.scope == "rolling":
        turns = simpy.Resource(job.env, capacity=scenario.sync.at_once)
        yield from (follow(job, i, turns) for i in job.fleet.lasting)
    if scenario.fleet.repack.every_s is not None:
        yield repack(job)


def steps_for(scenario: Scenario, seconds: float) -> int:
    """The fewest steps whose first replication lasts `seconds`. Raises what `simulate` raises.

    A pilot's pace says how many steps to run; what they do not fill is run again with more.
    """
    steps = PILOT_STEPS
    while True:
        run = simulate(with_changes(scenario, {"run.steps": steps, "run.warmup_steps": None}))
        ends = run.steps["end_s"]
        if ends[-1] >= seconds or steps >= MOST_STEPS:
            return min(steps, int(np.searchsorted(ends, seconds)) + 1)
        pace = max(float(ends[-1]), 1e-9) / steps
        steps = min(MOST_STEPS, max(steps + 1, math.ceil(1.03 * seconds / pace)))
