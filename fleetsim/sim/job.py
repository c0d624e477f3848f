"""What the processes of one run share: the clock, the fleet, how far training is, and the records so far."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from fleetsim.config.scenario import Scenario
from fleetsim.engine.kernel.tables import BATCH_READY, FLEET_EMPTY, OUT_OF_PATIENCE
from fleetsim.engine.state import UNLIMITED
from fleetsim.sim.admission import Progress, top_up
from fleetsim.sim.fleet import NO_BATCH, Fleet
from fleetsim.sim.stuck import stuck_error, wasting_error

# A trainer that waited while so many batches' worth of groups were completed will wait for ever.
MOST_WASTED_BATCHES = 100
Process = Generator[simpy.Event, Any, Any]


@dataclass(slots=True)
class Job:
    """One run in progress.

    wanted: groups that the trainer waits for (0: it does not wait). batch, empty: events that wait for the fleet.
    under_way: things that will change the fleet without it (a sync, a restart): while there are some, a silent fleet
    is not stuck. slowdown: the trainer's.
    """

    scenario: Scenario
    fleet: Fleet
    replication: int
    env: simpy.Environment = field(default_factory=simpy.Environment)
    progress: Progress = field(default_factory=Progress)
    wanted: int = 0
    batch: simpy.Event | None = None
    empty: simpy.Event | None = None
    under_way: int = 0
    slowdown: float = 1.0
    sync_done: simpy.Event | None = None
    done: bool = False
    steps: list[tuple[Any, ...]] = field(default_factory=list)
    syncs: list[tuple[Any, ...]] = field(default_factory=list)
    failures: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def now(self) -> float:
        """Seconds since the start of the run."""
        return float(self.env.now)

    def top_up(self) -> None:
        """Lets the admission law grant what it grants now."""
        top_up(self.scenario, self.fleet, self.progress)

    def batch_of(self, groups: int) -> simpy.Event:
        """An event that happens when so many groups are in the buffer."""
        self.wanted, self.batch = groups, self.env.event()
        self.fleet.set(patience=self.fleet.get("completed_groups") + MOST_WASTED_BATCHES * groups)
        return self.batch

    def fleet_empty(self) -> simpy.Event:
        """An event that happens when nothing is in flight."""
        self.fleet.set(until_empty=1)
        self.empty = self.env.event()
        return self.empty


def drive(job: Job) -> Process:
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
            fleet.set(patience=UNLIMITED)
            assert waiting is not None
            waiting.succeed()
            yield env.timeout(0)
        elif code == FLEET_EMPTY:
            yield env.timeout(max(0.0, fleet.now - env.now))
            drained, job.empty = job.empty, None
            fleet.set(until_empty=0)
            assert drained is not None
            drained.succeed()
            yield env.timeout(0)
        elif code == OUT_OF_PATIENCE:
            raise wasting_error(job.scenario, fleet)
        else:
            waits = job.batch is not None and job.under_way == 0
            if math.isinf(limit) or (waits and fleet.quiet()):
                raise stuck_error(job.scenario, fleet, job.progress)
            yield env.timeout(max(0.0, limit - env.now))
