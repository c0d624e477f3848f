"""Jobs that take turns on the same pools, phase by phase: who has which GPUs when.

A job is a sequence of phases, and a phase needs one pool, alone, for so many seconds: a batch is generated on the
rollout GPUs, then trained on the trainer's, then the next one is generated (nothing of a job overlaps itself, so it is
on-policy). A pool that goes from one job to another takes seconds to switch: weights and states off, others on. Who
asked first is served first. Nothing else is simulated here: the seconds of a phase are those of runs of the job by
itself on as many GPUs, whose engines the phases of other jobs cannot slow down, for they have the GPUs at other times.

Of a rotation whose jobs and pools take constant seconds the long run is known: a round lasts as long as the busiest
pool, or as the longest job, whichever is more (`least_round_s`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

# Rounds of a rotation, and of them those in which it falls into step.
ROUNDS, SETTLING = 120, 20


@dataclass(frozen=True, slots=True)
class PoolPhase:
    """pool: its name. seconds: of each step, shape (steps,), which come again after the last. switch_s: seconds to
    bring the job onto the pool's GPUs after another one."""

    pool: str
    seconds: NDArray[np.float64]
    switch_s: float


@dataclass(frozen=True, slots=True)
class PoolTurn:
    """A job has a pool from began_s to ended_s, to work there or to switch."""

    job: int
    pool: str
    began_s: float
    ended_s: float
    switches: bool


@dataclass(frozen=True, slots=True)
class Timetable:
    """What became of it. rows: who had which pool when. ends: of each job, when its steps ended. span_s: from when to
    when is counted."""

    rows: tuple[PoolTurn, ...]
    ends: tuple[tuple[float, ...], ...]
    span_s: tuple[float, float]

    def step_s(self, job: int) -> float:
        """The mean step of a job within the span."""
        first, last = self.span_s
        inside = [t for t in self.ends[job] if first <= t <= last]
        return (inside[-1] - inside[0]) / (len(inside) - 1)

    def seconds(self, pool: str, job: int | None = None, switches: bool | None = None) -> float:
        """Seconds of the span in which a pool is held: by one job or any, for work (False), switches (True) or both."""
        first, last = self.span_s
        return sum(
            max(0.0, min(row.ended_s, last) - max(row.began_s, first))
            for row in self.rows
            if row.pool == pool and job in (None, row.job) and switches in (None, row.switches)
        )

    @property
    def whole_s(self) -> float:
        """Seconds of the span."""
        return self.span_s[1] - self.span_s[0]


def rotate(jobs: Sequence[Sequence[PoolPhase]], rounds: int = ROUNDS, settling: int = SETTLING) -> Timetable:
    """Runs the jobs until each has made so many steps; what comes before the slowest one's `settling`-th is not
    counted."""
    env = simpy.Environment()
    pools = {phase.pool: simpy.Resource(env) for phases in jobs for phase in phases}
    rows: list[PoolTurn] = []
    ends: list[list[float]] = [[] for _ in jobs]
    owners: dict[str, int] = {}
    done = env.event()

    def work(job: int, phases: Sequence[PoolPhase]) -> Generator[simpy.Event, Any, None]:
        while not done.triggered:
            for phase in phases:
                with pools[phase.pool].request() as turn:
                    yield turn
                    seconds = float(phase.seconds[len(ends[job]) % len(phase.seconds)])
                    switch = phase.switch_s if owners.get(phase.pool, job) != job else 0.0
                    owners[phase.pool] = job
                    ready = env.now + switch
                    rows.append(PoolTurn(job, phase.pool, env.now, ready, True))
                    rows.append(PoolTurn(job, phase.pool, ready, ready + seconds, False))
                    yield env.timeout(switch + seconds)
            ends[job].append(env.now)
            if min(map(len, ends)) >= rounds and not done.triggered:
                done.succeed()

    for job, phases in enumerate(jobs):
        env.process(work(job, phases))
    env.run(until=done)
    begins = max(times[settling - 1] for times in ends)
    return Timetable(tuple(rows), tuple(map(tuple, ends)), (begins, env.now))


def least_round_s(jobs: Sequence[Sequence[PoolPhase]]) -> float:
    """Seconds that a round of constant phases takes at the least: those of the busiest pool with its switches, or of
    the longest job."""
    switches = len(jobs) > 1
    by_pool: dict[str, float] = {}
    for phases in jobs:
        for phase in phases:
            each = float(phase.seconds.mean()) + (phase.switch_s if switches else 0.0)
            by_pool[phase.pool] = by_pool.get(phase.pool, 0.0) + each
    longest = max(sum(float(p.seconds.mean()) for p in phases) for phases in jobs)
    return max(longest, *by_pool.values())
