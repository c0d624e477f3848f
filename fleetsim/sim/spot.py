"""Instances on spot machines: a machine is reclaimed after a notice, another one is found, started, and serves.

By law: a spot instance that serves is reclaimed at a constant rate, 1 / `mean_life_s`, whatever happened before; of a
zone, one reclaim takes each of the others along with a chance of `together`, and begins so much more rarely. Absences
are exponential. By a trace: so many machines can be had; what is too much goes, the newest first, and what is missing
comes back. A machine is paid for from when it is found until it is empty or reclaimed.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from fleetsim.config.data_files import changed_ns, read_text
from fleetsim.config.scenario import Scenario
from fleetsim.engine.kernel.tables import ACC_OFF, CMD_KILL, CMD_MOVE, CMD_START, CMD_SWITCH_OFF, DOWN
from fleetsim.errors import InputError, Problem
from fleetsim.sim.failures import count_loss, revive
from fleetsim.sim.fleet_settings import most_instances
from fleetsim.sim.records import Records
from fleetsim.sim.run_state import Process, RunState
from fleetsim.sim.window import StepWindow
from fleetsim.workload.streams import stream

_HOUR_S = 3600.0
_MAX_BYTES = 16 << 20
_WHERE = "fleet.spot.trace"
Trace = tuple[tuple[float, int], ...]
"""(seconds, machines that can be had from then on), ascending; the last row says when it begins anew."""


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
    job.reclaimed[i] = found = env.event()
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
    yield found if found_s is None else env.timeout(found_s)
    if job.has(i) and i not in job.lost:
        fleet.command(CMD_START, i, job.now)
        yield env.timeout(spot.start_s)
        if job.has(i) and i not in job.lost:
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
        coming = len(job.reclaimed) - len(waiting)
        for i in reversed(held[max(0, have - coming) :]):
            job.env.process(_replace(job, i))
        for i in waiting[: max(0, have - coming - len(held))]:
            job.reclaimed[i].succeed()
        k += 1
        yield job.env.timeout(trace[k][0] - at)
        at = trace[k][0]
        if k == len(trace) - 1:
            k, at = 0, 0.0


@lru_cache(maxsize=8)
def trace_of(path: str, written_ns: int) -> Trace:
    """A trace's rows, the first at 0 s. written_ns: when the file was written, so that an edited one is read again.

    Raises InputError for a file that is neither a CSV of time_s and instances nor SkyPilot's JSON of them.
    """
    text = read_text(path, _WHERE, _MAX_BYTES)
    try:
        rows = _from_json(text) if text.lstrip().startswith("{") else _from_csv(text)
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        rule = f"is no trace of machines ({str(error)[:100] or type(error).__name__})"
        remedy = "a CSV with the columns time_s and instances, or JSON with metadata.gap_seconds and data"
        raise InputError([Problem(_WHERE, path, rule, remedy)]) from None
    times = [t for t, _ in rows]
    if len(rows) < 2 or times[0] != 0.0 or any(b <= a for a, b in pairwise(times)):
        rule = "must hold two rows at least, the first at 0 s, each later than the one before"
        raise InputError([Problem(_WHERE, path, rule, "sort it by time_s, and count from its first row")])
    if not any(n for _, n in rows):
        raise InputError(
            [Problem(_WHERE, path, "has no machine at any time", "a trace with some, or fleet.spot.share: 0")]
        )
    return tuple(rows)


def _from_csv(text: str) -> list[tuple[float, int]]:
    return [(_number(row["time_s"]), int(_number(row["instances"]))) for row in csv.DictReader(io.StringIO(text))]


def _from_json(text: str) -> list[tuple[float, int]]:
    given = json.loads(text)
    gap, data = _number(given["metadata"]["gap_seconds"]), given["data"]
    return [(k * gap, int(_number(n))) for k, n in enumerate([*data, data[-1]])]


def _number(value: object) -> float:
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number) or not 0 <= number <= 1e9:
        raise ValueError(f"{value!r} is out of bounds")
    return number
