"""A job's life as a loop over events: engines that batch continuously, a client, a trainer, weight syncs, disturbances.

Between two events an engine's iteration time is constant, and all its running requests move on by the same number of
tokens, so an engine keeps one clock in tokens (`clock`) and each request the clock reading at which it is done.
Scheduling follows vLLM's V1 scheduler (vllm/v1/core/sched/scheduler.py, 0.26): first come first served, the newest
running request is preempted when the KV cache is full, and is computed again from its prompt on.
"""

import heapq
import math
import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import attrgetter

from tests.outside.setting import Setting

BLOCK = 16
CHUNK = 8192  # tokens of prompts in one iteration
TOKEN_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)
SECOND_BOUNDS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)


@dataclass
class Histogram:
    """A cumulative histogram, as prometheus_client keeps it."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    seen: int = 0

    def add(self, value: float) -> None:
        """Counts one value."""
        if not self.counts:
            self.counts = [0] * len(self.bounds)
        place = bisect_left(self.bounds, value)
        if place < len(self.bounds):
            self.counts[place] += 1
        self.total += value
        self.seen += 1

    @staticmethod
    def sum_of(parts: Sequence["Histogram"]) -> "Histogram":
        """Several as one."""
        counts = [sum(each) for each in zip(*(part.counts or [0] * len(part.bounds) for part in parts), strict=True)]
        total, seen = sum(part.total for part in parts), sum(part.seen for part in parts)
        return Histogram(parts[0].bounds, counts, total, seen)

    def values(self) -> list[float]:
        """The value of each series: a bucket for each bound and one for all, the sum, the count."""
        return [*accumulate(self.counts or [0] * len(self.bounds)), self.seen, self.total, self.seen]


@dataclass(eq=False)
class Request:
    """One sample being generated."""

    group: int
    prompt: int
    length: int
    born: float
    done: int = 0  # tokens generated before the last preemption or loss
    started_at: float = -1.0  # clock reading at admission
    admitted: float = -1.0
    capped: bool = False
    turns: int = 1  # that are left, this one included
    test: bool = False
    home: int = -1  # the engine of the turn before


class Counters:
    """What an engine counts since its process began."""

    def __init__(self) -> None:
        self.generated = self.prompted = self.queries = self.hits = self.preempted = 0.0
        self.stop = self.length = self.abort = 0
        self.output, self.prompts, self.asked = (Histogram(TOKEN_BOUNDS) for _ in range(3))
        self.e2e, self.queued, self.inference = (Histogram(SECOND_BOUNDS) for _ in range(3))
        self.scheduled = Histogram(
            SECOND_BOUNDS
        )  # as `queued`, but booked when a request is scheduled, not when it ends
        self.updates = Histogram(SECOND_BOUNDS)


class Engine:
    """One instance."""

    def __init__(self, setting: Setting, number: int) -> None:
        self.setting, self.number = setting, number
        self.time = self.clock = self.stall = 0.0
        self.held = 0  # weight syncs that hold it
        self.present = True
        self.incarnation = 0
        self.heap: list[tuple[float, int, Request]] = []
        self.running: dict[int, Request] = {}  # by admission, oldest first
        self.waiting: deque[Request] = deque()
        self.admissions = 0
        self.base = 0.0  # KV tokens of the running at clock 0: used = base + running x clock
        self.cached: dict[int, None] = {}  # groups whose prompt is in the prefix cache, oldest first
        self.counters = Counters()
        self.prefilled_s = 0.0  # spent on prompts so far
        self.prefilling: deque[tuple[float, int]] = deque()  # when a prompt is done, on that clock, and its tokens
        self.version = 0  # of the event that is foreseen

    @property
    def load(self) -> int:
        """Requests here."""
        return len(self.running) + len(self.waiting)

    def used(self) -> float:
        """Tokens in the KV cache."""
        return self.base + len(self.running) * self.clock

    def iteration_s(self) -> float:
        """Seconds of one iteration now."""
        it = self.setting
        slow = it.slow[self.number].at(self.time) if self.number in it.slow else 1.0
        return (it.base_s + it.per_request_s * len(self.running) + it.per_kv_token_s * self.used()) * slow

    def advance(self, time: float) -> None:
        """Generates up to a time."""
        passed = time - self.time
        if passed > 0 and self.present and not self.held and self.running:
            spent = min(self.stall, passed)
            self.stall -= spent
            self.prefilled_s += spent
            while self.prefilling and self.prefilling[0][0] <= self.prefilled_s + 1e-6:
                self.counters.prompted += self.prefilling.popleft()[1]
            # prompts are computed in chunks, and each takes all running requests a token further
            moved = (passed - spent) / self.iteration_s() + spent * self.setting.prefill_tokens_per_s / CHUNK
            self.clock += moved
            self.counters.generated += moved * len(self.running)
        self.time = time

    def next_event(self) -> float:
        """When the next request ends or the KV cache overflows, as things are now."""
        if self.held or not self.present or not self.running:
            return math.inf
        ahead = self.heap[0][0] - self.clock
        room = (self.setting.kv_tokens - self.used()) / len(self.running)
        left, chunks_s = max(min(ahead, room), 0.0), self.setting.prefill_tokens_per_s / CHUNK
        if left <= self.stall * chunks_s:
            return self.time + left / chunks_s + 1e-9
        return self.time + self.stall + (left - self.stall * chunks_s) * self.iteration_s() + 1e-9

    def admit(self) -> None:
        """Takes requests from the front of the queue while they fit."""
        it = self.setting
        while self.waiting and len(self.running) < it.max_num_seqs and not self.held and self.present:
            request = self.waiting[0]
            need = request.prompt + request.done
            if self.running and self.used() + need > it.kv_tokens:
                return
            self.waiting.popleft()
            hit = 0
            if it.prefix_caching and request.group in self.cached:
                shared = request.prompt if request.home in (-1, self.number) else it.prompt
                hit = (shared - 1) // BLOCK * BLOCK
            request.home = self.number
            self.cached[request.group] = None
            while len(self.cached) > 400:
                del self.cached[next(iter(self.cached))]
            if request.admitted < 0:
                request.admitted = self.time
                self.counters.queries += request.prompt
                self.counters.hits += hit
                done_s = self.prefilled_s + self.stall + (need - hit) / it.prefill_tokens_per_s
                self.prefilling.append((done_s, request.prompt))
                self.counters.scheduled.add(self.time - request.born)
            self.stall += (need - hit) / it.prefill_tokens_per_s
            request.started_at = self.clock
            self.base += need - self.clock
            self.admissions += 1
            self.running[self.admissions] = request
            heapq.heappush(self.heap, (self.clock + request.length - request.done, self.admissions, request))

    def leave(self, key: int) -> Request:
        """Takes a running request out."""
        request = self.running.pop(key)
        progress = self.clock - request.started_at
        self.base -= request.prompt + request.done - request.started_at
        request.done = min(request.done + math.floor(progress + 1e-6), request.length)
        if not self.running:
            self.base = 0.0
            self.heap.clear()
            self.stall = 0.0
            self.counters.prompted += sum(tokens for _, tokens in self.prefilling)
            self.prefilling.clear()
        return request

    def settle(self) -> list[Request]:
        """What ended by now; preempts where the KV cache is full; admits."""
        ended = []
        while self.heap and (self.heap[0][1] not in self.running or self.heap[0][0] <= self.clock + 1e-6):
            _, key, request = heapq.heappop(self.heap)
            if self.running.get(key) is request:
                self.leave(key)
                request.done = request.length
                ended.append(request)
                self.count(request)
        while len(self.running) > 1 and self.used() >= self.setting.kv_tokens - 1e-6:
            victim = self.leave(next(reversed(self.running)))
            self.counters.preempted += 1
            self.waiting.appendleft(victim)
            self.drop_stale()
            break
        else:
            self.admit()
        self.drop_stale()
        return ended

    def drop_stale(self) -> None:
        """Takes entries of preempted requests off the top of the heap."""
        while self.heap and self.heap[0][1] not in self.running:
            heapq.heappop(self.heap)

    def count(self, request: Request) -> None:
        """Books an ended request."""
        book = self.counters
        if request.capped:
            book.length += 1
        else:
            book.stop += 1
        book.output.add(request.length)
        book.prompts.add(request.prompt)
        book.asked.add(1)
        book.e2e.add(self.time - request.born)
        book.inference.add(self.time - request.admitted)
        book.queued.add(request.admitted - request.born)

    def lose(self) -> list[Request]:
        """The process dies: its requests, to be sent elsewhere."""
        lost = [self.leave(key) for key in list(self.running)] + list(self.waiting)
        self.waiting.clear()
        self.heap.clear()
        self.cached.clear()
        self.counters = Counters()
        for request in lost:
            request.done, request.admitted = 0, -1.0
        return lost


@dataclass
class Trainer:
    """The trainer's counters, and what it is doing."""

    steps: int = 0
    wait_s: float = 0.0
    train_s: float = 0.0
    sync_s: float = 0.0
    samples: int = 0
    tokens: int = 0
    dropped: int = 0
    state: str = "wait"
    since: float = 0.0
    ends: list[float] = field(default_factory=list)


@dataclass
class Group:
    """A prompt and its samples."""

    number: int
    version: int
    left: int
    tokens: int = 0


class World:
    """Everything, and the loop."""

    def __init__(self, setting: Setting, watch: Callable[["World", Engine | None, float], None] | None = None) -> None:
        self.setting = setting
        self.random = random.Random(f"{setting.name} {setting.seed}")
        self.engines = [Engine(setting, number) for number in range(setting.instances)]
        self.trainer = Trainer()
        self.queue: deque[Group] = deque()
        self.groups: dict[int, Group] = {}
        self.pending: deque[Request] = deque()
        self.started = self.trained_groups = self.flying = self.turn = self.ended = 0
        self.started_tests = 0  # their groups have numbers below 0
        self.tokens = 0
        self.latency = 0.0
        self.may_send = 0.0  # when the client's processor has time for the next request
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.order = 0
        self.watch = watch

    def at(self, time: float, what: Callable[[float], None]) -> None:
        """Something will happen."""
        self.order += 1
        heapq.heappush(self.events, (time, self.order, what))

    def run(self) -> "World":
        """From the beginning to the end of the history."""
        it = self.setting
        end = it.hours * 3600
        for absence in (a for a in it.absences if a.instance < it.instances):
            self.at(absence.start, lambda now, a=absence: self.goes(a.instance, now, a.renamed))  # type: ignore[misc]
            if absence.end < end:
                self.at(absence.end, lambda now, a=absence: self.comes(a.instance, now))  # type: ignore[misc]
        if self.watch:
            for target in [*self.engines, None]:
                self.at(self.random.uniform(0.05, 0.95) * it.scrape_s, lambda now, e=target: self.scrape(e, now))  # type: ignore[misc]
        if it.batch:
            self.fill(0.0)
        else:
            self.at(self.random.expovariate(it.arrivals), self.arrive)
        while self.events and self.events[0][0] <= end:
            time, _, what = heapq.heappop(self.events)
            what(time)
        return self

    # Requests

    def draw(self, group: int, now: float) -> Request:
        """A sample's request."""
        it = self.setting
        length = max(round(self.random.lognormvariate(math.log(it.median * it.longer.at(now)), it.sigma)), 1)
        return Request(group, it.prompt, min(length, it.cap), now, capped=length >= it.cap, turns=it.turns)

    def arrive(self, now: float) -> None:
        """Serving: one request comes, and the next is foreseen."""
        it = self.setting
        rate = it.arrivals * (1 + it.swing * math.sin(2 * math.pi * now / it.wave_s))
        self.at(now + self.random.expovariate(max(rate, 1e-6)), self.arrive)
        self.started += 1
        self.send(self.draw(self.started, now), now)

    def fill(self, now: float) -> None:
        """Starts the groups that the client's law allows."""
        it = self.setting
        while True:
            if it.bounded and self.started >= self.trained_groups + (1 + it.staleness) * it.batch:
                break
            if self.flying + len(self.pending) >= it.in_flight:
                break
            self.started += 1
            self.groups[self.started] = Group(self.started, self.trainer.steps, it.group)
            self.pending.extend(self.draw(self.started, now) for _ in range(it.group))
            self.flush(now)
        self.flush(now)

    def flush(self, now: float) -> None:
        """Sends what may be in flight."""
        it = self.setting
        while self.pending and self.flying < it.in_flight:
            if it.sends_per_s < math.inf:
                if now < self.may_send - 1e-9:
                    return
                self.may_send = now + 1.0 / it.sends_per_s
                self.at(self.may_send, self.flush)
            request = self.pending.popleft()
            request.born = now
            self.send(request, now)

    def send(self, request: Request, now: float) -> None:
        """Routes a request to an engine."""
        here = [engine for engine in self.engines if engine.present]
        if not here:
            self.pending.appendleft(request)
            return
        self.turn += 1
        if self.setting.stuck and self.random.random() < self.setting.stuck:
            engine = here[0]
        elif self.setting.route == "group":
            engine = here[request.group % len(here)]
        elif self.setting.route == "round":
            engine = here[self.turn % len(here)]
        else:
            engine = min(here, key=attrgetter("load"))
        self.flying += 1
        engine.advance(now)
        engine.waiting.append(request)
        self.touch(engine, now)

    def touch(self, engine: Engine, now: float) -> None:
        """Settles an engine and foresees its next event."""
        ended = engine.settle()
        engine.version += 1
        time = engine.next_event()
        if time < math.inf:
            self.at(time, lambda at, e=engine, v=engine.version: self.due(e, v, at))  # type: ignore[misc]
        for request in ended:
            self.finish(request, now)

    def due(self, engine: Engine, version: int, now: float) -> None:
        """The foreseen event of an engine, unless something came between."""
        if version == engine.version:
            engine.advance(now)
            self.touch(engine, now)

    def finish(self, request: Request, now: float) -> None:
        """A response is there."""
        it = self.setting
        self.flying -= 1
        self.ended += 1
        self.tokens += request.length
        self.latency += now - request.born
        group = self.groups.get(request.group)
        if group is None or request.test:
            return
        group.tokens += request.length
        if request.turns > 1:
            self.at(now + self.random.expovariate(1 / max(it.tool_s, 1e-6)), lambda at: self.goes_on(request, at))
        elif it.reward_s:
            lasts = self.random.lognormvariate(math.log(it.reward_s), it.reward_sigma)
            self.at(now + lasts, lambda at: self.complete(group, at))
        else:
            self.complete(group, now)
            return
        self.fill(now)

    def goes_on(self, request: Request, now: float) -> None:
        """The next turn of a sample, after its tool has answered."""
        after = self.draw(request.group, now)
        after.prompt, after.turns = request.prompt + request.length, request.turns - 1
        after.home = request.home
        self.pending.appendleft(after)
        self.flush(now)

    def complete(self, group: Group, now: float) -> None:
        """A sample of a group is there and judged."""
        group.left -= 1
        if not group.left:
            del self.groups[group.number]
            self.queue.append(group)
            self.take(now)
        self.fill(now)

    # The trainer

    def take(self, now: float) -> None:
        """Begins a step, if the trainer waits and a batch is there."""
        it, trainer = self.setting, self.trainer
        if trainer.state != "wait":
            return
        while self.queue and trainer.steps - self.queue[0].version > it.max_age:
            self.queue.popleft()
            trainer.dropped += it.group
            self.trained_groups += 1
        if len(self.queue) < it.batch:
            return
        batch = [self.queue.popleft() for _ in range(it.batch)]
        self.book(now, "train")
        lasts = it.train_s * it.trainer_slow.at(now) * self.random.lognormvariate(0, it.train_noise)
        lasts += it.save_s if not (trainer.steps + 1) % it.saves_every else 0.0
        self.at(now + lasts, lambda at: self.stepped(batch, at))

    def book(self, now: float, state: str) -> None:
        """Seconds up to now belong to what the trainer was doing."""
        trainer = self.trainer
        name = {"wait": "wait_s", "train": "train_s", "sync": "sync_s"}[trainer.state]
        setattr(trainer, name, getattr(trainer, name) + now - trainer.since)
        trainer.state, trainer.since = state, now

    def waited(self, now: float) -> float:
        """Seconds that the trainer has waited by now."""
        trainer = self.trainer
        return trainer.wait_s + (now - trainer.since if trainer.state == "wait" else 0.0)

    def stepped(self, batch: list[Group], now: float) -> None:
        """The optimizer step is done: weights go to the engines."""
        it, trainer = self.setting, self.trainer
        trainer.samples += len(batch) * it.group
        trainer.tokens += sum(group.tokens for group in batch)
        pause = it.pause_s * it.sync_slow.at(now)
        if (trainer.steps + 1) % it.sync_every:
            pause = 0.0
        if it.rolling:
            for place, engine in enumerate(self.engines):
                begin = now + place * pause
                self.at(begin, lambda at, e=engine: self.hold([e], pause, at))  # type: ignore[misc]
            self.synced(now)
        else:
            self.book(now, "sync")
            self.hold(self.engines, pause, now)
            self.at(now + pause, self.synced)

    def hold(self, engines: list[Engine], pause: float, now: float) -> None:
        """Engines stand still, and go on by themselves."""
        for engine in engines:
            engine.advance(now)
            engine.held += 1
            engine.version += 1
            if self.setting.flushed:
                engine.cached.clear()
            if pause:
                engine.counters.updates.add(pause)
        self.at(now + pause, lambda at: self.release(engines, at))

    def release(self, engines: list[Engine], now: float) -> None:
        """The end of a pause."""
        for engine in engines:
            engine.advance(now)
            engine.held -= 1
            self.touch(engine, now)

    def synced(self, now: float) -> None:
        """The step is over."""
        it = self.setting
        self.book(now, "wait")
        self.trainer.steps += 1
        if not self.trainer.steps % it.tests_every:
            for _ in range(it.tests):
                self.started_tests -= 1
                asked = self.draw(self.started_tests, now)
                asked.test = True
                self.pending.append(asked)
            self.flush(now)
        self.trainer.ends.append(now)
        self.trained_groups += self.setting.batch
        self.fill(now)
        self.take(now)

    # Instances come and go

    def goes(self, number: int, now: float, renamed: bool) -> None:
        """An instance is lost; what ran there is sent to the others."""
        engine = self.engines[number]
        engine.advance(now)
        lost = engine.lose()
        engine.present = False
        engine.version += 1
        engine.incarnation += renamed
        self.flying -= len(lost)
        for request in lost:
            self.send(request, now)

    def comes(self, number: int, now: float) -> None:
        """It is back."""
        engine = self.engines[number]
        engine.time = now
        engine.present = True
        self.touch(engine, now)
        self.fill(now)

    def scrape(self, engine: Engine | None, now: float) -> None:
        """Prometheus looks at one target."""
        self.at(now + self.setting.scrape_s, lambda at: self.scrape(engine, at))
        if engine is not None:
            engine.advance(now)
        if engine is not None and engine.held and self.setting.deaf:
            return
        if self.watch and not any(start <= now < end for start, end in self.setting.holes):
            self.watch(self, engine, now)
