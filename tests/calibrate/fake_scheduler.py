"""vLLM's scheduler with a known step time, and a client's player on it in virtual time.

`VirtualPlayer` is what a real player over HTTP would see, without a network and without a clock: to the digit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fleetsim.calibrate.loads import Request
from fleetsim.calibrate.server.play import Play, Played, Stream
from fleetsim.engine import EngineLimits, StepTime

TRUTH = StepTime(
    (1.0, 16.0, 64.0, 256.0, 2048.0),
    (0.0040, 0.0042, 0.0050, 0.0090, 0.0500),
    per_seq_s=4e-6,
    per_kv_token_s=2e-8,
    per_attn_pair_s=1e-9,
)
LIMITS = EngineLimits(max_num_seqs=64, max_num_batched_tokens=2048, kv_blocks=20_000, block_size=16)


@dataclass(slots=True)
class Job:
    """One request in the scheduler. prompt: what identifies it in the prefix cache. got: tokens, last iteration."""

    prompt: Any
    tokens: int
    want: int
    computed: int = 0
    made: int = 0
    got: int = 0
    hit: int = 0
    begun: bool = False
    gone: bool = False
    told: Callable[[int], None] = lambda made: None


@dataclass(slots=True)
class Scheduler:
    """vLLM's, without preemption: running first, then waiting first in first out, one budget of tokens.

    mixing: False computes prompts in iterations of their own while the decodes stand still, as SGLang does.
    accepted: chances of a draft's first token, first two tokens, ...; found: of an iteration that there is a draft.
    drafts, drafted, accepted_at, generated, first_tokens: what vLLM counts of them.
    """

    step_time: StepTime = TRUTH
    limits: EngineLimits = LIMITS
    caching: bool = True
    mixing: bool = True
    running: list[Job] = field(default_factory=list)
    waiting: list[Job] = field(default_factory=list)
    cached: set[Any] = field(default_factory=set)
    ended: int = 0
    hits: int = 0
    accepted: tuple[float, ...] = ()
    found: float = 1.0
    drafts: int = 0
    drafted: int = 0
    accepted_at: list[int] = field(default_factory=list)
    generated: int = 0
    first_tokens: int = 0
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def drafting(self, job: Job) -> int:
        """One decode: tokens drafted for it; how many its iteration brings is in the job."""
        job.got = 1
        if not self.accepted or self.random.random() >= self.found:
            return 0
        self.accepted_at = self.accepted_at or [0] * len(self.accepted)
        kept = int((self.random.random() < np.array(self.accepted)).sum())  # falling, so from the first on
        self.drafts, self.drafted = self.drafts + 1, self.drafted + len(self.accepted)
        for place in range(kept):
            self.accepted_at[place] += 1
        job.got += kept
        return len(self.accepted)

    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    def step(self) -> tuple[float, list[Job]]:
        """One iteration: its seconds and the jobs that made a token in it (they are done when made == want)."""
        self.running = [j for j in self.running if not j.gone]
        self.waiting = [j for j in self.waiting if not j.gone]
        budget, b, kv, p, pairs, n = self.limits.max_num_batched_tokens, 0, 0, 0, 0, 0
        out: list[Job] = []
        room = len(self.running) < self.limits.max_num_seqs
        alone = not self.mixing and (any(j.computed < j.tokens for j in self.running) or (self.waiting and room))
        for job in list(self.running):
            if job.computed >= job.tokens and not alone:
                drafted = self.drafting(job)
                b, kv, budget, n = b + 1, kv + job.computed, budget - 1 - drafted, n + drafted
                job.computed += job.got
                out.append(job)
        jobs = [j for j in self.running if j.computed < j.tokens and j not in out]
        while budget > 0 and (jobs or (self.waiting and len(self.running) < self.limits.max_num_seqs)):
            job = jobs.pop(0) if jobs else self.waiting.pop(0)
            if not job.begun:
                job.begun = True
                self.running.append(job)
                if self.caching and job.prompt in self.cached:
                    job.hit = (job.tokens - 1) // self.limits.block_size * self.limits.block_size
                    job.computed, self.hits = job.hit, self.hits + job.hit
            q = min(budget, job.tokens - job.computed)
            pairs += q * job.computed + q * (q + 1) // 2
            p, budget, job.computed = p + q, budget - q, job.computed + q
            if job.computed >= job.tokens:
                out.append(job)
                job.got = 1
                self.first_tokens += 1
                self.cached.add(job.prompt)
        for job in out:
            job.got = min(job.got, job.want - job.made)
            job.made += job.got
            self.generated += job.got
            if job.made >= job.want:
                job.gone = True
                self.ended += 1
        self.running = [j for j in self.running if not j.gone]
        verified = self.step_time.curve(np.array([b + p, b + p + n], np.float64))
        return self.step_time.seconds(b, p, kv, pairs) + float(verified[1] - verified[0]), out


@dataclass
class VirtualPlayer:
    """A Player whose seconds pass only in the scheduler.

    overhead_s: of a request's way in and of its tokens' way out together. jitter_s: of each token's way out. together:
    tokens per chunk, as a server sends that does not stream every token.
    """

    scheduler: Scheduler = field(default_factory=Scheduler)
    overhead_s: float = 0.003
    jitter_s: float = 0.0
    together: int = 1
    seed: int = 0
    clock_s: float = 0.0
    plays: list[Play] = field(default_factory=list)

    def now(self) -> float:
        return self.clock_s

    async def play(self, play: Play, deadline_s: float, at: Callable[[], None] | None = None) -> Played:
        self.plays.append(play)
        random = np.random.default_rng([self.seed, len(self.plays)])
        played = Played(play)
        pending: list[tuple[float, Job]] = []
        held: dict[int, int] = {}
        after, late = list(play.then), False

        def send(ask: Request, is_late: bool) -> Job:
            for _ in range(play.n):
                s = Stream(ask, late=is_late, submitted_s=self.clock_s, prompt_tokens=ask.prompt_tokens)
                job = Job((ask.prompt, ask.prompt_tokens), ask.prompt_tokens, ask.output_tokens)
                streams[id(job)] = s
                keep.append(job)
                played.streams.append(s)
                pending.append((self.clock_s + self.overhead_s / 2, job))
            return job

        streams: dict[int, Stream] = {}
        keep: list[Job] = []
        for ask in play.asks:
            send(ask, False)
            self.clock_s += 1e-7  # one after the other: the first is computed alone
        current: Job | None = None
        while pending or self.scheduler.busy():
            if self.clock_s >= deadline_s:
                played.cut = True
                break
            if not self.scheduler.busy():
                self.clock_s = max(self.clock_s, pending[0][0])
            while pending and pending[0][0] <= self.clock_s:
                self.scheduler.waiting.append(pending.pop(0)[1])
            seconds, out = self.scheduler.step()
            self.clock_s += seconds
            for job in out:
                s = streams[id(job)]
                held[id(job)] = held.get(id(job), 0) + job.got
                if held[id(job)] < self.together and not job.gone:
                    continue
                if not s.late and not s.times:
                    played.first()
                played.total += 0 if s.late else held[id(job)]
                noise = abs(random.normal(0, self.jitter_s)) if self.jitter_s else 0.0
                s.arrived(self.clock_s + self.overhead_s / 2 + noise, held.pop(id(job)))
                if job.gone:
                    s.ended = "length"
                    played.ended += not s.late
            if at is not None:
                at()
            if play.window is None and not play.then:
                continue
            if played.stuck:
                played.crowded = True
                break
            if not played.all_began:
                continue
            if played.goal is None:
                played.aim(play.gap if after else play.window or 0)
            if current is not None and not current.gone:
                continue
            if late:  # the one sent before has ended: the next moment is a gap from here
                late, current = False, None
                played.aim(play.gap if after else play.window or play.gap)
            if played.reached:
                if not after:
                    break
                current, late = send(after.pop(0), True), True
        for job in keep:
            job.gone = True
        self.scheduler.step()  # drops what was aborted
        self.clock_s += self.overhead_s
        return played
