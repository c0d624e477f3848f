"""What a client asks of a server at once, and what comes back: streams of tokens with their arrival times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Protocol

from fleetsim.dataclass import dataclass


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
