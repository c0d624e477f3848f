"""What a client asks of a server at once, and the streams that come back."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
from msgspec import Struct, field

from fleetsim.calibrate.loads import Limits, Load, Request
from fleetsim.records import replace


class Play(Struct, frozen=True):
    """Requests sent together, each an HTTP request of n choices, siblings in one.

    window: stop once every stream has made this many tokens since the last of them began; None: run to the end.
    then: single requests sent one after the other while the streams decode, each `gap` tokens per stream after the
    one before it ended (the first after all streams began).
    """

    asks: tuple[Request, ...]
    window: int | None = None
    then: tuple[Request, ...] = ()
    gap: int = 0
    n: int = 1


class Stream(Struct):
    """One choice of one request. times, counts: when something arrived (seconds) and how many tokens had come by then.

    submitted_s: when its request went out. prompt_tokens: as the server counted them, else as asked for. exact: the
    server said how many tokens each arrival held; otherwise they are spread evenly. late: it came with Play.then.
    """

    ask: Request
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


PATIENCE = 192  # tokens per running stream without another one beginning, after which the rest are taken to wait


class Played(Struct):
    """A play and what came of it: how far it is, counted as tokens arrive, with constant work for each of them.

    Its moments come in turn: all streams of Play.asks have begun, each request of Play.then, the end of the window.
    cut: the deadline came first. crowded: the streams never all ran at once. started, ended: of the streams of
    Play.asks. total: their tokens; last_start: when the last of them began; goal: at the next moment. client_cpu: share
    of a core that the client itself took, None where unknown.
    """

    play: Play
    streams: list[Stream] = field(default_factory=list)
    cut: bool = False
    crowded: bool = False
    client_cpu: float | None = None
    total: float = 0.0
    started: int = 0
    ended: int = 0
    last_start: float = 0.0
    goal: float | None = None
    expected: int = 0
    longest: int = 0

    def __post_init__(self) -> None:
        self.expected = self.play.n * len(self.play.asks)
        self.longest = max((a.prompt_tokens for a in self.play.asks), default=0)

    @property
    def base(self) -> list[Stream]:
        """The streams of Play.asks."""
        return [s for s in self.streams if not s.late]

    @property
    def late(self) -> list[Stream]:
        """The streams of Play.then, in their order."""
        return [s for s in self.streams if s.late]

    def first(self) -> None:
        """A stream of Play.asks made its first token."""
        self.started += 1
        self.last_start = self.total

    def aim(self, tokens_per_stream: int) -> None:
        """The next moment lies this many tokens per stream ahead."""
        self.goal = self.total + tokens_per_stream * self.expected

    @property
    def all_began(self) -> bool:
        """Whether all streams of Play.asks have begun."""
        return self.started == self.expected

    @property
    def stuck(self) -> bool:
        """Whether the streams do not all fit: one ended before the last began, or the running ones go on without it."""
        if self.all_began or self.started == 0:
            return False
        return self.ended > 0 or self.total - self.last_start > (PATIENCE + self.longest / 64) * self.started

    @property
    def reached(self) -> bool:
        """Whether the moment aimed at has come."""
        return self.goal is not None and self.total >= self.goal


def plays_of(load: Load) -> tuple[Play, ...]:
    """What a client sends for a load: what arrives together is a play, arrivals beside decodes are sent in one."""
    each = int(load.label.get("n", 1))
    parts = [tuple(requests)[::each] for _, requests in itertools.groupby(load.requests, key=lambda r: r.at)]
    if load.phase == "mixed":
        first, *later = parts
        return (Play(first, then=tuple(itertools.chain(*later)), gap=load.requests[len(first)].at),)
    return tuple(Play(asks, window=load.window, n=each) for asks in parts)


def longer(play: Play, limits: Limits) -> Play:
    """The play with twice the tokens, for a server that starts streams slowly."""
    asks = tuple(
        replace(r, output_tokens=min(2 * r.output_tokens, limits.max_model_len - r.prompt_tokens - 1))
        for r in play.asks
    )
    return replace(play, asks=asks)


# --- How a server wants to be asked: which fields, which prompts.

BOTH = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
LAST = {"stream_options": {"include_usage": True}}
# The first tells most, the last is taken by every server: TensorRT-LLM's and strict gateways refuse unknown fields.
EXTRAS: tuple[dict[str, Any], ...] = (
    {"ignore_eos": True, "return_token_ids": True, **BOTH},
    {"ignore_eos": True, **BOTH},
    {"ignore_eos": True, **LAST},
    LAST,
    {},
)


class Dialect(Struct):
    """extras: fields beside the standard ones. counted_by: token_ids, usage, or spread.

    tokens_per_chunk: for spread, until a stream's own usage says. ends_early: the server stopped before max_tokens,
    so it does not honour ignore_eos.
    """

    model: str
    extras: dict[str, Any]
    prompts: Prompts
    counted_by: str = ""
    tokens_per_chunk: float = 1.0
    ends_early: bool = False

    def body(self, ask: Request, n: int = 1) -> bytes:
        """The request's JSON. n: choices."""
        fields: dict[str, Any] = {
            "model": self.model,
            "prompt": self.prompts.prompt(ask.prompt, ask.prompt_tokens),
            "max_tokens": ask.output_tokens,
            "temperature": 1.0,
            "stream": True,
            **self.extras,
        }
        if n > 1:
            fields["n"] = n
        elif self.counted_by == "usage":
            fields.pop("return_token_ids", None)  # the running usage says as much, and is less to send
        return json.dumps(fields, separators=(",", ":")).encode()

    def described(self) -> dict[str, Any]:
        """What the records say of the dialect."""
        return {
            "prompts": "text" if self.prompts.text else "token_ids",
            "extras": sorted(self.extras),
            "counted_by": self.counted_by,
            "ends_early": self.ends_early,
        }


# No server is sent an id that its vocabulary may lack: vLLM 0.32 without a tokenizer does not check ids, and an id
# beyond the embedding kills its engine.
LEAST_ID, PAST_ID = 16, 250


class Prompts:
    """Prompts by key. nonce: of this session, so that no earlier session's prompts lie in the server's prefix cache.

    tokens_per_word: what the server counted, for text.
    """

    def __init__(self, nonce: int, text: bool = False, tokens_per_word: float = 1.0) -> None:
        self.nonce, self.text, self.tokens_per_word = nonce, text, tokens_per_word

    def prompt(self, key: int, tokens: int) -> list[int] | str:
        """A prompt of this many tokens (of about as many, for text)."""
        random = np.random.default_rng([self.nonce, key, tokens])
        if not self.text:
            ids: list[int] = random.integers(LEAST_ID, PAST_ID, tokens).tolist()
            return ids
        return " ".join(map(str, random.integers(100, 1000, max(1, round(tokens / self.tokens_per_word)))))
