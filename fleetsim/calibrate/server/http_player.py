"""Plays over HTTP: many streams in one event loop, each arrival with its time."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import DecodeError, Struct, field
from msgspec.json import Decoder

from fleetsim.calibrate.loads import Request
from fleetsim.calibrate.server.client import Client, GoneError
from fleetsim.calibrate.server.play import Dialect, Play, Played, Stream
from fleetsim.errors import OutsideError


class _State(Struct):
    """One play under way. at: called whenever something arrives. moved: set on everything that a moment may hang on."""

    played: Played
    deadline_s: float
    last_s: float
    at: Callable[[], None] | None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    moved: asyncio.Event = field(default_factory=asyncio.Event)


class HttpPlayer:
    """Plays on one server. count: told of every request and its number of choices (the guard wants to know). dialect:
    how the server wants to be asked, set before the first play."""

    dialect: Dialect

    def __init__(self, client: Client, count: Callable[[int], None]) -> None:
        self._client, self._count = client, count
        self.counted_by, self.usage_counts = "", False

    def now(self) -> float:
        """Seconds of the performance counter."""
        return time.perf_counter()

    async def play(self, play: Play, deadline_s: float, at: Callable[[], None] | None = None) -> Played:
        """Sends the requests and returns their streams; `at` is called whenever something arrives.

        Raises OutsideError where the server fails, hangs or sends what is no stream; its connections are closed then.
        """
        # All are made before any goes out.
        bodies, late = ([self.dialect.body(ask, play.n) for ask in asks] for asks in (play.asks, play.then))
        played = Played(play)
        state = _State(played, deadline_s, self.now(), at)
        began, cpu = self.now(), time.thread_time()
        for ask, body in zip(play.asks, bodies, strict=True):
            self._begin(state, ask, body, late=False)
        try:
            await self._conduct(play, late, state)
        finally:
            for task in state.tasks:
                task.cancel()
            await asyncio.gather(*state.tasks, return_exceptions=True)
        played.client_cpu = (time.thread_time() - cpu) / max(self.now() - began, 1e-9)
        return played

    def _begin(self, state: _State, ask: Request, body: bytes, *, late: bool) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._stream(state, ask, body, late=late))
        task.add_done_callback(lambda _: state.moved.set())
        state.tasks.append(task)
        return task

    async def _conduct(self, play: Play, late: list[bytes], state: _State) -> None:
        """Waits for the play's moments in turn, sends what is to be sent then, and returns at its end."""
        played = state.played
        if play.window is None and not play.then:
            await self._until(state, lambda: False)
            return
        if not await self._until(state, lambda: played.all_began or played.stuck) or not played.all_began:
            played.crowded = not played.cut
            return
        for ask, body in zip(play.then, late, strict=True):
            played.aim(play.gap)
            if not await self._until(state, lambda: played.reached):
                return
            if not await self._until(state, self._begin(state, ask, body, late=True).done):
                return
        played.aim(play.window or play.gap)
        await self._until(state, lambda: played.reached)

    async def _until(self, state: _State, come: Callable[[], bool]) -> bool:
        """Waits for a moment. Returns whether it has come; raises what went wrong in a stream."""

        def over() -> bool:
            failed = (t.done() and not t.cancelled() and t.exception() is not None for t in state.tasks)
            return any(failed) or all(t.done() for t in state.tasks)

        while not come() and not over():
            if self.now() >= state.deadline_s:
                state.played.cut = True
                return False
            if self.now() - state.last_s > self._client.timeout_s:
                raise GoneError(
                    f"{self._client.root}: no token for {self._client.timeout_s:g} s; is the server alive, "
                    "and not paused?"
                )
            state.moved.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(state.moved.wait(), min(0.5, max(0.001, state.deadline_s - self.now())))
        for task in state.tasks:
            if task.done() and not task.cancelled():
                task.result()  # raises what went wrong in it
        return come()

    async def _stream(self, state: _State, ask: Request, body: bytes, *, late: bool) -> None:
        """One request from its sending to its end."""
        streams = [Stream(ask, late=late, prompt_tokens=ask.prompt_tokens) for _ in range(state.played.play.n)]
        state.played.streams += streams
        self._count(len(streams))
        response = Response(streams, self.dialect.tokens_per_chunk)

        def sent() -> None:
            at_s = self.now()
            for s in streams:
                s.submitted_s = at_s

        try:
            async with self._client.stream(body, sent) as arriving:
                async for data in arriving:
                    at_s = state.last_s = self.now()
                    for stream, tokens in response.read(data):
                        self._arrive(state, stream, at_s, tokens)
                    state.played.ended += 0 if late else response.just_ended
                    if state.at is not None:
                        state.at()
        except BrokenStreamError as error:
            raise OutsideError(
                f"{self._client.root}: its stream of a completion broke off: {error}; see the server's own log"
            ) from None
        finally:
            response.settle()
            self.counted_by = response.counted_by or self.counted_by
            self.usage_counts = response.usage_counts
        if not response.done and not all(s.ended for s in streams):
            raise GoneError(
                f"{self._client.root}: a response ended before its end; did the server die? See its own log"
            )
        for s in streams:
            s.ended = s.ended or "stop"

    @staticmethod
    def _arrive(state: _State, stream: Stream, at_s: float, tokens: float) -> None:
        played = state.played
        if not stream.late:
            played.total += tokens
            if not stream.times:
                played.first()
                if played.all_began:
                    state.moved.set()
            if played.reached or (not played.all_began and played.stuck):
                state.moved.set()
        stream.arrived(at_s, tokens)


# --- Server-sent events of /v1/completions: bytes to chunks, chunks to tokens per choice.

DONE = "[DONE]"


class BrokenStreamError(Exception):
    """What came is no stream of completion chunks; the message says what it was."""


class EventReader(Struct):
    """Cuts bytes into the data of events. An event ends with an empty line; several data lines join with newlines."""

    rest: bytes = b""

    def feed(self, data: bytes) -> list[str]:
        """The events that ended within these bytes."""
        *whole, self.rest = (self.rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        if len(self.rest) > 1 << 22:
            raise BrokenStreamError("4 MiB without the end of an event")
        found = []
        for event in whole:
            lines = [line for line in event.split(b"\n") if line]
            told = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
            if not told and not all(line.startswith((b":", b"event:", b"id:", b"retry:")) for line in lines):
                raise BrokenStreamError(f"no server-sent event: {event[:60]!r}")
            try:
                found += [b"\n".join(told).decode()] if told else []
            except UnicodeDecodeError:
                raise BrokenStreamError(f"an event that is not UTF-8: {event[:60]!r}") from None
        return found


class _Details(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Choice(Struct):
    index: int | None = None
    text: Any = None
    finish_reason: Any = None
    token_ids: list[Any] | None = None

    def tokens(self, made: float, total: int | None) -> tuple[float | None, str]:
        """How many tokens a chunk brings, and what says so: its token ids, else its running usage; a chunk is never
        taken for one token. made: before it. total: by the usage, with it."""
        if self.token_ids is not None:
            return float(len(self.token_ids)), "token_ids"
        return (None, "") if total is None else (max(0.0, total - made), "usage")


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


# A client of a thousand streams has no time for JSON of no type: five times as slow.
_CHUNKS = Decoder(_Chunk)


def _chunk_of(data: str) -> _Chunk:
    """The chunk in an event's data. Raises BrokenStreamError for an error that the server reports or what is none."""
    try:
        chunk = _CHUNKS.decode(data)
    except DecodeError as error:
        raise BrokenStreamError(f"an event that is not JSON of a completion ({error}): {data[:60]!r}") from None
    if chunk.error:
        message = chunk.error.get("message") if isinstance(chunk.error, dict) else chunk.error
        raise BrokenStreamError(str(message)[:300])
    if chunk.choices is None:
        raise BrokenStreamError(f"an event without choices: {data[:60]!r}")
    return chunk


TRUSTED_AFTER = 2  # chunks whose running usage agreed with their own tokens


class Response:
    """Reads a response. streams: one per choice. done: its end has come. just_ended: choices that the last read ended.

    counted_by: how tokens were counted. usage_counts: whether each chunk's running usage counts its own choice (it
    does in vLLM and SGLang; a server that sums over the choices is recognised).
    """

    def __init__(self, streams: Sequence[Stream], tokens_per_chunk: float) -> None:
        self.streams = streams
        self.done, self.just_ended, self.counted_by = False, 0, ""
        self._reader, self._guess = EventReader(), tokens_per_chunk
        self._totals: dict[int, float] = {}
        self._final: int | None = None
        self._agreed = 0.0

    @property
    def usage_counts(self) -> bool:
        """As the class says, so far."""
        return self._agreed >= TRUSTED_AFTER

    def read(self, data: bytes) -> list[tuple[Stream, float]]:
        """Streams and their new tokens, of what one read brought. Raises BrokenStreamError."""
        self.just_ended = 0
        found: list[tuple[Stream, float]] = []
        for event in self._reader.feed(data):
            if event == DONE:
                self.done = True
            else:
                self._take_chunk(_chunk_of(event), found)
        return found

    def _take_chunk(self, chunk: _Chunk, found: list[tuple[Stream, float]]) -> None:
        choices, usage = chunk.choices or [], chunk.usage or _Usage()
        if not choices and usage.completion_tokens is not None:
            self._final = usage.completion_tokens
        cached = None if usage.prompt_tokens_details is None else usage.prompt_tokens_details.cached_tokens
        for s in self.streams if usage.prompt_tokens is not None else ():
            s.prompt_tokens = usage.prompt_tokens or 0
            s.cached_tokens = cached if s.cached_tokens is None else s.cached_tokens
        for choice in choices:
            total = usage.completion_tokens if len(choices) == 1 else None
            index = choice.index or 0
            tokens, by = choice.tokens(self._totals.get(index, 0.0), total)
            self.counted_by = by or self.counted_by
            if tokens is not None or choice.text or choice.finish_reason:
                self._take(index, tokens, total, found)
            if choice.finish_reason:
                self.streams[index].ended = str(choice.finish_reason)
                self.just_ended += 1

    def _take(self, index: int, tokens: float | None, usage: int | None, found: list[tuple[Stream, float]]) -> None:
        """New tokens of a choice, None where the chunk does not say how many. usage: the running one."""
        if not 0 <= index < len(self.streams):
            raise BrokenStreamError(f"choice {index} of {len(self.streams)}")
        s, total = self.streams[index], self._totals.get(index, 0.0)
        made = self._guess if tokens is None else tokens
        if tokens is not None and not s.exact:  # the sum at the end: how it came is not known
            self._final, made = round(total + tokens), self._guess
        s.exact = s.exact and tokens is not None
        if made > 0:
            self._totals[index] = total + made
            found.append((s, made))
        if tokens:
            self._agreed += 1.0 if usage == total + tokens else -math.inf

    def settle(self) -> None:
        """At the end: where chunks did not say how many tokens they held, the usage at the end does, spread evenly."""
        guessed = [s for s in self.streams if not s.exact]
        if guessed and self._final is not None and len(guessed) == len(self.streams):
            made = sum(s.tokens for s in self.streams)
            for s in self.streams:
                s.spread(self._final * s.tokens / made if made else 0.0)
        elif self._final is None:
            for s in guessed:
                if s.ended == "length":
                    s.spread(s.ask.output_tokens)
