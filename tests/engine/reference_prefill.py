"""Disaggregated instances, iteration by iteration: prompts on one engine, tokens on another."""

from __future__ import annotations

import heapq

from fleetsim.engine import EngineLimits, StepTime
from fleetsim.engine.step_time import PrefillSide
from tests.engine.reference import TOLERANCE, Engine, Prefix, Request, sees
from tests.engine.reference_modes import ENGINES, SglangEngine, TensorrtEngine

SGLANG_RESERVES = 512


def allow(t: float) -> float:
    return t + TOLERANCE * (1 + abs(t))


def bring_in(engine: Engine) -> None:
    """Computed prompts that wait begin to decode, in order, as long as there is room."""
    size, limits = engine.limits.block_size, engine.limits
    if any(r.prefilling and not engine.is_decode(r) for r in engine.running):
        return
    while engine.waiting and engine.waiting[0].brought and len(engine.running) < limits.max_num_seqs:
        r = engine.waiting[0]
        shares = not isinstance(engine, SglangEngine | TensorrtEngine)
        found, read = engine.cached(r) if shares else (0, False)
        more = engine.blocks(r.context) - (engine.units(found) if read else 0) + limits.state_blocks
        if not engine.running:
            fits = more <= engine.free
        elif isinstance(engine, TensorrtEngine) and limits.no_evict:
            promised = sum(engine.longest(q) - engine.blocks(q.computed) for q in engine.running)
            fits = engine.longest(r) + limits.state_blocks <= engine.free - promised
        elif isinstance(engine, SglangEngine):
            fits = (engine.free - more) * size >= SGLANG_RESERVES * (len(engine.running) + 1)
        else:
            growth = engine.growth(len(engine.running))
            following = sum(engine.growth_blocks(q, growth) for q in engine.running)
            fits = more + following + engine.blocks(r.context + 1) - engine.blocks(r.context) <= engine.free
        if not fits:
            return
        engine.waiting.pop(0)
        engine.running.append(r)
        engine.take(limits.state_blocks)
        r.computed = found * size
        if found:
            if not read:
                engine.take(engine.units(found))
            engine.prefixes[r.group].readers += 1
            r.shares = True
        engine.grow(r, r.context - r.computed)
        r.computed = r.context
        if shares:
            engine.publish(r)
        r.brought = False
        r.generated += 1
        if r.first is None:
            r.first = engine.now
        if isinstance(engine, SglangEngine):
            engine.decoding.append(r)


class PromptEngine:
    """A prefill engine. What it does with blocks and siblings is its scheduler's: `kind` keeps them."""

    def __init__(self, kind: type[Engine], side: PrefillSide, caching: bool, sizes: dict[int, int]) -> None:
        self.keeper = kind(side.step_time, side.limits, caching, sizes=sizes)
        self.side = side
        self.batch = 0  # requests of the iteration under way
        self.ready = 0.0

    def held(self, t: float) -> int:
        under_way = self.batch if self.ready > allow(t) else len(self.keeper.running)
        return under_way + len(self.keeper.waiting)

    def iterate(self) -> list[Request]:
        """One iteration that begins when the engine is ready; returns the requests whose prompts it completes."""
        keeper, limits = self.keeper, self.side.limits
        keeper.now = self.ready
        chunks: list[tuple[Request, int]] = []
        budget = limits.max_num_batched_tokens
        for r in keeper.running:
            tokens = keeper.cut(r.context - r.computed, budget)
            keeper.grow(r, tokens)
            chunks.append((r, tokens))
            budget -= tokens
            if type(keeper) is Engine and r.computed + tokens == r.context:
                keeper.publish(r)
        whole = all(r.computed + tokens == r.context for r, tokens in chunks)
        for r in list(keeper.waiting) if whole else []:
            if budget == 0 or len(keeper.running) >= limits.max_num_seqs:
                break
            prefix = keeper.prefixes.get(r.group) if r.group is not None else None
            if isinstance(keeper, TensorrtEngine) and keeper.shareable(r) and prefix is not None and not prefix.ready:
                continue
            found, read = keeper.cached(r)
            if keeper.blocks(r.context) - (keeper.units(found) if read else 0) + limits.state_blocks > keeper.free:
                break
            if keeper.cut(r.context - found * limits.block_size, budget) == 0:
                break
            tokens = keeper.begin(r, budget, found, read)
            if isinstance(keeper, TensorrtEngine) and keeper.shareable(r) and not r.shares:
                keeper.prefixes[r.group] = Prefix(keeper.shareable(r), readers=1, ready=False)
                r.own -= keeper.shareable(r)
                r.shares = True
            chunks.append((r, tokens))
            budget -= tokens
            if r.computed + tokens < r.context:
                break
            if type(keeper) is Engine:
                keeper.publish(r)
        p = sum(tokens for _, tokens in chunks)
        pairs = sum(tokens * r.computed + tokens * (tokens + 1) / 2 for r, tokens in chunks)
        s = self.side.step_time
        self.batch = len(chunks)
        self.ready += keeper.f[p] + s.per_prefill_token_s * p + s.per_attn_pair_s * pairs
        if s.window is not None:
            seen = sum(sees(s.window, r.computed + j) for r, tokens in chunks for j in range(tokens))
            self.ready += s.window.per_attn_pair_s * seen
        done = []
        for r, tokens in chunks:
            r.computed += tokens
            if r.computed == r.context:
                if type(keeper) is not Engine:
                    keeper.prompt_computed(r)
                r.prefilling = False
                keeper.running.remove(r)
                keeper.release(r)
                done.append(r)
        return done


def run_disaggregated(
    step_time: StepTime,
    limits: EngineLimits,
    requests: list[Request],
    sizes: dict[int, int],
    caching: bool,
    instances: int,
    routing: str,
) -> tuple[list[Request], list[int], list[Engine]]:
    """All requests through all instances: prefill engine, transfer, decode engine."""
    side = step_time.prefill
    assert side is not None
    kind = ENGINES[limits.scheduler]
    decoders = [kind(step_time, limits, caching, sizes=sizes) for _ in range(instances)]
    prefills = [[PromptEngine(kind, side, caching, sizes) for _ in range(side.engines)] for _ in range(instances)]
    where, load, turn = [-1] * len(requests), [0] * instances, 0
    ready = [0.0] * instances
    pending = sorted(requests, key=lambda r: r.arrival)
    moving: list[tuple[float, int, int]] = []  # when it is there, group, number: a group is one range
    finishing: list[tuple[float, int]] = []
    while True:
        times = [ready[i] for i in range(instances) if decoders[i].running or decoders[i].waiting]
        times += [e.ready for of in prefills for e in of if e.keeper.running or e.keeper.waiting]
        times += [pending[0].arrival] if pending else []
        times += [moving[0][0]] if moving else []
        if not times:
            return requests, where, decoders
        t = min(times)
        while finishing and finishing[0][0] <= allow(t):
            load[heapq.heappop(finishing)[1]] -= 1
        there = [heapq.heappop(moving) for _ in range(sum(at <= allow(t) for at, _, _ in moving))]
        for at, _, s in sorted(there, key=lambda move: move[1:]):  # together: their times differ by rounding only
            r, i = requests[s], where[s]
            if not decoders[i].running and not decoders[i].waiting:
                ready[i] = max(ready[i], at)
            r.brought = True
            decoders[i].waiting.append(r)
        while pending and pending[0].arrival <= allow(t):
            r = pending.pop(0)
            if routing == "round_robin":
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
            of = prefills[i]
            same = [
                q.prefill
                for q in requests
                if caching and r.group is not None and q.group == r.group and where[q.id] == i and q.prefill is not None
            ]
            r.prefill = same[0] if same else min(range(len(of)), key=lambda j: (of[j].held(t), j))
            engine = of[r.prefill]
            if not engine.keeper.running and not engine.keeper.waiting:
                engine.ready = max(engine.ready, r.arrival)
            engine.keeper.waiting.append(r)
        for i in range(instances):
            for engine in prefills[i]:
                if (engine.keeper.running or engine.keeper.waiting) and engine.ready <= allow(t):
                    for r in engine.iterate():
                        if r.generated + 1 == r.output:
                            r.generated = r.output
                            r.first = r.finish = engine.ready
                            heapq.heappush(finishing, (engine.ready, i))
                        else:
                            moved = engine.ready + side.transfer_s + side.transfer_token_s * r.context
                            heapq.heappush(moving, (moved, -1 if r.group is None else r.group, r.id))
            decoder = decoders[i]
            if (decoder.running or decoder.waiting) and ready[i] <= allow(t):
                decoder.now = ready[i]
                if isinstance(decoder, SglangEngine):
                    decoder.begin_anew()
                bring_in(decoder)
                for _ in decoder.iterate():
                    heapq.heappush(finishing, (decoder.now, i))
                ready[i] = decoder.now
