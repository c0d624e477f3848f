"""One run of a scenario: SimPy carries what happens per optimizer step, the kernel everything per token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import simpy
from numpy.typing import NDArray

from fleetsim.config import with_changes
from fleetsim.config.scenario import Scenario, failures_s, most_steps, reclaims_s, settles
from fleetsim.engine.kernel.tables import CMD_MOVE
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.step_time import StepTime
from fleetsim.policies.law import PLENTY
from fleetsim.sim.engines import engine_of
from fleetsim.sim.failures import fail
from fleetsim.sim.fleet import Fleet
from fleetsim.sim.judges import judge_rows
from fleetsim.sim.records import DISCARD, EVALUATION_ROW, FAILURE, STATION_STEP, STEP, SYNC, TRAINER, Records
from fleetsim.sim.rolling import follow
from fleetsim.sim.run_state import Process, RunState, drive
from fleetsim.sim.scrape import Scraper
from fleetsim.sim.spot import spot_processes
from fleetsim.sim.stop import stopping, watch_of
from fleetsim.sim.trainer import train
from fleetsim.sim.window import least_warmup_steps, pipeline_steps, warmup_steps
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
    """Runs as many optimizer steps as `run.steps` says, or until it is steady (`Steady`); the same scenario, seed
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
    records = Records(
        scenario=scenario,
        seed=scenario.run.seed,
        replication=replication,
        steps=steps,
        samples=samples,
        groups=groups,
        syncs=np.array(job.syncs, SYNC),
        failures=np.array(job.failures, FAILURE),
        discards=np.array(job.discards, DISCARD),
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
    fleet.close()
    return records


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


# --- Tail consolidation: nearly empty instances hand their requests to fuller ones (Laminar's repack).


def repack(job: RunState) -> Process:
    """Looks at the fleet every `fleet.repack.every_s`, for the whole run."""
    settings = job.scenario.fleet.repack
    assert settings.every_s is not None
    while True:
        yield job.env.timeout(settings.every_s)
        for source, to in moves(job.fleet, settings.below_kv_use, settings.up_to_kv_use):
            job.fleet.command(CMD_MOVE, source, job.now, to)


def moves(fleet: Fleet, below: float, up_to: float) -> list[tuple[int, int]]:
    """(source, destination) pairs: the emptiest instances first, each to the fullest one that stays under `up_to`.

    A source uses less than `below` of its KV blocks and will get no more work: nothing waits there, and admission lets
    nothing in, or the instance is closed. Source and destination serve the same weight version, so a response keeps its
    version. An instance that has received requests is no source.
    """
    rows = fleet.world.instances
    running = rows["running"].astype(np.int64)
    starved = (rows["accepting"] == 0) | (fleet.get("credits") == 0)
    idle = (rows["waiting"] > 0) | (running == 0) | ~starved
    idle |= fleet.kv_blocks - rows["free"] >= below * fleet.kv_blocks  # of a jump under way, what it began with
    if idle.all():  # most looks end here: to ask every instance takes longer
        return []
    use = np.array([fleet.kv_use(i) for i in range(len(rows))])
    sources: NDArray[np.int64] = np.flatnonzero(~idle & (use < below))
    out: list[tuple[int, int]] = []
    received: set[int] = set()
    for i in sources[np.argsort(use[sources], kind="stable")]:
        if i in received:
            continue
        fits = (
            (rows["version"] == rows["version"][i])
            & (running > 0)
            & (use + use[i] <= up_to)
            & (running + running[i] <= fleet.limits.max_num_seqs)
        )
        fits[i] = False
        fits[[source for source, _ in out]] = False
        if not fits.any():
            continue
        to = int(np.argmax(np.where(fits, use, -1.0)))
        use[to] += use[i]
        running[to] += running[i]
        received.add(to)
        out.append((int(i), to))
    return out


# --- When a run may end: its beginning is over, and the mean of its steps is known.
#
#     The steps after warm-up are cut into equal batches. Their means are nearly independent once a batch is as long as
#     the pipeline is deep, so the t interval over them holds the long run's mean (batch means: Law & Kelton,
#     "Simulation Modeling and Analysis", chapter 9). A run whose steps still grow has batches that differ, or follow
#     each other upwards, and goes on.
#
#     What happens every N steps (`evaluation`, `trainer.checkpoint`) is in a mean as often as in the long run only if
#     the mean is over whole periods: batches are whole periods, and a run ends with one. Where eight periods are more
#     than a run may have, there are fewer batches, and t is larger. Where instances are on spot machines, a run sees
#     several reclaims and absences of each kind of luck, if need be it is as long as it may be.

# Batches, and the t value of a 95 % interval over the means of so many.
_BATCHES = 8
_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
# The mean is known when its interval reaches so little to either side.
PRECISION = 0.02
# Batches still grow, or fall, below this ratio (`_in_a_row`): eight independent ones do in one of eighty cases.
_GROWS = 0.7
# A run is so many times as long as all that is in flight at least: batches of half a filling show bursts.
_FILLINGS = 4
# A beginning that is more of a run may be how it goes on: MSER leaves out whatever comes before a calm end.
BEGINNING = 1 / 3
# The first look, and by how much later ones are apart.
_FIRST, _APART = 24, 1.25


class Steady:
    """A watch of one run: after each step it is told how many are done and the simulated seconds."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._period = scenario, scenario.period_steps
        depth, filled = max(2, least_warmup_steps(scenario) - 1), math.ceil(_FILLINGS * pipeline_steps(scenario))
        long = max(_FIRST, _BATCHES * depth, filled)
        if self._period > 1:  # a whole number of periods in each batch, as far as a run may be so long
            long = max(long, min(_BATCHES * self._period, most_steps(scenario) - least_warmup_steps(scenario) - 1))
        self._look = least_warmup_steps(scenario) + long
        self._ends, self._least_s = [0.0], max(reclaims_s(scenario), failures_s(scenario))

    def __call__(self, steps: int, now_s: float) -> bool:
        """Whether the run may end here."""
        self._ends.append(now_s)
        if steps < self._look or steps % self._period or now_s < self._least_s:
            return False
        self._look = int(_APART * steps)
        step_s = np.array([b - a for a, b in pairwise(self._ends)])
        first = warmup_steps(self._scenario, step_s)
        if first - least_warmup_steps(self._scenario) > BEGINNING * steps:
            return False
        return off_by(step_s[first:], self._period) <= PRECISION


def _in_a_row(means: np.typing.NDArray[np.float64]) -> float:
    """Von Neumann's ratio (1941): squared differences of neighbours over those from the mean; 2 of independent ones."""
    return float((np.diff(means) ** 2).sum() / ((means - means.mean()) ** 2).sum())


def off_by(step_s: np.typing.NDArray[np.float64], period: int = 1) -> float:
    """How far the mean of the steps of a run may be from that of a long one, as a share of it, in 95 % of all cases;
    infinite for too few of them, and while they still grow or fall.

    period: steps after which what happens every N steps comes round again.
    """
    batches = min(_BATCHES, len(step_s) // period)
    if batches < (2 if period > 1 else _BATCHES):
        return float("inf")
    each = len(step_s) // (batches * period) * period
    means = step_s[-each * batches :].reshape(batches, each).mean(axis=1)
    mean = float(means.mean())
    if float(np.ptp(means)) > PRECISION * mean and _in_a_row(means) < _GROWS:
        return float("inf")
    return _T[batches] * float(means.std(ddof=1)) / (batches**0.5 * mean) if mean > 0 else 0.0
