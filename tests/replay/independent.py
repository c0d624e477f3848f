"""A fleet simulator of its own, for histories that fleetsim did not make: nothing of the engine or of the job loop is
imported. Engines share their speed among their requests; a client, a trainer and a weight sync drive them; what comes
out is what vLLM's engines and a trainer export, as OpenMetrics text or as a `History` read by the file reader.

    ran = run(Job(instances=3, late_s=20.0), hours=2.0)
    ran.history()                         # as `replay --from` would read it
    ran.write(tmp_path / "history.om")    # the text itself
    write(path, ran, other)               # several jobs on one Prometheus

Two hours of four instances are less than a second of work.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fleetsim.history.catalogue import Catalogue, wanted
from fleetsim.history.grid import history_of as on_grid
from fleetsim.history.history import History, RawSeries

START = 1_790_000_000.0
# vLLM's 1-2-5 bounds up to the model's length.
BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
CHUNK = 8192  # prompt tokens that an iteration computes beside its decoding, as vLLM's chunked prefill
LATENCIES = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)


@dataclass(frozen=True)
class Job:
    """One job. An engine's iteration takes fixed_s + each_s x running requests and gives each of them one token.

    prefill_s: of an engine, per prompt token that is not in its prefix cache. kv_tokens: of an engine. slow: instance
    -> factor on its seconds. lengths: mean and coefficient of variation of a lognormal, cut at max_tokens. batch and
    group in samples; `together`: siblings share an engine (and its prefix cache). hits: share of the siblings' prompts
    that are found; None = all. in_flight: cap on samples, in_flight_groups on groups. staleness: a group starts while
    fewer than (staleness + 1) batches are under way. drop: share of groups that are filtered out.

    in_turn: requests go to the engines in turn, else to the one that has least. judge_s: mean seconds of a sample after
    its generation, in a judge that nobody scrapes.

    Trainer: train_s a step. late_s: a batch stands ready that long before it is taken, booked as waiting. lost_s: a
    step, or every `lost_every` of them, in no counter. max_age: older groups are thrown away, in versions. slow_from:
    (step, factor) on train_s. Weight sync every `sync_every` steps: "global" (all engines stand for sync_s, the trainer
    with them), "rolling" (one after the other, sync_s each, the trainer goes on), "none". first_s: extra seconds of
    each of the first steps (compiling).

    arrivals: (from second, requests/s); then there is no trainer and requests come by themselves, from nowhere.
    lost: instance -> second at which it vanishes; joined: instance -> second at which it appears.
    """

    instances: int = 4
    fixed_s: float = 0.012
    each_s: float = 0.0002
    prefill_s: float = 2e-5
    kv_tokens: float = 400_000.0
    max_num_seqs: int = 256
    slow: dict[int, float] = field(default_factory=dict)
    lost: dict[int, float] = field(default_factory=dict)
    joined: dict[int, float] = field(default_factory=dict)
    mean_tokens: float = 600.0
    cv: float = 0.5
    max_tokens: float = 2048.0
    prompt_tokens: int = 300
    batch: int = 256
    group: int = 8
    together: bool = True
    caching: bool = True
    hits: float | None = None
    in_flight: int | None = None
    in_flight_groups: int | None = None
    staleness: float = 1.0
    drop: float = 0.0
    train_s: float = 40.0
    late_s: float = 0.0
    lost_s: float = 0.0
    lost_every: int = 1
    in_turn: bool = False
    judge_s: float = 0.0
    max_age: int | None = None
    first_s: tuple[float, ...] = ()
    slow_from: tuple[int, float] | None = None
    sync: str = "global"
    sync_s: float = 1.5
    sync_every: int = 1
    arrivals: tuple[tuple[float, float], ...] = ()
    seed: int = 0
    # How it is scraped.
    name: str = "rollout"
    model: str = "Qwen/Qwen3-8B"
    namespace: str = "rl"
    pods: bool = True  # label `pod`; else `instance` alone, host:port
    targets: tuple[str, ...] = ()  # `instance` of each; one name for all is a load balancer
    extra: dict[str, str] = field(default_factory=dict)
    trainer: bool = True  # whether the trainer's metrics are exported
    queue: bool = True  # whether the queue's are
    n_exported: bool = False  # whether requests say how many siblings they are (one request per group)

    def __hash__(self) -> int:
        """Runs are kept by their job."""
        return hash(repr(self))


@dataclass
class _Request:
    group: _Group
    tokens: float
    prompt: int
    arrived_s: float
    began_v: float = 0.0
    began_s: float | None = None
    made: float = 0.0


@dataclass
class _Group:
    version: int
    left: int
    tokens: float = 0.0
    cached: set[int] = field(default_factory=set)  # engines that have seen its prompt


class _Engine:
    """Virtual time: `v` is how many tokens a request that runs all the time has made; its end lies at a value of v."""

    def __init__(self, job: Job, index: int) -> None:
        self.job, self.index, self.slow = job, index, job.slow.get(index, 1.0)
        self.at = self.v = 0.0
        self.owed_s = self.owed_prompts = 0.0  # of prompts that are being computed
        self.paused = 0
        self.up = index not in job.joined
        self.heap: list[tuple[float, int, _Request]] = []
        self.queue: deque[_Request] = deque()
        self.sum_prompt = self.sum_began = 0.0
        self.generated = self.prompts = self.looked_up = self.found = self.preempted = 0.0
        self.ended = [0, 0]  # stop, length
        self.lengths, self.length_sum = np.zeros(len(BOUNDS) + 1), 0.0
        self.latency, self.latency_sum = np.zeros(len(LATENCIES) + 1), 0.0
        self.waits, self.waits_sum = np.zeros(len(LATENCIES) + 1), 0.0
        self.number = 0

    @property
    def iteration_s(self) -> float:
        return (self.job.fixed_s + self.job.each_s * len(self.heap)) * self.slow

    @property
    def kv(self) -> float:
        return self.sum_prompt + len(self.heap) * self.v - self.sum_began

    @property
    def prefilling(self) -> float:
        """Of an engine's time, what goes into prompts as long as there are any."""
        chunk_s = CHUNK * self.job.prefill_s * self.slow
        return chunk_s / (chunk_s + self.iteration_s) if chunk_s > 0 else 1.0

    def advance(self, now: float) -> None:
        span, self.at = now - self.at, now
        if self.paused or not self.heap or span <= 0:
            return
        made = 0.0
        iteration_s = self.iteration_s
        if self.owed_s > 0:
            prefilling = self.prefilling
            busy = min(span, self.owed_s / prefilling)
            paid = busy * prefilling
            self.prompts += self.owed_prompts * min(1.0, paid / self.owed_s)
            self.owed_prompts *= 1.0 - min(1.0, paid / self.owed_s)
            self.owed_s = 0.0 if busy < span else max(0.0, self.owed_s - paid)
            made, span = busy * (1.0 - prefilling) / iteration_s, span - busy
        made += span / iteration_s
        self.v += made
        self.generated += made * len(self.heap)

    def next_s(self) -> float:
        """When something happens here by itself: a response ends or the KV cache is full."""
        if self.paused or not self.heap:
            return math.inf
        left = min(self.heap[0][0] - self.v, (self.job.kv_tokens - self.kv) / len(self.heap))
        left_s = left * self.iteration_s if left > 0.0 else 0.0
        if not self.owed_s:
            return self.at + left_s
        prefilling = self.prefilling
        busy, meanwhile = 1.0 - prefilling, self.owed_s / prefilling  # seconds in which prompts are computed as well
        return self.at + (left_s / busy if left_s <= meanwhile * busy else meanwhile + left_s - meanwhile * busy)

    def admit(self, now: float) -> None:
        while self.queue and len(self.heap) < self.job.max_num_seqs:
            request = self.queue[0]
            prompt = request.prompt + request.made
            if self.heap and self.kv + prompt > 0.98 * self.job.kv_tokens:
                return
            self.queue.popleft()
            known = self.job.caching and self.index in request.group.cached
            hit = float(known) * (1.0 if self.job.hits is None else self.job.hits)
            request.group.cached.add(self.index)
            if request.began_s is None:
                request.began_s = now
                self._count(self.waits, LATENCIES, now - request.arrived_s)
                self.waits_sum += now - request.arrived_s
                self.owed_prompts += request.prompt
            if self.job.caching:
                self.looked_up += prompt
                self.found += prompt * hit
            cost_s = self.job.prefill_s * prompt * (1.0 - hit) * self.slow
            if self.owed_s + cost_s <= 0:
                self.prompts, self.owed_prompts = self.prompts + self.owed_prompts, 0.0
            self.owed_s += cost_s
            request.began_v = self.v - request.made
            self.sum_prompt += request.prompt
            self.sum_began += request.began_v
            self.number += 1
            heapq.heappush(self.heap, (request.began_v + request.tokens, self.number, request))

    def take(self, now: float) -> list[_Request]:
        """What has ended by now; a full cache throws its newest request out."""
        done = []
        while self.heap and self.heap[0][0] <= self.v + 1e-9:
            request = heapq.heappop(self.heap)[2]
            self._gone(request)
            self._record(request, now)
            done.append(request)
        while len(self.heap) > 1 and self.kv >= self.job.kv_tokens * (1 - 1e-9):
            newest = max(self.heap, key=lambda row: row[1])
            self.heap.remove(newest)
            heapq.heapify(self.heap)
            self._gone(newest[2])
            newest[2].made = self.v - newest[2].began_v
            self.queue.appendleft(newest[2])
            self.preempted += 1
        return done

    def _gone(self, request: _Request) -> None:
        self.sum_prompt -= request.prompt
        self.sum_began -= request.began_v

    def _record(self, request: _Request, now: float) -> None:
        self.ended[request.tokens >= self.job.max_tokens] += 1
        self._count(self.lengths, BOUNDS, request.tokens)
        self.length_sum += request.tokens
        self._count(self.latency, LATENCIES, now - request.arrived_s)
        self.latency_sum += now - request.arrived_s

    @staticmethod
    def _count(into: np.ndarray, bounds: Sequence[float], value: float) -> None:
        into[bisect_left(bounds, value)] += 1

    def row(self) -> dict[str, float]:
        """What it exports now, by exposed sample (name and inner labels)."""
        out = {
            "vllm:num_requests_running": float(len(self.heap)),
            "vllm:num_requests_waiting": float(len(self.queue)),
            "vllm:kv_cache_usage_perc": min(1.0, max(0.0, self.kv / self.job.kv_tokens)),
            "vllm:generation_tokens_total": float(int(self.generated)),
            "vllm:prompt_tokens_total": self.prompts,
            "vllm:num_preemptions_total": self.preempted,
            'vllm:request_success_total{finished_reason="stop"}': float(self.ended[0]),
            'vllm:request_success_total{finished_reason="length"}': float(self.ended[1]),
            'vllm:request_success_total{finished_reason="abort"}': 0.0,
            "vllm:cache_config_info": 1.0,
        }
        if self.job.caching:
            out["vllm:prefix_cache_queries_total"] = self.looked_up
            out["vllm:prefix_cache_hits_total"] = float(int(self.found))
        return out

    def histograms(self) -> dict[str, float]:
        out: dict[str, float] = {}
        every = [
            ("vllm:request_generation_tokens", BOUNDS, self.lengths, self.length_sum),
            ("vllm:request_prompt_tokens", BOUNDS, self._prompts(), self.job.prompt_tokens * self.lengths.sum()),
            ("vllm:e2e_request_latency_seconds", LATENCIES, self.latency, self.latency_sum),
            ("vllm:request_queue_time_seconds", LATENCIES, self.waits, self.waits_sum),
        ]
        if self.job.n_exported:
            asked = self.lengths.sum()
            counts = np.zeros(8)
            counts[int(np.searchsorted((1, 2, 5, 10, 20), self.job.group))] = asked
            every.append(("vllm:request_params_n", (1, 2, 5, 10, 20), counts[:6], asked * self.job.group))
        for name, bounds, counts, total in every:
            for le, count in zip((*map(float, bounds), math.inf), np.cumsum(counts), strict=True):
                out[f'{name}_bucket{{le="{"+Inf" if math.isinf(le) else le}"}}'] = float(count)
            out[f"{name}_sum"] = float(total)
            out[f"{name}_count"] = float(counts.sum())
        return out

    def _prompts(self) -> np.ndarray:
        counts = np.zeros(len(BOUNDS) + 1)
        counts[int(np.searchsorted(BOUNDS, self.job.prompt_tokens))] = self.lengths.sum()
        return counts


@dataclass
class Ran:
    """A run. series: (sample with its inner labels, target's labels) -> (stamps, values). steps: of the trainer, each
    (end, waited, trained, lost, held by sync); truth of a test."""

    job: Job
    span_s: float
    scrape_s: float
    series: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[list[float], list[float]]]
    steps: list[tuple[float, float, float, float, float]]

    @property
    def step_s(self) -> float:
        """Mean seconds of a step, without the first quarter."""
        ends = [s[0] for s in self.steps]
        first = len(ends) // 4
        return (ends[-1] - ends[first]) / (len(ends) - 1 - first)

    def raws(self) -> Iterator[RawSeries]:
        """The series, as the reader of files takes them."""
        for (sample, target), (stamps, values) in self.series.items():
            name, inner = _parts(sample)
            yield RawSeries(name, {**dict(target), **inner}, START + np.array(stamps), np.array(values))

    def history(self, *others: Ran) -> History:
        """What the file reader makes of it, and of the other jobs on the same Prometheus."""
        raws = [raw for ran in (self, *others) for raw in ran.raws()]
        return on_grid(raws, Catalogue(wanted()), step_s=self.scrape_s, source="independent")

    def write(self, path: Path) -> Path:
        """OpenMetrics text with timestamps."""
        return write(path, self)


def write(path: Path, *runs: Ran) -> Path:
    """Several jobs in one file, as one Prometheus has them."""
    with path.open("w") as file:
        for raw in (raw for ran in runs for raw in ran.raws()):
            labels = ",".join(f'{k}="{v}"' for k, v in raw.labels.items())
            for stamp, value in zip(raw.stamps, raw.values, strict=True):
                file.write(f"{raw.name}{{{labels}}} {value:.10g} {stamp:.3f}\n")
        file.write("# EOF\n")
    return path


def _parts(sample: str) -> tuple[str, dict[str, str]]:
    name, brace, inside = sample.partition("{")
    if not brace:
        return name, {}
    key, _, value = inside.rstrip("}").partition("=")
    return name, {key: value.strip('"')}


def run(job: Job, hours: float = 2.0, scrape_s: float = 15.0, holes: Sequence[tuple[float, float]] = ()) -> Ran:
    """Simulates it. holes: (from, to) seconds in which nothing is scraped."""
    return _Run(job, hours * 3600.0, scrape_s, tuple(holes)).run()


class _Run:
    def __init__(self, job: Job, span_s: float, scrape_s: float, holes: tuple[tuple[float, float], ...]) -> None:
        self.job, self.span_s, self.scrape_s, self.holes = job, span_s, scrape_s, holes
        self.rng = np.random.default_rng(job.seed)
        self.engines = [_Engine(job, i) for i in range(job.instances)]
        self.now = 0.0
        self.timers: list[tuple[float, int, str, int]] = []
        self.count = 0
        self.ready: deque[_Group] = deque()
        self.groups_out = self.samples_out = self.started = self.turn = self.version = 0
        self.wait_s = self.train_s = self.sync_s = self.trained = self.trained_tokens = self.dropped = 0.0
        self.waiting_since: float | None = 0.0
        self.taken = 0.0
        self.part = [0.0, 0.0, 0.0, 0.0]
        self.out = Ran(job, span_s, scrape_s, {}, [])
        self._drawn: list[float] = []
        self.judged: list[_Request] = []

    def at(self, when: float, what: str, which: int = 0) -> None:
        self.count += 1
        heapq.heappush(self.timers, (when, self.count, what, which))

    def run(self) -> Ran:
        job = self.job
        for i in range(job.instances):
            self.at(self.rng.uniform(0, min(self.scrape_s, 1.0)), "scrape", i)
        self.at(0.5 * min(self.scrape_s, 1.0), "scrape trainer")
        for i, when in (*job.lost.items(), *job.joined.items()):
            self.at(when, "toggle", i)
        if job.arrivals:
            self.at(0.0, "arrive")
        else:
            self.fill()
        nexts = [engine.next_s() for engine in self.engines]
        while True:
            which = min(range(len(nexts)), key=nexts.__getitem__)
            if self.timers and self.timers[0][0] <= nexts[which]:
                self.now, _, what, index = heapq.heappop(self.timers)
                if self.now > self.span_s:
                    return self.out
                for engine in self.engines:
                    engine.advance(self.now)
                _HANDLERS[what](self, index)
                nexts = [engine.next_s() for engine in self.engines]
            else:
                self.now = nexts[which]
                engine = self.engines[which]
                engine.advance(self.now)
                before = self.started
                for request in engine.take(self.now):
                    self.ended(request)
                if engine.queue:
                    engine.admit(self.now)
                if self.started != before:
                    nexts = [each.next_s() for each in self.engines]
                nexts[which] = engine.next_s()

    # ------------------------------------------------------------------------------------------------- the client

    def length(self) -> float:
        if not self._drawn:
            sigma = math.sqrt(math.log(1 + self.job.cv**2))
            mean = math.log(self.job.mean_tokens) - sigma**2 / 2
            drawn = np.ceil(self.rng.lognormal(mean, sigma, 4096)).clip(1, self.job.max_tokens)
            self._drawn = drawn.tolist()
        return self._drawn.pop()

    def fill(self) -> None:
        """Starts groups as far as the client may."""
        job = self.job
        per_batch = max(1, job.batch // job.group)
        most = math.floor((self.version + 1 + job.staleness) * per_batch)
        while self.started < most:
            if job.in_flight is not None and self.samples_out + job.group > job.in_flight:
                return
            if job.in_flight_groups is not None and self.groups_out >= job.in_flight_groups:
                return
            self.start(job.group)

    def start(self, size: int) -> None:
        group = _Group(self.version, size)
        self.started += 1
        self.groups_out += 1
        self.samples_out += size
        engine = self.route()
        for k in range(size):
            if k and not self.job.together:
                engine = self.route()
            engine.advance(self.now)
            engine.queue.append(_Request(group, self.length(), self.job.prompt_tokens, self.now))
            if not engine.paused:
                engine.admit(self.now)

    def route(self) -> _Engine:
        loads = [len(engine.heap) + len(engine.queue) if engine.up else math.inf for engine in self.engines]
        least = min(loads)
        self.turn += 1
        if self.job.in_turn:
            return self.engines[self.turn % len(self.engines)]
        if loads.count(least) == 1:
            return self.engines[loads.index(least)]
        candidates = [engine for engine, load in zip(self.engines, loads, strict=True) if load == least]
        return candidates[self.turn % len(candidates)]

    def ended(self, request: _Request) -> None:
        if self.job.judge_s:
            self.judged.append(request)
            self.at(self.now + self.rng.gamma(4, self.job.judge_s / 4), "judged", len(self.judged) - 1)
        else:
            self.landed(request)

    def landed(self, request: _Request) -> None:
        group = request.group
        group.left -= 1
        group.tokens += request.tokens
        self.samples_out -= 1
        self.groups_out -= not group.left
        if self.job.arrivals:
            return
        if not group.left and self.job.drop and self.rng.random() < self.job.drop:
            self.dropped += self.job.group
            self.started -= 1
        elif not group.left:
            self.ready.append(group)
            self.offer()
        self.fill()

    def arrive(self, _: int) -> None:
        rate = next((r for since, r in reversed(self.job.arrivals) if self.now >= since), 0.0)
        if rate > 0:
            self.start(1)
        self.at(self.now + (self.rng.exponential(1.0 / rate) if rate > 0 else 1.0), "arrive")

    def toggle(self, i: int) -> None:
        engine = self.engines[i]
        engine.up = not engine.up
        if not engine.up:  # its work goes to the others
            mine = [row[2] for row in engine.heap] + list(engine.queue)
            engine.heap, engine.queue, engine.sum_prompt, engine.sum_began = [], deque(), 0.0, 0.0
            for request in mine:
                other = self.route()
                other.queue.append(request)
                other.admit(self.now)

    # ------------------------------------------------------------------------------------------------ the trainer

    def offer(self) -> None:
        """A batch may be complete for a trainer that waits."""
        job = self.job
        if self.waiting_since is not None and job.max_age is not None:
            fresh = [group for group in self.ready if self.version - group.version <= job.max_age]
            self.dropped += (len(self.ready) - len(fresh)) * job.group
            self.started -= len(self.ready) - len(fresh)
            self.ready = deque(fresh)
        if self.waiting_since is None or len(self.ready) * job.group < job.batch:
            return
        since, self.waiting_since = self.waiting_since, None
        lost = 0.0 if (len(self.out.steps) + 1) % job.lost_every else job.lost_s
        self.part = [self.now + job.late_s - since, 0.0, lost, 0.0]
        self.at(self.now + job.late_s, "take")

    def take(self, _: int) -> None:
        job = self.job
        self.wait_s += self.part[0]
        batch = [self.ready.popleft() for _ in range(job.batch // job.group)]
        self.taken = sum(group.tokens for group in batch)
        step = len(self.out.steps)
        took = job.train_s
        if job.slow_from is not None and step >= job.slow_from[0]:
            took *= job.slow_from[1]
        took += job.first_s[step] if step < len(job.first_s) else 0.0
        self.part[1] = took
        self.at(self.now + took + self.part[2], "done")

    def done(self, _: int) -> None:
        self.train_s += self.part[1]
        self.trained += self.job.batch
        self.trained_tokens += self.taken
        due = (len(self.out.steps) + 1) % self.job.sync_every == 0
        if due and self.job.sync == "global":
            for engine in self.engines:
                engine.paused += 1
            self.part[3] = self.job.sync_s
            self.at(self.now + self.job.sync_s, "synced")
            return
        if due and self.job.sync == "rolling":
            for i in range(self.job.instances):
                self.at(self.now + i * self.job.sync_s, "hold", i)
                self.at(self.now + (i + 1) * self.job.sync_s, "release", i)
        self.step_done()

    def hold(self, i: int) -> None:
        self.engines[i].paused += 1

    def release(self, i: int) -> None:
        self.engines[i].paused -= 1
        if not self.engines[i].paused:
            self.engines[i].admit(self.now)

    def synced(self, _: int) -> None:
        self.sync_s += self.job.sync_s
        for i in range(self.job.instances):
            self.release(i)
        self.step_done()

    def step_done(self) -> None:
        wait, train, lost, sync = self.part
        self.version += 1
        self.out.steps.append((self.now, wait, train, lost, sync))
        self.waiting_since = self.now
        self.fill()
        self.offer()

    # ------------------------------------------------------------------------------------------------ the scraper

    def scrape(self, i: int) -> None:
        self.at(self.now + self.scrape_s, "scrape", i)
        engine, job = self.engines[i], self.job
        if not engine.up or self._blind():
            return
        host = job.targets[i % len(job.targets)] if job.targets else f"{job.name}-{i}:8000"
        labels = {"job": job.name, "instance": host, "model_name": job.model, "engine": "0", **job.extra}
        if job.pods:
            labels |= {"namespace": job.namespace, "pod": f"{job.name}-{i}"}
        target = tuple(labels.items())
        self._put(engine.row(), target)
        if int(self.now // self.scrape_s) % max(1, round(60.0 / self.scrape_s)) == 0:
            self._put(engine.histograms(), target)

    def scrape_trainer(self, _: int) -> None:
        self.at(self.now + self.scrape_s, "scrape trainer")
        job = self.job
        if job.arrivals or not job.trainer or self._blind():
            return
        row = {
            "rl_trainer_steps_total": float(len(self.out.steps)),
            "rl_trainer_sample_wait_seconds_total": self.wait_s,
            "rl_trainer_train_seconds_total": self.train_s,
            "rl_trainer_weight_sync_seconds_total": self.sync_s,
            "rl_trainer_trained_samples_total": self.trained,
            "rl_trainer_trained_tokens_total": self.trained_tokens,
            "rl_trainer_dropped_samples_total": self.dropped,
        }
        if job.queue:
            row["rl_rollout_queue_samples"] = float(len(self.ready) * job.group)
            oldest = min((group.version for group in self.ready), default=self.version)
            row["rl_rollout_queue_oldest_age_steps"] = float(self.version - oldest)
        target = {"job": f"{job.name}-trainer", "instance": f"{job.name}-trainer:9200", **job.extra}
        self._put(row, tuple(target.items()))

    def _blind(self) -> bool:
        return any(a <= self.now < b for a, b in self.holes)

    def _put(self, row: dict[str, float], target: tuple[tuple[str, str], ...]) -> None:
        for sample, value in row.items():
            mine = target
            if sample == "vllm:cache_config_info":
                blocks = str(int(self.job.kv_tokens // 16))
                caching = str(self.job.caching)
                mine = (*target, ("block_size", "16"), ("num_gpu_blocks", blocks), ("enable_prefix_caching", caching))
            stamps, values = self.out.series.setdefault((sample, mine), ([], []))
            stamps.append(self.now)
            values.append(value)


_HANDLERS = {
    "arrive": _Run.arrive,
    "done": _Run.done,
    "hold": _Run.hold,
    "judged": lambda run, which: run.landed(run.judged[which]),
    "release": _Run.release,
    "scrape": _Run.scrape,
    "scrape trainer": _Run.scrape_trainer,
    "synced": _Run.synced,
    "take": _Run.take,
    "toggle": _Run.toggle,
}
