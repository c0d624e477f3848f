"""Jobs that take turns on the same pools, phase by phase: who has which GPUs when.

A job is a sequence of phases, and a phase needs one pool, alone, for so many seconds: a batch is generated on the
rollout GPUs, then trained on the trainer's, then the next one is generated (nothing of a job overlaps itself, so it is
on-policy). A pool that goes from one job to another takes seconds to switch: weights and states off, others on. Who is
of the highest class is served first, and of one class who asked first. Generation gives way to a higher class at once
and goes on later where it was; training does not, for its state is not given up half-way. All GPUs of a pool change
hands together, as a gang scheduler does it. Nothing else is simulated here: the seconds of a phase are those of runs of
the job by itself on as many GPUs, whose engines the phases of other jobs cannot slow down, for they have the GPUs at
other times.

Of a rotation whose jobs and pools take constant seconds the long run is known: a round lasts as long as the busiest
pool, or as the longest job, whichever is more (tests/pack/test_pack.py).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np
import simpy
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.errors import StuckError

# Rounds of a rotation, and of them those in which it falls into step.
ROUNDS, SETTLING = 120, 20
# A job makes so many steps for one of another at most: the other one gets no turn then.
_STARVED = 50


class PoolPhase(Struct, frozen=True):
    """pool: its name. seconds: of each step, shape (steps,), which come again after the last. switch_s: seconds to
    bring the job onto the pool's GPUs after another one. gives_way: to a job of a higher class, at any time."""

    pool: str
    seconds: NDArray[np.float64]
    switch_s: float
    gives_way: bool = False


class PoolTurn(Struct, frozen=True):
    """A job has a pool from began_s to ended_s, to work there or to switch."""

    job: int
    pool: str
    began_s: float
    ended_s: float
    switches: bool


class Timetable(Struct, frozen=True):
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


def rotate(
    jobs: Sequence[Sequence[PoolPhase]],
    rounds: int = ROUNDS,
    settling: int = SETTLING,
    classes: Mapping[int, int] | None = None,
) -> Timetable:
    """Runs the jobs until each has made so many steps; what comes before the slowest one's `settling`-th is not
    counted. classes: number of a job -> its class, 0 where it has none; the higher one goes first. Raises StuckError
    where a job of a lower class gets no turn."""
    env, rank = simpy.Environment(), classes or {}
    pools = {phase.pool: simpy.PreemptiveResource(env) for phases in jobs for phase in phases}
    rows: list[PoolTurn] = []
    ends: list[list[float]] = [[] for _ in jobs]
    owners: dict[str, int] = {}
    done = env.event()

    def held(job: int, phase: PoolPhase, left: float) -> Generator[simpy.Event, Any, float]:
        """One turn at a pool; returns the seconds of work that are left, where the turn was taken away."""
        with pools[phase.pool].request(-rank.get(job, 0), preempt=phase.gives_way) as turn:
            try:
                yield turn
            except simpy.Interrupt:  # taken away at the very time at which it was given
                return left
            switch = phase.switch_s if owners.get(phase.pool, job) != job else 0.0
            owners[phase.pool] = job
            began, at = env.now, len(rows)
            ready = began + switch
            rows.append(PoolTurn(job, phase.pool, began, ready, True))
            rows.append(PoolTurn(job, phase.pool, ready, ready + left, False))
            try:
                yield env.timeout(switch + left)
            except simpy.Interrupt:
                rows[at] = PoolTurn(job, phase.pool, began, min(ready, env.now), True)
                rows[at + 1] = PoolTurn(job, phase.pool, min(ready, env.now), env.now, False)
                return left - max(0.0, env.now - ready)
        return 0.0

    def work(job: int, phases: Sequence[PoolPhase]) -> Generator[simpy.Event, Any, None]:
        while not done.triggered:
            for phase in phases:
                left = float(phase.seconds[len(ends[job]) % len(phase.seconds)])
                again = True
                while again:
                    left = yield from held(job, phase, left)
                    again = left > 0.0
            ends[job].append(env.now)
            enough = min(map(len, ends)) >= rounds or len(ends[job]) >= _STARVED * rounds
            if enough and not done.triggered:
                done.succeed()

    for job, phases in enumerate(jobs):
        env.process(work(job, phases))
    env.run(until=done)
    if min(map(len, ends)) < rounds:
        raise StuckError("a job of a lower class gets no turn at the GPUs; give it a higher one, or its own", [])
    begins = max(times[settling - 1] for times in ends)
    return Timetable(tuple(rows), tuple(map(tuple, ends)), (begins, env.now))
