"""The engine, iteration by iteration: slow, obvious, and what the kernel must equal.

One iteration as vLLM's V1 scheduler does it. Nothing is shared with the kernel but the step-time formula; lists and
dictionaries only, no cleverness, no jumps.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from fractions import Fraction

from fleetsim.engine import EngineLimits, StepTime
from fleetsim.engine.window import AttentionWindow

TOLERANCE = 1e-12  # the same rounding allowance as the kernel's


def sees(near: AttentionWindow, position: int) -> int:
    """Tokens that a prompt's token at this position, counted from 0, looks at, itself among them."""
    return position % near.tokens + 1 if near.chunked else min(position + 1, near.tokens)


@dataclass(eq=False)
class Request:
    id: int
    prompt: int
    output: int
    arrival: float
    group: int | None
    generated: int = 0
    given: int = 0  # tokens when its prompt was last computed
    computed: int = 0
    own: int = 0  # blocks that only this request holds
    shares: bool = False  # reads its group's prompt blocks
    start: float | None = None
    first: float | None = None
    finish: float | None = None
    preemptions: int = 0
    prefilling: bool = False
    begun: bool = False  # in this iteration, with what came from the host
    loaded: float | None = None  # when what it waits for has come from the host
    brought: bool = False  # its prompt was computed elsewhere and has arrived
    prefill: int | None = None  # the prefill engine that computes it

    @property
    def context(self) -> int:
        return self.prompt + self.generated


@dataclass
class Prefix:
    blocks: int
    readers: int = 0
    ready: bool = True
    taken_when_freed: int = 0
    free_when_freed: int = 0


@dataclass
class Step:
    """One iteration: what it took and what it held, in the words of fleetsim.calibrate.raw.COLUMNS."""

    dt: float
    nd: int
    K: int
    npf: int
    np: int
    A: int
    Kp: int
    hit: int
    adm: int
    out: int
    fin: int
    pre: int
    run: int
    wait: int
    blk: int


@dataclass
class Engine:
    step_time: StepTime
    limits: EngineLimits
    caching: bool
    slow: float = 1.0
    now: float = 0.0
    running: list[Request] = field(default_factory=list)
    waiting: list[Request] = field(default_factory=list)
    prefixes: dict[int, Prefix] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    free: int = 0
    taken: int = 0
    busy: float = 0.0
    held_from: float = math.inf
    held_until: float = -math.inf
    log: list[Step] | None = None
    phase: Fraction = Fraction(0)  # what decodes have grown by beyond whole tokens
    host: dict[tuple[str, int, int], None] = field(default_factory=dict)  # blocks that nobody runs with, oldest first
    link: float = 0.0  # when the link to the host is free
    idle: bool = False  # nothing runs, something comes from the host
    load_s: float = 0.0  # SGLang: of the loads of this iteration
    recomputed: int = 0  # tokens
    from_host: int = 0  # blocks

    def __post_init__(self) -> None:
        self.free = self.limits.kv_blocks
        self.spec = self.step_time.speculation
        most = self.limits.max_num_seqs * (1 + self.most_drafts)
        self.f = self.step_time.table(max(self.limits.max_num_batched_tokens, most))

    @property
    def most_drafts(self) -> int:
        return self.spec.most if self.spec is not None else 0

    def drafts(self, decodes: int) -> int:
        """Tokens drafted for each of so many decodes."""
        for most, k in self.spec.schedule if self.spec is not None else ():
            if decodes / self.at_work(decodes) <= most:
                return min(k, self.limits.max_num_batched_tokens // max(1, decodes) - 1)
        return 0

    def length(self, decodes: int) -> Fraction:
        """Tokens that an iteration brings of each."""
        if self.spec is None:
            return Fraction(1)
        return Fraction(round(self.spec.lengths[0][self.drafts(decodes)] * 2**20), 2**20)

    def growth(self, decodes: int) -> int:
        """Whole ones of them in the next iteration."""
        return math.floor(self.phase + self.length(decodes))

    def added_s(self, decodes: int, cached: float) -> float:
        """Seconds that drafts add to an iteration of so many decodes with so many cached tokens between them."""
        if self.spec is None or decodes == 0:
            return 0.0
        k = self.drafts(decodes)
        cached /= self.at_work(decodes)
        decodes /= self.at_work(decodes)
        row = self.spec.added_s[k]
        knots = self.spec.knots_sequences
        if len(knots) == 1:
            own = row[0]
        else:
            j = next((j for j in range(1, len(knots)) if decodes <= knots[j]), len(knots) - 1)
            own = row[j - 1] + (row[j] - row[j - 1]) * (decodes - knots[j - 1]) / (knots[j] - knots[j - 1])
        return own + self.spec.added_kv_token_s[k] * cached

    def at_work(self, decodes: int) -> int:
        """Engines that have one of so many decodes."""
        return max(1, min(decodes, self.step_time.engines))

    def seen(self, r: Request) -> float:
        """Cached tokens that a decode sees in layers with a window, its part of the last one included."""
        near = self.step_time.window
        assert near is not None
        if near.chunked:
            return r.computed % near.tokens + float(self.phase)
        return r.computed + float(self.phase) if r.computed < near.tokens else near.tokens

    def blocks(self, tokens: int) -> int:
        """Blocks of the cache that so many tokens of a request take."""
        return self.units(-(-tokens // self.limits.block_size))

    def units(self, n: int) -> int:
        """The same of n times block_size tokens: layers with a window keep so many of them only."""
        limits = self.limits
        return limits.whole_blocks * n + limits.window_blocks * min(n, -(-limits.window_tokens // limits.block_size))

    def growth_blocks(self, r: Request, tokens: int) -> int:
        """Blocks that a running request takes for further tokens. A decode lets go of old ones only afterwards."""
        if not self.is_decode(r):
            return self.blocks(r.computed + tokens) - self.blocks(r.computed)
        size, near = self.limits.block_size, r.computed < self.limits.window_tokens
        new = -(-(r.computed + tokens) // size) - -(-r.computed // size)
        return new * (self.limits.whole_blocks + (self.limits.window_blocks if near else 0))

    def take(self, n: int) -> None:
        self.free -= n
        self.taken += n
        alone = len(self.running) == 1 and self.most_drafts > 0  # what is drafted past its end may not fit
        assert self.free >= 0 or alone, "KV blocks within capacity"

    def shareable(self, r: Request) -> int:
        if not self.caching or r.group is None or self.sizes[r.group] < 2:
            return 0
        return (r.prompt - 1) // self.limits.block_size

    def cached(self, r: Request) -> tuple[int, bool]:
        """Blocks found, and whether somebody reads them now."""
        n, prefix = self.shareable(r), self.prefixes.get(r.group) if r.group is not None else None
        if n == 0 or prefix is None or not prefix.ready:
            return 0, False
        if prefix.readers > 0:
            return n, True
        gone = self.taken - prefix.taken_when_freed > prefix.free_when_freed
        return (0, False) if gone else (n, False)

    def release(self, r: Request, known: int | None = None) -> None:
        self.trim()
        self.free += r.own + self.limits.state_blocks
        r.own = 0
        known = r.computed if known is None else min(known, r.computed)
        self.copy([("own", r.id, j) for j in range(self.shareable(r), known // self.limits.block_size)])
        if r.shares:
            prefix = self.prefixes[r.group]
            prefix.readers -= 1
            if prefix.readers == 0:
                prefix.taken_when_freed, prefix.free_when_freed = self.taken, self.free
                self.free += prefix.blocks
                self.copy([("group", r.group, j) for j in range(self.shareable(r))])
        r.shares = False
        r.computed = 0

    # The host's copies, block by block.

    def trim(self) -> None:
        """The host holds what runs and, of the rest, what was read or written last."""
        room = max(0, self.limits.host_blocks - (self.limits.kv_blocks - self.free))
        while len(self.host) > room:
            del self.host[next(iter(self.host))]

    def copy(self, keys: list[tuple[str, int, int]]) -> None:
        """Blocks that nobody runs with any more are the newest, the first of them last."""
        if self.caching and self.limits.host_blocks:
            for key in reversed(keys):
                self.host.pop(key, None)
                self.host[key] = None
            self.trim()

    def runs(self, r: Request) -> None:
        """Its blocks are no longer of those that nobody runs with."""
        keys = [key for key in self.host if key[:2] == ("own", r.id) or (r.shares and key[:2] == ("group", r.group))]
        for key in keys:
            del self.host[key]

    def behind(self, r: Request, found: int) -> int:
        """Blocks on the host behind those found in the cache."""
        self.trim()
        at, n = found, self.shareable(r)
        while at < n and ("group", r.group, at) in self.host:
            at += 1
        while n <= at < (r.context - 1) // self.limits.block_size and ("own", r.id, at) in self.host:
            at += 1
        return at - found

    def coming(self) -> list[float]:
        """When what waiting requests hold has come from the host."""
        return [r.loaded for r in self.waiting if r.loaded is not None]

    def lacks(self, r: Request) -> int:
        return self.blocks(r.context) - self.blocks(r.computed)

    def hold(self, r: Request, found: int, read: bool) -> None:
        """It reads the blocks of its group that were found; read: somebody else does already."""
        if found:
            if not read:
                self.take(self.units(found))
            self.prefixes[r.group].readers += 1
            r.shares = True

    def load(self, r: Request, found: int, read: bool, n: int) -> None:
        """n blocks behind those that were found come from the host."""
        self.hold(r, found, read)
        self.take(n)
        r.own += n
        r.computed = (found + n) * self.limits.block_size
        self.from_host += n
        if not r.shares and self.shareable(r) <= found + n:
            self.publish(r)
        self.runs(r)
        self.link = max(self.link, self.now) + n * self.limits.load_block_s
        self.load_s += n * self.limits.load_block_s
        r.loaded = self.link

    def publish(self, r: Request) -> None:
        """All prompt blocks are allocated: siblings may read them."""
        n = self.shareable(r)
        if n and not r.shares:
            prefix = self.prefixes.get(r.group)
            if prefix is None or self.cached(r)[0] == 0:
                self.prefixes[r.group] = Prefix(self.units(n), readers=1)
                r.own -= self.units(n)
                r.shares = True
                self.runs(r)

    def grow(self, r: Request, tokens: int) -> None:
        need = self.growth_blocks(r, tokens)
        self.take(need)
        r.own += need

    def cut(self, rest: int, budget: int) -> int:
        """Tokens of a prompt that this iteration computes; a cut falls on a multiple of the unit."""
        return rest if rest <= budget else budget // self.limits.chunk_unit * self.limits.chunk_unit

    def is_decode(self, r: Request) -> bool:
        return r.generated > 0 and r.context - r.computed == 1 and not r.begun

    def serve_running(self, scheduled: list[tuple[Request, int]]) -> int:
        """Running requests in order, the last ones preempted where blocks are missing; returns how many were."""
        budget = self.limits.max_num_batched_tokens
        if self.spec is not None:
            return self.serve_drafting(scheduled, budget)
        preempted = 0
        position = 0
        while position < len(self.running) and budget > 0:
            r = self.running[position]
            tokens = self.cut(r.context - r.computed, budget)
            if tokens == 0:
                break
            while self.growth_blocks(r, tokens) > self.free:
                victim = self.running.pop()
                self.release(victim)
                victim.preemptions += 1
                self.waiting.insert(0, victim)
                preempted += 1
                if victim is r:
                    break
            else:
                self.grow(r, tokens)
                scheduled.append((r, tokens))
                budget -= tokens
                if not self.is_decode(r) and r.computed + tokens == r.context:
                    self.prompt_scheduled(r)
                position += 1
                continue
            break
        return preempted

    def serve_drafting(self, scheduled: list[tuple[Request, int]], budget: int) -> int:
        """The same where decodes grow by more than a token, by how many depends on how many they are."""
        preempted = 0
        while True:
            decodes = [r for r in self.running if self.is_decode(r)]
            k, growth = self.drafts(len(decodes)), self.growth(len(decodes))
            tokens = dict.fromkeys(decodes, growth)
            left = budget - len(decodes) * (1 + k)
            tokens |= {r: self.cut(r.context - r.computed, left) for r in self.running if r not in tokens}
            need = sum(self.growth_blocks(r, n) for r, n in tokens.items())
            if need <= self.free or len(self.running) <= (0 if self.coming() else 1):
                break
            victim = self.running.pop()
            self.release(victim)
            victim.preemptions += 1
            self.waiting.insert(0, victim)
            preempted += 1
        for r in self.running:
            if tokens[r]:
                self.grow(r, tokens[r])
                scheduled.append((r, tokens[r]))
                if not self.is_decode(r) and r.computed + tokens[r] == r.context:
                    self.prompt_scheduled(r)
        return preempted

    def begin(self, r: Request, budget: int, found: int, read: bool) -> int:
        """A waiting request starts running; returns its first chunk. What came from the host it holds already."""
        self.waiting.remove(r)
        self.running.append(r)
        r.prefilling, r.begun = True, r.loaded is not None
        if r.start is None:
            r.start = self.now
        self.take(self.limits.state_blocks)
        if r.loaded is None:
            r.computed = found * self.limits.block_size
            self.hold(r, found, read)
            self.runs(r)
        r.loaded = None
        if r.preemptions:
            self.recomputed += r.context - r.computed
        r.given = r.context
        tokens = self.cut(r.context - r.computed, budget)
        self.grow(r, tokens)
        return tokens

    def admit(self, scheduled: list[tuple[Request, int]]) -> tuple[int, int]:
        """Waiting requests, first in first out; returns cached tokens and requests admitted."""
        budget = self.left_of(scheduled)
        hit = admitted = 0
        full = False
        for r in list(self.waiting):
            if budget == 0 or len(self.running) >= self.limits.max_num_seqs or r.brought:
                break
            coming = r.loaded is not None
            if (coming and r.loaded > self.now + TOLERANCE * (1 + self.now)) or (full and not coming):
                continue
            found, read = (0, False) if coming else self.cached(r)
            need = self.blocks(r.context) - (self.units(found) if read else 0) + self.limits.state_blocks
            if coming:
                need = self.lacks(r)
            else:
                need += sum(self.lacks(other) for other in self.waiting if other.loaded is not None)
            if need > self.free:
                full = True
                continue
            n = 0 if coming else self.behind(r, found)
            if n:
                self.load(r, found, read, n)
                if r.loaded > self.now + TOLERANCE * (1 + self.now):
                    continue
            admitted += 1
            hit += found * self.limits.block_size
            tokens = self.begin(r, budget, found, read)
            scheduled.append((r, tokens))
            budget -= tokens
            if r.computed + tokens < r.context:
                break
            self.prompt_scheduled(r)
        return hit, admitted

    def left_of(self, scheduled: list[tuple[Request, int]]) -> int:
        """Tokens that the budget leaves beside what is scheduled."""
        decodes = [r for r, _ in scheduled if self.is_decode(r)]
        prompts = sum(tokens for r, tokens in scheduled if r not in decodes)
        return self.limits.max_num_batched_tokens - prompts - len(decodes) * (1 + self.drafts(len(decodes)))

    def prompt_scheduled(self, r: Request) -> None:
        """The whole prompt has blocks: vLLM's siblings may read them from now on."""
        self.publish(r)

    def prompt_computed(self, r: Request) -> None:
        """The whole prompt is in the cache."""

    def left(self) -> None:
        """A running request has ended."""

    def iterate(self) -> list[Request]:
        """One iteration; returns the requests that finished in it."""
        scheduled: list[tuple[Request, int]] = []
        hit = admitted = 0
        preempted = self.serve_running(scheduled)
        if not preempted or not self.running:
            hit, admitted = self.admit(scheduled)
        self.idle = bool(self.coming()) and not scheduled
        if self.idle:
            self.now = min(s for s in self.coming() if s > self.now)
            return []
        return self.run(scheduled, hit, admitted, preempted)

    def run(self, scheduled: list[tuple[Request, int]], hit: int, admitted: int, preempted: int) -> list[Request]:
        """The scheduled tokens are computed."""
        decodes = [r for r, _ in scheduled if self.is_decode(r)]
        prefills = [(r, tokens) for r, tokens in scheduled if not self.is_decode(r)]
        p = sum(tokens for _, tokens in prefills)
        pairs = sum(tokens * r.computed + tokens * (tokens + 1) / 2 for r, tokens in prefills)
        s = self.step_time
        near, near_pairs = s.window, 0
        seen = 0.0
        if near is not None:
            seen = sum(self.seen(r) for r in decodes)
            near_pairs = sum(sees(near, r.computed + j) for r, tokens in prefills for j in range(tokens))
        cached = sum(r.computed for r in decodes) + len(decodes) * float(self.phase)
        dt = self.slow * (
            self.f[len(decodes) * (1 + self.drafts(len(decodes))) + p]
            + s.per_seq_s * len(decodes) / self.at_work(len(decodes))
            + (s.per_prefill_token_s + (self.spec.prompt_token_s if self.spec else 0.0)) * p / s.engines
            + s.per_kv_token_s * cached / self.at_work(len(decodes))
            + s.per_attn_pair_s * pairs / s.engines
            + self.added_s(len(decodes), cached)
        )
        if near is not None:
            dt += self.slow * near.per_kv_token_s * seen / self.at_work(len(decodes))
            dt += self.slow * near.per_attn_pair_s * near_pairs / s.engines
        if decodes:
            whole = self.phase + self.length(len(decodes))
            self.phase = whole - math.floor(whole)
        dt, self.load_s = (max(dt, self.load_s), 0.0) if self.limits.scheduler == "sglang" else (dt, 0.0)
        self.now += dt
        self.busy += dt
        kv, before = sum(r.computed for r in decodes), sum(r.computed for r, _ in prefills)
        running, blocks = len(self.running), self.limits.kv_blocks - self.free
        made = 0
        finished = []
        for r in self.running:
            r.begun = False
        over: dict[Request, int] = {}  # tokens past its end, which are thrown away
        for r, tokens in scheduled:
            if r in decodes:
                kept = self.blocks(r.computed + tokens) - self.blocks(r.computed)
                slid = self.growth_blocks(r, tokens) - kept
                if r.generated + tokens < r.output:
                    self.free += slid
                    r.own -= slid
            r.computed += tokens
            if r in decodes:
                r.generated += tokens
                made += tokens
                if r.generated >= r.output:
                    over[r] = r.generated - r.output
                    made -= over[r]
                    r.generated, r.computed = r.output, r.computed - over[r]
                    r.finish = self.now
                    finished.append(r)
            elif r.computed == r.context:
                if (r, tokens) in prefills:
                    self.prompt_computed(r)
                r.prefilling = False
                r.generated += 1
                made += 1
                if r.first is None:
                    r.first = self.now
                if r.generated == r.output:
                    r.finish = self.now
                    finished.append(r)
        # requests that end together give their blocks back decodes first, those that were to end first before the
        # others, then by group and number: a group is one range
        decoded = [r for r in finished if r in decodes]
        decoded.sort(key=lambda r: (-over[r], -1 if r.group is None else r.group, r.id))
        finished = decoded + [r for r in finished if r not in decodes]
        for r in finished:
            self.running.remove(r)
            if self.limits.host_blocks:  # what was drafted past the end is in nobody's way
                past = self.blocks(r.computed + over.get(r, 0)) - self.blocks(r.computed)
                self.free, r.own = self.free + past, r.own - past
            self.release(r)
            self.left()
        if self.log is not None:
            held = (
                len(decodes),
                kv,
                len(prefills),
                p,
                int(pairs),
                before,
                hit,
                admitted,
                made,
                len(finished),
                preempted,
            )
            self.log.append(Step(dt, *held, running, len(self.waiting), blocks))
        return finished


def run_reference(
    step_time: StepTime,
    limits: EngineLimits,
    prompt: list[int],
    output: list[int],
    *,
    arrival: list[float] | None = None,
    group: list[int] | None = None,
    caching: bool = False,
    instances: int = 1,
    routing: str = "round_robin",
    slow: list[float] | None = None,
    pauses: list[tuple[float, float]] = (),
) -> tuple[list[Request], list[int], list[Engine]]:
    """All requests through all engines. pauses: (from, until) for the whole fleet, in order, not overlapping."""
    n = len(prompt)
    requests = [
        Request(i, prompt[i], output[i], arrival[i] if arrival else 0.0, group[i] if group else None) for i in range(n)
    ]
    sizes: dict[int, int] = {}
    for r in requests:
        if r.group is not None:
            sizes[r.group] = sizes.get(r.group, 0) + 1
    from tests.engine.reference_modes import ENGINES

    if step_time.prefill is not None:
        from tests.engine.reference_prefill import run_disaggregated

        return run_disaggregated(step_time, limits, requests, sizes, caching, instances, routing)
    kind = ENGINES[limits.scheduler]
    engines = [kind(step_time, limits, caching, slow=slow[i] if slow else 1.0, sizes=sizes) for i in range(instances)]
    where = [-1] * n
    load = [0] * instances
    pending = sorted(requests, key=lambda r: r.arrival)
    turn = 0
    ready = [0.0] * instances  # when each engine can run its next iteration
    finishing: list[tuple[float, int]] = []  # (time, engine) of finishes, for the least-loaded router

    def allow(t: float) -> float:
        return t + TOLERANCE * (1 + abs(t))

    while True:
        able = [i for i in range(instances) if engines[i].running or engines[i].waiting]
        t_engine = min((ready[i] for i in able), default=math.inf)
        t_arrival = pending[0].arrival if pending else math.inf
        t = min(t_engine, t_arrival)
        if t == math.inf:
            return requests, where, engines
        # finishes up to now free their routers' slots before arrivals are routed
        while finishing and finishing[0][0] <= allow(t):
            load[heapq.heappop(finishing)[1]] -= 1
        while pending and pending[0].arrival <= allow(t):
            r = pending.pop(0)
            if routing == "by_group":  # the label is the instance
                i = r.group
            elif routing == "round_robin":
                i, turn = turn, (turn + 1) % instances
            else:
                i = min(range(instances), key=lambda j: (load[j], j))
                if routing == "prefix_affinity" and r.group is not None:
                    for sibling in requests:
                        j = where[sibling.id]
                        if sibling.group == r.group and j >= 0 and load[j] <= min(load):
                            i = j
                            break
            where[r.id] = i
            load[i] += 1
            if not engines[i].running and not engines[i].waiting:
                ready[i] = max(ready[i], r.arrival)
            elif engines[i].idle:
                ready[i] = r.arrival
            engines[i].waiting.append(r)
        for i in range(instances):
            engine = engines[i]
            if (engine.running or engine.waiting) and ready[i] <= allow(t):
                begin = ready[i]
                for start, until in pauses:
                    if allow(begin) >= start and begin < until:
                        begin = until
                if begin > ready[i]:
                    ready[i] = begin
                    continue
                engine.now = ready[i]
                for _ in engine.iterate():
                    heapq.heappush(finishing, (engine.now, i))
                ready[i] = engine.now
