"""The tables of one fleet in memory: built, grown, and made known to the kernel.

The kernel sees addresses only and checks no bounds: `kernel/sizes.py` says how large each table must be and why, and
nothing is shown to the kernel (`bind`) that is not. Each is sized for the worst case. Only prefix rows have no such
bound (every sync begins new ones while old ones are still read): the kernel checks theirs, and shares nothing more when
they are used up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetsim.engine.compiled import is_checked
from fleetsim.engine.first_rows import UNLIMITED, clock_tree, instance_rows, limit_fields, prefill_fields, time_fields
from fleetsim.engine.kernel.guard import guarded, inspect
from fleetsim.engine.kernel.sizes import SIZES
from fleetsim.engine.kernel.tables import (
    ACCOUNTS,
    DEADLINE,
    FLEET,
    GROUP,
    LANE,
    LEVELS,
    LOG,
    NEEDS,
    PREFIX,
    SAMPLE,
    STATION,
    VISIT,
)
from fleetsim.engine.limits import EngineLimits
from fleetsim.engine.pools import EnginePool, PoolTables, check_alike, pool_rows
from fleetsim.engine.step_time import StepTime

CHECKED = is_checked()
# A sample that was drawn and not sent: it is in no list, and nothing has happened to it.
_UNSENT = np.zeros((), SAMPLE)
for _name in ("group", "instance", "prefill", "prev", "next", "shared", "system", "turn_cache", "asks", "row"):
    _UNSENT[_name] = -1
_UNSENT["turns"] = 1
for _name in ("sent_s", "start_s", "first_token_s", "finish_s"):
    _UNSENT[_name] = -1.0
# A row as so many bytes: copied at once, where numpy copies one with fields field by field, fifty times as slow. So do
# `take` and `compress`, and no index.
_ROW = np.dtype((np.void, SAMPLE.itemsize))
# Of every field of the fleet row: its type, and its place where the whole row is of that type.
_FIELDS = {name: (kind.char, at // kind.itemsize) for name, (kind, at, *_) in (FLEET.fields or {}).items()}
# Tables of the kernel that have another name here, and the one of an instance without prefill engines.
_HELD_AS = {"instances": "rows"}
_NONE = np.zeros(1)
# First rows of a table that gets room ahead, that room counted.
_MANY = 500_000
_NO_STATION = np.zeros(0, STATION)
GROUP_TABLES = ("ready", "blocked", "owed", "lane_of")
SAMPLE_TABLES = ("timer_s", "timer_key", "requeue", "reward_s")
CALL_TABLES = ("tool_s", "tool_tokens")


class World:
    """Tables of a fleet of engines. `fleet` is the one row the kernel starts from; scalars are set through it.

    instances: rows, of which the first `started` (default all) are up; those of `others`, pools behind the same router,
    follow and are up. slow[i] multiplies the iteration time of instance i. system_tokens: shared system prompt.
    several: samples of more than one turn. stations: rows of STATION, see `station_rows`. ahead: the first samples and
    groups get so many times the room they need, for a table that grows later is copied, and rows that nobody writes to
    take no memory.
    """

    def __init__(
        self,
        step_time: StepTime,
        limits: EngineLimits,
        *,
        instances: int,
        started: int | None = None,
        others: Sequence[EnginePool] = (),
        slow: Sequence[float] = (),
        prefix_caching: bool = False,
        system_tokens: int = 0,
        several: bool = False,
        stations: NDArray[Any] = _NO_STATION,
        ahead: int = 1,
    ) -> None:
        up = instances if started is None else started
        pools = EnginePool(step_time, limits, instances), *others
        check_alike(pools)
        instances += sum(pool.instances for pool in others)
        prefill = step_time.prefill
        engines = 0 if prefill is None else prefill.engines
        every = instances * (1 + engines)
        half = 1 << math.ceil(math.log2(max(1, every)))
        most = max(pool.limits.max_num_seqs for pool in pools)
        self.fleet = np.zeros(1, FLEET)
        # The row once for each type of its fields: numpy takes five times as long to read or write one field.
        row = self.fleet.view(np.uint8).data
        self._row = {kind: row.cast(kind) for kind, _ in _FIELDS.values()}  # type: ignore[call-overload]
        self.address = int(self.fleet.ctypes.data)  # what the kernel's functions take
        self._shown: dict[str, NDArray[Any]] = {}  # tables whose places the kernel knows
        self.n_instances, self._ahead = instances, ahead
        self.followers: list[Callable[[], None]] = []  # told at each `bind`: what holds a row for each row here
        self.rows = _rows_of(pools, up, slow)
        self.pools = pool_rows(pools)
        self.ends = np.zeros((instances, most), np.int64)
        self.crossings = np.zeros((instances, 1 if step_time.window is None else most), np.int64)
        self.residues = np.zeros((instances, limits.block_size), np.int32)
        self.dirty = np.zeros(every, np.int32)
        self.accounts = np.zeros((every, int(ACCOUNTS)))  # seconds idle, busy, paused, down, off
        self.clock = np.full(2 * half, np.inf)
        serving = np.append(self.instances["accepting"] == 1, np.zeros(half - instances, np.bool_))
        self.loads = clock_tree(np.where(serving, 0.0, np.inf))
        drafts = self._timed(pools)
        self.stations, self.needs = stations, np.zeros((2 if len(stations) else 0, int(NEEDS)))
        most_warm = int(max(stations["warm"], default=0))
        self.levels = np.zeros((2 * len(stations), int(LEVELS)))
        self.warm_s = np.zeros((len(stations), max(1, most_warm)))
        self._without_work()
        self.set(
            cap=UNLIMITED,
            cap_instance=UNLIMITED,
            cap_groups=UNLIMITED,
            ready_cap=UNLIMITED,
            patience=UNLIMITED,
            wake=UNLIMITED,
            returns=1,
            together=1,
            caching=int(prefix_caching),
            system_blocks=system_tokens // limits.block_size,
            **limit_fields(limits, step_time.window),
            turns=1 + several,
            n_stations=len(stations),
            most_warm=most_warm,
            tool_station=-1,
            reward_station=-1,
            turn_limit=-1,
            episode_limit=-1,
            due_s=math.inf,
            late_s=math.inf,
            half=half,
            n_instances=instances,
            n_rows=every,
            **time_fields(step_time),
            **prefill_fields(prefill),
            n_pools=len(pools),
            hosts=int(prefix_caching and any(pool.limits.host_blocks for pool in pools)),
            most_seqs=most,
            most_tokens=self.table_s.shape[1],
            redrafts=int(drafts.redrafts),
            ages=len(self.growths),
            most_drafts=self.growths.shape[1],
        )
        self.bind()

    def _timed(self, pools: Sequence[EnginePool]) -> PoolTables:
        """The tables of seconds, and of what drafts bring."""
        tables, prefill = PoolTables.of(pools), pools[0].step_time.prefill
        self.table_s, self.drafts, self.growths = tables.table_s, tables.drafts, tables.growths
        self.draft_s, self.draft_kv_s = tables.draft_s, tables.draft_kv_s
        self.prompt_table_s = _NONE if prefill is None else prefill.table()
        return tables

    def _without_work(self) -> None:
        """The tables of samples, groups and what waits for them, before anything is drawn."""
        self.n_groups = 0  # drawn, of which the kernel knows those of the last `bind`
        self.samples = np.zeros(0, SAMPLE)
        self.groups = np.zeros(0, GROUP)
        self.prefixes = np.zeros(0, PREFIX)
        self.timer_s = np.zeros(0)
        self.timer_key = np.zeros(0, np.int64)
        self.requeue = np.zeros(0, np.int32)
        self.visits = np.zeros(0, VISIT)
        self.deadlines = np.zeros(0, DEADLINE)
        self.ready = np.zeros(0, np.int32)
        self.blocked = np.zeros(0, np.int32)
        self.owed = np.zeros(0, np.int32)
        self.lane_of = np.zeros(0, np.int32)
        self.lanes = np.zeros(1, LANE)
        self.log = np.zeros(0, LOG)
        self.reward_s = np.zeros(0)
        self.loaded_s = np.zeros(0)
        self.tool_s = np.zeros(0)
        self.tool_tokens = np.zeros(0, np.int32)
        self.goals = np.zeros(0, np.int32)
        self.arrival_s = np.zeros(0)
        self.arrival = np.zeros(0, np.int32)

    if CHECKED:

        def __setattr__(self, name: str, value: Any) -> None:
            """Every table has a fence around it, whoever makes it."""
            object.__setattr__(self, name, guarded(value) if isinstance(value, np.ndarray) else value)

    @property
    def instances(self) -> NDArray[Any]:
        """The rows of the instances, without those of their prefill engines."""
        return self.rows[: self.n_instances]

    @instances.setter
    def instances(self, rows: NDArray[Any]) -> None:
        self.rows = rows

    def both_sides(self) -> NDArray[Any]:
        """The same rows, with what their prefill engines hold and have computed; a copy where there are any."""
        if len(self.rows) == self.n_instances:
            return self.rows
        both, behind = self.instances.copy(), self.rows[self.n_instances :].reshape(self.n_instances, -1)
        for name in ("running", "waiting", "prefilled", "hit_tokens"):
            both[name] += behind[name].sum(axis=1)
        return both

    def inspect(self) -> None:
        """At the end of a run: raises IndexError if the checked build finds a fence overwritten."""
        if CHECKED:
            inspect(self.address)

    def set(self, **scalars: float) -> None:
        """Sets fields of the fleet row."""
        for name, value in scalars.items():
            kind, at = _FIELDS[name]
            self._row[kind][at] = value

    def get(self, name: str) -> Any:
        """One field of the fleet row."""
        kind, at = _FIELDS[name]
        return self._row[kind][at]

    def bind(self) -> int:
        """Tells the kernel where the tables are and which groups there are; returns the address its functions take.

        Raises IndexError when a table is not of the type and size that `kernel/sizes.py` asks for.
        """
        row = dict(zip(FLEET.names or (), self.fleet[0].item(), strict=True)) | {"n_groups": self.n_groups}
        if row["ready_cap"] < 1:
            raise IndexError("a buffer that holds no group: the rules of a scenario refuse it")
        for name, size in SIZES.items():
            table, need = getattr(self, _HELD_AS.get(name, name)), size.shape(row)
            shape = table.shape
            fits = shape[1:] == need[1:] and shape[0] >= need[0] and table.dtype == size.dtype
            if not fits or not (CHECKED or table.flags.c_contiguous):
                raise IndexError(f"table {name} is {table.dtype} of {table.shape}, needs {size.dtype} of {need}")
            self._show(name)
        self.set(n_groups=self.n_groups)
        for follow in self.followers:
            follow()
        return self.address

    def open_lanes(self, n: int, places: int) -> None:
        """So many groups of environments play, each with so many places."""
        self.lanes = np.zeros(1 + n, LANE)
        self.lanes["free"] = places
        self.set(n_lanes=n)
        self.bind()

    def add_samples(self, n: int) -> slice:
        """Room for n more samples, unsent; returns their rows. Tables that are full grow by half at least.

        Raises MemoryError when they cannot; the kernel may go on with what it has.
        """
        used = self.get("n_samples")
        if used + n > len(self.samples):
            room = max(used + n, len(self.samples) * 3 // 2) if used else self._first(n)
            if self.get("caching"):
                rows = room * (2 if self.get("turns") > 1 or self.get("hosts") else 1) + 2 * len(self.instances)
                rows *= 2 if self.get("prefills") else 1  # a prompt is known on both sides
                self._lengthen("prefixes", rows)
                self.set(cap_prefixes=rows)
            own = (*SAMPLE_TABLES, *(["visits"] if len(self.stations) else []))
            own += ("loaded_s",) if self.get("hosts") else ()
            if max(self.get("turn_limit"), self.get("episode_limit")) >= 0:
                self._lengthen("deadlines", 2 * room)
            for name in (*own, "samples"):  # the one whose length is asked is the last to grow
                self._lengthen(name, room)
        self.set(n_samples=used + n)
        self.samples.view(_ROW)[used : used + n] = _UNSENT.view(_ROW)
        return slice(used, used + n)

    def add_calls(self, n: int) -> slice:
        """Room for n more calls of tools; returns their rows. Raises MemoryError like `add_samples`."""
        used = self.get("n_calls")
        if used + n > len(self.tool_s):
            room = max(used + n, len(self.tool_s) * 3 // 2)
            for name in (*CALL_TABLES, *(["goals"] if self.get("has_goals") else [])):
                self._lengthen(name, room)
        self.set(n_calls=used + n)
        return slice(used, used + n)

    def heard(self, samples: NDArray[Any]) -> NDArray[np.int64]:
        """Tokens that tools answer to each of these rows, all its turns together."""
        if self.get("n_calls") == 0 or len(samples) == 0:
            return np.zeros(len(samples), np.int64)
        first, calls = samples["first_call"], samples["turns"] - 1
        start, end = int(first.min()), int((first + calls).max())
        before = np.concatenate([[0], np.cumsum(self.tool_tokens[start:end], dtype=np.int64)])
        return np.asarray(before[first - start + calls] - before[first - start])

    def add_groups(self, n: int) -> slice:
        """Room for n more groups, unsent; returns their rows. The kernel may use them from the next `bind` on.

        Raises MemoryError like `add_samples`.
        """
        used = self.get("n_groups")
        if used + n > len(self.groups):
            room = max(used + n, len(self.groups) * 3 // 2) if used else self._first(n)
            for name in (*GROUP_TABLES, "groups"):
                self._lengthen(name, room)
        new = self.groups[used : used + n]
        new["prefixes"], new["trained_step"] = -1, -1
        new["submit_s"], new["ready_s"], new["left_s"] = -1.0, -1.0, -1.0
        self.n_groups = used + n
        return slice(used, used + n)

    def _first(self, n: int) -> int:
        """Rows of a table that has none."""
        return max(n, min(self._ahead * n, _MANY))

    def _lengthen(self, name: str, n: int) -> None:
        """Gives a table n rows at least, and tells the kernel at once: the old one is freed here."""
        table = getattr(self, name)
        if len(table) < n:
            setattr(self, name, _longer(table, n))
            self._show(name)

    def _show(self, name: str) -> None:
        """Tells the kernel where a table is, unless it knows: to ask numpy takes longer than all the rest of it."""
        table = getattr(self, _HELD_AS.get(name, name))
        if self._shown.get(name) is not table:
            self._shown[name] = table
            self.set(**{name: table.ctypes.data})


def _rows_of(pools: Sequence[EnginePool], up: int, slow: Sequence[float]) -> NDArray[Any]:
    """The instances, pool after pool, and behind them their prefill engines."""
    first, *others = pools
    instances, prefill = first.instances, first.step_time.prefill
    rows = instance_rows(instances, up, first.limits.kv_blocks, slow)
    if others:
        further = [instance_rows(o.instances, o.instances, o.limits.kv_blocks, (), 1 + k) for k, o in enumerate(others)]
        return np.concatenate([rows, *further])
    if prefill is None:
        return rows
    n, slow_engines = prefill.engines, [each for each in slow for _ in range(prefill.engines)]
    return np.concatenate([rows, instance_rows(instances * n, up * n, prefill.limits.kv_blocks, slow_engines)])


def _longer(array: NDArray[Any], n: int) -> NDArray[Any]:
    out = np.zeros((n, *array.shape[1:]), array.dtype)
    if len(array):
        out[: len(array)].view(np.uint8)[:] = array.view(np.uint8)  # as bytes: see _ROW
    return out
