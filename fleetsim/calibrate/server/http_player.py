"""Plays over HTTP: many streams in one event loop, each arrival with its time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fleetsim.calibrate.server.client import Client, GoneError
from fleetsim.calibrate.server.play import Ask, Course, Play, Played, Stream
from fleetsim.calibrate.server.stream import BrokenStreamError, Response
from fleetsim.errors import OutsideError


@dataclass(slots=True)
class _State:
    """One play under way. moved: set on everything that a moment may hang on."""

    course: Course
    streams: list[Stream] = field(default_factory=list)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    last_s: float = 0.0


class HttpPlayer:
    """Plays on one server. count: told of every request and its number of choices (the guard wants to know)."""

    def __init__(self, client: Client, dialect: Dialect, count: Callable[[int], None], timeout_s: float) -> None:
        self._client, self.dialect, self._count, self._timeout_s = client, dialect, count, timeout_s
        self.counted_by, self.usage_counts = "", False

    def now(self) -> float:
        """Seconds of the performance counter."""
        return time.perf_counter()

    async def play(self, play: Play, deadline_s: float, at: Callable[[], None] | None = None) -> Played:
        """Sends the requests and returns their streams; `at` is called whenever something arrives.

        Raises OutsideError where the server fails, hangs or sends what is no stream; its connections are closed then.
        """
        bodies = [self.dialect.body(ask) for ask in play.asks]  # made before the first goes out
        late = [self.dialect.body(ask) for ask in play.then]
        state = _State(Course(play, sum(a.n for a in play.asks)), last_s=self.now())
        began, cpu = self.now(), time.thread_time()
        tasks = [
            asyncio.ensure_future(self._stream(state, ask, body, late=False, at=at))
            for ask, body in zip(play.asks, bodies, strict=True)
        ]
        for task in tasks:
            task.add_done_callback(lambda _: state.moved.set())
        played = Played(state.streams)
        try:
            await self._conduct(play, late, state, tasks, played, deadline_s, at)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        played.client_cpu = (time.thread_time() - cpu) / max(self.now() - began, 1e-9)
        return played

    async def _conduct(
        self,
        play: Play,
        late: list[bytes],
        state: _State,
        tasks: list[asyncio.Task[None]],
        played: Played,
        deadline_s: float,
        at: Callable[[], None] | None,
    ) -> None:
        """Waits for the play's moments in turn, sends what is to be sent then, and returns at its end."""
        course = state.course

        def failed() -> bool:
            return any(t.done() and not t.cancelled() and t.exception() is not None for t in tasks)

        async def until(come: Callable[[], bool]) -> bool:
            while not come():
                if failed() or all(t.done() for t in tasks):
                    break
                if self.now() >= deadline_s:
                    played.cut = True
                    return False
                if self.now() - state.last_s > self._timeout_s:
                    raise GoneError(
                        f"{self._client.address.shown}: no token for {self._timeout_s:g} s; is the server alive, "
                        "and not paused?"
                    )
                state.moved.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(state.moved.wait(), min(0.5, max(0.001, deadline_s - self.now())))
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.result()  # raises what went wrong in it
            return come()

        if play.window is None and not play.then:
            await until(lambda: False)
            return
        if not await until(lambda: course.all_began or course.crowded) or not course.all_began:
            played.crowded = not played.cut
            return
        for ask, body in zip(play.then, late, strict=True):
            course.aim(play.gap)
            if not await until(lambda: course.reached):
                return
            task = asyncio.ensure_future(self._stream(state, ask, body, late=True, at=at))
            task.add_done_callback(lambda _: state.moved.set())
            tasks.append(task)
            if not await until(task.done):
                return
        course.aim(play.window or play.gap)
        await until(lambda: course.reached)

    async def _stream(self, state: _State, ask: Ask, body: bytes, *, late: bool, at: Callable[[], None] | None) -> None:
        """One request from its sending to its end."""
        streams = [Stream(ask, late=late, prompt_tokens=ask.prompt_tokens) for _ in range(ask.n)]
        state.streams += streams
        self._count(ask.n)
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
                    state.course.ended += 0 if late else response.just_ended
                    if at is not None:
                        at()
        except BrokenStreamError as error:
            raise OutsideError(
                f"{self._client.address.shown}: its stream of a completion broke off: {error}; see the server's own log"
            ) from None
        finally:
            response.settle()
            self.counted_by = response.counted_by or self.counted_by
            self.usage_counts = response.usage_counts
        if not response.done and not all(s.ended for s in streams):
            raise GoneError(
                f"{self._client.address.shown}: a response ended before its end; did the server die? See its own log"
            )
        for s in streams:
            s.ended = s.ended or "stop"

    @staticmethod
    def _arrive(state: _State, stream: Stream, at_s: float, tokens: float) -> None:
        course = state.course
        if not stream.late:
            course.total += tokens
            if not stream.times:
                course.first()
                if course.all_began:
                    state.moved.set()
            if course.reached or (not course.all_began and course.crowded):
                state.moved.set()
        stream.arrived(at_s, tokens)


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


@dataclass(slots=True)
class Dialect:
    """extras: fields beside the standard ones. counted_by: token_ids, usage, logprobs, or spread.

    tokens_per_chunk: for spread, until a stream's own usage says. ends_early: the server stopped before max_tokens,
    so it does not honour ignore_eos.
    """

    model: str
    extras: dict[str, Any]
    prompts: Prompts
    counted_by: str = ""
    tokens_per_chunk: float = 1.0
    ends_early: bool = False

    def body(self, ask: Ask) -> bytes:
        """The request's JSON."""
        fields: dict[str, Any] = {
            "model": self.model,
            "prompt": self.prompts.prompt(ask.prompt, ask.prompt_tokens),
            "max_tokens": ask.max_tokens,
            "temperature": 1.0,
            "stream": True,
            **self.extras,
        }
        if ask.n > 1:
            fields["n"] = ask.n
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
WORDS = """
the of and to in is it that for was on are with as his they be at one have this from or had by hot but some
what there we can out other were all your when up use word how said an each she which do their time if will
way about many then them would write like so these her long make thing see him two has look more day could go
come did my sound no most number who over know water than call first people may down side been now find any
new work part take get place made live where after back little only round man year came show every good me
give our under
""".split()  # noqa: SIM905 - a list of words is longer to read


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
        words = random.integers(0, len(WORDS), max(1, round(tokens / self.tokens_per_word)))
        return " ".join(WORDS[int(i)] for i in words)
