"""The other engines, iteration by iteration: SGLang and TensorRT-LLM as the kernel must equal them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.engine.reference import TOLERANCE, Engine, Prefix, Request

INIT, LOWEST, CLIP, STEPS = 0.7, 0.7 * 0.14, 4096, 20


@dataclass
class SglangEngine(Engine):
    """Prompts before decodes and without them, admission by estimate, retraction of the least advanced."""

    full: bool = False
    ratio: float = INIT
    ended: float = 0.0
    decoding: list[Request] = field(default_factory=list)

    def drafts(self, decodes: int) -> int:
        """The budget is of prompts only."""
        return (
            next((k for most, k in self.spec.schedule if decodes / self.at_work(decodes) <= most), 0)
            if self.spec is not None
            else 0
        )

    def allowed(self, r: Request) -> int:
        cap = self.limits.max_output_tokens
        most = self.limits.kv_tokens - r.prompt - 2
        return max(0, most if cap is None else min(cap, most))

    def expected(self, r: Request) -> int:
        return min(CLIP, max(0, self.allowed(r) - r.generated))

    def is_decode(self, r: Request) -> bool:
        return r in self.decoding

    def prompt_computed(self, r: Request) -> None:
        """Its prompt enters the radix tree, or what is there already replaces its copy."""
        n, prefix = self.shareable(r), self.prefixes.get(r.group) if r.group is not None else None
        if n and not r.shares and prefix is not None and self.cached(r)[0]:
            if prefix.readers > 0:
                self.free += n
            prefix.readers += 1
            r.own -= n
            r.shares = True
            self.runs(r)
        self.publish(r)

    def left(self) -> None:
        self.full = False

    def prompts(self) -> list[tuple[Request, int]]:
        size = self.limits.block_size
        budget = self.limits.max_num_batched_tokens
        batch: list[tuple[Request, int]] = []
        promised = 0
        for r in self.running:
            if r.prefilling:  # cut in the last batch
                tokens = self.cut(r.context - r.computed, budget)
                self.grow(r, tokens)
                batch.append((r, tokens))
                budget -= tokens
                if r.computed + tokens < r.context:
                    return batch
                promised = self.expected(r) + size
        reserve = self.ratio * sum(map(self.expected, self.decoding))
        while self.waiting and not self.full and budget > 0:
            if len(self.running) >= self.limits.max_num_seqs:
                self.full = True
                break
            r = self.waiting[0]
            if r.brought:
                break
            found, read = self.cached(r)
            rest = r.context - found * size
            room = (self.free - (0 if read else found) - self.limits.state_blocks) * size - promised - reserve
            if rest + self.expected(r) + size >= room and self.running:
                self.full = True
                break
            n = self.behind(r, found)
            if self.cut(rest - n * size, budget) == 0:
                break
            if n:
                self.load(r, found, read, n)
            tokens = self.begin(r, budget, found, read)
            batch.append((r, tokens))
            budget -= tokens
            if r.computed + tokens < r.context:
                break
            promised += self.expected(r) + size
        return batch

    def needed(self) -> int:
        growth = self.growth(len(self.decoding))
        return sum(self.blocks(r.computed + growth) - self.blocks(r.computed) for r in self.decoding)

    def retract(self) -> None:
        while len(self.decoding) > 1:
            order = sorted(self.decoding, key=lambda r: (r.generated, -r.prompt), reverse=True)
            victim = order[-1]
            self.decoding.remove(victim)
            self.running.remove(victim)
            self.release(victim, victim.given)
            victim.preemptions += 1
            self.waiting.append(victim)
            if self.needed() <= self.free:
                break
        made = sum(r.generated for r in self.decoding) + STEPS * len(self.decoding)
        self.ratio = min(1.0, made / (1 + sum(map(self.allowed, self.decoding))))
        self.full = False

    def begin_anew(self) -> None:
        if not self.running and self.now > self.ended + TOLERANCE * (1 + self.now):
            self.ratio = INIT  # it was idle

    def iterate(self) -> list[Request]:
        self.begin_anew()
        batch = self.prompts()
        if not batch:
            if self.needed() > self.free:
                self.retract()
            else:
                self.ratio = max(LOWEST, self.ratio - (INIT - LOWEST) / 600)
            growth = self.growth(len(self.decoding))
            for r in self.decoding:
                self.grow(r, growth)
                batch.append((r, growth))
        finished = self.run(batch, 0, 0, 0)
        self.decoding = [r for r in self.running if not r.prefilling]
        self.ended = self.now
        return finished


@dataclass
class TensorrtEngine(Engine):
    """Capacity policies, and requests passed over while another computes what they lack."""

    def is_decode(self, r: Request) -> bool:
        return not r.prefilling

    def longest(self, r: Request) -> int:
        assert self.limits.max_output_tokens is not None
        return self.blocks(r.prompt + self.limits.max_output_tokens + max(0, self.most_drafts - 1))

    def prompt_scheduled(self, r: Request) -> None:
        """Nothing yet: it was announced when it was admitted."""

    def prompt_computed(self, r: Request) -> None:
        if r.shares:
            self.prefixes[r.group].ready = True

    def release(self, r: Request) -> None:
        prefix = self.prefixes[r.group] if r.shares else None
        super().release(r)
        if prefix is not None and prefix.readers == 0 and not prefix.ready:
            del self.prefixes[r.group]

    def iterate(self) -> list[Request]:
        self.spare = self.free - sum(self.longest(r) - self.blocks(r.computed) for r in self.running)
        return super().iterate()

    def admit(self, scheduled: list[tuple[Request, int]]) -> tuple[int, int]:
        budget = self.left_of(scheduled)
        if any(r.prefilling and r.computed + tokens < r.context for r, tokens in scheduled):
            return 0, 0
        if len(scheduled) < len(self.running):
            return 0, 0  # an unfinished prompt found no budget
        for r in list(self.waiting):
            if budget == 0 or len(self.running) >= self.limits.max_num_seqs:
                break
            prefix = self.prefixes.get(r.group) if r.group is not None else None
            if r.brought:
                break
            if self.shareable(r) and prefix is not None and not prefix.ready:
                continue
            found, read = self.cached(r)
            more = self.limits.state_blocks - (found if read else 0)
            if self.limits.no_evict:
                more += self.longest(r)
                if more > self.spare and self.running:
                    break
                self.spare -= more
            elif more + self.blocks(r.context) > self.free:
                break
            if self.cut(r.context - found * self.limits.block_size, budget) == 0:
                break
            tokens = self.begin(r, budget, found, read)
            n = self.shareable(r)
            if n and not r.shares:
                self.prefixes[r.group] = Prefix(n, readers=1, ready=False)
                r.own -= n
                r.shares = True
            scheduled.append((r, tokens))
            budget -= tokens
            if r.computed + tokens < r.context:
                break
        return 0, 0


ENGINES = {"vllm": Engine, "sglang": SglangEngine, "tensorrt-llm": TensorrtEngine}
