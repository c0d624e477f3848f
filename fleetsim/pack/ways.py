"""The ways to share GPUs among jobs, and what each comes to.

- alone: a job has all GPUs; what every other way is held against.
- apart: each job has a part of the GPUs for itself, and uses it in the best way that `split` finds.
- by phase: one set of rollout GPUs and one of trainer GPUs for all: while one job trains, another one generates.
- in turn: every job has all GPUs for a whole step (generation, training, hand-over), one after the other.

By phase and in turn each job runs batch by batch, so it is on-policy. Jobs that share engines (adapters on one base)
are not simulated: the kernel's fleet serves one job.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import simpy
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.engine.gpus import gpu_of
from fleetsim.engine.prices import prices_of
from fleetsim.errors import InputError, Problem, StuckError
from fleetsim.faces import flag
from fleetsim.job.trials import Measure, Tell, planned
from fleetsim.search.arrangements import SWITCH_S, Arrangement, Rules, colocated_sync, split_counts, split_in_turn
from fleetsim.search.objective import beside_usd_per_h
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from fleetsim.split.split import best_way
from fleetsim.split.ways import Outcome

if TYPE_CHECKING:
    from fleetsim.config.scenario import Scenario
    from fleetsim.job.base_job import Job

# --- Jobs that take turns on the same pools, phase by phase: who has which GPUs when.
#
#     A job is a sequence of phases, and a phase needs one pool, alone, for so many seconds: a batch is generated on the
#     rollout GPUs, then trained on the trainer's, then the next one is generated (nothing of a job overlaps itself, so
#     it is on-policy). A pool that goes from one job to another takes seconds to switch: weights and states off, others
#     on. Who is of the highest class is served first, and of one class who asked first. Generation gives way to a
#     higher class at once and goes on later where it was; training does not, for its state is not given up half-way.
#     All GPUs of a pool change hands together, as a gang scheduler does it. Nothing else is simulated here: the seconds
#     of a phase are those of runs of the job by itself on as many GPUs, whose engines the phases of other jobs cannot
#     slow down, for they have the GPUs at other times.
#
#     Of a rotation whose jobs and pools take constant seconds the long run is known: a round lasts as long as the
#     busiest pool, or as the longest job, whichever is more (tests/pack/test_pack.py).

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


Kind = Literal["apart", "by_phase", "in_turn"]
ROLLOUT, TRAINER = "rollout", "trainer"
# Parts into which GPUs are divided, at most.
_PARTS = 8


class JobShare(Struct, frozen=True):
    """What one job has of a way. gpus: it may use. step_s: seconds of a step; slower: that / the same alone on all
    GPUs. usd: dollars of a step. way: how it uses them."""

    gpus: int
    step_s: float
    slower: float
    usd: float
    way: str


class Way(Struct, frozen=True):
    """One way to share. duty: share of the GPUs' time in which they generate or train; switching: in which they change
    hands. shares: a job each. outcomes: apart, what `split` found for each job."""

    kind: Kind
    label: str
    shares: tuple[JobShare, ...]
    duty: float
    switching: float
    outcomes: tuple[Outcome, ...] = ()

    @property
    def worst(self) -> float:
        """The largest slow-down of a job."""
        return max(share.slower for share in self.shares)

    @property
    def mean(self) -> float:
        """The mean slow-down of the jobs."""
        return sum(share.slower for share in self.shares) / len(self.shares)

    @property
    def usd_per_round(self) -> float:
        """Dollars of one step of every job."""
        return sum(share.usd for share in self.shares)


@dataclass(eq=False)
class Pool:
    """The jobs on so many GPUs of one type."""

    jobs: tuple[Job, ...]
    gpus: int
    switch_s: float | None
    classes: Mapping[int, int]
    measure: Measure
    tell: Tell
    _alone: dict[tuple[int, int], Outcome | InputError | StuckError] = field(default_factory=dict)

    @cached_property
    def scenarios(self) -> tuple[Scenario, ...]:
        """As they are planned: no resize on the way."""
        return tuple(planned(job.scenario, job.given) for job in self.jobs)

    def best(self, job: int, gpus: int) -> Outcome | InputError | StuckError:
        """The best way of one job on so many GPUs for itself; where they are too few for it, the error that says so."""
        key = (job, gpus)
        if key not in self._alone:
            self.tell(f"{self.jobs[job].scenario.name}: the best way to use {gpus:,} GPUs")
            try:
                self._alone[key] = best_way(self.jobs[job].scenario, gpus, self.jobs[job].given, self.measure)
            except (InputError, StuckError) as error:
                self._alone[key] = error
        return self._alone[key]

    def alone_s(self, job: int) -> float:
        """Seconds of its step with all GPUs to itself. Raises InputError and StuckError where they are too few."""
        found = self.best(job, self.gpus)
        if not isinstance(found, Outcome):
            raise found
        return found.mean("step_s")

    def ways(self) -> tuple[Way, ...]:
        """All that can run."""
        return (*self._apart(), *self._by_phase(), *self._in_turn())

    # --- Apart

    def _apart(self) -> Iterator[Way]:
        parts = self.gpus // self.unit
        for cuts in combinations(range(1, parts), len(self.jobs) - 1):
            ends = (0, *cuts, parts)
            counts = [self.unit * (b - a) for a, b in pairwise(ends)]
            tried = [self.best(job, n) for job, n in enumerate(counts)]
            found = [way for way in tried if isinstance(way, Outcome)]
            if len(found) == len(tried):
                yield self._apart_way(counts, found)

    @cached_property
    def unit(self) -> int:
        """GPUs that are given to a job together: the least part, or number, of servers that makes few enough."""
        server = gpu_of(self.scenarios[0].engine).node_gpus
        whole = [n for n in range(1, self.gpus + 1) if self.gpus % n == 0 and (server % n == 0 or n % server == 0)]
        return next(n for n in (*whole, self.gpus) if self.gpus // n <= _PARTS)

    def _apart_way(self, counts: Sequence[int], found: Sequence[Outcome]) -> Way:
        shares = tuple(
            JobShare(
                n, o.mean("step_s"), o.mean("step_s") / self.alone_s(job), o.mean("cost_per_step"), o.arrangement.label
            )
            for job, (n, o) in enumerate(zip(counts, found, strict=True))
        )
        duty = sum(n * _duty(o) for n, o in zip(counts, found, strict=True)) / self.gpus
        return Way("apart", " + ".join(f"{n:,}" for n in counts), shares, duty, 0.0, tuple(found))

    # --- On shared GPUs

    def _by_phase(self) -> Iterator[Way]:
        for rollout in range(self.unit, self.gpus, self.unit):
            try:
                cycles = [self._cycle(job, rollout) for job in range(len(self.jobs))]
                sizes = {ROLLOUT: rollout, TRAINER: self.gpus - rollout}
                yield self._rotation("by_phase", f"{rollout:,} + {self.gpus - rollout:,}", cycles, sizes)
            except (InputError, StuckError):
                continue

    def _cycle(self, job: int, rollout: int) -> tuple[PoolPhase, ...]:
        """Generation and training of one job on shared pools, as its own run on them has it."""
        scenario = self.scenarios[job]
        each = scenario.engine.gpus
        counts = split_counts(scenario, self.gpus, Rules(1))
        if rollout % each or rollout // each not in counts:
            raise InputError([Problem(flag("gpus"), rollout, "makes no whole instances", "another split")])
        steps = _steps(split_in_turn(scenario, rollout // each, self.gpus))
        switch = self.switch_s_of(scenario)
        generated = steps["wait_s"]
        trained = steps["end_s"] - steps["start_s"] - generated
        return PoolPhase(ROLLOUT, generated, switch, gives_way=True), PoolPhase(TRAINER, trained, switch)

    def _in_turn(self) -> Iterator[Way]:
        cycles = []
        for scenario in self.scenarios:
            try:
                steps = _steps(colocated_sync(scenario, self.gpus))
            except (InputError, StuckError):
                return
            whole = steps["end_s"] - steps["start_s"]
            cycles.append((PoolPhase("all", whole, self.switch_s_of(scenario)),))
        try:
            yield self._rotation("in_turn", "all GPUs, a step each", cycles, {"all": self.gpus})
        except StuckError:
            return

    def switch_s_of(self, scenario: Scenario) -> float:
        """Seconds until GPUs that another job had serve this one."""
        if self.switch_s is not None:
            return self.switch_s
        return scenario.fleet.switch_s or SWITCH_S

    def _rotation(self, kind: Kind, label: str, cycles: Sequence[Sequence[PoolPhase]], sizes: Mapping[str, int]) -> Way:
        """GPUs cost what the first job's do, and a job pays for what it holds, for its workers and judges always."""
        table, price = rotate(cycles, classes=self.classes), prices_of(self.scenarios[0])
        each = {TRAINER: price.trainer}
        paid = {pool: n * each.get(pool, price.rollout) for pool, n in sizes.items()}
        held = [sum(usd * table.seconds(pool, job) for pool, usd in paid.items()) for job in range(len(cycles))]
        whole = sum(held) or 1.0  # free GPUs
        shares = []
        for job, part in enumerate(held):
            step = table.step_s(job)
            usd = (sum(paid.values()) * part / whole + beside_usd_per_h(self.scenarios[job])) * step / 3600.0
            shares.append(JobShare(self.gpus, step, step / self.alone_s(job), usd, "batch by batch"))
        duty, switching = (
            sum(n * table.seconds(pool, switches=switches) for pool, n in sizes.items()) / (self.gpus * table.whole_s)
            for switches in (False, True)
        )
        return Way(kind, label, tuple(shares), duty, switching)


def _steps(way: Arrangement) -> np.ndarray:
    """The steps of one long run that count."""
    return window_of(simulate(way.scenario)).steps


def _duty(found: Outcome) -> float:
    """The share of its GPUs' time in which a job generates or trains."""
    way = found.arrangement
    computing = 1.0 - found.mean("not_training_fraction")
    generating = 1.0 - found.mean("rollout_idle_fraction")
    if not way.apart:  # the same GPUs in turn: what is neither handed over nor waited for
        return 1.0 - found.mean("switch_fraction")
    return (way.rollout_gpus * generating + way.trainer_gpus * computing) / (way.rollout_gpus + way.trainer_gpus)


def chosen(ways: Sequence[Way], protect: Mapping[int, float], by: Callable[[Way], tuple[float, float]]) -> Way | None:
    """The best way that keeps every protected job's slow-down; None where none does. protect: job -> largest."""
    kept = [way for way in ways if all(way.shares[job].slower <= most for job, most in protect.items())]
    return min(kept, key=by, default=None)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Packing:
    """How several jobs share GPUs.

    jobs: with their names. ways: all that run, the best first. best: the first that keeps what is protected; None where
    none does. alone_s: of each job, seconds of a step with all GPUs to itself. fair: whether the worst slow-down was
    made least, else the mean one. protected: number of a job -> the largest slow-down that it may have. switch_s: of
    each job, seconds until GPUs that another one had serve it. classes: number of a job -> its class.
    """

    jobs: tuple[Job, ...]
    gpus: int
    ways: tuple[Way, ...]
    best: Way | None
    alone_s: tuple[float, ...]
    fair: bool
    protected: Mapping[int, float]
    switch_s: tuple[float, ...]
    classes: Mapping[int, int]
    warnings: tuple[str, ...]
