"""What the processes of one run share: the clock, the fleet, how far training is, and the records so far."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from fleetsim.config.scenario import Scenario
from fleetsim.engine.first_rows import UNLIMITED
from fleetsim.engine.kernel.tables import BATCH_READY, EMPTY, OUT_OF_PATIENCE, TOO_FULL
from fleetsim.engine.transport import SyncTimes, sync_times
from fleetsim.policies.law import Progress
from fleetsim.sim.admission import give_back, top_up
from fleetsim.sim.buffer import Ids
from fleetsim.sim.deadlock import stuck_error, wasting_error
from fleetsim.sim.fleet import NO_BATCH, Fleet
from fleetsim.sim.pools import gpus_each, pool_price
from fleetsim.sim.scrape import Scraper
from fleetsim.sim.stop import Watch
from fleetsim.workload.groups import GroupSource

# A trainer that is still waiting after so many batches of groups were completed will wait for ever.
MOST_WASTED_BATCHES = 100
Process = Generator[simpy.Event, Any, Any]


@dataclass(slots=True)
class RunState:
    """One run in progress.

    size: instances that the fleet should have, lent ones apart. times: of a weight sync, given or derived. wanted:
    groups that the trainer waits for (0: it does not wait); patience: completed and aborted groups at which it
    gives up; crowd: generated ones at which it does. batch, empty, drained: events that wait for the fleet.
    under_way: things that will change the fleet without it (a sync, a restart): while there are some, a silent
    fleet is not stuck. slowdown: the trainer's. newer: an event for the next version that rolling instances may
    load; loadable: the newest such version; offered: (step, time made, time loadable) of versions that not all of
    them have. pulls, samples: of the trainer since the last publication. deferred: groups put off to a long round.
    lent_s: instance-seconds on the trainer's GPUs. bills: of each other pool, GPUs of an instance, US dollars of a
    GPU-hour. lost: instances that failed for good. reclaimed: instances without
    their spot machine -> an event that another one is found. losses: a step, and instances lost in it. scraper: who
    reads the fleet at even times, if anyone. watch: who is told of each step, and may end the run there. drain: when
    the last drain for a global sync began and ended. written_s: when the last checkpoint is written. evaluation: the
    last one's process; evaluated: an event for its last answer on the fleet; questions: where its requests are drawn;
    evaluated_tokens: generated for evaluations that are over.
    """

    scenario: Scenario
    fleet: Fleet
    replication: int
    size: int
    env: simpy.Environment = field(default_factory=simpy.Environment)
    progress: Progress = field(default_factory=Progress)
    times: SyncTimes = field(init=False)
    bills: tuple[tuple[int, float], ...] = field(init=False)
    wanted: int = 0
    batch: simpy.Event | None = None
    patience: int = 0
    crowd: int = 0
    empty: simpy.Event | None = None
    drained: dict[int, simpy.Event] = field(default_factory=dict)
    under_way: int = 0
    slowdown: float = 1.0
    sync_done: simpy.Event | None = None
    drain: tuple[float, float] = (0.0, 0.0)
    newer: simpy.Event | None = None
    loadable: int = 0
    offered: dict[int, tuple[int, float, float]] = field(default_factory=dict)
    pulls: int = 0
    samples: int = 0
    written_s: float = 0.0
    evaluation: simpy.Event | None = None
    evaluated: simpy.Event | None = None
    questions: GroupSource | None = None
    evaluated_tokens: int = 0
    lost: set[int] = field(default_factory=set)
    reclaimed: dict[int, simpy.Event] = field(default_factory=dict)
    losses: tuple[int, int] = (0, 0)
    deferred: list[int] = field(default_factory=list)
    lent_s: float = 0.0
    done: bool = False
    scraper: Scraper | None = None
    trainer: list[tuple[float, int, int]] = field(default_factory=list)
    watch: Watch | None = None
    steps: list[tuple[Any, ...]] = field(default_factory=list)
    syncs: list[tuple[Any, ...]] = field(default_factory=list)
    failures: list[tuple[Any, ...]] = field(default_factory=list)
    discards: list[tuple[float, int]] = field(default_factory=list)
    stations: list[tuple[Any, ...]] = field(default_factory=list)
    evaluations: list[tuple[Any, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.times, pools = sync_times(self.scenario), self.scenario.fleet.pools
        self.bills = tuple((gpus_each(self.scenario, name), pool_price(self.scenario, name)) for name in pools)
        if self.scenario.evaluation.on_fleet:
            self.progress.window_start = self.fleet.started()  # the row that evaluations share is no group of a window

    def has(self, i: int) -> bool:
        """Whether instance i is one that the fleet should have now: those of the other pools always are."""
        return i < self.size or i >= self.fleet.own

    @property
    def now(self) -> float:
        """Seconds since the start of the run."""
        return float(self.env.now)

    def steps_behind(self, version: int) -> float:
        """Optimizer steps done so far that a weight version does not contain."""
        return len(self.steps) - self.progress.updates[version]

    def trainer_does(self, what: int, step: int, since: float | None = None) -> None:
        """The trainer does `what` (an index into TRAINER_DOES of `records.py`) from now on, or since a time that is
        past, after which nothing was written down."""
        self.trainer.append((self.now if since is None else since, step, what))

    def top_up(self) -> None:
        """Lets the admission law grant what it grants now."""
        top_up(self.scenario, self.fleet, self.progress)

    def discard(self, doomed: Ids) -> int:
        """Aborts the unfinished ones of these groups, which the law no longer counts. Returns how many there were."""
        self.discards += [(self.now, group) for group in (doomed - self.fleet.draws.reserved).tolist()]
        n = self.fleet.discard(doomed, self.now)
        give_back(self.fleet, self.progress, n)
        return n

    def cancel_youngest(self) -> None:
        """Aborts the youngest unfinished groups, until no more samples are in flight than the adaptive pool holds."""
        excess = math.ceil((self.fleet.get("in_flight") - self.fleet.get("steer_pool")) / self.fleet.kept)
        running = self.fleet.unfinished()
        self.discard(running[len(running) - min(max(0, excess), len(running)) :])

    def begin_wait(self) -> None:
        """The trainer begins to wait: from here its patience is counted."""
        ended = self.fleet.get("completed_groups") + self.fleet.get("aborted_groups")
        most = MOST_WASTED_BATCHES * self.scenario.groups_per_step
        self.patience, self.crowd = ended + most, self.fleet.generated_at_most() + most
        self.fleet.crowd_look = 0

    def batch_of(self, groups: int) -> simpy.Event:
        """An event that happens when so many groups are in the buffer."""
        self.wanted, self.batch = groups, self.env.event()
        self.fleet.set(patience=self.patience)
        self.fleet.crowd = self.crowd
        return self.batch

    def next_group(self) -> simpy.Event:
        """An event that happens when another group is completed or aborted."""
        event = self.batch_of(NO_BATCH)
        self.fleet.set(wake=self.fleet.get("completed_groups") + self.fleet.get("aborted_groups") + 1)
        return event

    def fleet_empty(self) -> simpy.Event:
        """An event that happens when nothing is in flight."""
        self.fleet.set(until_empty=1)
        self.empty = self.env.event()
        return self.empty

    def instance_empty(self, i: int) -> simpy.Event:
        """Instance i takes no more work; an event that happens when it has none left."""
        if i not in self.drained:  # else somebody waits for it already
            self.fleet.drain(i)
            self.drained[i] = self.env.event()
        return self.drained[i]


def drive(job: RunState) -> Process:
    """Moves the fleet between the events of the other processes, never past the next of them.

    Raises StuckError when the trainer waits and nothing can ever happen again, or nothing but waste.
    """
    env, fleet = job.env, job.fleet
    while not job.done:
        limit = env.peek()
        code = fleet.advance(limit, job.wanted or NO_BATCH)
        if code == BATCH_READY:
            yield env.timeout(max(0.0, fleet.now - env.now))
            waiting, job.batch, job.wanted = job.batch, None, 0
            fleet.set(patience=UNLIMITED, wake=UNLIMITED)
            fleet.crowd = UNLIMITED
            if job.evaluated is not None and not job.evaluated.triggered and fleet.draws.evaluated():
                job.evaluated.succeed()
            else:
                assert waiting is not None
            if waiting is not None:
                waiting.succeed()
            yield env.timeout(0)
        elif code == EMPTY:
            yield env.timeout(max(0.0, fleet.now - env.now))
            _tell_who_waited(job)
            yield env.timeout(0)
        elif code == TOO_FULL:
            yield env.timeout(max(0.0, fleet.now - env.now))
            job.cancel_youngest()
        elif code == OUT_OF_PATIENCE:
            raise wasting_error(job.scenario, fleet)
        else:
            waits = job.under_way == 0 and (job.batch is not None or job.empty is not None)
            # other events of this moment may still send something
            if math.isinf(limit) or (waits and fleet.quiet() and limit > env.now):
                raise stuck_error(job.scenario, fleet, job.progress)
            yield env.timeout(max(0.0, limit - env.now))


def _tell_who_waited(job: RunState) -> None:
    """The fleet is empty, or some of its instances are."""
    if job.empty is not None and job.fleet.get("in_flight") == 0:
        empty, job.empty = job.empty, None
        job.fleet.set(until_empty=0)
        empty.succeed()
    for i in job.fleet.drained():
        job.drained.pop(i).succeed()
