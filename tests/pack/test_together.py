"""Jobs whose adapters share one base, against two jobs that are simulated together, iteration by iteration."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fleetsim as fs
from fleetsim.config.scenario import Scenario
from fleetsim.engine import EngineLimits, LinearStepTime, StepTime
from fleetsim.pack.together import MeanLoad, beside, holding_all, shareable, side_by_side
from fleetsim.sim.run import simulate
from fleetsim.sim.window import window_of

BASE_S, PER_SEQ_S, PER_PROMPT_S, PER_KV_S = 0.008, 6e-5, 2e-6, 2e-8
PROMPT = 64


@dataclass
class Job:
    """What the small simulator knows of a job: a version window of `ahead` batches, and at most so many in flight."""

    batch: int
    mean: float
    train_s: float
    in_flight: int
    ahead: int = 2
    started: int = 0
    flying: int = 0
    ready: int = 0
    version: int = 0
    ends: list[float] = field(default_factory=list)
    training_until: float | None = None


@dataclass
class Engine:
    """[job, tokens made, length] of each request; those that came since the last iteration began wait."""

    running: list[list[int]] = field(default_factory=list)
    waiting: deque[list[int]] = field(default_factory=deque)
    at_work: bool = False


def simulated_together(jobs: list[Job], n: int, steps: int, seed: int, kv_tokens: int) -> list[float]:
    """Mean seconds of a step of each job, the first third left out: every iteration of every engine is an event. As in
    vLLM requests start in the order in which they came, and the newest gives way where the cache is full."""
    draw = np.random.default_rng(seed)
    sigma = float(np.sqrt(np.log(2.0)))  # a coefficient of variation of 1
    engines, events, count = [Engine() for _ in range(n)], [], 0
    now = 0.0

    def begin(i: int) -> None:
        nonlocal count
        engine = engines[i]
        used = sum(PROMPT + made for _, made, _ in engine.running)
        while used + len(engine.running) > kv_tokens and len(engine.running) > 1:
            engine.waiting.appendleft(engine.running.pop())
            used -= PROMPT + engine.waiting[0][1]
        decodes, cached, prompts = len(engine.running), used - len(engine.running), 0
        while engine.waiting and used + PROMPT + engine.waiting[0][1] + len(engine.running) < kv_tokens:
            engine.running.append(engine.waiting.popleft())
            prompts += PROMPT + engine.running[-1][1]
            used += PROMPT + engine.running[-1][1]
        seconds = BASE_S + PER_SEQ_S * decodes + PER_PROMPT_S * prompts + PER_KV_S * cached
        engine.at_work = bool(engine.running)
        if engine.at_work:
            count += 1
            heapq.heappush(events, (now + seconds, count, i))

    def send() -> None:
        for j, job in enumerate(jobs):
            while job.flying < job.in_flight and job.started < (job.version + 1 + job.ahead) * job.batch:
                length = max(1, round(float(draw.lognormal(np.log(job.mean) - sigma**2 / 2, sigma))))
                i = min(range(n), key=lambda k: len(engines[k].running) + len(engines[k].waiting))
                engines[i].waiting.append([j, 0, min(length, 8 * int(job.mean))])
                job.flying, job.started = job.flying + 1, job.started + 1
                if not engines[i].at_work:
                    begin(i)

    def train() -> None:
        nonlocal count
        for j, job in enumerate(jobs):
            if job.training_until is None and job.ready >= job.batch:
                job.ready -= job.batch
                job.training_until = now + job.train_s
                count += 1
                heapq.heappush(events, (job.training_until, count, -1 - j))

    send()
    while min(len(job.ends) for job in jobs) < steps:
        now, _, what = heapq.heappop(events)
        if what < 0:
            job = jobs[-1 - what]
            job.training_until, job.version = None, job.version + 1
            job.ends.append(now)
        else:
            engine = engines[what]
            for request in engine.running:
                request[1] += 1
            for job, _, _ in (r for r in engine.running if r[1] >= r[2]):
                jobs[job].flying, jobs[job].ready = jobs[job].flying - 1, jobs[job].ready + 1
            engine.running = [r for r in engine.running if r[1] < r[2]]
            engine.at_work = False
        train()
        send()
        if what >= 0 and not engines[what].at_work:
            begin(what)
    first = steps // 3
    return [float(np.mean(np.diff(job.ends[first:]))) for job in jobs]


def scenario_of(job: Job, n: int) -> Scenario:
    """The same job for fleetsim."""
    asked = fs.load(
        batch=job.batch,
        group_size=1,
        len=job.mean,
        len_cv=1.0,
        max_len=8 * int(job.mean),
        prompt_len=PROMPT,
        instances=n,
        max_staleness=job.ahead,
        trainer_step_s=job.train_s,
        sync_pause_s=0,
        instance_tok_s=1000,
    )
    at_once = {"sync.trainer_block_s": 0.0, "sync.publish_s": 0.0, "workload.group_correlation": 0.0}
    return asked.with_({"fleet.max_in_flight_samples": job.in_flight, **at_once}).scenario


ROOM = 1 << 34


@pytest.mark.slow
@pytest.mark.parametrize(
    ("jobs", "kv_tokens", "slower", "off"),
    [
        ([Job(64, 300, 1, 128), Job(64, 300, 1, 128)], ROOM, 1.4, 0.05),
        ([Job(128, 300, 2, 256), Job(256, 900, 5, 512)], ROOM, 2.0, 0.05),
        ([Job(32, 200, 1, 64), Job(256, 900, 10, 700)], ROOM, 3.0, 0.05),
        ([Job(128, 400, 10, 400, ahead=1), Job(96, 900, 25, 200, ahead=1)], ROOM, 1.05, 0.05),
        ([Job(64, 300, 2, 100), Job(64, 300, 20, 200), Job(96, 500, 9, 200)], ROOM, 1.5, 0.05),
        # Requests wait for room: in one queue the short ones wait as long as the long ones.
        ([Job(64, 300, 1, 128), Job(64, 300, 1, 128)], 40_000, 1.9, 0.08),
        ([Job(128, 300, 2, 256), Job(256, 900, 5, 512)], 200_000, 5.0, 0.08),
        ([Job(32, 200, 1, 64), Job(256, 900, 10, 700)], 250_000, 10.0, 0.08),
    ],
)
def test_jobs_on_the_same_engines_are_as_slow_as_when_they_are_simulated_together(
    jobs: list[Job], kv_tokens: int, slower: float, off: float
) -> None:
    """slower: by so much at least one of them is slowed down, so that there is something to see."""
    limits = EngineLimits(4096, 65536, kv_tokens // 16)
    engine = LinearStepTime(BASE_S, PER_SEQ_S, PER_PROMPT_S, PER_KV_S), limits
    scenarios = [scenario_of(job, 1) for job in jobs]
    found = [window_of(run).step_s for run, _ in side_by_side(scenarios, [engine] * len(jobs))]
    alone = [window_of(simulate(scenario, engine=engine)).step_s for scenario in scenarios]
    assert max(a / b for a, b in zip(found, alone, strict=True)) > slower
    assert found == pytest.approx(simulated_together(jobs, 1, 45, 1, kv_tokens), rel=off)


LOADS = st.builds(MeanLoad, st.floats(0, 500), st.floats(0, 1e6), st.floats(0, 0.9))


@given(st.lists(LOADS, max_size=3), LOADS)
@example([MeanLoad(387.0)], MeanLoad(125.0))
def test_whoever_comes_beside_makes_iterations_longer_and_leaves_less(
    others: list[MeanLoad], one_more: MeanLoad
) -> None:
    engine = StepTime((8.0, 64.0, 512.0), (0.01, 0.011, 0.02), 6e-5, 1e-6, 2e-8), EngineLimits(512, 8192, 100_000)
    assert beside(engine, [])[0].seconds(9, 100, 1e4) == engine[0].seconds(9, 100, 1e4)
    (step, limits), (slower, left) = beside(engine, others), beside(engine, [*others, one_more])
    for decodes in (1.0, 50.0, 400.0):
        assert slower.seconds(decodes, 100, 1e4) >= step.seconds(decodes, 100, 1e4) * (1 - 1e-12)
    assert left.max_num_seqs <= limits.max_num_seqs
    assert left.kv_blocks <= limits.kv_blocks


def test_an_iteration_beside_others_is_one_with_all_requests() -> None:
    """By hand: 10 decodes beside 30 are 40; the cache of both is read; a tenth of the time is another job's."""
    step, limits = LinearStepTime(0.01, 1e-4, 0.0, 1e-7), EngineLimits(64, 8192, 1000)
    found, left = beside((step, limits), [MeanLoad(30.0, 3000.0, 0.1)])
    assert found.seconds(10, 0, 2000) == pytest.approx((0.01 + 40e-4 + 5000e-7) / 0.9)
    assert (left.max_num_seqs, left.kv_blocks) == (34, 1000 - 188)


def _jobs() -> list[fs.Job]:
    a = fs.load(batch=64, len=400, max_len=1024, trainer_step_s=10, trainer_gpus=1, sync_pause_s=1)
    priced = a.with_({"engine.lora.rank": 32}, instance_price=2, trainer_price=6)
    return [priced.with_({"name": "first"}), priced.with_(batch=32).with_({"name": "second"})]


@pytest.mark.usefixtures("quick")
def test_adapters_on_one_base_share_engines_and_every_gpu_is_paid_for_once() -> None:
    found = fs.pack(_jobs(), gpus=4, switch_s=1.0)
    together = [way for way in found.ways if way.kind == "together"]
    assert len(together) >= 2
    for way in together:
        rollout, *trainers = map(int, way.label.split(" + "))
        assert rollout + sum(trainers) == 4
        an_hour = sum(share.usd * 3600 / share.step_s for share in way.shares)
        assert an_hour == pytest.approx(2 * rollout + 6 * sum(trainers))
        assert 0.0 < way.duty <= 1.0
    assert found.best is found.ways[0]
    assert "bursts of two jobs" in str(found.to_dict()["facts"])


@pytest.mark.usefixtures("quick")
def test_on_shared_engines_samples_are_no_older_than_alone() -> None:
    """A recipe permits an age: with all GPUs for itself a job is no slower than on a part of them beside another."""
    found = fs.pack(
        [job.with_(max_staleness=1, len=1500, max_len=8192, trainer_step_s=1) for job in _jobs()], gpus=4, switch_s=1.0
    )
    together = [way for way in found.ways if way.kind == "together"]
    assert together
    assert all(share.slower > 0.97 for way in together for share in way.shares)


@pytest.mark.usefixtures("quick")
def test_engines_that_differ_are_not_shared() -> None:
    one, other = _jobs()
    assert shareable([one.scenario, other.scenario])
    held = holding_all([one.scenario, other.with_({"engine.lora.rank": 64}).scenario])
    assert [(s.engine.lora.rank, s.engine.lora.max_loras) for s in held if s.engine.lora] == [(64, 2)] * 2
    for changes in ({"engine.lora": None}, {"engine.model": "Qwen/Qwen2.5-1.5B"}, {"engine.kv_dtype": "fp8"}):
        assert not shareable([one.scenario, other.with_(changes).scenario])
    found = fs.pack([one, other.with_({"engine.lora": None})], gpus=4, switch_s=1.0)
    assert all(way.kind != "together" for way in found.ways)
    assert "engine.lora" in str(found.to_dict()["facts"])
