"""What is asked of a server, in which order; what a client asks at once, and the streams that come back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from fleetsim.calibrate.loads import LENGTHS, QUICK_LENGTHS, G, Limits, Load, Request, batch


@dataclass(frozen=True, slots=True)
class Ask:
    """One HTTP request. prompt: a key; the same key and length mean the same prompt. n: choices, siblings in one."""

    prompt: int
    prompt_tokens: int
    max_tokens: int
    n: int = 1


@dataclass(frozen=True, slots=True)
class Play:
    """Requests sent together.

    window: stop once every stream has made this many tokens since the last of them began; None: run to the end.
    then: single requests sent one after the other while the streams decode, each `gap` tokens per stream after the
    one before it ended (the first after all streams began).
    """

    asks: tuple[Ask, ...]
    window: int | None = None
    then: tuple[Ask, ...] = ()
    gap: int = 0


@dataclass(slots=True)
class Stream:
    """One choice of one request. times, counts: when something arrived (seconds) and how many tokens had come by then.

    submitted_s: when its request went out. prompt_tokens: as the server counted them, else as asked for. exact: the
    server said how many tokens each arrival held; otherwise they are spread evenly. late: it came with Play.then.
    """

    ask: Ask
    late: bool = False
    submitted_s: float = -1.0
    times: list[float] = field(default_factory=list)
    counts: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    ended: str | None = None
    exact: bool = True

    @property
    def tokens(self) -> float:
        """Tokens made so far."""
        return self.counts[-1] if self.counts else 0.0

    @property
    def first_s(self) -> float:
        """When its first token came, -1 if none did."""
        return self.times[0] if self.times else -1.0

    @property
    def finish_s(self) -> float:
        """When its last token came, -1 if it did not end."""
        return self.times[-1] if self.ended and self.times else -1.0

    def arrived(self, at_s: float, tokens: float) -> None:
        """More tokens; what comes in one read counts as one arrival."""
        total = self.tokens + tokens
        if self.times and at_s <= self.times[-1]:
            self.counts[-1] = total
        else:
            self.times.append(at_s)
            self.counts.append(total)

    def spread(self, total: float) -> None:
        """Scales the counts so that they end at `total` tokens."""
        if self.counts and self.tokens > 0:
            scale = total / self.tokens
            self.counts = [c * scale for c in self.counts]


@dataclass(slots=True)
class Played:
    """What came of a play. cut: the deadline came first. crowded: the streams never all ran at once.

    started: streams that made tokens. client_cpu: share of a core that the client itself took, None where unknown.
    """

    streams: list[Stream]
    cut: bool = False
    crowded: bool = False
    client_cpu: float | None = None

    @property
    def base(self) -> list[Stream]:
        """The streams of Play.asks."""
        return [s for s in self.streams if not s.late]

    @property
    def late(self) -> list[Stream]:
        """The streams of Play.then, in their order."""
        return [s for s in self.streams if s.late]

    @property
    def started(self) -> int:
        """Streams of Play.asks that made a token."""
        return sum(bool(s.times) for s in self.base)


class Player(Protocol):
    """A server that plays. Times are seconds on a clock that only goes forward."""

    def now(self) -> float:
        """Seconds on that clock."""

    async def play(self, play: Play, deadline_s: float, at: Callable[[], None] | None = None) -> Played:
        """Sends the requests and returns their streams. Raises OutsideError where the server fails."""


PATIENCE = 192  # tokens per running stream without another one beginning, after which the rest are taken to wait


@dataclass(slots=True)
class Course:
    """How far a play has come, counted as tokens arrive: constant work per arrival, whatever the number of streams.

    Its moments come in turn: all streams have begun, each request of Play.then, the end of the window.
    """

    play: Play
    expected: int
    total: float = 0.0
    started: int = 0
    ended: int = 0
    all_began: bool = False
    last_start: float = 0.0
    goal: float | None = None
    longest: int = 0

    def __post_init__(self) -> None:
        self.longest = max((a.prompt_tokens for a in self.play.asks), default=0)

    def first(self) -> None:
        """A stream of Play.asks made its first token."""
        self.started += 1
        self.last_start = self.total
        self.all_began = self.started == self.expected

    def aim(self, tokens_per_stream: int) -> None:
        """The next moment lies this many tokens per stream ahead."""
        self.goal = self.total + tokens_per_stream * self.expected

    @property
    def crowded(self) -> bool:
        """Whether the streams do not all fit: one ended before the last began, or the running ones go on without it."""
        if self.all_began or self.started == 0:
            return False
        return self.ended > 0 or self.total - self.last_start > (PATIENCE + self.longest / 64) * self.started

    @property
    def reached(self) -> bool:
        """Whether the moment aimed at has come."""
        return self.goal is not None and self.total >= self.goal


# --- What is asked of a server, in which order: sweeps that fits see, batches that they do not, and both as plays.

CACHE_SHARE = 0.85  # of the KV cache that a sweep may fill: nothing is to be preempted in it
PASSES = 3  # over the decodes
BATCHES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
COARSE_BATCHES = (1, 4, 16, 64, 128, 256, 512, 1024)
SIBLINGS_KEY = 500_000  # prompts of the second batch are none of the first


def loads_in_turn(limits: Limits, *, quick: bool, seed: int, at_once: int, cached: bool, mixed: bool) -> list[Load]:
    """All loads for a server: prompts, decodes, a batch, mixtures, decodes twice more, so that a drift averages out,
    and the second batch. Where the server is small they shrink.

    at_once: streams that the client can hold open. cached: whether prompts are found again. mixed: whether iterations
    can be counted while a prompt is computed.
    """
    slots = min(limits.max_num_seqs, at_once)
    keys = itertools.count(1_000_000)
    random = np.random.default_rng([seed, 1])
    points = _decodes(limits, slots, quick)
    passes = [
        [replace(points[i], label={**points[i].label, "pass": number}) for i in random.permutation(len(points))]
        for number in range(PASSES)
    ]
    requests, siblings = batches(limits, quick=quick, seed=seed, at_once=at_once, cached=cached)
    beside = _mixtures(limits, slots, quick, keys) if mixed else []
    return [*_prompts(limits, slots, quick, keys), *passes[0], requests, *beside, *passes[1], *passes[2], siblings]


def _prompts(limits: Limits, slots: int, quick: bool, keys: Iterator[int]) -> list[Load]:
    """Prompts sent to an idle server, one or several at once, each point some times in a row."""
    longest = limits.max_model_len - 2
    lengths = (128, 512, 2048, 8192) if quick else (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
    several = ((4, 256), (8, 512)) if quick else ((4, 128), (16, 128), (4, 512), (16, 512), (4, 2048), (8, 1024))
    points = dict.fromkeys((n, min(p, longest)) for n, p in (*((1, p) for p in lengths), *several))
    times = range(3 if quick else 5)
    return [
        Load(
            "prefill",
            {"N": n, "P": p, "client": True},
            tuple(Request(next(keys), p, 1, at=k) for k in times for _ in range(n)),
        )
        for n, p in points
        if n <= slots and n * p <= CACHE_SHARE * limits.kv_tokens and p >= 16
    ]


def _decodes(limits: Limits, slots: int, quick: bool) -> list[Load]:
    """Batch x context. Prompts have the keys 0, 1, ...: computed once, then found in the cache."""
    window = 28 if quick else 52
    contexts = (128, 2048) if quick else (128, 1024, 4096, 16384)
    points: dict[tuple[int, int], int] = {}
    for c in contexts:
        for b in sorted({b for b in (COARSE_BATCHES if quick else BATCHES) if b <= slots} | {slots}):
            most = min(window + 64 + b // 4 + -(-b * c // limits.max_num_batched_tokens), 512)
            fits = min(c, limits.max_model_len - most - 2, int(CACHE_SHARE * limits.kv_tokens / b) - most)
            if fits >= min(c, 16) and (fits >= 0.4 * c or c == contexts[0]):
                points[b, fits] = most
    return [
        Load("decode", {"B": b, "C": c, "client": True}, tuple(Request(i, c, most) for i in range(b)), window=window)
        for (b, c), most in points.items()
    ]


def _mixtures(limits: Limits, slots: int, quick: bool, keys: Iterator[int]) -> list[Load]:
    """Decodes beside which a prompt arrives every `gap` tokens."""
    batches = [b for b in ((16, 128) if quick else (8, 32, 128, 256)) if b < slots] or [max(1, slots // 2)]
    lengths = (256, 1024) if quick else (128, 512, 2048, 8192)
    several, gap = (3, 6) if quick else (5, 8)
    context = min(128, limits.max_model_len // 8)
    found = []
    for b, p in itertools.product(batches, dict.fromkeys(min(p, limits.max_model_len - 2) for p in lengths)):
        most = min(several * (gap + 4 + -(-p // max(1, limits.max_num_batched_tokens - b))) + 96 + b // 4, 1024)
        most = min(most, limits.max_model_len - context - 1)
        if b * (context + most) + several * p <= CACHE_SHARE * limits.kv_tokens:
            decoding = tuple(Request(i, context, most) for i in range(b))
            arriving = tuple(Request(next(keys), p, 1, at=gap * (k + 1)) for k in range(several))
            found.append(Load("mixed", {"B": b, "C": context, "P": p, "client": True}, decoding + arriving))
    return found


def batches(limits: Limits, *, quick: bool, seed: int, at_once: int, cached: bool) -> tuple[Load, Load]:
    """RL-like batches: one with a request per sample, one with n = 8 per request.

    n samples in one request share max_tokens, so there a group's siblings are equally long.
    """
    groups = min(32 if quick else 64, max(2, at_once // G))
    mean, cap = QUICK_LENGTHS if quick else LENGTHS
    return (
        batch(limits, "rl_requests", groups, mean, cap, seed, cached=cached, client=True),
        batch(
            limits,
            "rl_n",
            groups,
            mean,
            cap,
            seed + 1,
            cached=cached,
            alike=G,
            first_key=SIBLINGS_KEY,
            client=True,
            n=G,
        ),
    )


def plays_of(load: Load) -> tuple[Play, ...]:
    """What a client sends for a load: what arrives together is a play, arrivals beside decodes are sent in one."""
    each = int(load.label.get("n", 1))
    parts = [
        tuple(Ask(r.prompt, r.prompt_tokens, r.output_tokens, each) for r in list(requests)[::each])
        for _, requests in itertools.groupby(load.requests, key=lambda r: r.at)
    ]
    if load.phase == "mixed":
        first, *later = parts
        return (Play(first, then=tuple(itertools.chain(*later)), gap=load.requests[len(first)].at),)
    return tuple(Play(asks, window=load.window) for asks in parts)


def longer(play: Play, limits: Limits) -> Play:
    """The play with twice the tokens, for a server that starts streams slowly."""
    asks = tuple(
        replace(a, max_tokens=min(2 * a.max_tokens, limits.max_model_len - a.prompt_tokens - 1)) for a in play.asks
    )
    return replace(play, asks=asks)
