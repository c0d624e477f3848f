"""Plays over HTTP: many streams in one event loop, each arrival with its time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import field

from fleetsim.calibrate.server.client import Client, GoneError
from fleetsim.calibrate.server.dialect import Dialect
from fleetsim.calibrate.server.events import BrokenStreamError
from fleetsim.calibrate.server.play import Ask, Course, Play, Played, Stream
from fleetsim.calibrate.server.response import Response
from fleetsim.dataclass import dataclass
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
