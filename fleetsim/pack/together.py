"""How jobs share GPUs: in turn (first here); or, where their adapters share one base, together: their requests run side
by side on the same engines, and each job trains on GPUs of its own.

The kernel's fleet serves one job. So each is simulated by itself on engines that are as slow and as full as the
requests of the others make them in the mean: what one job holds there follows from its run, and the runs are made again
until they agree (a mean field). Where requests wait for room, all wait in one queue: each job has the part of the cache
with which its requests wait as long as those of the others. It leaves out that bursts of two jobs may meet: steps are
within 5 % of those of jobs that are simulated together, iteration by iteration, and within 8 % where requests wait for
room (tests/pack/test_together.py).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import simpy
from msgspec import Struct
from numpy.typing import NDArray

from fleetsim.config.load import with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.engine.step_time import StepTime
from fleetsim.errors import StuckError
from fleetsim.job.looks import looked
from fleetsim.policies.samples import IN_FLIGHT
from fleetsim.records import replace
from fleetsim.sim.engines import Engine, engine_of
from fleetsim.sim.records import Records
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of
from fleetsim.workload.lengths import mean_length

# --- Jobs that take turns on the same pools, phase by phase: who has which GPUs when.
#
# A job is a sequence of phases, and a phase needs one pool, alone, for so many seconds: a batch is generated on the
# rollout GPUs, then trained on the trainer's. The next one is generated after that, for a job is on-policy here, or
# before, by as many batches as it may be ahead.
# A pool that goes from one job to another takes seconds to switch: weights and states off, others on.
# Who is of the highest class is served first, and of one class who asked first. Generation gives way to a higher
# class at once and goes on later where it was; training does not, for its state is not given up half-way. All GPUs of
# a pool change hands together, as a gang scheduler does it. Nothing else is simulated here: the seconds of a phase
# are those of runs of the job by itself on as many GPUs, whose engines the phases of other jobs cannot slow down, for
# they have the GPUs at other times.
#
# Of a rotation whose jobs and pools take constant seconds the long run is known: a round lasts as long as the busiest
# pool, or as the longest job, whichever is more (tests/pack/test_pack.py).

# Rounds of a rotation, and of them those in which it falls into step.
ROUNDS, SETTLING = 120, 20
# A job makes so many steps for one of another at most: the other one gets no turn then.
_STARVED = 50


class PoolPhase(Struct, frozen=True):
    """pool: its name. seconds: of each step, shape (steps,), which come again after the last. switch_s: seconds to
    bring the job onto the pool's GPUs after another one. gives_way: to a job of a higher class, at any time. tail_s:
    of what is ahead, seconds until it is there while the next one has the pool: its longest responses."""

    pool: str
    seconds: NDArray[np.float64]
    switch_s: float
    gives_way: bool = False
    tail_s: float = 0.0


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
    ahead: Sequence[float] = (),
) -> Timetable:
    """Runs the jobs until each has made so many steps; what comes before the slowest one's `settling`-th is not
    counted. classes: number of a job -> its class, 0 where it has none; the higher one goes first. ahead: of each job,
    batches by which its first phase may be ahead of its other ones, 0 where it says none. Raises StuckError where a job
    of a lower class gets no turn."""
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

    def through(job: int, phases: Sequence[PoolPhase], step: int) -> Generator[simpy.Event, Any, None]:
        for phase in phases:
            left, again = float(phase.seconds[step % len(phase.seconds)]), True
            while again:
                left = yield from held(job, phase, left)
                again = left > 0.0

    def ends_later(seconds: float, made: simpy.Container) -> Generator[Any, Any, None]:
        yield env.timeout(seconds)
        yield made.put(1)

    def generate(job: int, first: PoolPhase, may: simpy.Container, made: simpy.Container) -> Generator[Any, Any, None]:
        for step in count():
            yield may.get(1)
            yield from through(job, [first], step)
            env.process(ends_later(first.tail_s, made))

    def work(job: int, phases: Sequence[PoolPhase]) -> Generator[simpy.Event, Any, None]:
        apart = job < len(ahead) and ahead[job] > 0
        may, made = simpy.Container(env, init=ahead[job] + 1 if apart else 1), simpy.Container(env)
        if apart:
            env.process(generate(job, phases[0], may, made))
        while not done.triggered:
            if apart:
                yield made.get(1)
            yield from through(job, phases[1:] if apart else phases, len(ends[job]))
            ends[job].append(env.now)
            if apart:
                yield may.put(1)
            enough = min(map(len, ends)) >= rounds or (bool(rank) and len(ends[job]) >= _STARVED * rounds)
            if enough and not done.triggered:
                done.succeed()

    for job, phases in enumerate(jobs):
        env.process(work(job, phases))
    env.run(until=done)
    if min(map(len, ends)) < rounds:
        raise StuckError("a job of a lower class gets no turn at the GPUs; give it a higher one, or its own", [])
    begins = max(times[settling - 1] for times in ends)
    return Timetable(tuple(rows), tuple(map(tuple, ends)), (begins, env.now))


# --- Jobs on the same engines at once.

# Rounds of looks at the most, and those of long runs that follow. Of a round so much is taken over: runs that answer to
# all of what the others changed would swing.
_LOOKS, _LONG, _TAKEN = 12, 2, 0.5
# Requests wait for no room where they wait for less than this share of a step; and by which power of its wait beside
# the mean one a job's part of the cache grows from round to round.
_NO_WAIT, _BENT = 0.01, 0.5
# The longest request of any draw, beside that of a run, at the most.
_LONGER = 1.5
# The loads agree when none of them moves by more than this share of itself.
_AGREE = 0.01
# Other jobs hold engines for less than this share of the time: beyond it nothing is left for a job.
_MOST_HELD = 0.95


class MeanLoad(Struct, frozen=True):
    """What the requests of one job are to those of another, in the mean over time, on each instance. decodes: requests
    that decode. kv_tokens: tokens in the KV cache. held: share of the time that its prompts take, or its syncs stop
    the engines."""

    decodes: float = 0.0
    kv_tokens: float = 0.0
    held: float = 0.0

    def moved(self, to: MeanLoad, share: float) -> MeanLoad:
        """So far on the way to another load."""
        return MeanLoad(*(a + share * (b - a) for a, b in zip(_parts(self), _parts(to), strict=True)))

    def is_near(self, other: MeanLoad) -> bool:
        """Whether both are the same for all that matters."""
        return all(abs(a - b) <= _AGREE * max(a, b, least) for a, b, least in zip(
            _parts(self), _parts(other), (1.0, 16.0, 0.01), strict=True))  # fmt: skip


def _parts(load: MeanLoad) -> tuple[float, float, float]:
    return load.decodes, load.kv_tokens, load.held


def shareable(scenarios: Sequence[Scenario]) -> bool:
    """Whether the engines of these jobs differ in nothing but their adapters."""
    engines = [s.engine for s in scenarios]
    bare = {e.model_copy(update={"lora": None}).model_dump_json() for e in engines}
    plain = all(not s.fleet.pools and e.speculation is None and e.disaggregation is None
                for s, e in zip(scenarios, engines, strict=True))  # fmt: skip
    return plain and len(bare) == 1 and all(e.lora is not None for e in engines)


def holding_all(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """The same jobs on engines that hold the adapters of all of them."""
    held = [s.engine.lora for s in scenarios if s.engine.lora is not None]
    changes = {
        "engine.lora.rank": max(lora.rank for lora in held),
        "engine.lora.max_loras": sum(lora.max_loras for lora in held),
        "engine.lora.experts": any(lora.experts for lora in held),
    }
    return [with_changes(s, changes) for s in scenarios]


def beside(engine: Engine, others: Iterable[MeanLoad], part: float = 1.0) -> Engine:
    """An engine as a job finds it that has others beside it: their decodes and their caches in each iteration, their
    part of the time, and what is left of the limits, or the job's own `part` of the cache where that is less."""
    step_time, limits = engine
    decodes, kv_tokens, held = (math.fsum(each) for each in zip(*map(_parts, (MeanLoad(), *others)), strict=True))
    held = min(_MOST_HELD, held)
    step_time = step_time.seeing_all
    always = step_time.per_seq_s * decodes + step_time.per_kv_token_s * kv_tokens
    knots = [0.0, *(n - decodes for n in step_time.knots_tokens if n > decodes)]
    knots.append(knots[-1] + 1.0)  # beyond the last knot seconds go on to grow
    seconds = step_time.curve(decodes + np.asarray(knots)) + always
    slower = replace(step_time, knots_tokens=tuple(knots), knots_s=tuple(seconds.tolist())).slower(1.0 / (1.0 - held))
    seqs = max(1, limits.max_num_seqs - round(decodes))
    tokens = max(seqs, limits.max_num_batched_tokens - round(decodes))
    left = limits.kv_blocks - math.ceil(kv_tokens / limits.block_size) if part >= 1.0 else part * limits.kv_blocks
    return slower, replace(limits, max_num_seqs=seqs, max_num_batched_tokens=tokens, kv_blocks=max(1, int(left)))


def load_of(records: Records, bare: StepTime) -> MeanLoad:
    """What this job's requests were to others in its run. bare: the engine without any others."""
    window, (step_time, limits) = window_of(records), records.engine
    busy, paused, idle = (window.total(f"{name}_s") for name in ("busy", "paused", "idle"))
    made, prompts = window.total("generated_tokens"), window.total("prefilled_tokens")
    if busy <= 0.0 or made <= 0.0:
        return MeanLoad()
    up, kv_tokens = busy + paused + idle, window.total("block_s") / busy * limits.block_size
    looks_at = mean_length(records.scenario.workload.prompt_tokens) / 2.0
    # As many as make these tokens in these seconds, each with its part of the cache and of the prompts.
    n = np.arange(1.0, limits.max_num_seqs + 1.0)
    each_s = step_time.each_s(n, n * prompts / made, kv_tokens, n * prompts / made * looks_at)
    decodes = float(np.interp(made / busy, np.maximum.accumulate(n / each_s), n))
    most = limits.max_num_batched_tokens
    of_prompt = float(np.diff(bare.curve(np.array([decodes, decodes + most])))[0]) / most
    of_prompt += bare.prompt_token_s + bare.attention_s(looks_at)
    stops = paused if IN_FLIGHT[records.scenario.sync.in_flight].pauses else 0.0
    return MeanLoad(decodes * busy / up, kv_tokens * busy / up, (prompts * of_prompt + stops) / up)


def waited_s(records: Records) -> float:
    """Seconds that a request waits on its instance until it starts, in the mean."""
    samples = records.samples
    started = samples["start_s"] >= 0.0
    return float((samples["start_s"] - samples["sent_s"])[started].mean()) if started.any() else 0.0


def _divided(parts: Sequence[float], runs: Sequence[Records], loads: Sequence[MeanLoad], kv_tokens: int) -> list[float]:
    """The part of the cache that each job has in the next round; 1.0: what the others leave, for nobody waits."""
    waits = np.array([waited_s(run) for run in runs])
    steps = np.array([window_of(run).step_s for run in runs])
    if float((waits / steps).max()) < _NO_WAIT:
        return [1.0] * len(runs)
    used = np.array([load.kv_tokens / kv_tokens for load in loads])
    now = np.array(parts) if max(parts) < 1.0 else used
    more = now * ((waits + _NO_WAIT * steps) / float((waits + _NO_WAIT * steps).mean())) ** _BENT
    # A request has room, however long; the next draw may have a longer one.
    least = np.array([_LONGER * float((run.samples["prompt"] + run.samples["target"]).max()) for run in runs])
    return list(map(float, np.maximum(more / more.sum(), least / kv_tokens)))


def side_by_side(
    scenarios: Sequence[Scenario], engines: Sequence[Engine] | None = None, *, look: bool = False
) -> list[tuple[Records, MeanLoad]]:
    """A run of each job beside the others on the same engines, and what it is to them.

    engines: instead of those that they name. look: short runs, which rank ways and are not told. Raises InputError and
    StuckError as `simulate` does.
    """
    alone = [engine_of(s) for s in scenarios] if engines is None else list(engines)
    loads, parts = [MeanLoad() for _ in scenarios], [1.0] * len(scenarios)

    def round_of(jobs: Sequence[Scenario]) -> tuple[list[tuple[Records, MeanLoad]], bool]:
        runs = [
            simulate(job, engine=beside(alone[i], (load for j, load in enumerate(loads) if j != i), parts[i]))
            for i, job in enumerate(jobs)
        ]
        found = [load_of(run, alone[i][0]) for i, run in enumerate(runs)]
        agree = all(a.is_near(b) for a, b in zip(loads, found, strict=True))
        loads[:] = [a.moved(b, _TAKEN) for a, b in zip(loads, found, strict=True)]
        limits = alone[0][1]
        parts[:] = _divided(parts, runs, found, limits.kv_blocks * limits.block_size)
        return list(zip(runs, found, strict=True)), agree

    short, agree = [looked(s) for s in scenarios], False
    for _ in range(_LOOKS):
        if not agree:
            found, agree = round_of(short)
    for _ in range(0 if look else _LONG):
        found, _ = round_of(scenarios)
    return found
