"""The rollout fleet as a run sees it: the kernel's tables, filled with groups as they are needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.config.law_numbers import law_of, sizes_of
from fleetsim.config.scenario import Scenario, settles
from fleetsim.engine.first_rows import UNLIMITED
from fleetsim.engine.kernel import tables as t
from fleetsim.engine.kernel.tables import LOG
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.native import advance, command
from fleetsim.engine.requests import ROUTERS
from fleetsim.engine.state import World
from fleetsim.engine.step_time import StepTime
from fleetsim.sim.draws import Draws
from fleetsim.sim.fleet_settings import caps, credit_rules, lent_instances, most_instances, slowness, steering
from fleetsim.sim.judges import open_judges
from fleetsim.sim.pools import pools_of
from fleetsim.sim.records import ACTIVITY
from fleetsim.sim.stations import open_stations, station_rows, stations_of
from fleetsim.sim.work import check_tables

# --- What every instance does when: each change of the account to which its GPU-seconds are booked. The kernel writes
#     the changes into a table of fixed size and returns when the table is nearly full. It is emptied here, and the run
#     goes on. Nothing else in the run changes, so all other records stay the same to the byte.

ROWS = 1 << 16
# Changes of one instance until the kernel next looks how full the log is: an iteration ends, the instance is held or
# dies, and its next iteration is planned.
MOST_CHANGES = 16


class ActivityLog:
    """The log of one fleet, from now on. It begins with a row for every instance."""

    def __init__(self, world: World, rows: int = ROWS) -> None:
        n = len(world.instances)
        self.world = world
        self.room = rows + MOST_CHANGES * (n + 1)
        world.log = np.zeros(self.room, LOG)
        world.set(cap_log=self.room, most_log=rows)
        world.bind()
        begin = np.zeros(n, ACTIVITY)
        begin["time_s"], begin["instance"] = world.instances["since"], np.arange(n)
        begin["account"] = world.instances["account"]
        self.parts = [begin]

    def empty(self) -> None:
        """Takes what the log holds. Raises RuntimeError when something found no room: never, by its size."""
        n = self.world.get("n_log")
        if n > self.room:
            raise RuntimeError(f"the log of accounts lost {n - self.room} rows")
        rows = self.world.log[:n]
        part = np.zeros(n, ACTIVITY)
        for name in ACTIVITY.names or ():
            part[name] = rows[name]
        self.parts.append(part)
        self.world.set(n_log=0)

    def empty_if_full(self) -> None:
        """The same, when the log is nearly full."""
        if self.world.get("n_log") > self.world.get("most_log"):
            self.empty()

    def table(self) -> NDArray[Any]:
        """All changes so far (dtype ACTIVITY), in the order of time; those of one moment in the order they came."""
        self.empty()
        rows = np.concatenate(self.parts)
        self.parts = [rows]
        out: NDArray[Any] = rows[np.argsort(rows["time_s"], kind="stable")]
        return out


NO_BATCH = 1 << 50
# Of the first draw of a run that ends when it is steady: it seldom draws more, and room that nobody writes to is free.
_AHEAD = 16


class Fleet:
    """The kernel, with a method for each thing that a run does with it. Times are the run's seconds; groups and
    instances are indices."""

    def __init__(self, scenario: Scenario, step_time: StepTime, limits: EngineLimits, replication: int) -> None:
        workload, fleet = scenario.workload, scenario.fleet
        self.limits, self.engine = limits, (step_time, limits)
        self.crowd = UNLIMITED  # generated groups at which the trainer's patience ends
        self.crowd_look = 0  # started groups at which they are counted next
        self.closed = 0  # all groups before this one have ended: a long run does not look through them at every sync
        self.look_s = math.inf
        self.look: Callable[[], float] = lambda: math.inf
        self.activity: ActivityLog | None = None  # who keeps the log of accounts, if anyone
        self.law, self.sizes = law_of(scenario), sizes_of(scenario)  # asked whenever something changes
        self.own = most_instances(scenario)
        self.lent = lent_instances(scenario)
        others = pools_of(scenario)
        check_tables(scenario, limits, self.own + self.lent + fleet.pooled)
        # a constant-rate engine is the runbook's: prompts are free and no cache is kept
        caching = scenario.engine.prefix_caching and scenario.engine.kind != "constant"
        self.world = World(
            step_time,
            limits,
            instances=self.own + self.lent,
            started=fleet.instances,
            others=others,
            slow=slowness(scenario, self.own),
            prefix_caching=caching,
            system_tokens=workload.shared_prefix_tokens,
            several=workload.turns.several,
            stations=station_rows(stations_of(scenario)),
            ahead=_AHEAD if settles(scenario) else 1,
        )
        # Usable KV blocks of each instance.
        self.kv_blocks: NDArray[np.int64] = self.world.pools["kv_blocks"][self.world.instances["pool"]]
        self._mean_blocks = float(self.kv_blocks.mean()) if self.kv_blocks.size else 0.0
        # A counter of the fleet row, and setting its fields: bound here, for a run reads some hundreds of them.
        self.get: Callable[[str], int] = self.world.get
        self.set = self.world.set
        engines = [(step_time, limits), *((o.step_time, o.limits) for o in others)]
        smallest = min(engines, key=lambda e: e[1].kv_blocks)
        self.draws = Draws(scenario, self.world, *smallest, replication)
        self.kept, self.group_size, self.samples_of = self.draws.kept, self.draws.group_size, self.draws.samples_of
        capacity = scenario.buffer.capacity_samples
        self.world.set(
            routing=ROUTERS[fleet.routing],
            imbalance=fleet.imbalance_limit,
            together=int(fleet.group_placement == "together"),
            **caps(scenario, limits),
            ready_cap=UNLIMITED if capacity is None else capacity // self.kept,
            drop_oldest=int(scenario.buffer.on_full == "drop_oldest"),
            has_rewards=1,
            holds_slot=int(scenario.stations.reward.holds_slot),
            **credit_rules(scenario),
        )
        if fleet.in_flight_unit == "environments":
            self.world.open_lanes((fleet.max_in_flight_samples or 0) // self.group_size, self.group_size)
        open_stations(self.world, scenario, replication, 1.0 / max(e[0].decode_tok_s(1, 1) for e in engines))
        self.judges = open_judges(scenario, self.world, replication)
        self.world.set(**steering(scenario))  # its cap takes the client's place

    @property
    def now(self) -> float:
        """The fleet's clock in seconds."""
        return float(self.world.get("now"))

    def advance(self, limit: float, want: int = NO_BATCH) -> int:
        """Moves the fleet to `limit` or to the moment when `want` groups are ready; returns the kernel's code.

        On its way it stops at `look_s` and calls `look`, which says when it wants to look again.
        """
        while self.look_s <= limit:
            code = self._move(self.look_s, want)
            if code != t.AT_LIMIT:
                return code
            self.look_s = self.look()
            if limit == math.inf and self.quiet():
                break  # nothing will ever move: no need to look any more
        return self._move(limit, want)

    def _move(self, limit: float, want: int) -> int:
        while True:
            code = advance(self.world.address, limit, want)
            if code == t.LOG_FULL and self.activity is not None:
                self.activity.empty()
                continue
            if code != t.NEED_GROUPS:
                return int(code)
            if self._crowded():
                return int(t.OUT_OF_PATIENCE)
            self.draws.more()

    def _crowded(self) -> bool:
        """Whether the engines have made as many whole groups as the trainer is willing to see without a batch.

        Counting them costs more than drawing a few more: after a count that was too low, as many groups must be sent as
        were missing before the next count.
        """
        if self.generated_at_most() < self.crowd or self.started() < self.crowd_look:
            return False
        lacking = self.crowd - (self.started() - len(self.in_generation()))
        self.crowd_look = self.started() + lacking
        return lacking <= 0

    def command(self, what: np.int64, which: int = int(t.ALL), at: float = 0.0, value: float = 0.0) -> float:
        """One of the CMD_ codes of `kernel/tables.py`, to one instance or to all."""
        answer = float(command(self.world.address, int(what), which, at, value))
        if self.activity is not None:
            self.activity.empty_if_full()
        return answer

    def record_activity(self) -> None:
        """Keeps from now on what every instance does (`activity`)."""
        self.activity = ActivityLog(self.world)

    def hold(self, at: float, until: float = math.inf, which: int = int(t.ALL)) -> None:
        """Engines stop at their first iteration boundary at or after `at`."""
        self.command(t.CMD_HOLD, which, at, until)

    def serve_version(self, version: int, which: int = int(t.ALL)) -> None:
        """Requests that an instance starts from now on are of this weight version."""
        self.command(t.CMD_VERSION, which, self.now, value=version)

    def discard(self, doomed: NDArray[np.int64], at: float) -> int:
        """Aborts the unfinished ones of these groups; returns how many there were."""
        if len(doomed) == 0:
            return 0
        self.world.groups["doomed"][doomed] = 1
        return int(self.command(t.CMD_DISCARD, int(doomed.min()), at))

    def owe(self, lost: NDArray[np.int64]) -> None:
        """Groups were thrown away: the groups that start next take the steps that these were reserved for."""
        if self.get("target_groups") and len(lost):
            n = self.get("n_owed")
            self.world.owed[n : n + len(lost)] = self.world.groups["target"][lost]
            self.set(n_owed=n + len(lost))

    def drain(self, i: int) -> None:
        """Instance i takes no more work; `advance` returns when it is empty."""
        self.command(t.CMD_CLOSE, i)
        self.world.instances["draining"][i] = 1
        self.set(n_draining=self.get("n_draining") + 1)

    def drained(self) -> list[int]:
        """Instances that were drained and are empty; they are not watched any more."""
        rows = self.world.instances
        busy = (rows["kind"] == t.JUMP) | (rows["kind"] == t.STEP)
        out = [int(i) for i in np.flatnonzero((rows["draining"] == 1) & (rows["load"] == 0) & ~busy)]
        rows["draining"][out] = 0
        self.set(n_draining=self.get("n_draining") - len(out))
        return out

    def up(self) -> NDArray[np.int64]:
        """Instances that serve or stand still, of the fleet's own and of lent GPUs."""
        return np.flatnonzero(self.world.instances["kind"] != t.DOWN)

    @property
    def lasting(self) -> list[int]:
        """Instances that no lending and no trainer takes away: the fleet's own, and those of the other pools."""
        return [*range(self.own), *range(self.own + self.lent, self.world.n_instances)]

    def kv_use(self, which: int) -> float:
        """Share of its KV blocks that an instance uses now."""
        return self.command(t.CMD_BLOCKS, which, self.now) / float(self.kv_blocks[which])

    def mean_kv_use(self) -> float:
        """The same of all instances that were up when they were last added up."""
        up = self.get("up")
        return self.get("kv_used") / (up * self._mean_blocks) if up else 0.0

    def unfinished(self) -> NDArray[np.int64]:
        """Groups in generation or scoring, in the order in which they were started."""
        status = self.world.groups["status"][self.closed : self.started()]
        found: NDArray[np.int64] = np.flatnonzero(status == t.G_OPEN) + self.closed
        self.closed = int(found[0]) if len(found) else self.get("next_group")
        return found

    def add_up(self, at: float) -> None:
        """Has the kernel add up all instances as they are at `at`: into the fields `up` .. `off_s` of the fleet row."""
        self.command(t.CMD_TOTALS, at=at)

    def prefill_busy_s(self) -> float:
        """Engine-seconds in which prefill engines have computed prompts; 0 where there are none."""
        world, first = self.world, self.world.n_instances
        if len(world.rows) == first:
            return 0.0
        busy = float(world.accounts[first:, t.ACC_BUSY].sum())
        rows = world.rows[first:]
        under_way = rows["account"] == t.ACC_BUSY
        return busy + float((self.now - rows["since"][under_way]).sum())

    def started(self) -> int:
        """Groups of which at least one sample was sent."""
        return self.get("next_group") + int(self.get("sent") > 0)

    def sent(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows of the groups that were started, and of their samples, group after group."""
        first = self.draws.reserved
        groups = self.world.groups[first : self.started()]
        if not (self.draws.exact or first):  # groups start in the order in which they were drawn
            return groups, self.world.samples[: len(groups) * self.group_size]
        samples = self.world.samples.take(self.samples_of(np.arange(first, self.started())))
        samples["group"] -= first
        groups = groups.copy()
        groups["first"] = np.cumsum(groups["size"]) - groups["size"]
        return groups, samples

    def close(self) -> None:
        """Gives the tables back at the end of a run: processes that wait in it for ever know the fleet, in a circle of
        so few objects that Python would let dozens of runs gather before it looks for any."""
        vars(self.world).clear()
        vars(self).clear()

    def generated_at_most(self) -> int:
        """Groups that were sent, less those that the samples in flight would fill; siblings end one after the other."""
        return self.started() - self.get("in_flight") // self.group_size

    def in_generation(self) -> NDArray[np.int64]:
        """Groups of which a sample is still to be generated, in the order in which they were started."""
        groups = self.unfinished()
        if len(groups) == 0:
            return groups
        size = self.world.groups["size"][groups]
        left = self.world.samples["status"][self.samples_of(groups)] <= t.AWAY
        return groups[np.logical_or.reduceat(left, np.cumsum(size) - size)]

    def open_groups(self) -> int:
        """Groups in generation or scoring."""
        return self.started() - self.get("completed_groups") - self.get("aborted_groups")

    def outstanding(self) -> int:
        """Groups sent and neither trained nor thrown away: open, in the buffer, or waiting for room in it."""
        return self.open_groups() + self.get("n_ready") + self.get("n_blocked")

    def stretch(self, factor: float) -> None:
        """The responses of groups that are not sent yet, and of all that are drawn later, are so much longer."""
        self.draws.stretch(factor, self.samples_of(np.arange(self.started(), self.get("n_groups"))))

    def quiet(self) -> bool:
        """Whether no event is pending in the fleet itself."""
        worlds = self.world, *(world for judge in self.judges for world in judge.worlds)
        idle = all(world.clock[1] == world.get("late_s") == math.inf and world.get("n_timers") == 0 for world in worlds)
        return bool(idle)
