"""Instances on spot machines: a machine is reclaimed after a notice, another one is found, started, and serves.

By law: a spot instance that serves is reclaimed at a constant rate, 1 / `mean_life_s`, whatever happened before; of a
zone, one reclaim takes each of the others along with a chance of `together`, and begins so much more rarely. Absences
are exponential. By a trace: so many machines can be had; what is too much goes, the newest first, and what is missing
comes back. A machine is paid for from when it is found until it is empty or reclaimed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from fleetsim.config.data_files import changed_ns
from fleetsim.config.scenario import Scenario
from fleetsim.config.spot_trace import Trace, trace_of
from fleetsim.engine.kernel.tables import ACC_OFF, CMD_KILL, CMD_MOVE, CMD_START, CMD_SWITCH_OFF, DOWN
from fleetsim.sim.failures import count_loss, revive
from fleetsim.sim.fleet_settings import most_instances
from fleetsim.sim.records import Records
from fleetsim.sim.run_state import Process, RunState
from fleetsim.sim.window import StepWindow
from fleetsim.workload.streams import stream

_HOUR_S = 3600.0


def spot_processes(job: RunState) -> Iterator[Process]:
    """What happens to the spot machines of a run. Raises InputError for a trace that is none."""
    spot, rows = job.scenario.fleet.spot, _all_rows(job.scenario)
    if not rows:
        return
    if spot.trace is not None:
        yield _follow(job, rows, trace_of(spot.trace, changed_ns(spot.trace)))
    else:
        yield from (_reclaims(job, rows, i) for i in rows)


def _rows(scenario: Scenario) -> Iterator[range]:
    """The instances of each pool that may be on spot machines: those of the first that are, with all that a resize
    adds, if any is; and all of each other pool."""
    fleet, begin = scenario.fleet, most_instances(scenario)
    yield range(fleet.instances - fleet.on_spot, begin) if fleet.on_spot else range(0)
    for pool in fleet.pools.values():
        yield range(begin, begin + pool.instances)
        begin += pool.instances


def _all_rows(scenario: Scenario) -> list[int]:
    first, *others = _rows(scenario)
    pools = zip(others, scenario.fleet.pools.values(), strict=True)
    return [*first, *(i for rows, pool in pools if pool.on_spot for i in rows)]


def paid_seconds(job: RunState) -> tuple[float, float, float, float]:
    """Paid for since the start of the run: instance-seconds of the first pool on spot machines; instance-seconds,
    GPU-seconds and US dollars of the other pools."""
    fleet = job.scenario.fleet
    if not fleet.pools and not fleet.on_spot:  # asked for at every step of every run, and most have none
        return 0.0, 0.0, 0.0, 0.0
    first, *others = _rows(job.scenario)
    instance_s = gpu_s = usd = 0.0
    for rows, pool, (gpus, price) in zip(others, fleet.pools.values(), job.bills, strict=True):
        held_s = _paid_s(job, rows) if pool.on_spot else pool.instances * job.now
        instance_s, gpu_s = instance_s + held_s, gpu_s + held_s * gpus
        usd += held_s * gpus * price / _HOUR_S
    return _paid_s(job, first), instance_s, gpu_s, usd


def _paid_s(job: RunState, rows: range) -> float:
    world, of = job.fleet.world, slice(rows.start, rows.stop)
    since = np.where(world.instances["account"][of] == ACC_OFF, 0.0, job.now - world.instances["since"][of])
    paid = np.delete(world.accounts[of], ACC_OFF, axis=1)
    return float(paid.sum() + since.sum())


def spot_metrics(records: Records, window: StepWindow) -> dict[str, float]:
    """serving: the part of the time in which a spot instance serves. reclaims_per_h: machines lost in an hour.
    worst_hour: mean step of the slowest steps in a row that fill an hour / mean step."""
    count, lost = records.scenario.fleet.all_on_spot, records.failures
    lost = lost[np.isin(lost["instance"], _all_rows(records.scenario))]
    inside = np.clip(lost["up_s"], window.start_s, window.end_s) - np.clip(lost["down_s"], window.start_s, window.end_s)
    began = np.count_nonzero((lost["down_s"] > window.start_s) & (lost["down_s"] <= window.end_s))
    step_s = window.steps["end_s"] - window.steps["start_s"]
    hour = min(len(step_s), max(1, math.ceil(_HOUR_S * len(step_s) / window.span_s)))
    ends = np.concatenate([[0.0], np.cumsum(step_s)])
    return {
        "serving": 1.0 - float(inside.sum()) / (count * window.span_s),
        "reclaims_per_h": float(began) / (window.span_s / _HOUR_S),
        "worst_hour": float((ends[hour:] - ends[:-hour]).max()) / hour / window.step_s,
    }


def _reclaims(job: RunState, rows: Sequence[int], i: int) -> Process:
    """The reclaims that begin with instance i, of those on spot machines, for the whole run."""
    spot = job.scenario.fleet.spot
    draws = stream(job.scenario.run.seed, job.replication, f"spot {i}")
    zone = [k for k in rows if k != i and (k - i) % spot.zones == 0]
    mean_s = spot.mean_life_s * (1.0 + len(zone) * spot.together)
    while True:
        yield job.env.timeout(float(draws.exponential(mean_s)))
        others = [k for k in zone if spot.together > 0.0 and draws.random() < spot.together]
        for k in (i, *others):
            found_s = float(draws.exponential(spot.mean_absence_s))
            if _serves(job, k):
                job.env.process(_replace(job, k, found_s))


def _serves(job: RunState, i: int) -> bool:
    return job.has(i) and i not in job.reclaimed and job.fleet.world.instances["kind"][i] != DOWN


def _replace(job: RunState, i: int, found_s: float | None = None) -> Process:
    """Instance i loses its machine, and serves on another once one is found. found_s: the seconds that this takes from
    when it is gone, None where somebody else says it, by the event in `reclaimed`."""
    spot, fleet, env = job.scenario.fleet.spot, job.fleet, job.env
    job.reclaimed[i] = env.event()
    job.under_way += 1
    row, noticed, empty = len(job.failures), job.now, job.instance_empty(i)
    job.failures.append((i, noticed, math.inf))
    if spot.on_notice == "move":
        fleet.command(CMD_MOVE, i, job.now, -1)
    yield empty | env.timeout(spot.notice_s)
    if not empty.triggered:
        fleet.command(CMD_KILL, i, job.now)
        count_loss(job, "fleet.spot.mean_life_s", spot.mean_life_s)
        yield empty
    fleet.command(CMD_SWITCH_OFF, i, job.now)
    found = None
    while found is not job.reclaimed[i]:  # a trace may take the machine again while it starts
        found = job.reclaimed[i]
        yield found if found_s is None else env.timeout(found_s)
        if not job.has(i) or i in job.lost:
            continue
        fleet.command(CMD_START, i, job.now)
        yield env.timeout(spot.start_s)
        if found is job.reclaimed[i] and job.has(i) and i not in job.lost:
            revive(job, i)
        else:
            fleet.command(CMD_SWITCH_OFF, i, job.now)
    del job.reclaimed[i]
    job.under_way -= 1
    job.failures[row] = (i, noticed, job.now)


def _follow(job: RunState, rows: Sequence[int], trace: Trace) -> Process:
    """Takes and gives machines as the trace says, for the whole run, from a drawn place of it on."""
    length = trace[-1][0]
    at = float(stream(job.scenario.run.seed, job.replication, "spot trace").random()) * length
    k = max(j for j, (since, _) in enumerate(trace) if since <= at)
    while True:
        have = trace[k][1]
        held = [i for i in rows if _serves(job, i)]
        waiting = [i for i, found in job.reclaimed.items() if not found.triggered]
        coming = [i for i, found in job.reclaimed.items() if found.triggered]
        for i in coming[have:]:
            job.reclaimed[i] = job.env.event()
        for i in reversed(held[max(0, have - len(coming)) :]):
            job.env.process(_replace(job, i))
        for i in waiting[: max(0, have - len(coming) - len(held))]:
            job.reclaimed[i].succeed()
        k += 1
        yield job.env.timeout(trace[k][0] - at)
        at = trace[k][0]
        if k == len(trace) - 1:
            k, at = 0, 0.0
