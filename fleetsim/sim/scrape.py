"""What a monitoring system would have read of the run: the state of every instance and of the queue, at even times.

Nothing here happens in the run. The fleet's clock stops at a scrape on its way to the next event, is read, and goes on;
no event of the run is added, moved or answered differently, so the other records are the same to the byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim import units
from fleetsim.engine.kernel.tables import ACC_OFF, ACC_PAUSED, DOWN, JUMP, SHIFT, STEP
from fleetsim.errors import InputError, Problem
from fleetsim.sim.buffer import ready_groups
from fleetsim.sim.fleet import Fleet
from fleetsim.sim.records import QUEUE_SCRAPE, SCRAPE

Ints = NDArray[np.int64]
EPSILON = 1e-12  # as in `engine/kernel/instance.py`, which is not imported because numba would come with it
# Looks whose rows are kept before they are worked out: enough for numpy, few enough for memory.
AT_ONCE = 128
# Scrapes of a run, and rows of all instances: five weeks of every 15 s. A step of years would have no end.
MOST_LOOKS, MOST_ROWS = 200_000, 10_000_000
# Columns of SCRAPE and of the kernel's instance row; the kernel's are totals since the start of the run.
COUNTERS = ("generated", "prefilled", "hit_tokens", "preemptions", "decode_s")
_TOO_MANY = (
    f"a run is looked at {MOST_LOOKS:,} times at most, all instances together {MOST_ROWS:,} times",
    "see whether trainer.fixed_s or another time is in another unit; else simulate fewer steps or hours, or scrape "
    "less often: --scrape-interval",
)


class Scraper:
    """Looks at the fleet every `every_s` seconds, from the begin of `between_s` to its end, and keeps what it saw.

    group_size: samples of a group. steps_behind: optimizer steps that a weight version does not contain, as of now.
    A look copies the instances' rows; what they mean is worked out for many looks at once, which is ten times as fast.
    Raises ValueError for an every_s that is no positive number; `look` InputError for a run with too many scrapes.
    """

    def __init__(
        self,
        fleet: Fleet,
        group_size: int,
        steps_behind: Callable[[int], float],
        every_s: float,
        between_s: tuple[float, float] = (0.0, math.inf),
    ) -> None:
        if not (every_s > 0 and math.isfinite(every_s)):
            raise ValueError(f"scrape_every_s {every_s}: a positive number of seconds")
        self.fleet, self.group_size, self.steps_behind = fleet, group_size, steps_behind
        self.every_s, self.taken = every_s, 0
        self.from_s, self.until_s = between_s
        n = len(fleet.world.instances)
        self.incarnation = np.zeros(n, np.int64)
        self.born_s = np.zeros(n)
        self.before = {name: np.zeros(n, SCRAPE[name]) for name in COUNTERS}  # what former incarnations had counted
        self.rows: list[NDArray[Any]] = []
        # Of the pending looks: times, INSTANCE rows, residues.
        self.times: list[float] = []
        self.instances = np.empty((AT_ONCE, n), fleet.world.instances.dtype)
        self.residues = np.empty((AT_ONCE, *fleet.world.residues.shape), fleet.world.residues.dtype)
        self.queue: list[tuple[Any, ...]] = []

    @property
    def due_s(self) -> float:
        """When the next scrape is due; never again after the end."""
        at = self.from_s + self.taken * self.every_s
        return at if at <= self.until_s else math.inf

    def look(self) -> float:
        """Takes the scrape that is due; the fleet's clock stands there. Returns when the next one is due."""
        now, fleet, k = self.due_s, self.fleet, len(self.times)
        if self.taken >= min(MOST_LOOKS, MOST_ROWS // max(1, len(self.born_s))):
            raise InputError([Problem("scrapes", f"{self.taken:,} in {units.seconds(now)}", *_TOO_MANY)])
        self.instances[k], self.residues[k] = fleet.world.both_sides(), fleet.world.residues
        self.times.append(now)
        if len(self.times) == AT_ONCE:
            self.read()
        size = self.group_size
        buffered = ready_groups(fleet)
        oldest = 0.0
        if len(buffered):
            oldest = self.steps_behind(int(fleet.world.groups["version"][buffered].min()))
        self.queue.append((now, len(buffered) * size, fleet.get("n_blocked") * size, oldest))
        self.taken += 1
        return self.due_s

    def begin_again(self, i: int, now: float) -> None:
        """Instance i is a new process from now on: its counters begin at zero."""
        self.read()
        row = self.fleet.world.both_sides()[i]
        self.incarnation[i] += 1
        self.born_s[i] = now
        for name in COUNTERS:
            self.before[name][i] = row[name]

    def tables(self) -> dict[str, NDArray[Any]]:
        """Names and values of the tables in Records that are the scraper's."""
        self.read()
        return {
            "scrapes": np.concatenate([np.zeros(0, SCRAPE), *self.rows]),
            "queue_scrapes": np.array(self.queue, QUEUE_SCRAPE),
        }

    def read(self) -> None:
        """Works out the pending looks, in which the same processes lived."""
        if not self.times:
            return
        fleet, looks, n = self.fleet, len(self.times), len(self.born_s)
        now = np.repeat(self.times, n)
        rows = self.instances[:looks].reshape(-1)
        residues = self.residues[:looks].reshape(looks * n, -1)
        self.times.clear()
        grown = tokens_of(rows, iterations_done(rows, now))
        out = np.zeros(len(rows), SCRAPE)
        out["time_s"], out["instance"] = now, np.tile(np.arange(n), looks)
        out["up"], out["paused"] = rows["kind"] != DOWN, rows["account"] == ACC_PAUSED
        out["incarnation"], out["born_s"] = np.tile(self.incarnation, looks), np.tile(self.born_s, looks)
        out["running"], out["waiting"] = rows["running"], rows["waiting"]
        held = np.tile(fleet.kv_blocks, looks)
        used = held - rows["free"] + blocks_needed(rows, residues, grown)
        out["kv_use"] = np.where(rows["account"] != ACC_OFF, used / held, 0.0)
        for name in COUNTERS:
            out[name] = rows[name] - np.tile(self.before[name], looks)
        out["generated"] += grown * rows["decodes"]
        under_way = (rows["kind"] == JUMP) | (rows["kind"] == STEP)
        out["decode_s"] += np.where(under_way, rows["decodes"] * (now - rows["landed_s"]), 0.0)
        self.rows.append(out)


def iterations_done(rows: NDArray[Any], now: float | NDArray[np.float64]) -> Ints:
    """Iterations of each instance's current jump that are over at `now`; 0 outside of jumps (a step is one iteration).

    rows: INSTANCE of `engine/kernel/tables.py`; now: one moment, or one for each row. k iterations take
    k * first_s + slope_s * k (k - 1) / 2 seconds. The root says how many fit into the time; rounding is mended by
    looking at the neighbours.
    """
    span = now - rows["t0"] + EPSILON * (1.0 + np.abs(now))
    half, first = 0.5 * rows["slope_s"], rows["first_s"]
    linear = first - half
    with np.errstate(divide="ignore", invalid="ignore"):
        root = 2.0 * span / (linear + np.sqrt(np.maximum(linear * linear + 4.0 * half * span, 0.0)))
    most = np.where(rows["kind"] == JUMP, rows["k"], 0)
    k = np.clip(np.nan_to_num(np.floor(root), nan=0.0, posinf=2.0**52), 0, most).astype(np.int64)
    more = np.minimum(k + 1, most)
    k = np.where(more * first + half * more * (more - 1.0) <= span, more, k)
    out: Ints = np.where(k * first + half * k * (k - 1.0) <= span, k, np.maximum(k - 1, 0))
    return out


def tokens_of(rows: NDArray[Any], k: Ints) -> Ints:
    """Tokens by which each decode of an instance grows in its next k iterations (`kernel.growth.grown`)."""
    out: Ints = (rows["phase"] + k * rows["growth"]) >> SHIFT
    return out


def blocks_needed(rows: NDArray[Any], residues: NDArray[np.int32], k: Ints) -> Ints:
    """KV blocks that the decodes of each instance take for their next k tokens (`kernel.instance.blocks_needed`).

    residues: (instances, block size), how many blocks decodes begin when the counter of tokens stands there.
    """
    size = residues.shape[1]
    at = (-rows["count"][:, None] - np.arange(size)) % size
    begun = np.take_along_axis(residues, at, axis=1).astype(np.int64)
    begun[np.arange(size) >= (k % size)[:, None]] = 0
    out: Ints = (k // size) * rows["growing"] + begun.sum(axis=1)
    return out
